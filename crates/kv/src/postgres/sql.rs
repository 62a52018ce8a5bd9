//! Every statement that the engine sends, apart from settings that a server may refuse. Only what PostgreSQL, CockroachDB and YugabyteDB
//! share: no advisory locks, no notices, no procedures, no extensions.
//!
//! A statement that must not go unnoticed when it finds nothing divides by zero then: that ends its transaction at the server, so that the
//! `COMMIT` behind it may be sent without waiting.

/// Format of the tables; another one is refused.
pub(super) const FORMAT: &str = "thermocline engine sql 1";

/// What stands before the mark of an engine that does not count.
pub(super) const ASIDE: &str = "thermocline engine sql 1 aside ";

/// `kv`: the pairs, each value followed by its sum; `c` says what `kv_delta` may hold for the key (see `Kind`).
/// `kv_delta`: what was added to a counter over one connection. `kv_session`: the number of each connection's last transaction.
/// `kv_owner`: who uses the tables.
pub(super) const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS kv (k bytea PRIMARY KEY, v bytea NOT NULL, c int2 NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kv_delta (k bytea NOT NULL, slot int8 NOT NULL, d int8 NOT NULL, PRIMARY KEY (k, slot))",
    "CREATE TABLE IF NOT EXISTS kv_session (epoch int8 NOT NULL, slot int8 NOT NULL, seq int8 NOT NULL, \
     PRIMARY KEY (epoch, slot))",
    "CREATE TABLE IF NOT EXISTS kv_owner (one int8 PRIMARY KEY, format text NOT NULL, epoch int8 NOT NULL, \
     name text NOT NULL, until timestamptz NOT NULL)",
];

/// Settings that help where a server knows them: plans that read no more than they need (what a serialisable transaction has looked at must
/// not be changed by others), and the end of what a client left behind.
pub(super) const SETTINGS: [&str; 7] = [
    "SET enable_seqscan TO off",
    "SET enable_bitmapscan TO off",
    "SET enable_hashjoin TO off",
    "SET enable_mergejoin TO off",
    "SET deadlock_timeout TO '50ms'",
    "SET client_connection_check_interval TO '2s'",
    "SET tcp_keepalives_idle TO 10",
];

macro_rules! row {
    ($rest:literal) => {
        concat!(
            "SELECT k, v, c, CASE WHEN c <> 0 THEN ARRAY(SELECT d FROM kv_delta WHERE kv_delta.k = kv.k) END FROM kv ",
            $rest
        )
    };
}

pub(super) const GET: &str = row!("WHERE k = $1");
pub(super) const LOCK: &str = row!("WHERE k = $1 FOR UPDATE");
pub(super) const GET_MANY: &str = row!("WHERE k = ANY($1)");
pub(super) const UP: &str = row!("WHERE k >= $1 AND k < $2 ORDER BY k LIMIT $3");
pub(super) const DOWN: &str = row!("WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $3");

/// Keys, values, kinds. What was added to a counter goes when it is set.
pub(super) const PUT: &str = "WITH p AS (INSERT INTO kv (k, v, c) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::int2[]) \
     ON CONFLICT (k) DO UPDATE SET v = excluded.v, c = CASE WHEN excluded.c <> 0 THEN excluded.c ELSE kv.c END \
     RETURNING k, c) DELETE FROM kv_delta WHERE k IN (SELECT k FROM p WHERE c <> 0)";
pub(super) const DELETE: &str = "WITH g AS (DELETE FROM kv WHERE k = ANY($1) RETURNING k, c) \
     DELETE FROM kv_delta WHERE k IN (SELECT k FROM g WHERE c <> 0)";

