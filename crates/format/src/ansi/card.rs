//! One label: 80 ASCII characters cut into fields.

use super::{AnsiError, LENGTH};

/// A label being filled in; what is not filled in is a space.
pub(super) struct Card {
    bytes: [u8; LENGTH],
    at: usize,
}

impl Card {
    /// Begins with the name of the label.
    pub fn new(name: &str) -> Self {
        Self { bytes: [b' '; LENGTH], at: 0 }.text(name, 4)
    }

    /// The next field: text, cut or padded with spaces to `width`.
    pub fn text(mut self, text: &str, width: usize) -> Self {
        for (slot, byte) in self.bytes[self.at..self.at + width].iter_mut().zip(text.bytes()) {
            *slot = byte;
        }
        self.at += width;
        self
    }

    /// The next field: the last `width` decimal digits of a number.
    pub fn number(mut self, mut value: u64, width: usize) -> Self {
        for slot in self.bytes[self.at..self.at + width].iter_mut().rev() {
            *slot = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.at += width;
        self
    }

    /// The label.
    pub fn done(self) -> [u8; LENGTH] {
        self.bytes
    }
}

/// A label being read.
pub(super) struct Fields<'a> {
    name: String,
    text: &'a str,
    at: usize,
}

impl<'a> Fields<'a> {
    /// Checks length, characters and name.
    pub fn of(record: &'a [u8], name: &str) -> Result<Self, AnsiError> {
        let wrong = |what: String| AnsiError::Damaged { label: name.to_owned(), what };
        if record.len() != LENGTH {
            return Err(wrong(format!("it has {} bytes instead of {LENGTH}", record.len())));
        }
        let printable = record.iter().all(|byte| (0x20..0x7f).contains(byte));
        let text = std::str::from_utf8(record).ok().filter(|_| printable);
        let text = text.ok_or_else(|| wrong("it has characters that are not ASCII".to_owned()))?;
        if &text[..4] != name {
            return Err(wrong(format!("label {:?} is in its place", &text[..4])));
        }
        Ok(Self { name: name.to_owned(), text, at: 4 })
    }

    /// An error about this label.
    pub fn wrong(&self, what: impl Into<String>) -> AnsiError {
        AnsiError::Damaged { label: self.name.clone(), what: what.into() }
    }

    /// The next field without its padding.
    pub fn text(&mut self, width: usize) -> &'a str {
        let field = &self.text[self.at..self.at + width];
        self.at += width;
        field.trim_end_matches(' ')
    }

    /// The next field, which must be decimal digits only.
    pub fn number(&mut self, width: usize) -> Result<u64, AnsiError> {
        let at = self.at;
        let field = self.text(width);
        let digits = field.len() == width && field.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { field.parse().ok() } else { None };
        value.ok_or_else(|| {
            self.wrong(format!("characters {at} to {} are no number: {field:?}", at + width - 1))
        })
    }

    /// The next field, which must have this content.
    pub fn expect(&mut self, content: &str, width: usize) -> Result<(), AnsiError> {
        let at = self.at;
        let field = self.text(width);
        if field == content {
            return Ok(());
        }
        Err(self.wrong(format!("characters {at} to {} are {field:?} instead of {content:?}", at + width - 1)))
    }
}
