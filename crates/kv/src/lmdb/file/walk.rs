//! Reads the trees of an LMDB data file page by page and checks everything that LMDB takes for granted: that pages are
//! what their parents say, keys are in order and in their parents' bounds, no page is used twice.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use super::meta::{NO_ROOT, Tree};
use super::page::{Data, Fault, Kind, TreePage, overflow_data, overflow_pages};
use super::{Damage, LONGEST_EXTRA, Result};
use crate::MAX_VALUE;

/// Levels of the deepest tree that LMDB can work with.
const DEEPEST: u16 = 32;
/// Threads that walk a large tree.
const MAX_THREADS: usize = 8;
/// Subtrees that they share out.
const ENOUGH_WORK: usize = 64;

/// Takes the pairs of a tree.
pub(super) trait Pairs: Default + Send {
    /// The order of the tree's keys.
    fn order(a: &[u8], b: &[u8]) -> Ordering;
    /// Takes a pair, in no certain order.
    fn pair(&mut self, key: &[u8], data: &[u8]) -> Result<(), Fault>;
    /// Takes what `other` has taken.
    fn merge(&mut self, other: Self);
}

/// What one thread has seen of a tree.
#[derive(Default)]
struct Tally<P> {
    branches: u64,
    leaves: u64,
    overflows: u64,
    entries: u64,
    pairs: P,
}

/// A page of a tree with the pages below it. Its keys are `from <= key < to`.
struct Subtree {
    page: u64,
    /// Levels, the leaves' included.
    depth: u16,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// A file being walked.
pub(super) struct Walk<'f> {
    file: &'f File,
    page_size: usize,
    last_page: u64,
    /// A bit for each page that is used or free.
    seen: Vec<AtomicU64>,
}

impl<'f> Walk<'f> {
    /// Of the pages up to `last_page`, which lie inside the file.
    pub(super) fn new(file: &'f File, page_size: usize, last_page: u64) -> Self {
        let seen = (0..last_page / 64 + 1).map(|_| AtomicU64::new(0)).collect();
        Self { file, page_size, last_page, seen }
    }

    /// Notes that the `len` pages from `first` on have a purpose, which they must not have had yet.
    pub(super) fn claim(&self, first: u64, len: u64) -> Result<(), Fault> {
        if first < 2 || first > self.last_page || len > self.last_page - first + 1 {
            return Err(format!("it leads to page {first}, which is outside the file"));
        }
        for page in first..first + len {
            let bit = 1 << (page % 64);
            if self.seen[(page / 64) as usize].fetch_or(bit, Relaxed) & bit != 0 {
                return Err(format!("it leads to page {page}, which has a place elsewhere"));
            }
        }
        Ok(())
    }

    /// The highest page claimed, and the lowest one below it that is not.
    pub(super) fn extent(&self) -> (u64, Option<u64>) {
        let claimed = |page: u64| self.seen[(page / 64) as usize].load(Relaxed) >> (page % 64) & 1 == 1;
        let highest = (2..=self.last_page).rev().find(|page| claimed(*page)).unwrap_or(1);
        (highest, (2..highest).find(|page| !claimed(*page)))
    }

