//! Inputs kept in the repository, in `corpus/<target>/`: `found.pack`, as few inputs as reach all code that was ever
//! reached (many and small, so they share a file: for each its length, four bytes little-endian, and its bytes), and
//! the inputs that once showed a defect, each in a file `regression-<what>`.

use crate::Target;
use std::io;
use std::path::{Path, PathBuf};

const PACK: &str = "found.pack";

fn directory(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Every input of a target with its name: what the repository has, then the seeds that the target's own code makes.
///
/// # Errors
/// When the corpus cannot be read or the pack is damaged.
pub fn inputs(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut paths = std::fs::read_dir(directory(target))?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let mut inputs = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path)?;
        if name == PACK {
            let unpacked =
                unpack(&bytes).ok_or_else(|| io::Error::other(format!("{}: damaged", path.display())))?;
            inputs.extend(unpacked.into_iter().enumerate().map(|(n, input)| (format!("found-{n}"), input)));
        } else {
            inputs.push((name, bytes));
        }
    }
    inputs.extend((target.seeds)().into_iter().enumerate().map(|(n, seed)| (format!("seed-{n}"), seed)));
    Ok(inputs)
}

/// Replaces the pack of a target by the files in a directory.
///
/// # Errors
/// When a file cannot be read or the pack not be written.
pub fn keep(target: &Target, from: &Path) -> io::Result<()> {
    let mut inputs =
        std::fs::read_dir(from)?.map(|entry| std::fs::read(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    std::fs::create_dir_all(directory(target))?;
    std::fs::write(directory(target).join(PACK), pack(&inputs))
}

fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    inputs.iter().flat_map(|input| [&(input.len() as u32).to_le_bytes(), input.as_slice()].concat()).collect()
}

fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        inputs.push(input.to_vec());
        bytes = rest;
    }
    Some(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_returns_and_a_cut_one_is_refused() {
        let inputs = vec![vec![], vec![1], vec![2; 300]];
        let packed = pack(&inputs);
        assert_eq!(unpack(&packed), Some(inputs));
        assert_eq!(unpack(&packed[..packed.len() - 1]), None);
    }
}
