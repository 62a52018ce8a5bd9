//! Reads an LMDB data file without LMDB, trusting nothing in it. LMDB keeps no checksums and takes every page for good:
//! a damaged one can hide keys, give other values, or end the process. So the whole file is verified before LMDB maps
//! it, and again by every check. What is verified, and against what: `docs/formats/engine.md`.

mod meta;
mod page;
mod walk;

use std::cmp::Ordering;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use self::meta::{LAST_PAGE_AT, META_LEN, Meta};
use self::page::{Fault, u64_at};
use self::walk::{Pairs, Walk};
use super::at::{AT_KEY, At};
use super::last::LAST_KEY;
use super::sealed;
use super::tables::{RECORD_KEY, Tables};
use crate::KvError;

/// Bytes of a value in the file beyond those of the longest value: its sum, or the lists of free pages of LMDB.
const LONGEST_EXTRA: usize = 1 << 20;

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Damage {
    /// In one page.
    Page(u64, Fault),
    /// In the file as a whole.
    File(Fault),
    /// The storage below could not read or write a page.
    Io(u64, std::io::Error),
}

type Result<T, E = Damage> = std::result::Result<T, E>;

/// Pairs of the main tree.
#[derive(Default)]
struct Values {
    tables: Tables,
    record: Option<(u64, Tables)>,
}

impl Pairs for Values {
    fn order(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn pair(&mut self, key: &[u8], data: &[u8]) -> Result<(), Fault> {
        if key == RECORD_KEY {
            self.record = Some(Tables::decode(data).ok_or("the record of the tables is damaged")?);
            return Ok(());
        }
        if key == LAST_KEY {
            return sealed::open(key, data).map(drop).ok_or("the record of the last flush is damaged".into());
        }
        if key == AT_KEY {
            return At::decode(data).map(drop).ok_or("the record of the last batch is damaged".into());
        }
        if key.is_empty() || key.len() > crate::MAX_KEY {
            return Err(format!("a key of {} bytes is impossible", key.len()));
        }
        let sum = sealed::stored_sum(data).filter(|_| sealed::open(key, data).is_some());
        self.tables
            .add(key, sum.ok_or_else(|| format!("the value of key {} is damaged", crate::error::hex(key)))?);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.tables.merge(&other.tables);
        self.record = self.record.take().or(other.record);
    }
}

/// Pairs of the tree of free pages.
#[derive(Default)]
struct Free(Vec<u64>);

impl Pairs for Free {
    /// Keys are numbers of the machine; any others are met by `pair`.
    fn order(a: &[u8], b: &[u8]) -> Ordering {
        match (a.try_into(), b.try_into()) {
            (Ok(a), Ok(b)) => u64::from_ne_bytes(a).cmp(&u64::from_ne_bytes(b)),
            _ => a.cmp(b),
        }
    }

    /// A list of pages: how many, then their numbers.
    fn pair(&mut self, key: &[u8], data: &[u8]) -> Result<(), Fault> {
        let words = data.len() / 8;
        if key.len() != 8 || words == 0 || !data.len().is_multiple_of(8) || u64_at(data, 0) >= words as u64 {
            return Err("a list of free pages is damaged".into());
        }
        let listed = u64_at(data, 0) as usize;
        self.0.extend((1..=listed).map(|n| u64_at(data, n * 8)));
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// A state of the file that has been read from end to end and is what it was when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) tables: Tables,
    pub(super) page_size: u64,
    /// Pages in use or free, the meta pages included.
    pub(super) pages: u64,
}

/// Verifies the newest state of a file that nobody has open. Where the last write of a meta page failed, it is completed
/// first: what it leads to was on stable storage before.
pub(super) fn verify_closed(file: &File) -> Result<Verified> {
    let metas = metas(file)?;
    let (older, newest) =
        if metas[0].txn < metas[1].txn { (metas[0], metas[1]) } else { (metas[1], metas[0]) };
    let numbered = metas.iter().zip(0..).all(|(meta, n)| meta.txn % 2 == n);
    if !numbered || newest.txn != older.txn + 1 {
        let txns = (metas[0].txn, metas[1].txn);
        return Err(Damage::File(format!(
            "its meta pages are of transactions {txns:?}, which do not follow each other"
        )));
    }
    match record(file, &older)? {
        None if older.txn == 0 => verify(file, &newest),
        Some(txn) if txn == older.txn => verify(file, &newest),
        Some(txn) if txn == newest.txn + 1 => complete(file, &older, txn),
        found => Err(Damage::File(format!(
            "meta page {} of transaction {} leads to {found:?}",
            older.txn % 2,
            older.txn
        ))),
    }
}

/// Verifies the state of transaction `txn`, which a reader keeps in place; `None` if no meta page leads to it any more.
pub(super) fn verify_open(file: &File, txn: u64) -> Result<Option<Verified>> {
    let meta = metas(file)?.into_iter().find(|meta| meta.txn == txn);
    meta.map(|meta| verify(file, &meta)).transpose()
}

fn len(file: &File) -> Result<u64> {
    file.metadata().map(|m| m.len()).map_err(|e| Damage::Io(0, e))
}

fn metas(file: &File) -> Result<[Meta; 2]> {
    let read = |number: u64, at: u64| {
        let mut bytes = [0; META_LEN];
        match file.read_exact_at(&mut bytes, at) {
            Ok(()) => Meta::read(&bytes, number).map_err(|fault| Damage::Page(number, fault)),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Damage::File("it ends within its meta pages".into()))
            }
            Err(e) => Err(Damage::Io(number, e)),
        }
    };
    let first = read(0, 0)?;
    let second = read(1, first.page_size as u64)?;
    if first.page_size != second.page_size {
        return Err(Damage::File("its meta pages disagree about the size of pages".into()));
    }
    Ok([first, second])
}

