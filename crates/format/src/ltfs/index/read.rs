//! Reading an index as a stream of events.

use super::{Content, DirMeta, EntryTimes, IndexExtent, IndexFile, IndexHeader, Location, Xattr};
use crate::ltfs::xml::{Step, Xml, XmlError};
use crate::ltfs::{Partition, is_uuid, readable_version};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::io::BufRead;
use std::ops::ControlFlow;
use types::{Extent, Time};

/// Why an index could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// A format version that we do not know.
    #[error("the index has format version {found}; versions 1.0.0 to 2.99.99 can be read")]
    Version {
        /// Version found.
        found: String,
    },
    /// Not an index, or a broken one. Events before the error were sound.
    #[error("the index is damaged at byte {offset}: {what}")]
    Damaged {
        /// Offset in the index (bytes).
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

impl From<XmlError> for IndexError {
    fn from(error: XmlError) -> Self {
        Self::Damaged { offset: error.offset, what: error.what }
    }
}

type Result<T> = std::result::Result<T, IndexError>;

/// What [`parse`] meets, in order of the document.
#[derive(Debug)]
pub enum IndexEvent<'a> {
    /// The header; first and once.
    Header(&'a IndexHeader),
    /// A directory begins; the first one is the root.
    EnterDir(&'a DirMeta),
    /// A file of the present directory.
    File(&'a IndexFile),
    /// The present directory ends.
    LeaveDir,
}

/// Deepest tree that is followed.
const MAX_DEPTH: u32 = 4096;

/// Reads an index and hands its parts to `visit`, which may stop with `Break` (returned then). After an error the
/// parts seen so far must not be taken for the whole. Elements without meaning to us are kept with the entry that they
/// belong to, except behind a directory's `contents` and behind the root directory, where they are passed over.
pub fn parse<R: BufRead>(
    input: R,
    visit: &mut dyn FnMut(IndexEvent<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let mut parser = Parser { xml: Xml::new(input), legacy: false, visit };
    match parser.document() {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(Stop::Asked) => Ok(ControlFlow::Break(())),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why parsing ends early.
enum Stop {
    Asked,
    Error(IndexError),
}

impl From<XmlError> for Stop {
    fn from(error: XmlError) -> Self {
        Self::Error(error.into())
    }
}

struct Parser<'v, R> {
    xml: Xml<R>,
    /// Format before 2.0: entries have no uid and extents no file offset.
    legacy: bool,
    visit: &'v mut dyn FnMut(IndexEvent<'_>) -> ControlFlow<()>,
}

/// The parts that files and directories share.
#[derive(Default)]
struct Entry {
    name: Option<String>,
    uid: Option<u64>,
    readonly: Option<bool>,
    creation: Option<Time>,
    change: Option<Time>,
    modify: Option<Time>,
    access: Option<Time>,
    backup: Option<Time>,
    xattrs: Vec<Xattr>,
    unknown: Vec<String>,
}

#[derive(Default)]
struct PartialHeader {
    creator: Option<String>,
    comment: Option<String>,
    uuid: Option<String>,
    generation: Option<u64>,
    update_time: Option<Time>,
    location: Option<Location>,
    previous: Option<Location>,
    allow_policy_update: Option<bool>,
    highest_file_uid: Option<u64>,
    unknown: Vec<String>,
}

impl<R: BufRead> Parser<'_, R> {
    fn document(&mut self) -> std::result::Result<(), Stop> {
        if self.xml.step()? != Step::Open || self.xml.name() != b"ltfsindex" {
            return Err(self.xml.error("not an LTFS index (no <ltfsindex>)").into());
        }
        let version = self.xml.attribute("version").unwrap_or_default();
        if !readable_version(&version) {
            return Err(Stop::Error(IndexError::Version { found: version }));
        }
        self.legacy = version.starts_with("1.");
        let mut header = PartialHeader::default();
        while self.xml.child()? {
            if self.xml.name() == b"directory" {
                let header = self.complete_header(header)?;
                self.visit(IndexEvent::Header(&header))?;
                self.tree()?;
                return self.rest();
            }
            self.header_element(&mut header)?;
        }
        Err(self.xml.error("no root <directory>").into())
    }

    /// Behind the root directory only the end of the index may follow, and elements unknown to us.
    fn rest(&mut self) -> std::result::Result<(), Stop> {
        while self.xml.child()? {
            if self.xml.name() == b"directory" {
                return Err(self.xml.error("a second root <directory>").into());
            }
            self.xml.skip()?;
        }
        Ok(())
    }

    fn visit(&mut self, event: IndexEvent<'_>) -> std::result::Result<(), Stop> {
        match (self.visit)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        }
    }

    fn header_element(&mut self, header: &mut PartialHeader) -> std::result::Result<(), XmlError> {
        let xml = &mut self.xml;
        match xml.name() {
            b"creator" => header.creator = Some(xml.text()?.to_owned()),
            b"comment" => header.comment = Some(xml.text()?.to_owned()),
            b"volumeuuid" => {
                let uuid = |text: &str| is_uuid(text.trim()).then(|| text.trim().to_owned());
                header.uuid = Some(xml.value("a uuid", uuid)?);
            }
            b"generationnumber" => header.generation = Some(xml.number()?),
            b"updatetime" => header.update_time = Some(xml.time()?),
            b"location" => header.location = Some(self.location()?),
            b"previousgenerationlocation" => header.previous = Some(self.location()?),
            b"allowpolicyupdate" => header.allow_policy_update = Some(xml.boolean()?),
            b"highestfileuid" => header.highest_file_uid = Some(xml.number()?),
            _ => header.unknown.push(xml.keep()?),
        }
        Ok(())
    }

    fn complete_header(&self, header: PartialHeader) -> std::result::Result<IndexHeader, XmlError> {
        let missing = |what: &str| self.xml.error(format!("no <{what}> before the root directory"));
        let uid = header.highest_file_uid.or(self.legacy.then_some(0));
        Ok(IndexHeader {
            creator: header.creator.ok_or_else(|| missing("creator"))?,
            comment: header.comment,
            volume_uuid: header.uuid.ok_or_else(|| missing("volumeuuid"))?,
            generation: header.generation.ok_or_else(|| missing("generationnumber"))?,
            update_time: header.update_time.ok_or_else(|| missing("updatetime"))?,
            location: header.location.ok_or_else(|| missing("location"))?,
            previous: header.previous,
            allow_policy_update: header.allow_policy_update.ok_or_else(|| missing("allowpolicyupdate"))?,
            highest_file_uid: uid.ok_or_else(|| missing("highestfileuid"))?,
            unknown: header.unknown,
        })
    }

    fn location(&mut self) -> std::result::Result<Location, XmlError> {
        let (mut partition, mut block) = (None, None);
        while self.xml.child()? {
            match self.xml.name() {
                b"partition" => partition = Some(self.xml.partition()?),
                b"startblock" => block = Some(self.xml.number()?),
                _ => self.xml.skip()?,
            }
        }
        match (partition, block) {
            (Some(partition), Some(block)) => Ok(Location { partition, block }),
            _ => Err(self.xml.error("a location without <partition> or <startblock>")),
        }
    }

    /// The root directory, already opened, and all below it. Keeps a depth instead of recursing.
    fn tree(&mut self) -> std::result::Result<(), Stop> {
        let mut depth = u32::from(self.enter_directory(true)?);
        while depth > 0 {
            if !self.xml.child()? {
                self.leave_directory()?;
                depth -= 1;
                continue;
            }
            match self.xml.name() {
                b"directory" if depth == MAX_DEPTH => {
                    return Err(self.xml.error(format!("more than {MAX_DEPTH} directories deep")).into());
                }
                b"directory" => depth += u32::from(self.enter_directory(false)?),
                b"file" => {
                    let file = self.file()?;
                    self.visit(IndexEvent::File(&file))?;
                }
                _ => self.xml.skip()?,
            }
        }
        Ok(())
    }

    /// Reads a directory up to its contents; false if it has none, and then it is over.
    fn enter_directory(&mut self, root: bool) -> std::result::Result<bool, Stop> {
        let mut entry = Entry::default();
        let mut contents = false;
        while !contents && self.xml.child()? {
            if self.xml.name() == b"contents" {
                contents = true;
            } else {
                self.entry_element(&mut entry)?;
            }
        }
        let times = self.entry_times(&entry)?;
        let uid = self.entry_uid(&entry)?;
        let name = entry.name.filter(|name| root || !name.is_empty());
        let dir = DirMeta {
            name: name.ok_or_else(|| self.xml.error("a directory without <name> before <contents>"))?,
            uid,
            readonly: entry.readonly.unwrap_or(false),
            times,
            xattrs: entry.xattrs,
            unknown: entry.unknown,
        };
        self.visit(IndexEvent::EnterDir(&dir))?;
        if !contents {
            self.visit(IndexEvent::LeaveDir)?;
        }
        Ok(contents)
    }

    fn leave_directory(&mut self) -> std::result::Result<(), Stop> {
        while self.xml.child()? {
            if self.xml.name() == b"contents" {
                return Err(self.xml.error("a directory with two <contents>").into());
            }
            self.xml.skip()?;
        }
        self.visit(IndexEvent::LeaveDir)
    }

    fn file(&mut self) -> std::result::Result<IndexFile, XmlError> {
        let mut entry = Entry::default();
        let (mut length, mut extents, mut symlink) = (None, Vec::new(), None);
        while self.xml.child()? {
            match self.xml.name() {
                b"length" => length = Some(self.xml.number()?),
                b"extentinfo" => self.extents(&mut extents)?,
                b"symlink" => symlink = Some(self.xml.name_value()?),
                _ => self.entry_element(&mut entry)?,
            }
        }
        let times = self.entry_times(&entry)?;
        let uid = self.entry_uid(&entry)?;
        let name = entry.name.filter(|name| !name.is_empty());
        Ok(IndexFile {
            name: name.ok_or_else(|| self.xml.error("a file without <name>"))?,
            uid,
            length: length.ok_or_else(|| self.xml.error("a file without <length>"))?,
            readonly: entry.readonly.unwrap_or(false),
            times,
            xattrs: entry.xattrs,
            content: symlink.map_or(Content::Extents(extents), Content::Symlink),
            unknown: entry.unknown,
        })
    }

    fn entry_element(&mut self, entry: &mut Entry) -> std::result::Result<(), XmlError> {
        let xml = &mut self.xml;
        match xml.name() {
            b"name" => entry.name = Some(self.entry_name()?),
            b"fileuid" => entry.uid = Some(xml.number()?),
            b"readonly" => entry.readonly = Some(xml.boolean()?),
            b"creationtime" => entry.creation = Some(xml.time()?),
            b"changetime" => entry.change = Some(xml.time()?),
            b"modifytime" => entry.modify = Some(xml.time()?),
            b"accesstime" => entry.access = Some(xml.time()?),
            b"backuptime" => entry.backup = Some(xml.time()?),
            b"extendedattributes" => self.xattrs(&mut entry.xattrs)?,
            _ => entry.unknown.push(xml.keep()?),
        }
        Ok(())
    }

    /// A name that stays within its directory, whoever wrote it and whoever makes a path of it.
    fn entry_name(&mut self) -> std::result::Result<String, XmlError> {
        let name = self.xml.name_value()?;
        if name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(self.xml.error(format!("the name {name:?} is not allowed")));
        }
        Ok(name)
    }

    /// Every version of the format demands four of the times; backup time is optional.
    fn entry_times(&self, entry: &Entry) -> std::result::Result<EntryTimes, XmlError> {
        let need = |time: Option<Time>, what: &str| {
            time.ok_or_else(|| self.xml.error(format!("an entry {:?} without <{what}>", entry.name)))
        };
        Ok(EntryTimes {
            creation: need(entry.creation, "creationtime")?,
            change: need(entry.change, "changetime")?,
            modify: need(entry.modify, "modifytime")?,
            access: need(entry.access, "accesstime")?,
            backup: entry.backup.unwrap_or_default(),
        })
    }

    fn entry_uid(&self, entry: &Entry) -> std::result::Result<u64, XmlError> {
        let uid = entry.uid.or(self.legacy.then_some(0));
        uid.ok_or_else(|| self.xml.error(format!("an entry {:?} without <fileuid>", entry.name)))
    }

    fn xattrs(&mut self, out: &mut Vec<Xattr>) -> std::result::Result<(), XmlError> {
        while self.xml.child()? {
            if self.xml.name() != b"xattr" {
                self.xml.skip()?;
                continue;
            }
            let (mut key, mut value) = (None, None);
            while self.xml.child()? {
                match self.xml.name() {
                    b"key" => key = Some(self.xml.name_value()?),
                    b"value" => value = Some(self.xattr_value()?),
                    _ => self.xml.skip()?,
                }
            }
            match (key, value) {
                (Some(key), Some(value)) => out.push(Xattr { key, value }),
                _ => return Err(self.xml.error("an <xattr> without <key> or <value>")),
            }
        }
        Ok(())
    }

    fn xattr_value(&mut self) -> std::result::Result<Vec<u8>, XmlError> {
        match self.xml.attribute("type").as_deref() {
            None | Some("text") => Ok(self.xml.text()?.as_bytes().to_vec()),
            Some("base64") => self.xml.value("base64", |text| {
                let packed: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
                STANDARD.decode(packed).ok()
            }),
            Some(other) => {
                let what = format!("an extended attribute of unknown type {other:?}");
                Err(self.xml.error(what))
            }
        }
    }

    fn extents(&mut self, out: &mut Vec<IndexExtent>) -> std::result::Result<(), XmlError> {
        while self.xml.child()? {
            if self.xml.name() == b"extent" {
                let previous =
                    out.last().map_or(0, |e| e.extent.file_offset.saturating_add(e.extent.byte_count));
                out.push(self.extent(self.legacy.then_some(previous))?);
            } else {
                self.xml.skip()?;
            }
        }
        Ok(())
    }

    fn extent(&mut self, implied: Option<u64>) -> std::result::Result<IndexExtent, XmlError> {
        let (mut partition, mut block, mut count): (Option<Partition>, Option<u64>, Option<u64>) =
            (None, None, None);
        let (mut byte_offset, mut file_offset) = (None, implied);
        while self.xml.child()? {
            match self.xml.name() {
                b"partition" => partition = Some(self.xml.partition()?),
                b"startblock" => block = Some(self.xml.number()?),
                b"byteoffset" => {
                    byte_offset = Some(self.xml.value("a byte offset", |t| t.trim().parse().ok())?)
                }
                b"bytecount" => count = Some(self.xml.number()?),
                b"fileoffset" => file_offset = Some(self.xml.number()?),
                _ => self.xml.skip()?,
            }
        }
        let missing = |what: &str| self.xml.error(format!("an extent without <{what}>"));
        let extent = Extent {
            file_offset: file_offset.ok_or_else(|| missing("fileoffset"))?,
            start_block: block.ok_or_else(|| missing("startblock"))?,
            byte_offset: byte_offset.ok_or_else(|| missing("byteoffset"))?,
            byte_count: count.ok_or_else(|| missing("bytecount"))?,
        };
        Ok(IndexExtent { partition: partition.ok_or_else(|| missing("partition"))?, extent })
    }
}
