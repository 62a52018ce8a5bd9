//! What a transaction reads from the server: one snapshot, over one connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::{join, join3};
use futures_util::{StreamExt, pin_mut};
use tokio_postgres::Row;

use super::Server;
use super::connection::Link;
use super::pool::{Pool, Taken};
use crate::batch::{Reads, Snapshot};
use crate::counted::Below;
use crate::key::Key;
use crate::lmdb::sealed;
use crate::merge::{Direction, Entry, Source};
use crate::patience::Fault;
use crate::{KvError, Result};

/// Rows of the first page of a scan, and of the largest.
const FIRST_PAGE: i64 = 32;
const LARGEST_PAGE: i64 = 2048;
/// A page ends when it holds this much (bytes).
const PAGE_BYTES: usize = 4 << 20;
/// Values that a transaction remembers.
const REMEMBERED: usize = 512;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A pair as it is stored.
pub(super) struct Stored {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// A snapshot, taken with the first thing that is read.
pub(super) struct Base<'c> {
    server: &'c Server,
    pool: &'c Pool<Option<Link>>,
    /// From the first reading on.
    place: OnceCell<Taken<'c, Option<Link>>>,
    begun: Cell<bool>,
    /// The server may still be sending rows of a page that was not read to its end.
    sending: Cell<bool>,
    /// What was read, where that matters.
    reads: Option<RefCell<Reads>>,
    /// Why nothing more can be read; what its closure says does not count then.
    fault: RefCell<Option<Fault>>,
    seen: RefCell<BTreeMap<Key, Option<Vec<u8>>>>,
}

impl<'c> Base<'c> {
    pub(super) fn new(server: &'c Server, pool: &'c Pool<Option<Link>>, noted: bool) -> Self {
        let (place, begun, sending, fault, seen) = Default::default();
        Self { server, pool, place, begun, sending, reads: noted.then(RefCell::default), fault, seen }
    }

    fn link(&self) -> Result<&Link, Fault> {
        let place = match self.place.get() {
            Some(place) => place,
            None => {
                let mut place = self.pool.take();
                Link::ready(&mut place, self.server)?;
                self.place.get_or_init(|| place)
            }
        };
        place.as_ref().ok_or_else(|| Fault::Lost("not connected".into()))
    }

    /// Keeps the reason for whoever began the transaction, and stops its closure.
    fn stop(&self, fault: Fault) -> KvError {
        self.fault.borrow_mut().get_or_insert(fault);
        KvError::Conflict
    }

    fn alive(&self) -> Result<()> {
        if self.fault.borrow().is_some() { Err(KvError::Conflict) } else { Ok(()) }
    }

    /// Begins the transaction together with the first thing that it does. Where it matters later what was read, everything acknowledged must be in it.
    fn begun_with<T>(
        &self,
        link: &Link,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        if self.begun.replace(true) {
            return link.conn.run(self.server, answer);
        }
        let begin = link.conn.client.batch_execute(BEGIN);
        if self.reads.is_none() {
            let both = async {
                let (begun, answer) = join(begin, answer).await;
                begun.and(answer)
            };
            return link.conn.run(self.server, both);
        }
        let known = self.server.acknowledged();
        let epoch = self.server.epoch();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&epoch];
        let all = async {
            let kept = link.conn.client.query(&link.statements.kept, &params);
            let (begun, kept, answer) = join3(begin, kept, answer).await;
            begun.and(kept).and_then(|kept| Ok((kept, answer?)))
        };
        let (kept, answer) = link.conn.run(self.server, all)?;
        match kept.first().map(|row| row.get::<_, i64>(0)) {
            Some(found) if found >= known => Ok(answer),
            // Another server than the one that changes go to; a new connection shows which.
            Some(_) => Err(Fault::Lost("a connection shows less than was acknowledged".into())),
            None => Err(self.server.lost_ownership(&link.conn)),
        }
    }

    /// One page: at most `limit` pairs with `from <= key < to`, and whether there may be more.
    fn page(&self, from: &[u8], to: &[u8], direction: Direction, limit: i64) -> Result<(Vec<Stored>, bool)> {
        self.alive()?;
        self.try_page(from, to, direction, limit).map_err(|fault| self.stop(fault))
    }

    fn try_page(
        &self,
        from: &[u8],
        to: &[u8],
        direction: Direction,
        limit: i64,
    ) -> Result<(Vec<Stored>, bool), Fault> {
        let link = self.link()?;
        let statement = match direction {
            Direction::Up => &link.statements.up,
            Direction::Down => &link.statements.down,
        };
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&from, &to, &limit];
        let read = async {
            let rows = link.conn.client.query_raw(statement, params).await?;
            pin_mut!(rows);
            let (mut page, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next().await {
                let row = row?;
                bytes += row.raw_size_bytes();
                page.push(row);
                if bytes > PAGE_BYTES {
                    self.sending.set(true);
                    return Ok((page, true)); // the rest is passed over when it comes
                }
            }
            let more = page.len() as i64 == limit;
            Ok((page, more))
        };
        let (rows, more) = self.begun_with(link, read)?;
        let pairs = rows.iter().map(|row| stored(self.server, row)).collect::<Result<_, _>>()?;
        Ok((pairs, more))
    }

    fn look(&self, key: &Key) -> Result<Option<Vec<u8>>, Fault> {
        let link = self.link()?;
        let rows = self.begun_with(link, link.conn.client.query(&link.statements.get, &[&key.bytes()]))?;
        Ok(rows.first().map(|row| stored(self.server, row)).transpose()?.map(|s| s.value))
    }
}

