//! What a transaction reads from the server: one snapshot, over one connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::join;
use futures_util::{StreamExt, pin_mut};
use tokio_postgres::Row;

use super::Server;
use super::connection::{Conn, Fault, Statements};
use crate::counted::Below;
use crate::counter::merged;
use crate::key::Key;
use crate::lmdb::sealed;
use crate::merge::{Direction, Entry, Source};
use crate::{KvError, Result};

/// Rows of the first page of a scan, and of the largest.
const FIRST_PAGE: i64 = 32;
const LARGEST_PAGE: i64 = 2048;
/// A page ends when it holds this much (bytes).
const PAGE_BYTES: usize = 4 << 20;
/// Values that a transaction remembers.
const REMEMBERED: usize = 512;

/// A pair as it is stored, its counter merged.
pub(super) struct Stored {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Column `c`.
    pub(super) kind: i16,
}

/// A value that was read.
struct Seen {
    value: Option<Vec<u8>>,
    /// Nobody else changes it.
    locked: bool,
}

/// A transaction at the server, begun by the first thing that needs it.
pub(super) struct Base<'c> {
    pub(super) server: &'c Server,
    pub(super) conn: &'c Conn,
    pub(super) statements: &'c Statements,
    begin: &'c str,
    pub(super) begun: Cell<bool>,
    /// Why nothing more can be read; what its closure says does not count then.
    fault: RefCell<Option<Fault>>,
    seen: RefCell<BTreeMap<Key, Seen>>,
}

impl<'c> Base<'c> {
    pub(super) fn new(
        server: &'c Server,
        conn: &'c Conn,
        statements: &'c Statements,
        begin: &'c str,
    ) -> Self {
        let (begun, fault, seen) = Default::default();
        Self { server, conn, statements, begin, begun, fault, seen }
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.borrow_mut().take()
    }

    /// Keeps the reason for whoever began the transaction, and stops its closure.
    fn stop(&self, fault: Fault) -> KvError {
        self.fault.borrow_mut().get_or_insert(fault);
        KvError::Conflict
    }

    fn alive(&self) -> Result<()> {
        if self.fault.borrow().is_some() { Err(KvError::Conflict) } else { Ok(()) }
    }

    /// The stored pairs of some keys.
    pub(super) fn lookup_all(&self, keys: &[&[u8]]) -> Result<Vec<Stored>, Fault> {
        let rows = self.begun_with(self.conn.client.query(&self.statements.get_many, &[&keys]))?;
        rows.iter().map(|row| stored(self.server, row)).collect()
    }

    /// Begins the transaction together with the first thing that it does.
    fn begun_with<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        if self.begun.replace(true) {
            return self.conn.run(self.server, answer);
        }
        let both = async {
            let (begun, answer) = join(self.conn.client.batch_execute(self.begin), answer).await;
            begun.and(answer)
        };
        self.conn.run(self.server, both)
    }

    /// Begins the transaction if nothing has yet.
    pub(super) fn begin(&self) -> Result<(), Fault> {
        if self.begun.replace(true) {
            return Ok(());
        }
        self.conn.batch(self.server, self.begin)
    }

    /// Gives the transaction up, if one is under way.
    pub(super) fn roll_back(&self) -> Result<(), Fault> {
        if !self.begun.replace(false) {
            return Ok(());
        }
        self.conn.batch(self.server, "ROLLBACK")
    }

    /// One page: at most `limit` pairs with `from <= key < to`, and whether there may be more.
    fn page(&self, from: &[u8], to: &[u8], direction: Direction, limit: i64) -> Result<(Vec<Stored>, bool)> {
        self.alive()?;
        let statement = match direction {
            Direction::Up => &self.statements.up,
            Direction::Down => &self.statements.down,
        };
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&from, &to, &limit];
        let read = async {
            let rows = self.conn.client.query_raw(statement, params).await?;
            pin_mut!(rows);
            let (mut page, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next().await {
                let row = row?;
                bytes += row.raw_size_bytes();
                page.push(row);
                if bytes > PAGE_BYTES {
                    return Ok((page, true)); // the rest is passed over when it comes
                }
            }
            let more = page.len() as i64 == limit;
            Ok((page, more))
        };
        let (rows, more) = self.begun_with(read).map_err(|fault| self.stop(fault))?;
        let pairs = rows.iter().map(|row| stored(self.server, row)).collect::<Result<_, _>>();
        Ok((pairs.map_err(|fault| self.stop(fault))?, more))
    }
}

impl Below for Base<'_> {
    fn lookup(&self, key: &Key, lock: bool) -> Result<Option<Vec<u8>>> {
        self.alive()?;
        if let Some(seen) = self.seen.borrow().get(key)
            && (seen.locked || !lock)
        {
            return Ok(seen.value.clone());
        }
        let statement = if lock { &self.statements.lock } else { &self.statements.get };
        let rows = self.begun_with(self.conn.client.query(statement, &[&key.bytes()]));
        let value = rows
            .and_then(|rows| rows.first().map(|row| stored(self.server, row)).transpose())
            .map_err(|fault| self.stop(fault))?
            .map(|s| s.value);
        let mut seen = self.seen.borrow_mut();
        if seen.len() < REMEMBERED {
            seen.insert(key.clone(), Seen { value: value.clone(), locked: lock });
        }
        Ok(value)
    }

    fn pages<'s>(&'s self, range: (&[u8], &[u8]), direction: Direction) -> Result<Box<dyn Source + 's>> {
        Ok(Box::new(Pages::new(self, range, direction)?))
    }
}

/// A row of `kv`: its value is the one that was stored, and what was added to it is in it.
fn stored(server: &Server, row: &Row) -> Result<Stored, Fault> {
    let bad =
        |e: tokio_postgres::Error| Fault::Failed(server.refuses(&format!("a row is not as expected: {e}")));
    let (key, sealed): (&[u8], &[u8]) = (row.try_get(0).map_err(bad)?, row.try_get(1).map_err(bad)?);
    let (kind, deltas): (i16, Option<Vec<i64>>) =
        (row.try_get(2).map_err(bad)?, row.try_get(3).map_err(bad)?);
    let value = sealed::open(key, sealed)
        .ok_or_else(|| KvError::BadValue { path: server.path(), key: key.into() })?;
    let value = merged(value.to_vec(), kind, deltas)?;
    Ok(Stored { key: key.to_vec(), value, kind })
}

/// The pairs of a range, page by page.
struct Pages<'b> {
    base: &'b Base<'b>,
    from: Vec<u8>,
    to: Vec<u8>,
    direction: Direction,
    page: std::vec::IntoIter<Stored>,
    here: Option<Stored>,
    limit: i64,
    more: bool,
}

impl<'b> Pages<'b> {
    fn new(base: &'b Base<'b>, (from, to): (&[u8], &[u8]), direction: Direction) -> Result<Self> {
        let (from, to, page) = (from.to_vec(), to.to_vec(), Vec::new().into_iter());
        let mut pages = Self { base, from, to, direction, page, here: None, limit: FIRST_PAGE, more: true };
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

impl Source for Pages<'_> {
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