    fn read(&self, page: u64, pages: u64) -> Result<Vec<u8>> {
        if page > self.last_page {
            return Err(Damage::Page(page, "it is outside the file".into()));
        }
        let mut bytes = vec![0; pages as usize * self.page_size];
        match self.file.read_exact_at(&mut bytes, page * self.page_size as u64) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Damage::Page(page, "the file ends before it".into()))
            }
            Err(e) => Err(Damage::Io(page, e)),
        }
    }

    /// Walks `tree`, and compares it with what its meta page says of it.
    pub(super) fn tree<P: Pairs>(&self, tree: &Tree) -> Result<P> {
        let mut tally = Tally::<P>::default();
        if tree.root != NO_ROOT {
            if !(1..=DEEPEST).contains(&tree.depth) {
                return Err(Damage::File(format!("a tree of {} levels is impossible", tree.depth)));
            }
            self.claim(tree.root, 1).map_err(Damage::File)?;
            let root = Subtree { page: tree.root, depth: tree.depth, from: Vec::new(), to: None };
            self.share(root, &mut tally)?;
        }
        let is = (tally.branches, tally.leaves, tally.overflows, tally.entries);
        let want = (tree.branches, tree.leaves, tree.overflows, tree.entries);
        if is != want {
            let of = "branches, leaves, overflow pages and entries";
            return Err(Damage::File(format!("a tree has {is:?} {of} instead of {want:?}")));
        }
        Ok(tally.pairs)
    }

    /// Walks a tree, a large one with several threads.
    fn share<P: Pairs>(&self, root: Subtree, tally: &mut Tally<P>) -> Result<()> {
        let mut work = vec![root];
        while work.len() < ENOUGH_WORK && work[0].depth > 2 {
            let below = work.iter().map(|subtree| self.branch(subtree, tally));
            work = below.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        }
        let threads = thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS));
        if threads == 1 || work.len() < ENOUGH_WORK {
            return work.iter().try_for_each(|subtree| self.subtree(subtree, tally));
        }
        let next = AtomicUsize::new(0);
        let run = || {
            let mut tally = Tally::default();
            while let Some(subtree) = work.get(next.fetch_add(1, Relaxed)) {
                self.subtree(subtree, &mut tally)?;
            }
            Ok(tally)
        };
        let done: Vec<Result<Tally<P>>> = thread::scope(|s| {
            let threads: Vec<_> = (0..threads).map(|_| s.spawn(run)).collect();
            threads.into_iter().map(|t| t.join().expect("walking pages never panics")).collect()
        });
        done.into_iter().try_for_each(|other| other.map(|other| tally.merge(other)))
    }

    fn subtree<P: Pairs>(&self, subtree: &Subtree, tally: &mut Tally<P>) -> Result<()> {
        if subtree.depth == 1 {
            return self.leaf(subtree, tally);
        }
        self.branch(subtree, tally)?.iter().try_for_each(|child| self.subtree(child, tally))
    }

    /// Checks a branch and returns what is below it.
    fn branch<P: Pairs>(&self, of: &Subtree, tally: &mut Tally<P>) -> Result<Vec<Subtree>> {
        let bytes = self.read(of.page, 1)?;
        let here = |fault| Damage::Page(of.page, fault);
        let page = TreePage::new(&bytes, of.page, Kind::Branch).map_err(here)?;
        if page.len() < 2 {
            return Err(here("it is a branch with fewer than two children".into()));
        }
        check_order::<P>(of, (1..page.len()).map(|n| page.key(n))).map_err(here)?;
        tally.branches += 1;
        let child = |n| {
            self.claim(page.child(n), 1).map_err(here)?;
            Ok(Subtree {
                page: page.child(n),
                depth: of.depth - 1,
                from: if n == 0 { of.from.clone() } else { page.key(n).to_vec() },
                to: if n + 1 == page.len() { of.to.clone() } else { Some(page.key(n + 1).to_vec()) },
            })
        };
        (0..page.len()).map(child).collect()
    }

    fn leaf<P: Pairs>(&self, of: &Subtree, tally: &mut Tally<P>) -> Result<()> {
        let bytes = self.read(of.page, 1)?;
        let here = |fault| Damage::Page(of.page, fault);
        let page = TreePage::new(&bytes, of.page, Kind::Leaf).map_err(here)?;
        check_order::<P>(of, (0..page.len()).map(|n| page.key(n))).map_err(here)?;
        for n in 0..page.len() {
            match page.data(n).map_err(here)? {
                Data::Here(data) => tally.pairs.pair(page.key(n), data).map_err(here)?,
                Data::Overflow(first, len) => {
                    let pages = overflow_pages(len, self.page_size);
                    self.claim(first, pages).map_err(here)?;
                    let data = self.overflow(first, len)?;
                    tally.pairs.pair(page.key(n), &data).map_err(|fault| Damage::Page(first, fault))?;
                    tally.overflows += pages;
                }
            }
        }
        tally.leaves += 1;
        tally.entries += page.len() as u64;
        Ok(())
    }

    /// The `len` bytes in the overflow pages from `first` on.
    fn overflow(&self, first: u64, len: usize) -> Result<Vec<u8>> {
        let here = |fault| Damage::Page(first, fault);
        if len > MAX_VALUE + LONGEST_EXTRA {
            return Err(here(format!("a value of {len} bytes is impossible")));
        }
        let bytes = self.read(first, overflow_pages(len, self.page_size))?;
        overflow_data(&bytes, first, len, self.page_size).map(<[u8]>::to_vec).map_err(here)
    }

    /// What `f` makes of the last pair of `tree`; `None` if it is empty.
    pub(super) fn last<T>(&self, tree: &Tree, f: impl Fn(&[u8], &[u8]) -> Option<T>) -> Result<Option<T>> {
        let mut number = tree.root;
        for level in (0..tree.depth.min(DEEPEST)).rev() {
            let bytes = self.read(number, 1)?;
            let here = |fault| Damage::Page(number, fault);
            let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
            let page = TreePage::new(&bytes, number, kind).map_err(here)?;
            let Some(last) = page.len().checked_sub(1) else { return Ok(None) };
            if level > 0 {
                number = page.child(last);
                continue;
            }
            return Ok(match page.data(last).map_err(here)? {
                Data::Here(data) => f(page.key(last), data),
                Data::Overflow(first, len) => f(page.key(last), &self.overflow(first, len)?),
            });
        }
        Ok(None)
    }
}

/// Whether `keys` ascend within the bounds of `of`.
fn check_order<'k, P: Pairs>(of: &Subtree, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), Fault> {
    let mut before: Option<&[u8]> = None;
    for key in keys {
        let rises = match before {
            Some(before) => P::order(before, key) == Ordering::Less,
            None => of.from.is_empty() || P::order(&of.from, key) != Ordering::Greater,
        };
        if !rises {
            return Err("its keys are out of order".into());
        }
        before = Some(key);
    }
    match (before, &of.to) {
        (Some(last), Some(to)) if P::order(last, to) != Ordering::Less => {
            Err("it has keys that belong to its neighbour".into())
        }
        _ => Ok(()),
    }
}

impl<P: Pairs> Tally<P> {
    fn merge(&mut self, other: Self) {
        self.branches += other.branches;
        self.leaves += other.leaves;
        self.overflows += other.overflows;
        self.entries += other.entries;
        self.pairs.merge(other.pairs);
    }
}
