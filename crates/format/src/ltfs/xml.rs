//! A pull reader over XML as LTFS uses it: elements with either children or text, few attributes.

use quick_xml::Reader;
use quick_xml::events::Event;
use std::io::BufRead;

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XmlError {
    /// Offset in the document (bytes).
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

type Result<T> = std::result::Result<T, XmlError>;

/// Next thing among the children of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A child begins; its name and attributes are in [`Xml::name`] and [`Xml::attribute`].
    Open,
    /// The element itself ends.
    Close,
    /// The document ends.
    End,
}

/// Deepest nesting inside elements that are kept or skipped unread.
const MAX_DEPTH: u32 = 1000;

pub(crate) struct Xml<R> {
    reader: Reader<R>,
    buffer: Vec<u8>,
    /// Name and attributes of the element opened last.
    tag: Vec<u8>,
    name_length: usize,
    text: String,
}

impl<R: BufRead> Xml<R> {
    pub fn new(input: R) -> Self {
        let mut reader = Reader::from_reader(input);
        reader.config_mut().expand_empty_elements = true;
        Self { reader, buffer: Vec::new(), tag: Vec::new(), name_length: 0, text: String::new() }
    }

    pub fn error(&self, what: impl Into<String>) -> XmlError {
        XmlError { offset: self.reader.buffer_position(), what: what.into() }
    }

    /// Name of the element opened last.
    pub fn name(&self) -> &[u8] {
        &self.tag[..self.name_length]
    }

    /// Its name for messages.
    fn name_text(&self) -> String {
        String::from_utf8_lossy(self.name()).into_owned()
    }

    /// Value of an attribute of the element opened last (plain values only: LTFS has no others).
    pub fn attribute(&self, key: &str) -> Option<String> {
        if self.tag.len() == self.name_length {
            return None;
        }
        let tag = std::str::from_utf8(&self.tag).ok()?;
        let found = quick_xml::events::attributes::Attributes::new(tag, self.name_length)
            .filter_map(std::result::Result::ok)
            .find(|attribute| attribute.key.as_ref() == key.as_bytes())?;
        String::from_utf8(found.value.into_owned()).ok()
    }

    /// The next child of the present element, or its end. Text between children is passed over.
    pub fn step(&mut self) -> Result<Step> {
        loop {
            self.buffer.clear();
            match self.reader.read_event_into(&mut self.buffer) {
                Ok(Event::Start(start)) => {
                    self.tag.clear();
                    self.tag.extend_from_slice(&start);
                    self.name_length = start.name().as_ref().len();
                    return Ok(Step::Open);
                }
                Ok(Event::End(_)) => return Ok(Step::Close),
                Ok(Event::Eof) => return Ok(Step::End),
                Ok(_) => {}
                Err(error) => return Err(self.error(error.to_string())),
            }
        }
    }

    /// Like [`Xml::step`] where the document must not end: true for a child, false for the end of the element.
    pub fn child(&mut self) -> Result<bool> {
        match self.step()? {
            Step::Open => Ok(true),
            Step::Close => Ok(false),
            Step::End => Err(self.error("the document ends in the middle")),
        }
    }

    /// The text of the element just opened, up to its end.
    pub fn text(&mut self) -> Result<&str> {
        self.text.clear();
        loop {
            self.buffer.clear();
            let piece = match self.reader.read_event_into(&mut self.buffer) {
                Ok(Event::End(_)) => return Ok(&self.text),
                Ok(Event::Text(text)) => push_utf8(&mut self.text, &text),
                Ok(Event::CData(text)) => push_utf8(&mut self.text, &text),
                Ok(Event::GeneralRef(reference)) => push_reference(&mut self.text, &reference),
                Ok(Event::Comment(_) | Event::PI(_)) => Ok(()),
                Ok(Event::Eof) => Err("the document ends in the middle".to_owned()),
                Ok(_) => Err(format!("an element inside <{}>, which holds text", self.name_text())),
                Err(error) => Err(error.to_string()),
            };
            piece.map_err(|what| self.error(what))?;
        }
    }

