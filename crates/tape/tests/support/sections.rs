//! Sections of made-up files: written, read, found again.

use super::catalogue::{NOW, UUID};
use format::tar::index::SectionHead;
use format::tar::padding;
use format::tar::plan::{Place, Plan};
use std::ops::ControlFlow;
use std::path::Path;
use tape::{Mounted, Result, Room, SectionPoint};
use types::{ClassName, CopyNo, Digest, Extent, Ino, TapeFile, Version};

pub const BLOCK: u32 = 4096;

pub fn content(n: u64) -> Vec<u8> {
    (0..n * 1500 % 20_000).map(|at| (at * 31 + n) as u8).collect()
}

pub fn file(n: u64) -> TapeFile {
    let length = content(n).len() as u64;
    TapeFile {
        uid: n,
        ino: Ino(n),
        version: Version(1),
        copy: CopyNo(1),
        file_size: length,
        segment_offset: 0,
        segment_length: length,
        extents: vec![Extent { file_offset: 0, start_block: 0, byte_offset: 0, byte_count: length }],
        path: format!("/dir/file {n}").into_bytes(),
        mode: 0o100_644,
        uid_owner: 1,
        gid_owner: 2,
        times: [NOW; 4],
        digest: None,
        xattrs: Vec::new(),
        class: ClassName("default".to_owned()),
        written: NOW,
        live: true,
        node: Default::default(),
    }
}

/// Writes a section of these files; returns them with their places and where the next section goes.
pub fn append(
    mounted: &mut Mounted<'_>,
    point: &SectionPoint,
    files: &[u64],
) -> Result<(Vec<TapeFile>, SectionPoint)> {
    append_with(mounted, point, files, &[])
}

/// The same with what is known of their digests at its end.
pub fn append_with(
    mounted: &mut Mounted<'_>,
    point: &SectionPoint,
    files: &[u64],
    digests: &[Option<Digest>],
) -> Result<(Vec<TapeFile>, SectionPoint)> {
    let head = SectionHead {
        section: point.section + 1,
        volume: UUID.to_owned(),
        begun: NOW,
        sums: 0,
        attributes: Vec::new(),
    };
    let mut writer = mounted.begin_section(point, NOW)?;
    let place = Place { first_block: writer.first_data(), block_size: BLOCK };
    let plan = Plan::new(head, files.iter().map(|&n| file(n)).collect(), place).unwrap();
    let mut room = writer.write(plan.front())?;
    for entry in plan.entries() {
        writer.write(&plan.head(entry))?;
        let bytes = content(entry.file.uid);
        writer.write(&bytes)?;
        room = writer.write(&vec![0; padding(bytes.len() as u64) as usize])?;
    }
    if room != Room::Full {
        writer.write(&plan.back(digests))?;
    }
    let end = writer.close()?;
    Ok((plan.entries().iter().map(|entry| entry.file.clone()).collect(), end))
}

pub fn read(mounted: &mut Mounted<'_>, file: &TapeFile) -> Vec<u8> {
    let mut out = Vec::new();
    for extent in &file.extents {
        let _ = mounted
            .read(extent, &mut |_, piece| {
                out.extend_from_slice(piece);
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    out
}

/// All files of a volume from the medium alone, oldest section first.
pub fn rebuilt(mounted: &mut Mounted<'_>) -> (SectionPoint, Vec<TapeFile>) {
    let end = mounted.find_end().unwrap();
    let mut files = Vec::new();
    for section in mounted.sections(&end).unwrap().iter().rev() {
        if section.is_void() {
            continue;
        }
        let (head, entries) = mounted.read_list(section).unwrap();
        assert_eq!(head.section, section.label.section);
        files.extend(entries.into_iter().map(|entry| entry.file));
    }
    (end, files)
}

/// The cartridge as an AWS tape image: before each object its length and that of the one before (little-endian), and
/// flags: A0 a record, 40 a filemark.
pub fn aws_image(cartridge: &Path) -> Vec<u8> {
    let (mut image, mut before) = (Vec::new(), 0_u16);
    for block in 0.. {
        let record = std::fs::read(cartridge.join(format!("0_{block}_R"))).ok();
        if record.is_none() && !cartridge.join(format!("0_{block}_F")).exists() {
            break;
        }
        let flag = if record.is_some() { 0xa0 } else { 0x40 };
        let bytes = record.unwrap_or_default();
        let length = u16::try_from(bytes.len()).unwrap();
        image.extend([length.to_le_bytes(), before.to_le_bytes(), [flag, 0]].concat());
        image.extend(bytes);
        before = length;
    }
    image.extend([[0; 2], before.to_le_bytes(), [0x40, 0]].concat());
    image
}