/// Number of the transaction that wrote the record of the tables in the state of `meta`.
fn record(file: &File, meta: &Meta) -> Result<Option<u64>> {
    let pages = len(file)? / meta.page_size as u64;
    Walk::new(file, meta.page_size, pages.saturating_sub(1)).last(&meta.main, |key, data| {
        (key == RECORD_KEY).then(|| Tables::decode(data).map(|(txn, _)| txn)).flatten()
    })
}

fn verify(file: &File, meta: &Meta) -> Result<Verified> {
    let (is, needed) = (len(file)?, meta.last_page.saturating_add(1).saturating_mul(meta.page_size as u64));
    if is < needed {
        return Err(Damage::File(format!("it has {is} bytes of {needed}: its end is missing")));
    }
    let (verified, last_page) = walk(file, meta, meta.txn, meta.last_page)?;
    if last_page != meta.last_page {
        let last = meta.last_page;
        return Err(Damage::File(format!("its last page is {last_page} instead of {last}")));
    }
    Ok(verified)
}

/// Verifies the state of `meta` as that of transaction `txn`. Returns its last page, too.
fn walk(file: &File, meta: &Meta, txn: u64, last_page: u64) -> Result<(Verified, u64)> {
    let walk = Walk::new(file, meta.page_size, last_page);
    let Free(free) = walk.tree(&meta.free)?;
    free.iter()
        .try_for_each(|page| walk.claim(*page, 1))
        .map_err(|fault| Damage::File(format!("its list of free pages is damaged: {fault}")))?;
    let values: Values = walk.tree(&meta.main)?;
    let (highest, hole) = walk.extent();
    if let Some(page) = hole {
        return Err(Damage::File(format!("page {page} is neither used nor free")));
    }
    match values.record {
        Some((of, tables)) if of == txn => match tables.difference(&values.tables) {
            Some(difference) => Err(Damage::File(difference)),
            None => Ok((Verified { tables, page_size: meta.page_size as u64, pages: highest + 1 }, highest)),
        },
        Some((of, _)) => Err(Damage::File(format!("transaction {txn} leads to the record of {of}"))),
        None => Err(Damage::File("the record of its tables is missing".into())),
    }
}

/// LMDB has put back the number of `meta` after it could not write it, or the number is damaged: what it leads to is
/// transaction `txn`, all of whose pages are there.
fn complete(file: &File, meta: &Meta, txn: u64) -> Result<Verified> {
    let pages = len(file)? / meta.page_size as u64;
    let (verified, last_page) = walk(file, meta, txn, pages.saturating_sub(1))?;
    let numbers = [last_page.to_ne_bytes(), txn.to_ne_bytes()].concat();
    let at = (txn % 2) * meta.page_size as u64 + LAST_PAGE_AT as u64;
    file.write_all_at(&numbers, at).and_then(|()| file.sync_all()).map_err(|e| Damage::Io(txn % 2, e))?;
    Ok(verified)
}

impl Damage {
    /// As an error of the engine at `path`.
    pub(super) fn error(self, path: &Path) -> KvError {
        let path = path.to_path_buf();
        match self {
            Damage::Page(page, fault) => {
                KvError::Corrupt { path, detail: format!("data.mdb, page {page}: {fault}") }
            }
            Damage::File(fault) => KvError::Corrupt { path, detail: format!("data.mdb: {fault}") },
            Damage::Io(page, e) => KvError::Io { path, detail: format!("page {page} of data.mdb: {e}") },
        }
    }
}
