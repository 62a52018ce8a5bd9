//! Words for people: numbers with their nouns, and names that no terminal could show as they are.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Display, Write};

/// A number and its noun: `1 file`, `2 files`, `3 copies`.
pub fn plural<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let one = number == N::from(1);
    match noun.strip_suffix('y') {
        _ if one => format!("{number} {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// A name or path as text that is one line, unambiguous, and taken back by a shell (bash, ksh, zsh) as it was: like ls(1) of GNU
/// in a terminal, `$'..'` stands for bytes that are not UTF-8 and for control characters. What has neither is shown as it is.
pub fn escape(name: &[u8]) -> String {
    let plain = std::str::from_utf8(name).ok();
    if let Some(text) = plain.filter(|text| !text.contains(char::is_control) && !text.contains("$'")) {
        return text.to_owned();
    }
    let mut out = Quoted { text: String::from("'"), raw: false };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if c.is_control() => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.byte(byte)),
                '\'' => out.quote(),
                c => out.plain(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.byte(*byte));
    }
    out.text.push('\'');
    out.text
}

/// A word of a shell that is being written: inside `'..'`, or inside `$'..'`.
struct Quoted {
    text: String,
    raw: bool,
}

impl Quoted {
    fn plain(&mut self, c: char) {
        if std::mem::take(&mut self.raw) {
            self.text.push_str("''");
        }
        self.text.push(c);
    }

    fn quote(&mut self) {
        self.text.push_str(r"'\''");
        self.raw = false;
    }

    fn byte(&mut self, byte: u8) {
        if !std::mem::replace(&mut self.raw, true) {
            self.text.push_str("'$'");
        }
        match byte {
            7 => self.text.push_str(r"\a"),
            8 => self.text.push_str(r"\b"),
            9 => self.text.push_str(r"\t"),
            10 => self.text.push_str(r"\n"),
            11 => self.text.push_str(r"\v"),
            12 => self.text.push_str(r"\f"),
            13 => self.text.push_str(r"\r"),
            // Writing to a String does not fail.
            other => drop(write!(self.text, "\\{other:03o}")),
        }
    }
}

/// A path, or words about one: text, as long as names are UTF-8. Encoded like text in what is stored and sent; in JSON text, or an
/// array of bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathText(Vec<u8>);

impl PathText {
    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes that are not UTF-8 replaced.
    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

/// Escaped, see [`escape`].
impl Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", escape(&self.0))
    }
}

impl From<Vec<u8>> for PathText {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for PathText {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<String> for PathText {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for PathText {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl PartialEq<str> for PathText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for PathText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if to.is_human_readable() => to.serialize_str(text),
            _ => to.serialize_bytes(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.is_human_readable() {
            true => from.deserialize_any(Bytes),
            false => from.deserialize_byte_buf(Bytes),
        }
    }
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = PathText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, or an array of bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PathText, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<PathText, E> {
        Ok(bytes.into())
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<PathText, E> {
        Ok(bytes.into())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<PathText, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = seq.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_follow_their_numbers() {
        let said =
            [plural(1u64, "volume"), plural(0usize, "volume"), plural(2u32, "copy"), plural(1u8, "copy")];
        assert_eq!(said, ["1 volume", "0 volumes", "2 copies", "1 copy"]);
        assert_eq!([plural(3u64, "day"), plural(2u64, "batch")], ["3 days", "2 batches"]);
    }

    #[test]
    fn names_are_escaped_as_ls_does_and_no_two_look_alike() {
        let of = |name: &[u8]| escape(name);
        assert_eq!(of(b"plain name, it's \\ $HOME"), "plain name, it's \\ $HOME");
        assert_eq!(of("längst".as_bytes()), "längst");
        assert_eq!(of(b"a\xffb"), r"'a'$'\377''b'");
        assert_eq!(of(b"\n"), r"''$'\n'");
        assert_eq!(of(b"it's\x01\xfe"), r"'it'\''s'$'\001\376'");
        assert_eq!(of("\u{85}".as_bytes()), r"''$'\302\205'");
        // Otherwise it would be taken for an escaped one.
        assert_eq!(of(br"''$'\n'"), r"''\'''\''$'\''\n'\'''");
    }

    /// Bash takes the words for what they stand for.
    #[test]
    fn a_shell_takes_escaped_names_back_as_they_were() {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut names = Vec::new();
        for length in (1..40).cycle().take(400) {
            let mut name: Vec<u8> =
                (0..length).map(|_| b"a'$\\ \n\xff\xc3\xa4\0\x7f0"[usize::from(next()) % 12]).collect();
            name.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = next().max(1));
            // Others are no words of a shell, and are not said to be.
            name.push(b'\n');
            names.push(name);
        }
        let words: Vec<String> = names.iter().map(|name| escape(name)).collect();
        assert!(words.iter().all(|word| !word.contains(char::is_control)));
        let script = format!("printf '%s\\0' {}", words.join(" "));
        let said = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash is there");
        let taken: Vec<&[u8]> = said.stdout.split(|byte| *byte == 0).collect();
        assert_eq!(taken.len(), names.len() + 1);
        assert!(names.iter().zip(taken).all(|(name, taken)| name == taken));
    }
}
