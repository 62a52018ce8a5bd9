//! Records of pax headers: `LENGTH KEY=VALUE\n`, where LENGTH counts itself.

/// Key and value of a record. A value may hold any bytes.
pub type Record = (String, Vec<u8>);

/// The records as the data of a pax header.
pub fn encode<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3; // space, equals sign, newline
        let mut length = rest + digits(rest);
        if digits(length) > digits(rest) {
            length = rest + digits(length);
        }
        out.extend_from_slice(format!("{length} {key}=").as_bytes());
        out.extend_from_slice(value);
        out.push(b'\n');
    }
    out
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Reads records; None where something is no record.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
        let digits = std::str::from_utf8(&bytes[..space]).ok()?;
        let length: usize = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
        let (record, rest) = bytes.split_at_checked(length)?;
        let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = body.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        let key = std::str::from_utf8(&body[..equals]).ok()?;
        records.push((key.to_owned(), body[equals + 1..].to_vec()));
        bytes = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_count_themselves() {
        let record = |length: usize| vec![("k".to_owned(), vec![b'v'; length])];
        assert_eq!(encode(&record(1)), b"6 k=v\n");
        for length in 0..1200 {
            let bytes = encode(&record(length));
            assert_eq!(decode(&bytes), Some(record(length)), "{length}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in
            ["6 k=v", "7 k=v\n", "5 k=v\n", "x", "+6 k=v\n", "99999999999999999999 k=v\n", "3 \n", "0 k=v\n"]
        {
            assert_eq!(decode(bad.as_bytes()), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            if let Some(records) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&records)), Some(records));
            }
        }
    }
}
