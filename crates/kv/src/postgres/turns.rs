//! Nodes that take turns with the tables of a database, seen from outside.

use std::time::Duration;

use super::connection::Conn;
use super::server::Server;
use super::sql;
use crate::patience::Fault;
use crate::{Reached, Result, Seen, SeenOwner, Taker, Turns};

/// One of them.
pub(crate) struct PostgresTurns {
    server: Server,
    name: String,
    conn: Option<Conn>,
}

impl PostgresTurns {
    pub(crate) fn new(address: &str, name: &str) -> Result<Self> {
        Ok(Self { server: Server::new(address)?, name: name.into(), conn: None })
    }

    fn connected(&mut self) -> Result<(&Server, &Conn), Fault> {
        if self.conn.as_ref().is_none_or(|conn| conn.client.is_closed()) {
            let conn = Conn::open(&self.server)?;
            conn.optional("SET synchronous_commit TO off")?; // what is told is told again
            self.conn = Some(conn);
        }
        let conn = self.conn.as_ref().ok_or_else(|| Fault::Lost("not connected".into()))?;
        Ok((&self.server, conn))
    }

    fn try_tell(&mut self, told: &str) -> Result<Seen, Fault> {
        let name = self.name.clone();
        let (server, conn) = self.connected()?;
        let Some(rows) = conn.rows_if_there(server, sql::TURN)?.filter(|rows| !rows.is_empty()) else {
            return Ok(Seen::default());
        };
        let owner = rows.first().map(|row| {
            let number = |n| u64::try_from(row.get::<_, i64>(n)).unwrap_or_default();
            let reached = Reached { epoch: number(1), number: number(3) };
            SeenOwner { name: row.get(0), reached, live: row.get(2) }
        });
        if conn.rows_if_there(server, sql::TOLD)?.is_none() {
            conn.batch(server, sql::TURN_TABLE)?;
        }
        conn.rows(server, sql::TELL, &[&name, &told])?;
        let takers = conn.rows(server, sql::TOLD, &[])?;
        let taker = |row: &tokio_postgres::Row| {
            let ago: f64 = row.get(2);
            Taker {
                name: row.get(0),
                told: row.get(1),
                ago: Duration::try_from_secs_f64(ago).unwrap_or_default(),
            }
        };
        Ok(Seen { owner, takers: takers.iter().map(taker).collect() })
    }
}

impl Turns for PostgresTurns {
    fn tell(&mut self, told: &str) -> Result<Seen> {
        self.try_tell(told).map_err(|fault| {
            self.conn = None;
            self.server.give_up(fault)
        })
    }
}
