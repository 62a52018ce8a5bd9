//! Writing an index as a stream.

use super::{Content, DirMeta, EntryTimes, IndexExtent, IndexFile, IndexHeader, Location, Xattr};
use crate::ltfs::{Partition, VERSION, is_uuid, name, time, xml::escape_into};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::io::Write;
use types::Time;

/// Bytes gathered before they are handed to the sink.
const BUFFER: usize = 256 * 1024;

/// Why an index could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The sink failed.
    #[error("the index could not be written: {0}")]
    Io(#[from] std::io::Error),
    /// Calls in an order that gives no index: a defect of the caller.
    #[error("the index was not written: {0} out of order")]
    Order(&'static str),
    /// A value that LTFS cannot express; writing it would make the volume unreadable.
    #[error("the index was not written: {what} of {entry:?} cannot be put into an LTFS index")]
    Value {
        /// Entry that has the value.
        entry: String,
        /// Which value.
        what: &'static str,
    },
}

type Result<T> = std::result::Result<T, WriteError>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Header,
    Tree,
    End,
}

/// Writes one index: `begin`, then `enter_dir` for the root, files and directories within it, `leave_dir` for each
/// directory, the root last, then `finish`. Checks what a reader would stumble over: names, uids above the header's
/// highest, extents out of order or beyond the length. Uniqueness of names and uids is the caller's.
pub struct IndexWriter<W: Write> {
    sink: W,
    out: Vec<u8>,
    depth: u32,
    stage: Stage,
    highest_uid: u64,
}

impl<W: Write> IndexWriter<W> {
    /// A writer that hands its bytes to `sink` in pieces of about 256 KiB.
    pub fn new(sink: W) -> Self {
        Self { sink, out: Vec::with_capacity(BUFFER + 8192), depth: 0, stage: Stage::Start, highest_uid: 0 }
    }

