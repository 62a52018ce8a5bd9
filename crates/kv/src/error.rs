//! What can go wrong in an engine.

use std::path::PathBuf;

use crate::{MAX_KEY, MAX_VALUE};

/// What can go wrong in an engine.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The storage below failed. A running engine accepts no changes until a flush succeeds again; it tries every second.
    #[error(
        "metadata engine at {path}: {detail}; it takes no changes until its disk can be written again (tried every \
         second, nothing accepted is lost while the node runs): check that disk, restart the node if this goes on"
    )]
    Io {
        /// Engine directory or address.
        path: PathBuf,
        /// What the storage said.
        detail: String,
    },
    /// The storage is full. A running engine accepts no changes until a flush succeeds again; it tries every second.
    #[error(
        "metadata engine at {path} has no space; it takes no changes until there is some (nothing accepted is lost \
         while the node runs): free space there"
    )]
    Full {
        /// Engine directory.
        path: PathBuf,
    },
    /// Another process has the engine open.
    #[error("metadata engine at {path} is in use by another process; stop that node first")]
    Locked {
        /// Engine directory.
        path: PathBuf,
    },
    /// A database server refuses what is asked, or cannot be reached. A running engine connects again by itself.
    #[error(
        "metadata engine at {address}: {detail}; nothing acknowledged is lost: see that the server runs, has space, and can be \
         reached from here as this user (its log says more), then try again"
    )]
    Server {
        /// Its address, without a password.
        address: String,
        /// What the server, or the way to it, said.
        detail: String,
    },
    /// What should be the address of a server is none.
    #[error("address of the metadata engine: {detail}")]
    Address {
        /// What is wrong with it, and how one is written.
        detail: String,
    },
    /// Another node uses the database.
    #[error(
        "metadata engine at {path} is in use by node {by}; stop that node first (if it has died, it counts as gone {seconds} s \
         after its last sign of life)"
    )]
    Owned {
        /// Address.
        path: PathBuf,
        /// Name of the other node.
        by: String,
        /// How long its lease is.
        seconds: u64,
    },
    /// A copy that does not count yet, or what was moved into another engine.
    #[error("metadata engine at {path} is not the one that counts: {why}. Nothing was changed")]
    Aside {
        /// Engine directory or address.
        path: PathBuf,
        /// What it is, and what to do.
        why: String,
    },
    /// A catalogue is to be copied to where one is.
    #[error(
        "the database {path} is not empty; nothing was changed: name an empty one (in a TiKV cluster another name behind the last `/`). What this node has \
         left there is removed by `thermo engine clear`; tables kv, kv_delta, kv_session, kv_turn and kv_owner of which nothing is needed can be dropped"
    )]
    NotEmpty {
        /// Address.
        path: PathBuf,
    },
    /// A database holds no engine although it must.
    #[error(
        "there is no engine in the database {path} although this node has used one; nothing was changed: check the address (database or name, user, \
         search path), or restore a backup of the database"
    )]
    Absent {
        /// Address.
        path: PathBuf,
    },
    /// The database holds the data of another node.
    #[error(
        "metadata engine at {path} holds the catalogue of node {by}, which is not this one; nothing was changed. Name an empty database; or, \
         if this node is to go on in the place of that one, which never starts again, write that name into the file `engine-owner` of \
         its state directory"
    )]
    Foreign {
        /// Address.
        path: PathBuf,
        /// Name of the other node.
        by: String,
    },
    /// Another node has taken the database over, because this one gave no sign of life, or runs twice.
    #[error(
        "metadata engine at {path} was taken over by node {by}; this one changes nothing any more: stop it, and see that only one \
         of them is started"
    )]
    Taken {
        /// Address.
        path: PathBuf,
        /// Name of the other node.
        by: String,
    },
    /// Another node may take the database over, because this one could not say in time that it lives.
    #[error(
        "metadata engine at {path}: no sign of life of this node has got there for {seconds} s, so another node may take over; this one neither \
         changes nor reads anything: see that the server runs and can be reached from here"
    )]
    Lapsed {
        /// Address.
        path: PathBuf,
        /// Since the last one was sent.
        seconds: u64,
    },
    /// A change waits for the standby, which does not answer.
    #[error(
        "metadata engine at {path}: the standby must confirm changes before they are acknowledged, and does not: {detail}. Changes are refused \
         until it answers, then all goes on by itself (nothing acknowledged is lost): see that it runs and can be reached from here \
         (`thermo standby status` on both)"
    )]
    Standby {
        /// Engine directory.
        path: PathBuf,
        /// Since when it does not answer.
        detail: String,
    },
    /// The standby holds batches of this history that this engine does not have.
    #[error(
        "metadata engine at {path} came back older than it was: its standby has batch {there}, this one ends with {here}. Was the disk or the \
         machine put back to an earlier state, or did a disk lose what it had confirmed? Nothing is changed here or there: stop this node and let \
         the standby take over (`thermo standby take-over` there). To go on from here without the batches that are missing, stop the standby, remove its \
         state directory, and let it join again"
    )]
    Older {
        /// Engine directory.
        path: PathBuf,
        /// The last batch here.
        here: u64,
        /// The last batch there.
        there: u64,
    },
    /// The server has lost changes that were acknowledged, so what the process remembers is newer than what is stored.
    #[error(
        "metadata engine at {path} has lost changes that were acknowledged ({detail}): its server, or another one in its place, came back \
         without them. This node knows more than is stored and changes nothing any more: restart it, then it goes on from what is \
         stored, as after a power failure (one that takes turns with others asks before). `relaxed=no` in the engine's address keeps this from happening"
    )]
    Rewound {
        /// Address.
        path: PathBuf,
        /// What shows it.
        detail: String,
    },
    /// Stored data is not what was written.
    #[error(
        "metadata engine at {path} is damaged: {detail}; do not change the directory, copy it elsewhere, check the disk \
         below it, then put a backup of it in its place"
    )]
    Corrupt {
        /// Engine directory.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A stored value is not the one that was written; others are not concerned.
    #[error(
        "metadata engine at {path}: the value of key {} (table {:02x}) is damaged; run `thermo check`, check the disk \
         below, and put a backup in place", hex(key), key.first().copied().unwrap_or_default()
    )]
    BadValue {
        /// Engine directory.
        path: PathBuf,
        /// Whose value it is.
        key: Vec<u8>,
    },
    /// The directory holds a format that this build does not know.
    #[error(
        "metadata engine at {path} has format {found:?}, this build knows only {known:?}; use the thermo that wrote it"
    )]
    Format {
        /// Engine directory.
        path: PathBuf,
        /// What its marker file says.
        found: String,
        /// What this build writes.
        known: String,
    },
    /// A backup would overwrite something.
    #[error("backup target {path} exists and is not an empty directory; name a new one")]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// A key outside the limits.
    #[error("key of {len} bytes; keys have 1 to {MAX_KEY} bytes")]
    KeyTooLong {
        /// Its length.
        len: usize,
    },
    /// A value beyond the limit.
    #[error("value of {len} bytes; values have at most {MAX_VALUE} bytes")]
    ValueTooLong {
        /// Its length.
        len: usize,
    },
    /// `add` or `raise` met a value that is no counter.
    #[error("value of {len} bytes where a counter of 8 bytes belongs")]
    NotACounter {
        /// Its length.
        len: usize,
    },
    /// The transaction lost against another one; engines retry by themselves, callers never see it.
    #[error("transaction conflict")]
    Conflict,
    /// A closure asked to give up; used by [`read`](crate::read) and [`write`](crate::write) to carry the caller's
    /// own error out.
    #[error("transaction given up by its closure")]
    Aborted,
}

/// Result of an engine.
pub type Result<T, E = KvError> = std::result::Result<T, E>;

/// Bytes for people.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
