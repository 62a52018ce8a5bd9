//! Trees to copy, and what is in them.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that do not compress and differ for each seed (SplitMix64).
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    words.flat_map(u64::to_le_bytes).take(length).collect()
}

/// Writes into a file, and into what it is to be then.
pub fn put(file: &File, model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    file.write_all_at(bytes, at).unwrap();
    let end = at as usize + bytes.len();
    model.resize(model.len().max(end), 0);
    model[at as usize..end].copy_from_slice(bytes);
}

/// Makes `count` files of odd lengths around `length` in directories of 50.
pub fn make_files(dir: &Path, count: usize, length: usize) {
    for n in 0..count {
        let parent = dir.join(format!("dir {}", n / 50));
        fs::create_dir_all(&parent).unwrap();
        let length = length / 2 + (n * 7919) % length.max(1);
        fs::write(parent.join(format!("file {n}")), noise(n as u64, length)).unwrap();
    }
}

/// SHA-256 in hexadecimal.
pub fn digest(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of every regular file below a directory, by relative path.
pub fn digests(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    walk(dir, Path::new(""), &mut found);
    found
}

fn walk(dir: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(&path, &name, found);
        } else if kind.is_file() {
            found.insert(name, digest_of(&path));
        }
    }
}

fn digest_of(path: &Path) -> String {
    let (mut file, mut hash) = (File::open(path).unwrap(), Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            0 => return hex(&hash.finalize()),
            n => hash.update(&buffer[..n]),
        }
    }
}
