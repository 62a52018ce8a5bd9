//! Times of pax records: decimal seconds since 1970, with a fraction where there is one.

use types::Time;

/// The time as text. Nanoseconds of a billion and more count as 999999999.
pub fn encode(time: Time) -> String {
    let nanos = time.nanos.min(999_999_999);
    let (sign, whole, nanos) = match (time.secs, nanos) {
        (secs, 0) => return secs.to_string(),
        // -1.5 is second -2 and half a second
        (secs, nanos) if secs < 0 => ("-", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos),
        (secs, nanos) => ("", secs.unsigned_abs(), nanos),
    };
    let text = format!("{sign}{whole}.{nanos:09}");
    text.trim_end_matches('0').to_owned()
}

/// Reads a time; up to nine digits of fraction.
pub fn decode(text: &str) -> Option<Time> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) =
        digits.split_once('.').map_or((digits, ""), |(whole, fraction)| (whole, fraction));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
    let total = (whole.checked_mul(1_000_000_000)?).checked_add(nanos)?;
    let total = if negative { -total } else { total };
    let secs = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
    Some(Time::new(secs, total.rem_euclid(1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        assert_eq!(encode(Time::new(0, 0)), "0");
        assert_eq!(encode(Time::new(-2, 500_000_000)), "-1.5");
        assert_eq!(encode(Time::new(-1, 999_999_999)), "-0.000000001");
        assert_eq!(encode(Time::new(1_790_000_000, 5)), "1790000000.000000005");
        assert_eq!(decode("12."), Some(Time::new(12, 0)));
        for bad in ["", "-", ".5", "1.0000000000", "+1", "1e3", "99999999999999999999"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(secs: i64, nanos in 0..1_000_000_000_u32) {
            let time = Time::new(secs, nanos);
            prop_assert_eq!(decode(&encode(time)), Some(time));
        }
    }
}