    /// Writes the header.
    pub fn begin(&mut self, header: &IndexHeader) -> Result<()> {
        self.expect(self.stage == Stage::Start, "begin")?;
        check(is_uuid(&header.volume_uuid), "index", "the volume uuid")?;
        check(text_ok(&header.creator) && header.creator.len() <= 1024, "index", "the creator")?;
        let comment = header.comment.as_deref().unwrap_or_default();
        check(text_ok(comment) && comment.len() <= 65_536, "index", "the comment")?;
        self.stage = Stage::Header;
        self.highest_uid = header.highest_file_uid;
        self.raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ltfsindex version=\"");
        self.raw(VERSION);
        self.raw("\">\n");
        self.text("creator", &header.creator);
        if !comment.is_empty() {
            self.text("comment", comment);
        }
        self.text("volumeuuid", &header.volume_uuid);
        self.number("generationnumber", header.generation);
        self.time("updatetime", header.update_time);
        self.location("location", header.location);
        if let Some(previous) = header.previous {
            self.location("previousgenerationlocation", previous);
        }
        self.boolean("allowpolicyupdate", header.allow_policy_update);
        self.number("highestfileuid", header.highest_file_uid);
        header.unknown.iter().for_each(|element| self.raw(element));
        self.raw("\n");
        Ok(())
    }

    /// Begins a directory; the first one is the root.
    pub fn enter_dir(&mut self, dir: &DirMeta) -> Result<()> {
        let root = self.stage == Stage::Header;
        self.expect(root || (self.stage == Stage::Tree && self.depth > 0), "enter_dir")?;
        check((root && dir.name.is_empty()) || name_ok(&dir.name), &dir.name, "the name")?;
        self.entry(&dir.name, dir.uid, &dir.xattrs)?;
        self.stage = Stage::Tree;
        self.depth += 1;
        self.raw("<directory>");
        self.name("name", &dir.name);
        self.boolean("readonly", dir.readonly);
        self.times(&dir.times);
        self.number("fileuid", dir.uid);
        self.xattrs(&dir.xattrs);
        dir.unknown.iter().for_each(|element| self.raw(element));
        self.raw("<contents>\n");
        self.drain(BUFFER)
    }

    /// Writes a file of the present directory.
    pub fn file(&mut self, file: &IndexFile) -> Result<()> {
        self.expect(self.stage == Stage::Tree && self.depth > 0, "file")?;
        check(name_ok(&file.name), &file.name, "the name")?;
        self.entry(&file.name, file.uid, &file.xattrs)?;
        self.raw("<file>");
        self.name("name", &file.name);
        self.number("length", file.length);
        self.boolean("readonly", file.readonly);
        self.times(&file.times);
        self.number("fileuid", file.uid);
        self.xattrs(&file.xattrs);
        self.content(file)?;
        file.unknown.iter().for_each(|element| self.raw(element));
        self.raw("</file>\n");
        self.drain(BUFFER)
    }

    /// Ends the present directory.
    pub fn leave_dir(&mut self) -> Result<()> {
        self.expect(self.stage == Stage::Tree && self.depth > 0, "leave_dir")?;
        self.depth -= 1;
        self.raw("</contents></directory>\n");
        if self.depth == 0 {
            self.stage = Stage::End;
        }
        Ok(())
    }

    /// Ends the index and gives the sink back, with everything handed to it (the sink is not flushed).
    pub fn finish(mut self) -> Result<W> {
        self.expect(self.stage == Stage::End, "finish")?;
        self.raw("</ltfsindex>\n");
        self.drain(1)?;
        Ok(self.sink)
    }

    fn expect(&self, condition: bool, call: &'static str) -> Result<()> {
        if condition { Ok(()) } else { Err(WriteError::Order(call)) }
    }

    fn entry(&self, name: &str, uid: u64, xattrs: &[Xattr]) -> Result<()> {
        check((1..=self.highest_uid).contains(&uid), name, "the uid")?;
        check(xattrs.iter().all(|x| key_ok(&x.key)), name, "the name of an extended attribute")
    }

    fn drain(&mut self, least: usize) -> Result<()> {
        if self.out.len() >= least {
            self.sink.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn content(&mut self, file: &IndexFile) -> Result<()> {
        let extents = match &file.content {
            Content::Symlink(target) => {
                check(
                    !target.is_empty() && target.chars().all(xml_letter),
                    &file.name,
                    "the symlink target",
                )?;
                self.name("symlink", target);
                return Ok(());
            }
            Content::Extents(extents) if extents.is_empty() => return Ok(()),
            Content::Extents(extents) => extents,
        };
        let mut end = 0;
        self.raw("<extentinfo>");
        for IndexExtent { partition, extent } in extents.iter().copied() {
            let next = extent.file_offset.checked_add(extent.byte_count).filter(|&next| next <= file.length);
            let ordered = extent.file_offset >= end && extent.byte_count > 0;
            check(ordered && next.is_some(), &file.name, "an extent")?;
            end = next.unwrap_or(end);
            self.raw("<extent>");
            self.number("fileoffset", extent.file_offset);
            self.letter("partition", partition);
            self.number("startblock", extent.start_block);
            self.number("byteoffset", u64::from(extent.byte_offset));
            self.number("bytecount", extent.byte_count);
            self.raw("</extent>");
        }
        self.raw("</extentinfo>");
        Ok(())
    }

    fn times(&mut self, times: &EntryTimes) {
        self.time("creationtime", times.creation);
        self.time("changetime", times.change);
        self.time("modifytime", times.modify);
        self.time("accesstime", times.access);
        self.time("backuptime", times.backup);
    }

    fn xattrs(&mut self, xattrs: &[Xattr]) {
        if xattrs.is_empty() {
            return;
        }
        self.raw("<extendedattributes>");
        for Xattr { key, value } in xattrs {
            self.raw("<xattr>");
            self.name("key", key);
            match clean_text(value) {
                Some("") => self.raw("<value/>"),
                Some(text) => self.text("value", text),
                None => {
                    self.raw("<value type=\"base64\">");
                    self.raw(&STANDARD.encode(value));
                    self.raw("</value>");
                }
            }
            self.raw("</xattr>");
        }
        self.raw("</extendedattributes>");
    }

    fn name(&mut self, tag: &str, value: &str) {
        if name::needs_percent(value) {
            self.raw("<");
            self.raw(tag);
            self.raw(" percentencoded=\"true\">");
            escape_into(&mut self.out, &name::percent_encode(value));
            self.close(tag);
        } else {
            self.text(tag, value);
        }
    }

    fn location(&mut self, tag: &str, location: Location) {
        self.open(tag);
        self.letter("partition", location.partition);
        self.number("startblock", location.block);
        self.close(tag);
    }

    fn letter(&mut self, tag: &str, partition: Partition) {
        self.open(tag);
        self.out.push(partition.letter() as u8);
        self.close(tag);
    }

    fn text(&mut self, tag: &str, value: &str) {
        self.open(tag);
        escape_into(&mut self.out, value);
        self.close(tag);
    }

    fn number(&mut self, tag: &str, value: u64) {
        self.open(tag);
        // Writing to memory cannot fail.
        let _ = write!(self.out, "{value}");
        self.close(tag);
    }

    fn boolean(&mut self, tag: &str, value: bool) {
        self.text(tag, if value { "true" } else { "false" });
    }

    fn time(&mut self, tag: &str, value: Time) {
        self.open(tag);
        self.out.extend_from_slice(&time::encode(value));
        self.close(tag);
    }

    fn open(&mut self, tag: &str) {
        self.raw("<");
        self.raw(tag);
        self.raw(">");
    }

    fn close(&mut self, tag: &str) {
        self.raw("</");
        self.raw(tag);
        self.raw(">");
    }

    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

fn check(condition: bool, entry: &str, what: &'static str) -> Result<()> {
    if condition { Ok(()) } else { Err(WriteError::Value { entry: entry.to_owned(), what }) }
}

/// Names are keys without slashes that stay in their directory.
fn name_ok(name: &str) -> bool {
    key_ok(name) && name != "." && name != ".." && !name.contains('/')
}

/// Keys of attributes are 1 to 255 characters without those that stock LTFS refuses.
fn key_ok(key: &str) -> bool {
    let fits = !key.is_empty() && (key.len() <= 255 || key.chars().count() <= 255);
    fits && key.chars().all(xml_letter)
}

/// Whether a name or target of an index may have this character.
pub fn xml_letter(letter: char) -> bool {
    !matches!(letter, '\0' | '\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

fn text_ok(text: &str) -> bool {
    !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

/// The value as text, where every reader gets the same bytes back from it.
fn clean_text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let edges = text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
    let clean = text.chars().all(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    (clean && !edges).then_some(text)
}
