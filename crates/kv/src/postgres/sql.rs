//! Every statement that the engine sends, apart from settings that a server may refuse. Only what PostgreSQL, CockroachDB and YugabyteDB
//! share: no advisory locks, no notices, no procedures, no extensions.
//!
//! A statement that must not go unnoticed when it finds nothing divides by zero then: that ends its transaction at the server, so that the
//! `COMMIT` behind it may be sent without waiting.

/// Format of the tables; another one is refused.
pub(super) const FORMAT: &str = "thermocline engine sql 1";

/// What stands before the mark of an engine that does not count.
pub(super) const ASIDE: &str = "thermocline engine sql 1 aside ";

/// `kv`: the pairs, each value followed by its sum. `kv_session`: the number of the owner's last transaction. `kv_owner`: who uses the tables.
/// `kv_delta`, and `c`, are for programs before this one, which kept what was added to a counter apart from its value: see [`DELTAS`].
pub(super) const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS kv (k bytea PRIMARY KEY, v bytea NOT NULL, c int2 NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kv_delta (k bytea NOT NULL, slot int8 NOT NULL, d int8 NOT NULL, PRIMARY KEY (k, slot))",
    "CREATE TABLE IF NOT EXISTS kv_session (epoch int8 NOT NULL, slot int8 NOT NULL, seq int8 NOT NULL, \
     PRIMARY KEY (epoch, slot))",
    "CREATE TABLE IF NOT EXISTS kv_owner (one int8 PRIMARY KEY, format text NOT NULL, epoch int8 NOT NULL, \
     name text NOT NULL, until timestamptz NOT NULL)",
];

/// Settings that help where a server knows them: plans that read no more than they need, however few rows there were when they were made,
/// and the end of what a client left behind.
pub(super) const SETTINGS: [&str; 8] = [
    "SET enable_seqscan TO off",
    "SET enable_bitmapscan TO off",
    "SET enable_hashjoin TO off",
    "SET enable_mergejoin TO off",
    "SET client_connection_check_interval TO '2s'",
    "SET tcp_keepalives_idle TO 10",
    "SET tcp_keepalives_interval TO 3",
    "SET tcp_keepalives_count TO 3",
];

/// For who changes something. One that stands still in the middle of a transaction (its host is gone, its process stopped) keeps what it has locked for so long at
/// most; and who waits for it hears of it.
pub(super) const CHANGES: [&str; 2] =
    ["SET idle_in_transaction_session_timeout TO '10s'", "SET lock_timeout TO '10s'"];

pub(super) const GET: &str = "SELECT k, v FROM kv WHERE k = $1";
pub(super) const GET_MANY: &str = "SELECT k, v FROM kv WHERE k = ANY($1)";
pub(super) const UP: &str = "SELECT k, v FROM kv WHERE k >= $1 AND k < $2 ORDER BY k LIMIT $3";
pub(super) const DOWN: &str = "SELECT k, v FROM kv WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $3";

/// Keys, values.
pub(super) const PUT: &str = "INSERT INTO kv (k, v, c) SELECT u.k, u.v, 0 FROM unnest($1::bytea[], $2::bytea[]) AS u(k, v) \
     ON CONFLICT (k) DO UPDATE SET v = excluded.v";
pub(super) const DELETE: &str = "DELETE FROM kv WHERE k = ANY($1)";

/// What a program before this one has left apart from counters: key, value, kind, and what belongs to it.
pub(super) const DELTAS: &str = "SELECT k, v, c, ARRAY(SELECT d FROM kv_delta WHERE kv_delta.k = kv.k) FROM kv \
     WHERE c <> 0 AND k IN (SELECT k FROM kv_delta)";
pub(super) const MERGED: &str = "DELETE FROM kv_delta WHERE k = ANY($1)";

/// Epoch, number of this transaction: fails unless the number before it is there, so that nothing of a connection given up, or of an
/// owner that another one has replaced, is ever committed.
pub(super) const MARK: &str = "WITH m AS (INSERT INTO kv_session (epoch, slot, seq) VALUES ($1, 0, -1) \
     ON CONFLICT (epoch, slot) DO UPDATE SET seq = $2 WHERE kv_session.seq = $2 - 1 RETURNING seq) \
     SELECT 1 / count(*) FROM m WHERE seq = $2";

/// To see whether the server has all that was acknowledged.
pub(super) const KEPT: &str = "SELECT seq FROM kv_session WHERE epoch = $1 AND slot = 0";
pub(super) const LAST: &str = "SELECT seq FROM kv_session WHERE epoch = $1 AND slot = 0 FOR UPDATE";
pub(super) const SKIP: &str = "UPDATE kv_session SET seq = $2 WHERE epoch = $1 AND slot = 0";
pub(super) const CLEAR_SESSIONS: &str = "DELETE FROM kv_session";
pub(super) const NEW_SESSION: &str = "INSERT INTO kv_session (epoch, slot, seq) VALUES ($1, 0, 0)";

pub(super) const OWNER: &str =
    "SELECT format, epoch, name, until > now() FROM kv_owner WHERE one = 1 FOR UPDATE";
pub(super) const FIRST_OWNER: &str = "INSERT INTO kv_owner (one, format, epoch, name, until) \
     VALUES (1, $1, $2, $3, now() + $4::float8 * interval '1 second')";
pub(super) const NEXT_OWNER: &str = "UPDATE kv_owner SET format = $1, epoch = $2, name = $3, \
     until = now() + $4::float8 * interval '1 second' WHERE one = 1";
pub(super) const RENEW: &str =
    "UPDATE kv_owner SET until = now() + $2::float8 * interval '1 second' WHERE one = 1 AND epoch = $1";
pub(super) const SET_FORMAT: &str = "UPDATE kv_owner SET format = $2 WHERE one = 1 AND epoch = $1";

/// Of those who take turns: what each tells the others, and when it did. Made when it is first needed.
pub(super) const TURN_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS kv_turn (name text PRIMARY KEY, told text NOT NULL, at timestamptz NOT NULL)";
pub(super) const TELL: &str = "INSERT INTO kv_turn (name, told, at) VALUES ($1, $2, now()) \
     ON CONFLICT (name) DO UPDATE SET told = excluded.told, at = excluded.at";
pub(super) const TOLD: &str =
    "SELECT name, told, CAST(extract(epoch FROM now() - at) AS float8) FROM kv_turn ORDER BY name";
/// Whose turn it is, and how far the engine is; without a lock.
pub(super) const TURN: &str = "SELECT o.name, o.epoch, o.until > now(), COALESCE(s.seq, 0) FROM kv_owner o \
     LEFT JOIN kv_session s ON s.epoch = o.epoch AND s.slot = 0 WHERE o.one = 1";

/// Whether there is anything, and the end of what an unfinished copy has left.
pub(super) const ANY: &str = "SELECT k FROM kv LIMIT 1";
pub(super) const EMPTY: [&str; 2] = ["DELETE FROM kv_delta", "DELETE FROM kv"];
pub(super) const WHO: &str = "SELECT epoch, name FROM kv_owner WHERE one = 1";

/// Never found in tables that are whole.
pub(super) const STRAY: &str = "SELECT k FROM kv_delta ORDER BY k LIMIT 1";

/// PostgreSQL's estimate, and its size; a server that does not know them says nothing.
pub(super) const SIZE: &str = "SELECT CAST(greatest(c.reltuples, 0) AS int8), pg_total_relation_size('kv') FROM pg_class c \
     WHERE c.oid = 'kv'::regclass";
