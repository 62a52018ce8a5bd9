//! A place from which changes are made: a connection, and the number of the last transaction that went over it. The number is in the
//! database too, changed by each transaction, so that the outcome of one whose answer was lost can be looked up.

use super::Server;
use super::connection::{Conn, Fault, Statements};
use super::sql;

/// A connection for changes. Only one transaction at a time goes over it.
pub(super) struct Session {
    pub(super) slot: i64,
    /// Number of the last transaction that was committed or passed over.
    pub(super) last: i64,
    /// Whether the one after it may have been committed, and whether something may still be on its way over an earlier connection.
    pub(super) unsettled: bool,
    pub(super) link: Option<(Conn, Statements)>,
}

impl Session {
    pub(super) fn new(slot: i64) -> Self {
        Self { slot, last: 0, unsettled: false, link: None }
    }

    /// Connected, and certain of everything that was sent before.
    pub(super) fn ready(&mut self, server: &Server) -> Result<(), Fault> {
        if self.link.as_ref().is_some_and(|(conn, _)| conn.client.is_closed()) {
            self.link = None;
        }
        self.unsettled |= self.link.is_none() && self.last > 0;
        if self.unsettled {
            return self.settle(server).map(drop);
        }
        self.connect(server)
    }

    fn connect(&mut self, server: &Server) -> Result<(), Fault> {
        if self.link.is_none() {
            let conn = Conn::open(server)?;
            server.has_kept_all(&conn)?;
            let statements = conn.prepare(server)?;
            self.link = Some((conn, statements));
        }
        Ok(())
    }

    /// Whether the transaction after the last one was committed; if not, it never will be. Waits for a server process that still works on it.
    pub(super) fn settle(&mut self, server: &Server) -> Result<bool, Fault> {
        self.connect(server)?;
        let asked = self.last + 1;
        let found = self.ask(server, asked);
        if found.is_err() {
            self.link = None;
        }
        let committed = found? == asked;
        self.last = if committed { asked } else { asked + 1 };
        self.unsettled = false;
        server.acknowledge(self.slot, self.last);
        Ok(committed)
    }

    /// Number in the database. If it is not `asked`, the one after that takes its place, so that nothing that is on its way finds what it expects;
    /// asked again, because this answer was lost too, it says the same.
    fn ask(&self, server: &Server, asked: i64) -> Result<i64, Fault> {
        let Some((conn, _)) = &self.link else { return Err(Fault::Lost("not connected".into())) };
        let epoch = server.epoch();
        conn.batch(server, "BEGIN ISOLATION LEVEL READ COMMITTED")?;
        let rows = conn.rows(server, sql::LAST, &[&epoch, &self.slot])?;
        let Some(row) = rows.first() else { return Err(server.lost_ownership(conn)) };
        let found: i64 = row.get(0);
        if found != asked && found != asked + 1 {
            conn.rows(server, sql::SKIP, &[&epoch, &self.slot, &(asked + 1)])?;
        }
        conn.batch(server, "COMMIT")?;
        Ok(found)
    }
}
