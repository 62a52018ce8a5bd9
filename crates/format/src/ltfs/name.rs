//! Names on tape. LTFS names are NFC UTF-8 of at most 255 characters (LTFS 2.4 section 7.4); names of our namespace are
//! any bytes. [`tape_name`] renders one as the other so that people recognise it; the exact path travels in the
//! extended attribute `thermo.path`, so nothing depends on turning the rendering back.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Longest name on tape (bytes of UTF-8; LTFS allows as many characters).
pub const MAX_NAME: usize = 255;

/// A name for the tape: valid in LTFS, NFC, 1 to 255 bytes. A name that cannot be taken as it is (not UTF-8,
/// forbidden characters, grown too long in NFC) is rendered with `%XX` for each offending byte and ends in `~` and 16
/// hex digits of a hash of the original bytes. Two names that differ only in normalisation give the same result, so
/// the caller still keeps names unique, with [`numbered`].
pub fn tape_name(name: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(name) {
        let nfc = match is_nfc_quick(text.chars()) {
            IsNormalized::Yes => text.to_owned(),
            _ => text.nfc().collect(),
        };
        let fits = (1..=MAX_NAME).contains(&nfc.len()) && nfc != "." && nfc != "..";
        if fits && nfc.chars().all(allowed) {
            return nfc;
        }
    }
    render(name)
}

/// The name with `~number` before its extension, cut so that it stays within [`MAX_NAME`]: for a name that is taken.
pub fn numbered(name: &str, number: u64) -> String {
    let (stem, extension) = match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    };
    let tail = format!("~{number}{extension}");
    format!("{}{tail}", cut(stem, MAX_NAME - tail.len()))
}

/// Whether stock LTFS takes the character in a name.
fn allowed(letter: char) -> bool {
    !matches!(letter, '/' | '\0' | '\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

fn render(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().nfc() {
            if allowed(letter) {
                out.push(letter);
            } else {
                letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_percent(&mut out, byte));
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_percent(&mut out, byte));
    }
    let tail = format!("~{:016x}", fnv1a(name));
    format!("{}{tail}", cut(&out, MAX_NAME - tail.len())).nfc().collect()
}

/// The longest prefix of at most `length` bytes that ends at a character.
pub(crate) fn cut(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn push_percent(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// FNV-1a, 64 bit: names only need to be told apart, not protected.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Whether the name must be percent-encoded in an index: `%`, `:` and what does not print (LTFS 2.4 section 7.4).
pub(crate) fn needs_percent(name: &str) -> bool {
    if name.is_ascii() {
        return name.bytes().any(|b| matches!(b, b'%' | b':' | 0..0x20 | 0x7f));
    }
    name.chars().any(encoded)
}

fn encoded(letter: char) -> bool {
    matches!(letter, '%' | ':' | '\u{fffe}' | '\u{ffff}') || letter.is_control()
}

/// Percent-encodes what [`needs_percent`] looks for.
pub(crate) fn percent_encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for letter in name.chars() {
        if encoded(letter) {
            letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_percent(&mut out, byte));
        } else {
            out.push(letter);
        }
    }
    out
}

/// The byte that a `%XX` at the start stands for, and what follows.
fn percent_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, after @ ..] = text else { return None };
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let byte = (hex(*high)? * 16 + hex(*low)?) as u8;
    (!matches!(byte, 0 | 0x1f | b'/')).then_some((byte, after))
}

/// Decodes `%XX`; a `%` without two hex digits behind it stands for itself, and so do `%00`, `%1F` and `%2F`, which no
/// name may contain (stock LTFS does the same). None if the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = percent_byte(rest).unwrap_or((*first, tail));
        out.push(byte);
        rest = after;
    }
    String::from_utf8(out).ok()
}
