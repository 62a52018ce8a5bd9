//! What a transaction reads: the state at one moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use tikv_client::Timestamp;

use super::keys;
use super::link::Link;
use crate::batch::{Reads, Snapshot};
use crate::counted::Below;
use crate::key::Key;
use crate::merge::{Direction, Entry, Source};
use crate::patience::Fault;
use crate::{KvError, Result};

/// Rows of the first page of a scan, and of the largest: as many values of 64 KiB as fit into one answer.
const FIRST_PAGE: u32 = 32;
const LARGEST_PAGE: u32 = 512;
/// Values that a transaction remembers.
const REMEMBERED: usize = 512;

/// A state, asked for with the first thing that is read.
pub(super) struct Moment<'l> {
    link: &'l Link,
    at: RefCell<Option<(Timestamp, Instant)>>,
    /// What was read, where that matters.
    reads: Option<RefCell<Reads>>,
    seen: RefCell<BTreeMap<Key, Option<Vec<u8>>>>,
    /// Why nothing more can be read; what its closure says does not count then.
    fault: RefCell<Option<Fault>>,
}

impl<'l> Moment<'l> {
    pub(super) fn new(link: &'l Link, noted: bool) -> Self {
        let (at, seen, fault) = Default::default();
        Self { link, at, reads: noted.then(RefCell::default), seen, fault }
    }

    /// Keeps the reason for whoever began the transaction, and stops its closure.
    fn stop(&self, fault: Fault) -> KvError {
        self.fault.borrow_mut().get_or_insert(fault);
        KvError::Conflict
    }

    fn moment(&self) -> Result<Timestamp, Fault> {
        if let Some((at, _)) = &*self.at.borrow() {
            return Ok(at.clone());
        }
        let (asked, now) = (Instant::now(), self.link.now()?);
        *self.at.borrow_mut() = Some((now.clone(), asked));
        Ok(now)
    }

    /// Behind everything that is read of it.
    fn is_whole(&self) -> Result<(), Fault> {
        self.at.borrow().as_ref().map_or(Ok(()), |(at, asked)| self.link.has_kept(at, *asked))
    }

    /// The value that is stored so at `key`.
    fn value(&self, at: &Timestamp, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, Fault> {
        value(self.link, at, key, stored)
    }

    fn look(&self, key: &Key) -> Result<Option<Vec<u8>>, Fault> {
        let at = self.moment()?;
        let stored = self.link.get(&at, self.link.names.data(key.bytes()))?;
        let value = stored.map(|stored| self.value(&at, key.bytes(), &stored)).transpose();
        self.is_whole().and(value)
    }

    fn alive(&self) -> Result<()> {
        if self.fault.borrow().is_some() { Err(KvError::Conflict) } else { Ok(()) }
    }
}

/// The value that is stored so at `key`, with its pieces.
pub(super) fn value(link: &Link, at: &Timestamp, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let bad = || KvError::BadValue { path: link.path(), key: key.into() };
    keys::value(key, stored, bad, |count| {
        let names: Vec<_> = (0..count).map(|n| link.names.piece(key, n)).collect();
        let mut found = link.get_all(at, &names)?;
        let pieces = names.iter().map(|name| found.remove(name).ok_or_else(|| Fault::Failed(bad())));
        Ok(pieces.collect::<Result<Vec<_>, Fault>>()?.concat())
    })
}

impl Below for Moment<'_> {
    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.alive()?;
        if let Some(reads) = &self.reads {
            reads.borrow_mut().key(key);
        }
        if let Some(value) = self.seen.borrow().get(key) {
            return Ok(value.clone());
        }
        let value = self.look(key).map_err(|fault| self.stop(fault))?;
        let mut seen = self.seen.borrow_mut();
        if seen.len() < REMEMBERED {
            seen.insert(key.clone(), value.clone());
        }
        Ok(value)
    }

    fn pages<'s>(&'s self, range: (&[u8], &[u8]), direction: Direction) -> Result<Box<dyn Source + 's>> {
        let (from, to, page) = (range.0.to_vec(), range.1.to_vec(), Vec::new().into_iter());
        let mut pages =
            Pages { moment: self, from, to, direction, page, here: None, limit: FIRST_PAGE, more: true };
        pages.advance()?;
        Ok(Box::new(pages))
    }
}

impl Snapshot for Moment<'_> {
    fn finish(self) -> (Reads, Option<Fault>) {
        (self.reads.map(RefCell::into_inner).unwrap_or_default(), self.fault.into_inner())
    }
}

/// The pairs of a range, page by page.
struct Pages<'m> {
    moment: &'m Moment<'m>,
    from: Vec<u8>,
    to: Vec<u8>,
    direction: Direction,
    page: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    here: Option<(Vec<u8>, Vec<u8>)>,
    limit: u32,
    more: bool,
}

impl Pages<'_> {
    fn turn(&mut self) -> Result<(), Fault> {
        if self.from >= self.to {
            self.more = false;
            return Ok(());
        }
        let (link, at) = (self.moment.link, self.moment.moment()?);
        let range = (&link.names.data(&self.from)[..], &link.names.data(&self.to)[..]);
        let pairs = link.page(&at, range, self.direction, self.limit)?;
        self.moment.is_whole()?;
        self.more = pairs.len() as u64 == u64::from(self.limit);
        self.limit = (self.limit * 4).min(LARGEST_PAGE);
        let own = |(name, stored): (Vec<u8>, Vec<u8>)| {
            let key = link.names.key(&name).map(<[u8]>::to_vec);
            let key = key.ok_or_else(|| link.refuses("a scan gave a key that was not asked for"))?;
            Ok((key, stored))
        };
        let page = pairs.into_iter().map(own).collect::<Result<Vec<_>>>()?;
        let rest = match (page.last().filter(|_| self.more), self.direction) {
            // the first key that can follow
            (Some((last, _)), Direction::Up) => ([last, &[0][..]].concat(), self.to.clone()),
            (Some((last, _)), Direction::Down) => (self.from.clone(), last.clone()),
            (None, _) => (self.to.clone(), self.to.clone()),
        };
        if let Some(reads) = &self.moment.reads {
            match self.direction {
                Direction::Up => reads.borrow_mut().range(&self.from, &rest.0),
                Direction::Down if self.more => reads.borrow_mut().range(&rest.1, &self.to),
                Direction::Down => reads.borrow_mut().range(&self.from, &self.to),
            }
        }
        (self.from, self.to) = rest;
        self.page = page.into_iter();
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        let mut next = self.page.next();
        if next.is_none() && self.more {
            self.turn()?;
            next = self.page.next();
        }
        let Some((key, stored)) = next else {
            self.here = None;
            return Ok(());
        };
        let at = self.moment.moment()?;
        let value = self.moment.value(&at, &key, &stored);
        self.moment.is_whole()?;
        let value = value?;
        self.here = Some((key, value));
        Ok(())
    }
}

impl Source for Pages<'_> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.here.as_ref().map(|(key, value)| (key.as_slice(), Some(value.as_slice())))
    }

    fn advance(&mut self) -> Result<()> {
        self.moment.alive()?;
        self.step().map_err(|fault| self.moment.stop(fault))
    }
}
