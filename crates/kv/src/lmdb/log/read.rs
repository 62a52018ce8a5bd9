//! Reading a chain: where it ends, bringing an engine forward, and letting go of what no backup needs.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::batch::{self, Batch};
use super::{MAGIC, POSITION_FILE};
use crate::lmdb::place::io_error;
use crate::{Durability, Engine, KvError, Result};

/// Which batches follow a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its chain.
    pub chain: String,
    /// The last batch that it holds.
    pub number: u64,
    /// It holds nothing later than this (milliseconds since 1970).
    pub time_ms: i64,
}

/// How far an engine was brought forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Batches applied.
    pub batches: u64,
    /// When the last of them was written (milliseconds since 1970).
    pub last_ms: Option<i64>,
    /// The chain goes on behind it.
    pub more: bool,
}

/// Where the log goes on behind a backup; None if it has none.
///
/// # Errors
/// It cannot be read.
pub fn position(backup: &Path) -> Result<Option<Position>> {
    let text = match fs::read_to_string(backup.join(POSITION_FILE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| io_error(backup, "reading its position in the change log", &e))?,
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let position = match fields[..] {
        // It becomes the name of a directory.
        [chain, number, time] if is_chain(chain) => {
            let (number, time_ms) = (number.parse().ok(), time.parse().ok());
            number.zip(time_ms).map(|(number, time_ms)| Position { chain: chain.to_owned(), number, time_ms })
        }
        _ => None,
    };
    position.map(Some).ok_or_else(|| KvError::Corrupt {
        path: backup.into(),
        detail: format!("its position in the change log is {:?}", text.trim_end()),
    })
}

/// Whether it is the name of a chain: two numbers.
fn is_chain(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.split_once('-').is_some_and(|(ms, behind)| number(ms) && number(behind))
}

/// When the newest chain was begun, by its name (milliseconds since 1970); -1 where there is none.
pub(super) fn newest_chain_ms(dir: &Path) -> io::Result<i64> {
    let chains = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(-1),
        chains => chains?,
    };
    let names = chains.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let begun = names.filter(|name| is_chain(name)).filter_map(|name| name.split_once('-')?.0.parse().ok());
    Ok(begun.max().unwrap_or(-1))
}

/// Applies to an engine the batches that follow `from`, up to those written at `until_ms` (milliseconds since 1970).
///
/// # Errors
/// The chain is not there, has a gap before that time, or is damaged; the engine cannot be written.
pub fn replay(engine: &dyn Engine, dir: &Path, from: &Position, until_ms: i64) -> Result<Replayed> {
    let chain = dir.join(&from.chain);
    let corrupt = |detail: String| KvError::Corrupt { path: chain.clone(), detail };
    let (mut done, mut last) = (Replayed::default(), from.number);
    let all = segments(&chain).map_err(|e| io_error(&chain, "reading the change log", &e))?;
    for (n, segment) in all.iter().enumerate() {
        let behind =
            all.get(n + 1).and_then(|next| first_of(next)).is_some_and(|first| first <= from.number + 1);
        if behind {
            continue;
        }
        let mut failed = Ok(());
        let end = each(segment, |batch, _| {
            if batch.number <= last {
                return true;
            }
            if batch.number != last + 1 {
                failed = Err(corrupt(format!("batch {} follows batch {last}", batch.number)));
                return false;
            }
            if batch.time_ms > until_ms {
                done.more = true;
                return false;
            }
            failed = apply(engine, &batch).and_then(|whole| match whole {
                true => Ok(()),
                false => Err(corrupt(format!("batch {} is damaged", batch.number))),
            });
            last = batch.number;
            done.batches += 1;
            done.last_ms = Some(batch.time_ms);
            failed.is_ok()
        });
        let end = end.map_err(|e| io_error(segment, "reading the change log", &e))?;
        failed?;
        if done.more {
            break;
        }
        if end == End::Torn && n + 1 < all.len() {
            return Err(corrupt(format!("segment {} is damaged behind batch {last}", segment.display())));
        }
    }
    engine.sync()?;
    Ok(done)
}

