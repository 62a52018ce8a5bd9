//! One connection to the server, used by one thread at a time, which drives it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::future::{join_all, try_join_all};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::Severity;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::Server;
use super::sql;
use super::tls::is_disbelief;
use crate::KvError;
use crate::patience::Fault;

/// Statements known to the server.
pub(super) struct Statements {
    pub(super) get: Statement,
    pub(super) get_many: Statement,
    pub(super) up: Statement,
    pub(super) down: Statement,
    pub(super) put: Statement,
    pub(super) delete: Statement,
    pub(super) mark: Statement,
    pub(super) kept: Statement,
}

/// A connection and what has been prepared on it.
pub(super) struct Conn {
    runtime: Runtime,
    pub(super) client: Client,
}

impl Conn {
    pub(super) fn open(server: &Server) -> Result<Self, Fault> {
        let lost = |e: std::io::Error| Fault::Lost(format!("starting a connection: {e}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(lost)?;
        let client = runtime.block_on(connect(server, &server.address.config))?;
        let conn = Self { runtime, client };
        conn.settle(server)?;
        Ok(conn)
    }

    /// For changes.
    pub(super) fn changes(&self) -> Result<(), Fault> {
        sql::CHANGES.iter().try_for_each(|setting| self.optional(setting).map(drop))
    }

    /// Settings of the session.
    fn settle(&self, server: &Server) -> Result<(), Fault> {
        for setting in sql::SETTINGS {
            self.optional(setting)?;
        }
        if self.shown("SHOW fsync")?.as_deref() == Some("off") {
            let detail =
                "the server runs with fsync = off, so that a power failure destroys its data; set fsync = on";
            return Err(Fault::Failed(server.refuses(detail)));
        }
        if self.shown("SHOW synchronous_commit")?.as_deref() == Some("off") {
            self.optional("SET synchronous_commit TO on")?;
        }
        Ok(())
    }

    /// A statement that a server may refuse; whether it did not.
    pub(super) fn optional(&self, statement: &str) -> Result<bool, Fault> {
        match self.runtime.block_on(self.client.batch_execute(statement)) {
            Ok(()) => Ok(true),
            Err(e) if e.as_db_error().is_some_and(|e| !fatal(e)) => Ok(false),
            Err(e) => Err(Fault::Lost(said(&e))),
        }
    }

    fn shown(&self, statement: &str) -> Result<Option<String>, Fault> {
        match self.runtime.block_on(self.client.query_one(statement, &[])) {
            Ok(row) => Ok(row.try_get(0).ok()),
            Err(e) if e.as_db_error().is_some_and(|e| !fatal(e)) => Ok(None),
            Err(e) => Err(Fault::Lost(said(&e))),
        }
    }

    pub(super) fn prepare(&self, server: &Server) -> Result<Statements, Fault> {
        const ALL: [&str; 8] =
            [sql::GET, sql::GET_MANY, sql::UP, sql::DOWN, sql::PUT, sql::DELETE, sql::MARK, sql::KEPT];
        let prepared = self.run(server, try_join_all(ALL.map(|text| self.client.prepare(text))))?;
        let [get, get_many, up, down, put, delete, mark, kept] =
            <[Statement; 8]>::try_from(prepared).map_err(|_| Fault::Lost("preparing statements".into()))?;
        Ok(Statements { get, get_many, up, down, put, delete, mark, kept })
    }

    /// Drives the connection until the answer is there.
    pub(super) fn run<T>(
        &self,
        server: &Server,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        self.runtime.block_on(answer).map_err(|e| fault(server, &e))
    }

    /// Sends all, in this order, without waiting in between; the answers.
    pub(super) fn run_all<T>(
        &self,
        server: &Server,
        answers: impl IntoIterator<Item = impl Future<Output = Result<T, tokio_postgres::Error>>>,
    ) -> Vec<Result<T, Fault>> {
        let answers = self.runtime.block_on(join_all(answers));
        answers.into_iter().map(|a| a.map_err(|e| fault(server, &e))).collect()
    }

    /// One statement that is used too seldom to be prepared.
    pub(super) fn rows(
        &self,
        server: &Server,
        statement: &str,
        params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        self.run(server, self.client.query(statement, params))
    }

    /// The same; nothing if there is no such table.
    pub(super) fn rows_if_there(&self, server: &Server, statement: &str) -> Result<Option<Vec<Row>>, Fault> {
        match self.runtime.block_on(self.client.query(statement, &[])) {
            Ok(rows) => Ok(Some(rows)),
            Err(e) if e.code().is_some_and(|code| ["42P01", "3F000"].contains(&code.code())) => Ok(None),
            Err(e) => Err(fault(server, &e)),
        }
    }

    pub(super) fn batch(&self, server: &Server, statement: &str) -> Result<(), Fault> {
        self.run(server, self.client.batch_execute(statement))
    }

    /// Gives up a transaction that has only read. Nobody waits for the answer: whatever goes over this connection next stands behind it. False if the
    /// connection is gone.
    pub(super) fn leave(&self) -> bool {
        self.runtime.block_on(async {
            let mut sent = pin!(self.client.batch_execute("ROLLBACK"));
            poll_fn(|cx| {
                drop(sent.as_mut().poll(cx));
                Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await; // to the task that writes it to the socket
        });
        !self.client.is_closed()
    }
}

/// A connection that is ready for work.
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) statements: Statements,
}

impl Link {
    /// Connects where there is no connection that works, to a server that has lost nothing.
    pub(super) fn ready(place: &mut Option<Self>, server: &Server) -> Result<(), Fault> {
        if place.as_ref().is_some_and(|link| !link.conn.client.is_closed()) {
            return Ok(());
        }
        let conn = Conn::open(server)?;
        server.has_kept_all(&conn)?;
        let statements = conn.prepare(server)?;
        *place = Some(Self { conn, statements });
        Ok(())
    }
}

async fn connect(server: &Server, config: &Config) -> Result<Client, Fault> {
    match &server.tls {
        None => {
            let (client, connection) = config.connect(NoTls).await.map_err(|e| refusal(server, &e))?;
            tokio::spawn(connection);
            Ok(client)
        }
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await.map_err(|e| refusal(server, &e))?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}

/// A server that answers a connection with an error of its own may be starting; a wrong password or certificate stays wrong.
fn refusal(server: &Server, e: &tokio_postgres::Error) -> Fault {
    if is_disbelief(e) {
        return Fault::Failed(server.refuses(&said(e)));
    }
    match e.code().map(tokio_postgres::error::SqlState::code) {
        Some(code) if code.starts_with("28") || code.starts_with("3D") || code.starts_with("42") => {
            Fault::Failed(server.refuses(&said(e)))
        }
        _ => Fault::Lost(said(e)),
    }
}

fn fatal(e: &tokio_postgres::error::DbError) -> bool {
    matches!(e.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || matches!(e.severity(), "FATAL" | "PANIC")
}

/// What an error says, with its cause.
pub(super) fn said(e: &tokio_postgres::Error) -> String {
    if let Some(e) = e.as_db_error() {
        return format!("{} ({})", e.message(), e.code().code());
    }
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}

fn fault(server: &Server, e: &tokio_postgres::Error) -> Fault {
    let Some(db) = e.as_db_error().filter(|db| !fatal(db)) else { return Fault::Lost(said(e)) };
    match db.code().code() {
        // the last one: a statement that must find something has found nothing
        "40001" | "40P01" | "22012" => Fault::Conflict,
        "53100" => Fault::Failed(KvError::Full { path: server.path() }),
        // ambiguous result, no connections left, a lock that somebody keeps, a server that is stopping or only follows another one
        code if code == "40003"
            || code == "55P03"
            || code == "53300"
            || code == "25006"
            || code.starts_with("08")
            || code.starts_with("57P") =>
        {
            Fault::Lost(said(e))
        }
        _ => Fault::Failed(server.refuses(&said(e))),
    }
}
