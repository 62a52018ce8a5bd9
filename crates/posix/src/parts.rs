//! Several processes use one file, each a range of its own.

use crate::mapped;
use crate::random::Random;
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io;
use std::ops::Range;
use std::path::Path;

fn open(path: &Path) -> OwnedFd {
    fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("open the shared file")
}

/// Reads, writes, maps and syncs `range` (of whole pages) of the file, whose content there is `content`, and compares each
/// time. Panics at the first difference.
pub fn use_range(path: &Path, range: Range<usize>, content: &mut [u8], seed: u64, calls: usize) {
    let mut random = Random::new(seed);
    let mut fd = open(path);
    for call in 0..calls {
        let offset = random.below(range.len());
        let length = (1 + random.below(96 << 10)).min(range.len() - offset);
        let at = range.start + offset;
        let same = |got: &[u8], content: &[u8], what: &str| {
            let first = got.iter().zip(content).position(|(a, b)| a != b);
            assert!(got == content, "call {call} of {range:?}: {what} {at}+{length} differs at {first:?}");
        };
        match random.below(10) {
            0..4 => {
                let mut got = vec![0; length];
                let mut filled = 0;
                while filled < length {
                    let n = io::pread(&fd, &mut got[filled..], (at + filled) as u64).expect("read");
                    assert!(n > 0, "call {call}: the file ends at {}", at + filled);
                    filled += n;
                }
                same(&got, &content[offset..offset + length], "read");
            }
            4..7 => {
                let data = random.bytes(length);
                let mut done = 0;
                while done < length {
                    done += io::pwrite(&fd, &data[done..], (at + done) as u64).expect("write");
                }
                content[offset..offset + length].copy_from_slice(&data);
            }
            7 => {
                let page = offset / 4096 * 4096;
                let length = length.min(range.len() - page);
                let data = random.bytes(length);
                let got = mapped::exchange(&fd, range.start + page, length, Some(&data)).expect("mapping");
                same(&got, &content[page..page + length], "mapping");
                content[page..page + length].copy_from_slice(&data);
            }
            8 => fs::fsync(&fd).expect("fsync"),
            _ => fd = open(path),
        }
    }
}