macro_rules! change_counters {
    ($kind:literal, $merged:literal) => {
        concat!(
            "WITH a AS (SELECT u.k AS k, u.d AS d FROM unnest($1::bytea[], $2::int8[]) AS u(k, d) \
             JOIN kv ON kv.k = u.k WHERE kv.c = ",
            $kind,
            " AND length(kv.v) = 12), \
             i AS (INSERT INTO kv_delta (k, slot, d) SELECT k, $3::int8, d FROM a \
             ON CONFLICT (k, slot) DO UPDATE SET d = ",
            $merged,
            " RETURNING k) SELECT 1 / (CASE WHEN count(*) = $4::int8 THEN 1 ELSE 0 END) FROM i"
        )
    };
}

/// Keys, numbers, slot, how many there are.
pub(super) const ADD: &str = change_counters!("1", "kv_delta.d + excluded.d");
pub(super) const RAISE: &str = change_counters!("2", "greatest(kv_delta.d, excluded.d)");

/// Epoch, slot, number of this transaction: fails unless the number before it is there, so that nothing of a connection given up, or of an
/// owner that another one has replaced, is ever committed.
pub(super) const MARK: &str = "WITH m AS (INSERT INTO kv_session (epoch, slot, seq) VALUES ($1, $2, -1) \
     ON CONFLICT (epoch, slot) DO UPDATE SET seq = $3 WHERE kv_session.seq = $3 - 1 RETURNING seq) \
     SELECT 1 / count(*) FROM m WHERE seq = $3";

/// All connections, to see whether the server has lost something.
pub(super) const ALL_LAST: &str = "SELECT slot, seq FROM kv_session WHERE epoch = $1";
pub(super) const LAST: &str = "SELECT seq FROM kv_session WHERE epoch = $1 AND slot = $2 FOR UPDATE";
pub(super) const SKIP: &str = "UPDATE kv_session SET seq = $3 WHERE epoch = $1 AND slot = $2";
pub(super) const CLEAR_SESSIONS: &str = "DELETE FROM kv_session";
pub(super) const NEW_SESSION: &str = "INSERT INTO kv_session (epoch, slot, seq) VALUES ($1, $2, 0)";

pub(super) const OWNER: &str =
    "SELECT format, epoch, name, until > now() FROM kv_owner WHERE one = 1 FOR UPDATE";
pub(super) const FIRST_OWNER: &str = "INSERT INTO kv_owner (one, format, epoch, name, until) \
     VALUES (1, $1, $2, $3, now() + $4::float8 * interval '1 second')";
pub(super) const NEXT_OWNER: &str = "UPDATE kv_owner SET format = $1, epoch = $2, name = $3, \
     until = now() + $4::float8 * interval '1 second' WHERE one = 1";
pub(super) const RENEW: &str =
    "UPDATE kv_owner SET until = now() + $2::float8 * interval '1 second' WHERE one = 1 AND epoch = $1";
pub(super) const SET_FORMAT: &str = "UPDATE kv_owner SET format = $2 WHERE one = 1 AND epoch = $1";
/// Whether there is anything, and the end of what an unfinished copy has left.
pub(super) const ANY: &str = "SELECT k FROM kv LIMIT 1";
pub(super) const EMPTY: [&str; 2] = ["DELETE FROM kv_delta", "DELETE FROM kv"];
pub(super) const WHO: &str = "SELECT epoch, name FROM kv_owner WHERE one = 1";

/// Counters behind a key to which something was added.
pub(super) const CHANGED: &str = "SELECT DISTINCT k FROM kv_delta WHERE k > $1 ORDER BY k LIMIT $2";
/// What was added to a key that is no counter: never found in tables that are whole.
pub(super) const STRAY: &str =
    "SELECT k FROM kv_delta WHERE k NOT IN (SELECT k FROM kv WHERE c <> 0) ORDER BY k LIMIT 1";

/// PostgreSQL's estimate, and its size; a server that does not know them says nothing.
pub(super) const SIZE: &str = "SELECT CAST(greatest(c.reltuples, 0) AS int8), pg_total_relation_size('kv') FROM pg_class c \
     WHERE c.oid = 'kv'::regclass";
