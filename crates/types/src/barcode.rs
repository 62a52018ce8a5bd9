//! Bar codes of cartridges.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Longest bar code that needs no memory of its own (bytes). Those of cartridges have 8, or 6.
const SHORT: usize = 22;

/// A cartridge volume by its barcode (VOLTAG), e.g. `TC0001L9`.
///
/// There is one with every queued file and every copy, and the scheduler compares tens of thousands at a time: it lies where it
/// is used, not behind a pointer.
#[derive(Clone)]
pub struct Barcode(Text);

#[derive(Clone)]
enum Text {
    /// Text of so many bytes, then zeros.
    Short(u8, [u8; SHORT]),
    Long(Box<str>),
}

impl Barcode {
    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // It was text when it was put there.
            Text::Short(..) => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// What decides most comparisons.
    fn head(&self) -> u64 {
        let head = |bytes: &[u8]| bytes.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        match &self.0 {
            Text::Short(_, bytes) => head(bytes),
            Text::Long(text) => head(text.as_bytes()),
        }
    }

    /// Whether its media identifier is that of LTO media that can be written once (`LT` for the third generation to `LZ` for the
    /// ninth). What the drive says of the medium decides.
    pub fn is_worm(&self) -> bool {
        matches!(self.as_bytes(), [.., b'L', b'T'..=b'Z'])
    }
}

impl From<&str> for Barcode {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self(Text::Short(text.len() as u8, bytes))
            }
            None => Self(Text::Long(text.into())),
        }
    }
}

impl From<String> for Barcode {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Default for Barcode {
    fn default() -> Self {
        Self::from("")
    }
}

impl fmt::Display for Barcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for Barcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Barcode").field(&self.as_str()).finish()
    }
}

impl PartialEq for Barcode {
    fn eq(&self, other: &Self) -> bool {
        self.head() == other.head() && self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Barcode {}

impl Ord for Barcode {
    /// That of their text. Zeros behind a short one do not change it: no text is before its own beginning.
    fn cmp(&self, other: &Self) -> Ordering {
        self.head().cmp(&other.head()).then_with(|| self.as_bytes().cmp(other.as_bytes()))
    }
}

impl PartialOrd for Barcode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Barcode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Serialize for Barcode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Barcode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Barcode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Barcode, E> {
                Ok(Barcode::from(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_codes_of_any_length_are_in_the_order_of_their_text() {
        let long = "V".repeat(SHORT + 1);
        let edge = "V".repeat(SHORT);
        let texts = [
            "",
            "\0",
            "A",
            "A\0",
            "A\0B",
            "V0001L9",
            "V00010L9",
            "V00010L9\0",
            "V00010L9X",
            &edge,
            &long,
            "é",
        ];
        for (n, a) in texts.iter().enumerate() {
            let one = Barcode::from(*a);
            assert_eq!((one.as_str(), one.to_string()), (*a, a.to_string()));
            assert_eq!(format!("{one:?}"), format!("Barcode({a:?})"));
            for (m, b) in texts.iter().enumerate() {
                let other = Barcode::from(*b);
                assert_eq!(one.cmp(&other), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(one == other, n == m, "{a:?} {b:?}");
            }
        }
        assert_eq!(size_of::<Barcode>(), size_of::<String>());
        assert_eq!(size_of::<Option<Barcode>>(), size_of::<String>());
    }
}