/// False if the batch is damaged: nothing of it was applied then.
fn apply(engine: &dyn Engine, batch: &Batch<'_>) -> Result<bool> {
    if batch.changes().any(|change| change.is_none()) {
        return Ok(false);
    }
    engine.write_dyn(Durability::Relaxed, &mut |w| {
        batch.changes().flatten().try_for_each(|(key, value)| match value {
            Some(value) => w.put(key, value),
            None => w.delete(key),
        })
    })?;
    Ok(true)
}

/// Removes what none of these backups needs: other chains, and segments that end before the earliest of them.
///
/// # Errors
/// Something cannot be removed.
pub fn prune(dir: &Path, needed: &[Position]) -> io::Result<()> {
    let chains = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        chains => chains?,
    };
    let names = chains.filter_map(|e| e.ok()?.file_name().into_string().ok());
    // Whatever else lies there is not ours to remove.
    let chains: Vec<String> = names.filter(|name| is_chain(name)).collect();
    let present = chains.iter().max();
    for chain in &chains {
        let path = dir.join(chain);
        let from = needed.iter().filter(|p| p.chain == *chain).map(|p| p.number).min();
        match from {
            Some(from) => {
                let all = segments(&path)?;
                for pair in all.windows(2) {
                    if first_of(&pair[1]).is_some_and(|next| next <= from + 1) {
                        fs::remove_file(&pair[0])?;
                    }
                }
            }
            // The newest is the one that is being written: its first backup is still to come.
            None if Some(chain) != present => fs::remove_dir_all(&path)?,
            None => {}
        }
    }
    Ok(())
}

/// The segment of a chain that was begun last.
pub(super) fn last_segment(chain: &Path) -> io::Result<Option<PathBuf>> {
    match segments(chain) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        all => Ok(all?.pop()),
    }
}

/// Where in the last segment of a chain batch `at` ends; None if it is not there, so that the chain has a gap.
pub(super) fn end_at(segment: &Path, at: u64) -> io::Result<Option<u64>> {
    let Some(first) = first_of(segment) else { return Ok(None) };
    let (mut last, mut end) = (first.saturating_sub(1), MAGIC.len() as u64);
    let whole = each(segment, |batch, behind| {
        if batch.number > at {
            return false;
        }
        (last, end) = (batch.number, behind);
        true
    })?;
    Ok((last == at && whole != End::NotOurs).then_some(end))
}

fn segments(chain: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = fs::read_dir(chain)?.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
    all.retain(|path| first_of(path).is_some());
    all.sort();
    Ok(all)
}

/// Number of a segment's first batch.
fn first_of(segment: &Path) -> Option<u64> {
    segment.file_name()?.to_str()?.parse().ok()
}

/// How reading a segment ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At its end, or by the caller.
    Whole,
    /// At something that is no whole batch.
    Torn,
    /// It is no segment.
    NotOurs,
}

/// Calls `f` with each batch and the position behind it, until it returns false.
fn each(segment: &Path, mut f: impl FnMut(Batch<'_>, u64) -> bool) -> io::Result<End> {
    let file = File::open(segment)?;
    let length = file.metadata()?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut magic = [0; MAGIC.len()];
    if length < MAGIC.len() as u64 {
        return Ok(End::NotOurs);
    }
    file.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Ok(End::NotOurs);
    }
    let (mut at, mut body) = (MAGIC.len() as u64, Vec::new());
    while at < length {
        let mut head = [0; batch::HEAD];
        if length - at < batch::HEAD as u64 {
            return Ok(End::Torn);
        }
        file.read_exact(&mut head)?;
        let (size, sum) = batch::head(head);
        at += batch::HEAD as u64;
        if u64::from(size) > length - at {
            return Ok(End::Torn);
        }
        body.resize(size as usize, 0);
        file.read_exact(&mut body)?;
        at += u64::from(size);
        let Some(batch) = batch::decode(&body, sum) else { return Ok(End::Torn) };
        if !f(batch, at) {
            return Ok(End::Whole);
        }
    }
    Ok(End::Whole)
}
