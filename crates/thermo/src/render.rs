//! Views as text.

use crate::out::{Out, Tint};
use crate::units::{rate, size, span};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use types::*;

/// A point in time, local or UTC.
pub fn time(t: Time, utc: bool) -> String {
    let zone = if utc { TimeZone::UTC } else { TimeZone::system() };
    match Timestamp::new(t.secs, t.nanos.min(999_999_999) as i32) {
        Ok(stamp) => {
            let suffix = if utc { "Z" } else { "" };
            format!("{}{suffix}", stamp.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S"))
        }
        Err(_) => format!("@{}", t.secs),
    }
}

/// A time that may not have come.
pub fn time_or_dash(t: Option<Time>, utc: bool) -> String {
    t.map_or_else(|| "-".into(), |t| time(t, utc))
}

/// Where the bytes of a file are, in one word.
pub fn residency(view: &FileView) -> String {
    match (view.residency, view.percent) {
        (Some(Residency::Resident), _) => "disk".into(),
        (Some(Residency::Dual), _) => "both".into(),
        (Some(Residency::Offline), _) => "tape".into(),
        (Some(Residency::Staging), Some(percent)) => format!("{percent}%"),
        (Some(Residency::Staging), None) => "coming".into(),
        (None, _) => "-".into(),
    }
}

/// Copies that count, of those required: `2/2`, with `*` when pinned.
pub fn copies(view: &FileView) -> String {
    match &view.file {
        Some(file) => {
            format!("{}/{}{}", file.copies.len(), view.copies_required, if file.pinned { "*" } else { "" })
        }
        None => "-".into(),
    }
}

/// Mode as `ls -l` shows it.
pub fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Name of a plain enum value as JSON shows it.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => "?".into(),
    }
}

/// What the node says of something, as one line. It escapes names itself; what was recorded by earlier releases may have control
/// characters in it.
pub fn words(text: &str) -> String {
    if text.contains(char::is_control) { client::escape(text.as_bytes()) } else { text.to_owned() }
}

/// State of a drive in a word.
pub fn drive_status(status: &DriveStatus) -> String {
    match status {
        DriveStatus::Suspect(_) => "suspect".into(),
        other => word(other),
    }
}

/// State of a request, tinted.
pub fn request_state(out: &Out, state: RequestState) -> String {
    let tint = match state {
        RequestState::Done => Tint::Green,
        RequestState::Failed => Tint::Red,
        RequestState::Queued | RequestState::Cancelled => Tint::Dim,
        RequestState::Active => Tint::Bold,
    };
    out.tint(tint, word(&state))
}

/// What a request of this kind counts.
pub fn counted(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::MoveEngine => "keys",
        kind if kind.is_of_volumes() => "volumes",
        _ => "files",
    }
}

/// One line about a request.
pub fn request_line(view: &RequestView) -> String {
    let r = &view.request;
    let eta = view.eta_s.filter(|_| r.finished.is_none());
    let eta = eta.map_or(String::new(), |s| format!(", about {} left", span(s)));
    let failed = if r.files_failed > 0 { format!(", {} failed", r.files_failed) } else { String::new() };
    format!(
        "request {}: {} {}, {} of {} {}, {} of {}{failed}{eta}",
        r.id,
        word(&r.kind),
        word(&r.state),
        r.files_done,
        r.files_total,
        counted(r.kind),
        size(view.bytes_moved),
        size(r.bytes_total),
    )
}

/// A share in per cent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.0}%", part as f64 * 100.0 / whole as f64) }
}

/// A rate, or a dash where nothing moves.
pub fn rate_or_dash(bytes_per_s: u64) -> String {
    if bytes_per_s == 0 { "-".into() } else { rate(bytes_per_s) }
}

/// `name`, or a dash.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".into(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let t = Time::default();
        let (ino, nlink, uid, gid, rdev, size, disk_bytes) = (Ino(1), 1, 0, 0, 0, 0, 0);
        Attr {
            ino,
            kind,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            disk_bytes,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
        }
    }

    #[test]
    fn modes_look_as_in_ls() {
        assert_eq!(mode(&attr(FileKind::File, 0o4755)), "-rwsr-xr-x");
        assert_eq!(mode(&attr(FileKind::Directory, 0o1777)), "drwxrwxrwt");
        assert_eq!(mode(&attr(FileKind::File, 0o2644)), "-rw-r-Sr--");
    }

    #[test]
    fn requests_about_volumes_count_volumes() {
        let counted = [RequestKind::Repack, RequestKind::Label, RequestKind::Stage].map(counted);
        assert_eq!(counted, ["volumes", "volumes", "files"]);
    }

    #[test]
    fn times_in_utc_are_marked_and_absurd_ones_do_not_fail() {
        assert_eq!(time(Time::new(1_700_000_000, 0), true), "2023-11-14 22:13:20Z");
        assert_eq!(time(Time::new(i64::MAX, 0), true), format!("@{}", i64::MAX));
    }
}
