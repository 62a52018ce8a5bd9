//! Who uses the tables. One node at a time: it keeps state in memory that others do not see. A row with a lease says who; what makes it
//! certain is that every transaction changes a row of its connection, and that whoever takes over removes these rows.

use std::time::Duration;

use super::connection::{Conn, Fault};
use super::sql;
use super::{PostgresOptions, Server};
use crate::KvError;

/// Makes the tables if there are none.
pub(super) fn make_tables(server: &Server, conn: &Conn, create: bool) -> Result<(), Fault> {
    let there = match conn.rows(server, sql::WHO, &[]) {
        Ok(rows) => !rows.is_empty(),
        Err(Fault::Failed(_)) => false, // the table is not there
        Err(fault) => return Err(fault),
    };
    match there {
        true => Ok(()),
        false if create => sql::TABLES.iter().try_for_each(|table| conn.batch(server, table)),
        false => {
            let detail = "there is no engine in this database although this node has used one: check the address, or restore a \
                          backup of the database";
            Err(Fault::Failed(KvError::Corrupt { path: server.path(), detail: detail.into() }))
        }
    }
}

/// Becomes the owner; the epoch, greater than all before.
pub(super) fn take(server: &Server, conn: &Conn, options: &PostgresOptions) -> Result<i64, Fault> {
    let taken = try_take(server, conn, options);
    if taken.is_err() {
        let _ = conn.batch(server, "ROLLBACK"); // the connection is not used again if it does not work
    }
    taken
}

fn try_take(server: &Server, conn: &Conn, options: &PostgresOptions) -> Result<i64, Fault> {
    let (name, lease) = (&options.owner, options.lease);
    conn.batch(server, "BEGIN ISOLATION LEVEL SERIALIZABLE")?;
    let rows = conn.rows(server, sql::OWNER, &[])?;
    let seconds = lease.as_secs_f64();
    let epoch = match rows.first() {
        None => 1,
        Some(row) => {
            let (format, epoch, by, live): (String, i64, String, bool) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            if format != sql::FORMAT {
                let known = sql::FORMAT.into();
                return Err(Fault::Failed(KvError::Format { path: server.path(), found: format, known }));
            }
            if live && by != *name {
                return Err(Fault::Failed(KvError::Owned {
                    path: server.path(),
                    by,
                    seconds: lease.as_secs(),
                }));
            }
            if by != *name && !options.take_over {
                return Err(Fault::Failed(KvError::Foreign { path: server.path(), by }));
            }
            epoch + 1
        }
    };
    let statement = if rows.is_empty() { sql::FIRST_OWNER } else { sql::NEXT_OWNER };
    conn.rows(server, statement, &[&sql::FORMAT, &epoch, &name, &seconds])?;
    conn.rows(server, sql::CLEAR_SESSIONS, &[])?;
    for slot in 0..server.address.connections as i64 {
        conn.rows(server, sql::NEW_SESSION, &[&epoch, &slot])?;
    }
    conn.batch(server, "COMMIT")?;
    Ok(epoch)
}

/// Says that the owner lives; an error once another one has taken over.
pub(super) fn renew(server: &Server, conn: &Conn, lease: Duration) -> Result<(), Fault> {
    let renewed =
        conn.run(server, conn.client.execute(sql::RENEW, &[&server.epoch(), &lease.as_secs_f64()]))?;
    if renewed == 0 { Err(server.lost_ownership(conn)) } else { Ok(()) }
}
