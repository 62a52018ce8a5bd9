//! What is really on the cartridges, read from their directories without any of our code: every copy that the catalogue
//! counts must be there, flushed.

use super::Bed;
use std::path::Path;
use types::*;

/// Block number of the end of data of a partition: what lies behind is only in the drive's buffer.
fn end_of_data(cartridge: &Path, partition: u8) -> Option<u64> {
    let prefix = format!("{partition}_");
    let names = std::fs::read_dir(cartridge).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let ends = names.filter_map(|n| n.strip_prefix(&prefix)?.strip_suffix("_E")?.parse().ok());
    ends.max()
}

fn segment(cartridge: &Path, segment: &Segment, into: &mut [u8]) -> Result<(), String> {
    // The end moves by rename: a listing may miss it for a moment.
    let end = (0..50).find_map(|_| end_of_data(cartridge, 1)).ok_or("no end of data")?;
    for e in &segment.extents {
        let (mut block, mut skip) = (e.start_block, e.byte_offset as usize);
        let (mut at, mut left) = (e.file_offset as usize, e.byte_count as usize);
        while left > 0 {
            if block >= end {
                return Err(format!("block {block} is not flushed, the data end at {end}"));
            }
            let path = cartridge.join(format!("1_{block}_R"));
            let record = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let piece = record.get(skip..).unwrap_or(&[]);
            let n = piece.len().min(left);
            if n == 0 {
                return Err(format!("{} is too short", path.display()));
            }
            into[at..at + n].copy_from_slice(&piece[..n]);
            (at, left, block, skip) = (at + n, left - n, block + 1, 0);
        }
    }
    Ok(())
}

/// Every copy of the current version that counts is on its cartridges byte by byte; returns how many there are.
pub fn counted_copies_are_there(bed: &Bed, path: &str, data: &[u8]) -> usize {
    let view = bed.stat(path);
    let file = view.file.unwrap();
    let Some(version) = view.versions.iter().find(|v| v.version == file.version) else {
        assert!(file.copies.is_empty(), "{path}: counted copies without a record");
        return 0;
    };
    for copy in version.copies.iter().filter(|c| file.copies.contains(&c.copy)) {
        let mut found = vec![0; data.len()];
        for part in &copy.segments {
            let dir = bed.node.config().library_path().join("cartridges").join(part.volume.as_str());
            let read = segment(&dir, part, &mut found);
            assert_eq!(read, Ok(()), "{path}: copy {} on volume {}", copy.copy, part.volume);
        }
        assert!(found == data, "{path}: copy {} is not what was written", copy.copy);
    }
    file.copies.len()
}