impl Below for Base<'_> {
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
        Ok(Box::new(Pages::new(self, range, direction)?))
    }
}

impl Snapshot for Base<'_> {
    fn finish(mut self) -> (Reads, Option<Fault>) {
        let fault = self.fault.take();
        if let Some(mut place) = self.place.take() {
            let lost = matches!(fault, Some(Fault::Lost(_)));
            let leaves = |link: &Link| match self.sending.get() {
                true => link.conn.batch(self.server, "ROLLBACK").is_ok(), // takes in what comes before the answer
                false => link.conn.leave(),
            };
            let left = !self.begun.get() || place.as_ref().is_some_and(leaves);
            if lost || !left {
                *place = None;
            }
        }
        (self.reads.take().map(RefCell::into_inner).unwrap_or_default(), fault)
    }
}

impl Drop for Base<'_> {
    /// Where its closure has panicked the snapshot is still open: nobody else may read of it.
    fn drop(&mut self) {
        if let Some(mut place) = self.place.take() {
            *place = None;
        }
    }
}

/// A row of `kv`: its value is the one that was stored.
pub(super) fn stored(server: &Server, row: &Row) -> Result<Stored, Fault> {
    let bad =
        |e: tokio_postgres::Error| Fault::Failed(server.refuses(&format!("a row is not as expected: {e}")));
    let (key, sealed): (&[u8], &[u8]) = (row.try_get(0).map_err(bad)?, row.try_get(1).map_err(bad)?);
    let value = sealed::open(key, sealed)
        .ok_or_else(|| KvError::BadValue { path: server.path(), key: key.into() })?;
    Ok(Stored { key: key.to_vec(), value: value.to_vec() })
}

/// The pairs of a range, page by page. What was looked at of it is noted when the scan ends.
struct Pages<'b, 'c> {
    base: &'b Base<'c>,
    /// What is asked for.
    whole: (Vec<u8>, Vec<u8>),
    /// What is left of it.
    from: Vec<u8>,
    to: Vec<u8>,
    direction: Direction,
    page: std::vec::IntoIter<Stored>,
    here: Option<Stored>,
    limit: i64,
    more: bool,
}

impl<'b, 'c> Pages<'b, 'c> {
    fn new(base: &'b Base<'c>, (from, to): (&[u8], &[u8]), direction: Direction) -> Result<Self> {
        let (from, to, page) = (from.to_vec(), to.to_vec(), Vec::new().into_iter());
        let (whole, here) = ((from.clone(), to.clone()), None);
        let mut pages = Self { base, whole, from, to, direction, page, here, limit: FIRST_PAGE, more: true };
        pages.advance()?;
        Ok(pages)
    }

    fn turn(&mut self) -> Result<()> {
        let (page, more) = self.base.page(&self.from, &self.to, self.direction, self.limit)?;
        if let Some(last) = page.last() {
            match self.direction {
                Direction::Up => {
                    self.from.clone_from(&last.key);
                    self.from.push(0); // the first key that can follow
                }
                Direction::Down => self.to.clone_from(&last.key),
            }
        }
        let short = (page.len() as i64) < self.limit;
        self.limit = match short && more {
            true => (page.len() as i64).max(1), // large values: ask for no more than fit
            false => (self.limit * 4).min(LARGEST_PAGE),
        };
        (self.page, self.more) = (page.into_iter(), more);
        Ok(())
    }
}

impl Source for Pages<'_, '_> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.here.as_ref().map(|s| (s.key.as_slice(), Some(s.value.as_slice())))
    }

    fn advance(&mut self) -> Result<()> {
        self.here = self.page.next();
        if self.here.is_none() && self.more {
            self.turn()?;
            self.here = self.page.next();
        }
        Ok(())
    }
}

impl Drop for Pages<'_, '_> {
    /// Up to the pair that it stands on, that one too; all where it has come to the end.
    fn drop(&mut self) {
        let Some(reads) = &self.base.reads else { return };
        let (from, to) = (&self.whole.0, &self.whole.1);
        match (&self.here, self.direction) {
            (None, _) => reads.borrow_mut().range(from, to),
            (Some(last), Direction::Up) => reads.borrow_mut().range(from, &[&last.key[..], &[0]].concat()),
            (Some(last), Direction::Down) => reads.borrow_mut().range(&last.key, to),
        }
    }
}
