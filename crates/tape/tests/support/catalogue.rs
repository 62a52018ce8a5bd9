//! What a catalogue would know of one volume, and the calls that keep it so.

use format::ltfs::Partition;
use format::ltfs::index::{Content, DirMeta, EntryTimes, IndexEvent, IndexExtent, IndexFile, IndexWriter};
use std::ops::ControlFlow;
use tape::{
    AppendPoint, Flushed, Formatted, IndexSpec, Indexed, Key, LabelSpec, Mounted, Onto, Overwrite, Result,
    Room,
};
use types::{Barcode, Extent, Time};

pub const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";
pub const NOW: Time = Time::new(1_760_000_000, 7);

pub fn barcode() -> Barcode {
    Barcode::from("TC0001L9")
}

/// A file as recorded: bytes and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub bytes: Vec<u8>,
    pub extents: Vec<Extent>,
}

/// The catalogue's view of a volume.
#[derive(Clone, Debug)]
pub struct Catalogue {
    pub point: AppendPoint,
    pub files: Vec<File>,
}

pub fn spec<'a>(barcode: &'a Barcode, block_size: u32, overwrite: Overwrite<'a>) -> LabelSpec<'a> {
    LabelSpec {
        barcode,
        uuid: UUID,
        block_size,
        pool: "default",
        creator: "Thermocline test",
        version: "0.1",
        now: NOW,
        attributes: &[],
        overwrite,
        key: None,
    }
}

impl Catalogue {
    pub fn new(made: &Formatted) -> Self {
        let point = AppendPoint {
            uuid: UUID.into(),
            block: made.append_block,
            vcr: made.vcr,
            generation: made.generation,
            index_block: made.index_block,
        };
        Self { point, files: Vec::new() }
    }

    pub fn format(mounted: &mut Mounted<'_>, block_size: u32) -> Result<Self> {
        Ok(Self::new(&mounted.format(&spec(&barcode(), block_size, Overwrite::OnlyBlank))?))
    }

    pub fn format_with(mounted: &mut Mounted<'_>, block_size: u32, key: Option<&Key>) -> Result<Self> {
        Self::format_over(mounted, block_size, key, Overwrite::OnlyBlank)
    }

    pub fn format_over(
        mounted: &mut Mounted<'_>,
        block_size: u32,
        key: Option<&Key>,
        overwrite: Overwrite<'_>,
    ) -> Result<Self> {
        let barcode = barcode();
        Ok(Self::new(&mounted.format(&LabelSpec { key, ..spec(&barcode, block_size, overwrite) })?))
    }

    /// Appends files as one batch; they are recorded only when it is flushed.
    pub fn append(&mut self, mounted: &mut Mounted<'_>, batch: &[Vec<u8>]) -> Result<Flushed> {
        let mut appender = mounted.appender(&self.point, 0)?;
        let mut files = Vec::new();
        for bytes in batch {
            let (start_block, byte_offset) = appender.here();
            let mut room = [&bytes[..], &[0xE7; tape::SPARE]].concat();
            assert_ne!(appender.write_from(&mut room)?, Room::Full);
            let (data, spare) = room.split_at(bytes.len());
            assert!(data == &bytes[..] && spare == [0xE7; tape::SPARE], "nothing is left of the sums");
            let byte_count = bytes.len() as u64;
            let extents = if bytes.is_empty() {
                Vec::new()
            } else {
                vec![Extent { file_offset: 0, start_block, byte_offset, byte_count }]
            };
            let name = format!("file{}", self.files.len() + files.len());
            files.push(File { name, bytes: bytes.clone(), extents });
        }
        let flushed = appender.flush()?;
        assert_eq!(flushed.safe_bytes, batch.iter().map(|b| b.len() as u64).sum::<u64>());
        self.record(flushed);
        self.files.extend(files);
        Ok(flushed)
    }

    pub fn record(&mut self, flushed: Flushed) {
        (self.point.block, self.point.vcr) = (flushed.append_block, flushed.vcr);
    }

    pub fn index(&mut self, mounted: &mut Mounted<'_>) -> Result<Indexed> {
        self.index_onto(mounted, Onto::Both)
    }

    pub fn index_onto(&mut self, mounted: &mut Mounted<'_>, onto: Onto) -> Result<Indexed> {
        let highest_uid = self.files.len() as u64 + 1;
        let spec = IndexSpec { point: &self.point, creator: "Thermocline test", highest_uid, now: NOW, onto };
        let files = &self.files;
        let done = mounted.write_index(&spec, &mut |w| Ok(write_tree(w, files)?))?;
        self.point.block = done.append_block;
        self.point.vcr = done.vcr;
        self.point.generation = done.generation;
        self.point.index_block = done.index_block;
        Ok(done)
    }

    /// Reads every recorded file by its extents and compares.
    pub fn verify(&self, mounted: &mut Mounted<'_>) {
        for file in &self.files {
            assert_eq!(read_file(mounted, file.bytes.len(), &file.extents), file.bytes, "{}", file.name);
        }
    }
}

pub fn read_file(mounted: &mut Mounted<'_>, length: usize, extents: &[Extent]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for extent in extents {
        let end = mounted.read(extent, &mut |offset, piece| {
            bytes[offset as usize..][..piece.len()].copy_from_slice(piece);
            ControlFlow::Continue(())
        });
        assert!(end.unwrap().is_continue());
    }
    bytes
}

fn times() -> EntryTimes {
    EntryTimes { creation: NOW, change: NOW, modify: NOW, access: NOW, backup: NOW }
}

pub fn write_tree(
    w: &mut IndexWriter<&mut dyn std::io::Write>,
    files: &[File],
) -> std::result::Result<(), format::ltfs::index::WriteError> {
    w.enter_dir(&DirMeta { name: "TC0001L9".into(), uid: 1, times: times(), ..DirMeta::default() })?;
    for (file, uid) in files.iter().zip(2..) {
        let extents = file.extents.iter().map(|&extent| IndexExtent { partition: Partition::DATA, extent });
        w.file(&IndexFile {
            name: file.name.clone(),
            uid,
            length: file.bytes.len() as u64,
            readonly: false,
            times: times(),
            xattrs: Vec::new(),
            content: Content::Extents(extents.collect()),
            unknown: Vec::new(),
        })?;
    }
    w.leave_dir()
}

/// A file of an index: name, length, extents.
pub type IndexedFile = (String, u64, Vec<Extent>);

/// Generation of the newest index, whether the index partition lacks it, and its files.
pub fn indexed_files(mounted: &mut Mounted<'_>) -> (u64, bool, Vec<IndexedFile>) {
    let mut files = Vec::new();
    let found = mounted.read_index(&mut |event| {
        if let IndexEvent::File(file) = event {
            let Content::Extents(extents) = &file.content else { panic!("no extents") };
            files.push((file.name.clone(), file.length, extents.iter().map(|e| e.extent).collect()));
        }
        ControlFlow::Continue(())
    });
    let found = found.unwrap();
    (found.header.generation, found.index_partition_stale, files)
}
