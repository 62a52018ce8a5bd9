//! A cartridge of the virtual library becomes as full as a large one without being written: records that hold nothing but
//! file data become longer, by holes. They can no longer be read in one command, so whoever reads data is found out.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest record (bytes).
const LONGEST: u64 = u32::MAX as u64;
/// The part of a cartridge that its index partition takes, where it has one: two of 280 wraps.
const INDEX: u64 = 140;
/// What is left free on the cartridge, as on one that was filled: one part in so many.
const FREE: u64 = 2000;

/// Stretches the records of `size` bytes that are filled with `fill`, on every cartridge in the directory, evenly until they
/// fill `capacity` bytes, and says so where the library keeps the capacity.
pub fn stretch(cartridges: &Path, fill: u8, size: u64, capacity: u64) -> Result<()> {
    for entry in fs::read_dir(cartridges)? {
        let dir = entry?.path();
        if dir.is_dir() {
            one(&dir, fill, size, capacity).with_context(|| format!("stretching {}", dir.display()))?;
        }
    }
    Ok(())
}

fn one(dir: &Path, fill: u8, size: u64, capacity: u64) -> Result<()> {
    let (mut found, mut buffer): (Vec<PathBuf>, _) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with("_R") || fs::metadata(&path)?.len() != size {
            continue;
        }
        buffer.clear();
        File::open(&path)?.read_to_end(&mut buffer)?;
        if buffer.iter().all(|b| *b == fill) {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "no record is all data");
    let description = dir.with_extension("cartridge");
    let partitions = partitions(&fs::read_to_string(&description)?, capacity);
    let data = partitions.last().copied().unwrap_or(0);
    let each = (data - capacity / FREE) / found.len() as u64;
    ensure!((size..=LONGEST).contains(&each), "{} records cannot hold {capacity} bytes", found.len());
    for path in &found {
        OpenOptions::new().write(true).open(path)?.set_len(each)?;
    }
    enlarge(&description, capacity, &partitions)
}

/// Capacities of as many partitions as the cartridge has.
fn partitions(description: &str, capacity: u64) -> Vec<u64> {
    match description.lines().filter(|line| line.starts_with("partition ")).count() {
        0 | 1 => vec![capacity],
        _ => vec![capacity.div_ceil(INDEX), capacity - capacity.div_ceil(INDEX)],
    }
}

/// Says how much the cartridge holds.
fn enlarge(description: &Path, capacity: u64, partitions: &[u64]) -> Result<()> {
    let text = fs::read_to_string(description)?;
    let mut partitions = partitions.iter();
    let line = |line: &str| match line.split_once(' ') {
        Some(("capacity", _)) => format!("capacity {capacity}\n"),
        Some(("partition", held)) => match partitions.next() {
            Some(bytes) => format!("partition {bytes}\n"),
            None => format!("partition {held}\n"),
        },
        _ => format!("{line}\n"),
    };
    Ok(fs::write(description, text.lines().map(line).collect::<String>())?)
}