    /// The text of the element just opened, read with `read`; `expected` says what it should have been.
    pub fn value<T>(&mut self, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let text = self.text()?;
        if let Some(value) = read(text) {
            return Ok(value);
        }
        let shown: String = text.chars().take(60).collect();
        let what = format!("<{}> is {shown:?}, not {expected}", self.name_text());
        Err(self.error(what))
    }

    /// Text that may be percent-encoded (LTFS 2.4 section 9.2.2, names and symlinks).
    pub fn name_value(&mut self) -> Result<String> {
        if self.attribute("percentencoded").is_some_and(|value| value == "true") {
            self.value("a percent-encoded name", crate::ltfs::name::percent_decode)
        } else {
            self.text().map(str::to_owned)
        }
    }

    /// An unsigned decimal number.
    pub fn number(&mut self) -> Result<u64> {
        self.value("a number", |text| text.trim().parse().ok())
    }

    /// `true` or `false` (also 1 and 0).
    pub fn boolean(&mut self) -> Result<bool> {
        self.value("true or false", |text| match text.trim() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    /// A time.
    pub fn time(&mut self) -> Result<types::Time> {
        self.value("a time", |text| crate::ltfs::time::decode(text.trim()))
    }

    /// A partition letter.
    pub fn partition(&mut self) -> Result<crate::ltfs::Partition> {
        self.value("a partition letter", |text| {
            let mut letters = text.trim().chars();
            let partition = crate::ltfs::Partition::from_letter(letters.next()?)?;
            letters.next().is_none().then_some(partition)
        })
    }

    /// Passes over the element just opened.
    pub fn skip(&mut self) -> Result<()> {
        self.copy(None)
    }

    /// The element just opened as XML, to be written again as it is.
    pub fn keep(&mut self) -> Result<String> {
        let mut out = vec![b'<'];
        out.extend_from_slice(&self.tag);
        out.push(b'>');
        self.copy(Some(&mut out))?;
        String::from_utf8(out).map_err(|_| self.error("not UTF-8"))
    }

    fn copy(&mut self, mut out: Option<&mut Vec<u8>>) -> Result<()> {
        let mut depth = 1_u32;
        while depth > 0 {
            self.buffer.clear();
            let event = match self.reader.read_event_into(&mut self.buffer) {
                Ok(event) => event,
                Err(error) => return Err(self.error(error.to_string())),
            };
            match &event {
                Event::Start(_) if depth == MAX_DEPTH => return Err(self.error("elements nested too deeply")),
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                Event::Eof => return Err(self.error("the document ends in the middle")),
                _ => {}
            }
            if let Some(out) = out.as_deref_mut() {
                // Writing to memory cannot fail.
                let _ = quick_xml::Writer::new(out).write_event(event);
            }
        }
        Ok(())
    }
}

/// Appends bytes that must be UTF-8.
fn push_utf8(out: &mut String, bytes: &[u8]) -> std::result::Result<(), String> {
    out.push_str(std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?);
    Ok(())
}

/// Appends what a character or entity reference stands for.
fn push_reference(
    out: &mut String,
    reference: &quick_xml::events::BytesRef<'_>,
) -> std::result::Result<(), String> {
    if let Ok(Some(letter)) = reference.resolve_char_ref() {
        out.push(letter);
        return Ok(());
    }
    let name = String::from_utf8_lossy(reference);
    let text =
        quick_xml::escape::resolve_xml_entity(&name).ok_or_else(|| format!("unknown entity &{name};"))?;
    out.push_str(text);
    Ok(())
}

/// Appends text with the characters escaped that XML gives a meaning to.
pub(crate) fn escape_into(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| matches!(b, b'<' | b'>' | b'&' | b'\r')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'&' => b"&amp;",
            _ => b"&#13;",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
