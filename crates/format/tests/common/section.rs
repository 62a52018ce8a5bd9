//! Sections in memory.

use format::tar::index::SectionHead;
use format::tar::padding;
use format::tar::plan::{Place, Plan};
use sha2::{Digest as _, Sha256};
use types::{Digest, Extent, TapeFile, Time};

pub const PLACE: Place = Place { first_block: 7, block_size: 4096 };

pub fn head() -> SectionHead {
    SectionHead {
        section: 1,
        volume: super::UUID.to_owned(),
        begun: Time::new(1_790_000_000, 5),
        sums: 0,
        attributes: vec![("pool".to_owned(), b"100%\n".to_vec())],
    }
}

/// The section of these files, whose whole content is given.
pub fn write(plan: &Plan, contents: &[Vec<u8>]) -> Vec<u8> {
    let mut out = plan.front().to_vec();
    let mut digests = Vec::new();
    for (entry, content) in plan.entries().iter().zip(contents) {
        assert_eq!(out.len() as u64, entry.offset);
        out.extend(plan.head(entry));
        let file = &entry.file;
        for extent in &file.extents {
            assert_eq!(out.len() as u64, at(extent));
            let from = extent.file_offset as usize;
            out.extend_from_slice(&content[from..from + extent.byte_count as usize]);
        }
        out.resize(out.len() + padding(out.len() as u64) as usize, 0);
        let segment = &content[file.segment_offset as usize..][..file.segment_length as usize];
        digests.push(Some(Digest(Sha256::digest(segment).into())));
    }
    out.extend(plan.back(&digests));
    assert_eq!(out.len() as u64, plan.length());
    out
}

/// Byte of the section at which an extent begins.
pub fn at(extent: &Extent) -> u64 {
    (extent.start_block - PLACE.first_block) * u64::from(PLACE.block_size) + u64::from(extent.byte_offset)
}

/// Reads one file alone, by its extents.
pub fn read_alone(section: &[u8], file: &TapeFile) -> Vec<u8> {
    let mut out = vec![0; file.segment_length as usize];
    for extent in &file.extents {
        let (from, to) = (at(extent) as usize, (extent.file_offset - file.segment_offset) as usize);
        let count = extent.byte_count as usize;
        out[to..to + count].copy_from_slice(&section[from..from + count]);
    }
    out
}
