//! The VOL1 label: record 0 of each partition, 80 bytes of ASCII (LTFS 2.4 section 6.1.1, after ANSI X3.27).

/// Length of the label in bytes.
pub const LENGTH: usize = 80;

/// Why a text cannot be the volume serial number of a VOL1 label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("barcode {barcode:?} cannot be put into a VOL1 label: it must have 1 to 8 letters A-Z and digits")]
pub struct BarcodeError {
    /// The text refused.
    pub barcode: String,
}

/// What record 0 of a partition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vol1 {
    /// An LTFS VOL1 label and its serial number: the first six characters of the barcode.
    Ltfs {
        /// Serial number without padding; may be empty.
        serial: String,
    },
    /// Something else; the text says what was seen, for people.
    Foreign {
        /// What was seen.
        what: String,
    },
    /// An empty record: nothing was ever written.
    Blank,
    /// Meant to be an LTFS label, but not a right one; the text says what is wrong.
    Damaged {
        /// What is wrong.
        what: String,
    },
}

/// The serial number that goes into the label: the barcode without the media type that some barcodes have in
/// characters 7 and 8.
pub fn serial(barcode: &str) -> Result<&str, BarcodeError> {
    let fits = (1..=8).contains(&barcode.len());
    if fits && barcode.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()) {
        Ok(&barcode[..barcode.len().min(6)])
    } else {
        Err(BarcodeError { barcode: barcode.to_owned() })
    }
}

/// Builds the label of a volume.
pub fn encode(barcode: &str) -> Result<[u8; LENGTH], BarcodeError> {
    let serial = serial(barcode)?;
    let mut label = [b' '; LENGTH];
    label[..4].copy_from_slice(b"VOL1");
    label[4..4 + serial.len()].copy_from_slice(serial.as_bytes());
    label[10] = b'L';
    label[24..28].copy_from_slice(b"LTFS");
    label[79] = b'4';
    Ok(label)
}

/// Looks at record 0 of a partition, of any length and content.
pub fn decode(record: &[u8]) -> Vol1 {
    if record.is_empty() {
        return Vol1::Blank;
    }
    if !record.starts_with(b"VOL1") {
        return Vol1::Foreign { what: describe(record) };
    }
    let Some(label) = record.get(..LENGTH) else {
        return Vol1::Damaged { what: format!("the VOL1 label has {} bytes instead of 80", record.len()) };
    };
    if &label[24..28] != b"LTFS" {
        let owner = String::from_utf8_lossy(&label[24..37]);
        let what = format!(
            "a VOL1 label that is not of LTFS (serial {:?}, implementation {:?}, standard {:?})",
            String::from_utf8_lossy(&label[4..10]).trim_end(),
            owner.trim_end(),
            char::from(label[79])
        );
        return Vol1::Foreign { what };
    }
    let serial = &label[4..10];
    if !serial.iter().all(|b| (0x20..0x7f).contains(b)) {
        return Vol1::Damaged { what: "the serial number in the VOL1 label is not ASCII".to_owned() };
    }
    if label[79] != b'4' {
        let what = format!("the VOL1 label names label standard {:?} instead of '4'", char::from(label[79]));
        return Vol1::Damaged { what };
    }
    Vol1::Ltfs { serial: String::from_utf8_lossy(serial).trim_end().to_owned() }
}

/// What a first record that is no VOL1 label may be.
fn describe(record: &[u8]) -> String {
    let length = record.len();
    if record.get(257..262) == Some(b"ustar") {
        return format!("a tar archive in records of {length} bytes");
    }
    if ["HDR1", "HDR2", "UHL1", "VOL2"].iter().any(|id| record.starts_with(id.as_bytes())) {
        return format!("a label {:?} without VOL1", String::from_utf8_lossy(&record[..4]));
    }
    if record.iter().all(|&b| b == record[0]) {
        return format!("a record of {length} bytes of value {:#04x}", record[0]);
    }
    format!(
        "a record of {length} bytes that starts with {:?}",
        record[..length.min(16)].escape_ascii().to_string()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let label = encode("TC0001L9").unwrap();
        let text = b"VOL1TC0001L             LTFS                                                   4";
        assert_eq!(&label, text);
        assert_eq!(decode(&label), Vol1::Ltfs { serial: "TC0001".to_owned() });
    }

    #[test]
    fn refuses_bad_barcodes() {
        for barcode in ["", "TOOLONG99", "lower1", "A B", "É1"] {
            assert!(encode(barcode).is_err(), "{barcode}");
        }
        assert_eq!(decode(&encode("A1").unwrap()), Vol1::Ltfs { serial: "A1".to_owned() });
    }

    #[test]
    fn tells_what_it_saw() {
        let mut ansi = [b' '; 80];
        ansi[..10].copy_from_slice(b"VOL1V12345");
        ansi[79] = b'3';
        assert!(
            matches!(decode(&ansi), Vol1::Foreign { what } if what.contains("V12345") && what.contains("'3'"))
        );
        let mut tar = [0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(matches!(decode(&tar), Vol1::Foreign { what } if what.contains("tar")));
        assert!(matches!(decode(&[0; 80]), Vol1::Foreign { what } if what.contains("0x00")));
        assert!(matches!(decode(b"VOL1"), Vol1::Damaged { .. }));
        assert_eq!(decode(b""), Vol1::Blank);
        let mut standard = encode("A").unwrap();
        standard[79] = b'3';
        assert!(matches!(decode(&standard), Vol1::Damaged { what } if what.contains("standard")));
    }

    proptest! {
        #[test]
        fn any_record(record in proptest::collection::vec(any::<u8>(), 0..600)) {
            decode(&record);
        }

        #[test]
        fn any_change(at in 0..80_usize, byte: u8) {
            let mut label = encode("TC0001L9").unwrap();
            label[at] = byte;
            decode(&label);
        }
    }
}
