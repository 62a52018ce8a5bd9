//! The connection that changes go over, and the number of the last transaction. The number is in the database too, changed by each transaction, so that the
//! outcome of one whose answer was lost can be looked up.

use super::Server;
use super::connection::Link;
use super::sql;
use crate::Result;
use crate::patience::Fault;

/// Where one transaction after another is committed.
pub(super) struct Session {
    /// Number of the last transaction that was committed or passed over.
    pub(super) last: i64,
    /// Whether the one after it may have been committed, or something may still be on its way over an earlier connection.
    pub(super) unsettled: bool,
    link: Option<Link>,
}

impl Session {
    /// Of an owner who has committed nothing yet.
    pub(super) fn new() -> Self {
        Self { last: 0, unsettled: false, link: None }
    }

    /// Connected, and certain of everything that was sent before.
    pub(super) fn ready(&mut self, server: &Server) -> Result<(), Fault> {
        if self.link.as_ref().is_some_and(|link| link.conn.client.is_closed()) {
            self.link = None;
        }
        self.unsettled |= self.link.is_none() && self.last > 0;
        if self.unsettled {
            self.settle(server)?;
        }
        self.connected(server)
    }

    fn connected(&mut self, server: &Server) -> Result<(), Fault> {
        if self.link.as_ref().is_some_and(|link| !link.conn.client.is_closed()) {
            return Ok(());
        }
        Link::ready(&mut self.link, server)?;
        let set = self.link()?.conn.changes();
        if set.is_err() {
            self.link = None;
        }
        set
    }

    pub(super) fn link(&self) -> Result<&Link, Fault> {
        self.link.as_ref().ok_or_else(|| Fault::Lost("not connected".into()))
    }

    /// Something has failed: what was sent may be under way, and a transaction may be open.
    pub(super) fn doubt(&mut self, server: &Server, fault: &Fault) {
        self.unsettled = true;
        let ended = |link: &Link| link.conn.batch(server, "ROLLBACK").is_ok();
        if matches!(fault, Fault::Lost(_)) || !self.link.as_ref().is_some_and(ended) {
            self.link = None;
        }
    }

    /// Whether the transaction after the last one was committed; if not, it never will be. Waits for a server process that still works on it.
    pub(super) fn settle(&mut self, server: &Server) -> Result<bool, Fault> {
        let asked = self.last + 1;
        let connected = self.connected(server);
        let found = connected.and_then(|()| ask(server, self.link()?, asked));
        if let Err(fault) = &found {
            self.doubt(server, fault);
        }
        let committed = found? == asked;
        self.last = if committed { asked } else { asked + 1 };
        self.unsettled = false;
        server.acknowledge(self.last);
        Ok(committed)
    }
}

/// Number in the database. If it is not `asked`, the one after that takes its place, so that nothing that is on its way finds what it expects;
/// asked again, because this answer was lost too, it says the same.
fn ask(server: &Server, link: &Link, asked: i64) -> Result<i64, Fault> {
    let (conn, epoch) = (&link.conn, server.epoch());
    conn.batch(server, "BEGIN ISOLATION LEVEL READ COMMITTED")?;
    let rows = conn.rows(server, sql::LAST, &[&epoch])?;
    let Some(row) = rows.first() else { return Err(server.lost_ownership(conn)) };
    let found: i64 = row.get(0);
    if found == asked - 1 {
        conn.rows(server, sql::SKIP, &[&epoch, &(asked + 1)])?;
    } else if found != asked && found != asked + 1 {
        return Err(server.rewound(found, asked - 1));
    }
    conn.batch(server, "COMMIT")?;
    Ok(found)
}
