//! Numbers as people write and read them.

use std::time::Duration;

/// Bytes with a binary unit and three significant digits: `1.46 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 999.5 is the first value that would be shown with four digits
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Bytes per second.
pub fn rate(bytes_per_s: u64) -> String {
    format!("{}/s", size(bytes_per_s))
}

/// A span of time with its two largest units: `2h05m`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Reads `90`, `90s`, `5m`, `2h`, `1d` as seconds.
///
/// # Errors
/// For clap.
pub fn parse_seconds(text: &str) -> Result<u32, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[split..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        other => return Err(format!("`{other}` is not a unit of time; use s, m, h or d, as in 5m")),
    };
    let number: u32 =
        text[..split].parse().map_err(|_| format!("`{text}` is not a time; write 5m or 300"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too long; the longest is 136 years"))
}

/// Reads a span from now (`90m`, `6h`, `2d`) or a local time (`2026-11-30T18:00`).
///
/// # Errors
/// For clap.
pub fn parse_when(text: &str) -> Result<types::Time, String> {
    if let Ok(seconds) = parse_seconds(text) {
        let now: types::Time = std::time::SystemTime::now().into();
        return Ok(now.plus(Duration::from_secs(u64::from(seconds))));
    }
    let at = text
        .parse::<jiff::civil::DateTime>()
        .map_err(|_| format!("`{text}` is neither a span such as 6h nor a time such as 2026-11-30T18:00"))?;
    let at = at.to_zoned(jiff::tz::TimeZone::system()).map_err(|e| format!("`{text}`: {e}"))?;
    Ok(types::Time::new(at.timestamp().as_second(), 0))
}

/// Reads `10G`, `500MB`, `1.5 TiB` as bytes, in the way of the configuration file.
///
/// # Errors
/// For clap.
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<node::Size>().map(|s| s.0)
}

/// Bytes over a time.
pub fn per_second(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(1e-3)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let shown: Vec<_> =
            [0, 1023, 1024, 10_234, 1_048_575, 1 << 20, 1_572_864_000, u64::MAX].map(size).to_vec();
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.00 KiB", "9.99 KiB", "1.00 MiB", "1.00 MiB", "1.46 GiB", "16.0 EiB"]
        );
    }

    #[test]
    fn spans_show_two_units() {
        assert_eq!([7, 61, 7500, 90_000].map(span), ["7s", "1m01s", "2h05m", "1d01h"]);
    }

    #[test]
    fn times_are_read_with_units() {
        assert_eq!(parse_seconds("90"), Ok(90));
        assert_eq!(parse_seconds("5m"), Ok(300));
        assert_eq!(parse_seconds("1d"), Ok(86_400));
        assert!(parse_seconds("5 parsec").is_err() && parse_seconds("m").is_err());
        assert!(parse_seconds("4000000000d").is_err());
    }
}
