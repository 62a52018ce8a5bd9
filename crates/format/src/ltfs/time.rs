//! LTFS times: `YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ` (LTFS 2.4 section 7.5, times are UTC).

use types::Time;

/// First second that the format can express: 0000-01-01T00:00:00Z.
pub const MIN_SECS: i64 = -62_167_219_200;
/// Last second that the format can express: 9999-12-31T23:59:59Z.
pub const MAX_SECS: i64 = 253_402_300_799;

const DAY: i64 = 86_400;

/// The nearest time that the format can express; the same time for years 0 to 9999.
pub fn clamp(time: Time) -> Time {
    if time.secs < MIN_SECS {
        Time::new(MIN_SECS, 0)
    } else if time.secs > MAX_SECS {
        Time::new(MAX_SECS, 999_999_999)
    } else {
        Time::new(time.secs, time.nanos.min(999_999_999))
    }
}

/// The time as 30 ASCII bytes, [clamped](clamp) to years 0 to 9999.
pub fn encode(time: Time) -> [u8; 30] {
    let time = clamp(time);
    let (year, month, day) = civil_from_days(time.secs.div_euclid(DAY));
    let second = time.secs.rem_euclid(DAY) as u32;
    let mut out = *b"0000-00-00T00:00:00.000000000Z";
    let mut put = |at: usize, width: usize, mut value: u32| {
        for slot in out[at..at + width].iter_mut().rev() {
            *slot = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0, 4, year);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, second / 3600);
    put(14, 2, second / 60 % 60);
    put(17, 2, second % 60);
    put(20, 9, time.nanos);
    out
}

/// Reads a time; one to nine digits of fraction, or none, are accepted, and nothing but UTC.
pub fn decode(text: &str) -> Option<Time> {
    let bytes = text.strip_suffix('Z')?.as_bytes();
    if bytes.len() < 19 {
        return None;
    }
    let (base, fraction) = bytes.split_at(19);
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| base[at] != byte) {
        return None;
    }
    let field = |from: usize, to: usize| digits(&base[from..to]);
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = match fraction {
        [] => 0,
        [b'.', rest @ ..] if (1..=9).contains(&rest.len()) => {
            digits(rest)? * 10_u32.pow(9 - rest.len() as u32)
        }
        _ => return None,
    };
    let seconds_of_day = i64::from(hour * 3600 + minute * 60 + second);
    Some(Time::new(days_from_civil(year, month, day) * DAY + seconds_of_day, nanos))
}

/// The value of up to nine decimal digits.
fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u32::from(byte - b'0')))
}

fn days_in_month(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a day number counted from 1970-01-01, for years 0 to 9999
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_from_days(days: i64) -> (u32, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: u32, month: u32, day: u32) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(time: Time) -> String {
        String::from_utf8(encode(time).to_vec()).unwrap()
    }

    #[test]
    fn known_times() {
        assert_eq!(text(Time::new(0, 0)), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(text(Time::new(-1, 999_999_999)), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(text(Time::new(951_827_696, 5)), "2000-02-29T12:34:56.000000005Z");
        assert_eq!(text(Time::new(MIN_SECS, 0)), "0000-01-01T00:00:00.000000000Z");
        assert_eq!(text(Time::new(i64::MIN, 7)), "0000-01-01T00:00:00.000000000Z");
        assert_eq!(text(Time::new(i64::MAX, 7)), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(text(Time::new(0, u32::MAX)), "1970-01-01T00:00:00.999999999Z");
    }

    #[test]
    fn fractions_and_refusals() {
        assert_eq!(decode("1970-01-01T00:00:00Z"), Some(Time::new(0, 0)));
        assert_eq!(decode("1970-01-01T00:00:00.5Z"), Some(Time::new(0, 500_000_000)));
        let bad = [
            "",
            "Z",
            "1970-01-01T00:00:00",
            "1970-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-13-01T00:00:00Z",
        ];
        let odd = [
            "1970-01-01 00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.0000000000Z",
            "1970-01-0éT00:00:00Z",
        ];
        for text in bad.iter().chain(&odd) {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(secs in MIN_SECS..=MAX_SECS, nanos in 0..1_000_000_000_u32) {
            let time = Time::new(secs, nanos);
            prop_assert_eq!(decode(&text(time)), Some(time));
        }

        #[test]
        fn decode_never_panics(text in "\\PC{0,40}") {
            let _ = decode(&text);
        }
    }
}
