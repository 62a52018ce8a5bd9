//! Who uses the tables. One node at a time: it keeps state in memory that others do not see. A row with a lease says who; what makes it
//! certain is that every transaction changes a row of its owner, and that whoever takes over removes it.

use std::time::Duration;

use super::Server;
use super::base::stored;
use super::connection::Conn;
use super::sql;
use crate::counter::Delta;
use crate::lmdb::sealed;
use crate::patience::Fault;
use crate::{Aside, DatabaseOptions, KvError, Place, Reached};

/// Kind of a counter that was added to; of others the greatest number counts.
const ADDS: i16 = 1;

/// Makes the tables if there are none. A table of somebody else that has their name is left alone.
pub(super) fn make_tables(server: &Server, conn: &Conn, create: bool) -> Result<(), Fault> {
    if conn.rows_if_there(server, sql::WHO)?.is_some_and(|rows| !rows.is_empty()) {
        return Ok(());
    }
    if !create {
        return Err(Fault::Failed(KvError::Absent { path: server.path() }));
    }
    if conn.rows_if_there(server, sql::ANY)?.is_some_and(|rows| !rows.is_empty()) {
        return Err(Fault::Failed(KvError::NotEmpty { path: server.path() }));
    }
    sql::TABLES.iter().try_for_each(|table| conn.batch(server, table))
}

/// Becomes the owner; the epoch, greater than all before.
pub(super) fn take(server: &Server, conn: &Conn, options: &DatabaseOptions) -> Result<i64, Fault> {
    let taken = try_take(server, conn, options);
    if taken.is_err() {
        let _ = conn.batch(server, "ROLLBACK"); // the connection is not used again if it does not work
    }
    taken
}

fn try_take(server: &Server, conn: &Conn, options: &DatabaseOptions) -> Result<i64, Fault> {
    let (name, seconds) = (&options.owner, options.lease.as_secs_f64());
    conn.batch(server, "BEGIN ISOLATION LEVEL SERIALIZABLE")?;
    let rows = conn.rows(server, sql::OWNER, &[])?;
    let epoch = match rows.first() {
        None => 1,
        Some(row) => {
            let by: String = row.get(2);
            let epoch: i64 = row.get(1);
            options.may_follow(server.path(), by.clone(), row.get(3)).map_err(Fault::Failed)?;
            may_open(server, options, row.get(0))?;
            may_go_on_from(server, conn, options, (epoch, by))?;
            epoch + 1
        }
    };
    let found = rows.first().map(|row| row.get::<_, String>(0));
    // What was set aside stays so until somebody says otherwise.
    let format = match &options.fill {
        Some(mark) => self::format(Some(mark)),
        None => found.unwrap_or_else(|| self::format(None)),
    };
    let statement = if rows.is_empty() { sql::FIRST_OWNER } else { sql::NEXT_OWNER };
    conn.rows(server, statement, &[&format, &epoch, &name, &seconds])?;
    conn.rows(server, sql::CLEAR_SESSIONS, &[])?;
    conn.rows(server, sql::NEW_SESSION, &[&epoch])?;
    merge_deltas(server, conn)?;
    conn.batch(server, "COMMIT")?;
    Ok(epoch)
}

/// Whether the engine has been where it is known to have been, as far as this transaction sees.
fn may_go_on_from(
    server: &Server,
    conn: &Conn,
    options: &DatabaseOptions,
    (epoch, owner): (i64, String),
) -> Result<(), Fault> {
    let last = conn.rows(server, sql::KEPT, &[&epoch])?;
    let number: i64 = last.first().map_or(0, |row| row.get(0));
    let count = |n: i64| u64::try_from(n).unwrap_or_default();
    let there = Place { reached: Reached { epoch: count(epoch), number: count(number) }, owner };
    options.may_go_on_from(server.path(), &there).map_err(Fault::Failed)
}

/// Puts what programs before this one have added to counters, apart from their values, into these.
fn merge_deltas(server: &Server, conn: &Conn) -> Result<(), Fault> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for row in conn.rows(server, sql::DELTAS, &[])? {
        let pair = stored(server, &row)?;
        let (kind, numbers): (i16, Vec<i64>) = (row.get(2), row.get(3));
        let delta = if kind == ADDS { Delta::Add } else { Delta::Raise };
        let value = numbers.into_iter().try_fold(pair.value, |value, n| delta(n).apply(Some(&value)))?;
        let mut sum = Vec::new();
        sealed::seal(&pair.key, &value, &mut sum);
        keys.push(pair.key);
        values.push(sum);
    }
    conn.rows(server, sql::PUT, &[&keys, &values])?;
    conn.rows(server, sql::MERGED, &[&keys]).map(drop)
}

/// Whether tables of this format may be used as asked for.
fn may_open(server: &Server, options: &DatabaseOptions, found: String) -> Result<(), Fault> {
    let mark = found.strip_prefix(sql::ASIDE).and_then(Aside::parse);
    if mark.is_none() && found != sql::FORMAT {
        let (path, known) = (server.path(), sql::FORMAT.into());
        return Err(Fault::Failed(KvError::Format { path, found, known }));
    }
    options.may_open(server.path(), mark).map_err(Fault::Failed)
}

/// The text of the format of an engine that counts, or was set aside.
pub(super) fn format(mark: Option<&Aside>) -> String {
    mark.map_or_else(|| sql::FORMAT.into(), |mark| format!("{}{mark}", sql::ASIDE))
}

/// Changes it, if this is still the owner.
pub(super) fn set_format(server: &Server, conn: &Conn, format: &str) -> Result<(), Fault> {
    let set = conn.run(server, conn.client.execute(sql::SET_FORMAT, &[&server.epoch(), &format]))?;
    if set == 0 { Err(server.lost_ownership(conn)) } else { Ok(()) }
}

/// Says that the owner lives; an error once another one has taken over.
pub(super) fn renew(server: &Server, conn: &Conn, lease: Duration) -> Result<(), Fault> {
    let renewed =
        conn.run(server, conn.client.execute(sql::RENEW, &[&server.epoch(), &lease.as_secs_f64()]))?;
    if renewed == 0 { Err(server.lost_ownership(conn)) } else { Ok(()) }
}
