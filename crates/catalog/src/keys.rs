//! Every key of the catalogue, in one place. One prefix byte per table, then big-endian numbers, then at most one piece of
//! text at the end. `docs/formats/catalogue.md` lists them with their values.

use types::{
    Barcode, ClassName, CopyNo, Ino, MemberId, NodeId, ObjectId, PoolName, RequestId, TapeDir, TargetId,
    Version,
};

/// Meta data of the catalogue itself: `META what`.
pub const META: u8 = 0x01;
/// Inodes: `INODE ino what [name]`.
pub const INODE: u8 = 0x10;
/// Names: `NAME dir name`.
pub const NAME: u8 = 0x11;
/// The same in order of cookies: `ENTRY dir cookie`.
pub const ENTRY: u8 = 0x12;
/// Hard links beyond the one in the inode record: `LINK ino dir cookie`.
pub const LINK: u8 = 0x13;
/// Open-unlinked inodes: `ORPHAN ino`.
pub const ORPHAN: u8 = 0x14;
/// Files being written: `WRITING ino`.
pub const WRITING: u8 = 0x15;
/// Owner of an object: `OBJECT object`.
pub const OBJECT: u8 = 0x16;
/// Objects that belong to no inode (stock, recalls in flight, purged, deleted): `UNOWNED object`, with [`ON_TARGETS`] those on targets.
pub const UNOWNED: u8 = 0x18;
/// Value of an unowned object that lies on disk targets of the cluster.
pub const ON_TARGETS: u8 = 1;
/// Where objects lie that are on disk targets of the cluster: `FAR object`.
pub const FAR: u8 = 0x19;
/// Those of which something is out of date on some target: `STALE object`.
pub const STALE: u8 = 0x1a;
/// Objects on targets where they do not belong (yet, or any more): `STRAY object target`.
pub const STRAY: u8 = 0x1b;
/// Directories that lead to a subsystem: `JUNCTION dir`.
pub const JUNCTION: u8 = 0x1c;
/// Objects on targets that clients may have a right to read there: `LENT object`.
pub const LENT: u8 = 0x1d;
/// Files of which a host keeps what it has written through the node: `SPARE ino epoch`.
pub const SPARE: u8 = 0x1e;
/// Known versions and copies: `VERSION ino version [copy]`.
pub const VERSION: u8 = 0x17;
/// Migration candidates: `CANDIDATE due ino`.
pub const CANDIDATE: u8 = 0x20;
/// Purge order: `PURGE access ino`.
pub const PURGE: u8 = 0x21;
/// The same for files on disk targets of the cluster: `PURGE_FAR access ino`.
pub const PURGE_FAR: u8 = 0x25;
/// Offline files that are to come back so that a lost copy can be made anew: `MEND ino`.
pub const MEND: u8 = 0x23;
/// Words on files, and what is left of removed nodes until tapes tell of them no more: `GONE ino`.
pub const GONE: u8 = 0x24;
/// Digests of parts of versions that lie on several volumes: `PART ino version offset length`.
pub const PART: u8 = 0x26;
/// Sums: `SUM what ...`.
pub const SUM: u8 = 0x22;
/// Volumes: `VOLUME what barcode`.
pub const VOLUME: u8 = 0x30;
/// Trees of volumes: `TAPE tree dir name`.
pub const TAPE: u8 = 0x31;
/// Trees to be dropped: `DROP tree`.
pub const DROP: u8 = 0x32;
/// Numbers of inodes that were imported: `IMPORT ino site`.
pub const IMPORT: u8 = 0x33;
/// Drives that operators want out of use: `DRIVE serial number`.
pub const DRIVE: u8 = 0x34;
/// Classes: `CLASS what ...`.
pub const CLASS: u8 = 0x40;
/// Pools: `POOL name`.
pub const POOL: u8 = 0x41;
/// Quotas: `QUOTA uid`, that of everybody else with the uid that nobody has.
pub const QUOTA: u8 = 0x42;
/// Requests: `REQUEST what ...`.
pub const REQUEST: u8 = 0x50;
/// The cluster: `CLUSTER what ...`.
pub const CLUSTER: u8 = 0x60;

/// Parts of an inode (third field of an `INODE` key).
pub mod part {
    pub const RECORD: u8 = 0;
    pub const ENTRIES: u8 = 1;
    pub const SUBDIRS: u8 = 2;
    pub const CHANGED: u8 = 3;
    pub const TARGET: u8 = 4;
    pub const XATTR: u8 = 5;
    /// What new files of a directory get, or what an offline file gets on targets when it comes back.
    pub const LAYOUT: u8 = 6;
}

/// Fields of `META`.
pub mod meta {
    pub const FORMAT: u8 = 0;
    pub const NEXT_ID: u8 = 1;
    pub const NEXT_OBJECT: u8 = 2;
    pub const NEXT_REQUEST: u8 = 3;
    pub const NEXT_CLASS: u8 = 4;
    pub const NEXT_TREE: u8 = 5;
    pub const REFRESH: u8 = 6;
    pub const SITE: u8 = 7;
    /// Nodes without data are known to the archive: all (empty), or as far as `REFRESH` has come (1); absent in what earlier
    /// releases wrote.
    pub const NODES: u8 = 8;
    /// Least number of a version that begins from now on.
    pub const LEAST_VERSION: u8 = 9;
    /// Turn of whoever serves: raised when another node comes to.
    pub const TURN: u8 = 10;
    /// What `SITE` says was given to targets (empty): it stays.
    pub const SITE_GIVEN: u8 = 11;
    /// Bytes on targets are in the sums of owners: all (empty), or those of objects up to this one; absent in what earlier releases wrote.
    pub const FAR_COUNTED: u8 = 12;
    /// The greatest number of an epoch of `SPARE` that was given.
    pub const LAST_SPARE: u8 = 13;
}

/// Fields of `SUM`.
pub mod sum {
    pub const FILES: u8 = 0;
    pub const BYTES: u8 = 1;
    pub const DISK: u8 = 2;
    pub const TAPE: u8 = 3;
    pub const CLASS_FILES: u8 = 4;
    pub const CLASS_BYTES: u8 = 5;
    pub const POOL_FILES: u8 = 6;
    pub const POOL_BYTES: u8 = 7;
    pub const PURGEABLE: u8 = 8;
    pub const FAR: u8 = 9;
}

/// Fields of `VOLUME`.
pub mod vol {
    pub const RECORD: u8 = 0;
    pub const LIVE: u8 = 1;
    pub const LIVE_FILES: u8 = 2;
    /// UUID of a label that is about to be written.
    pub const INTENDED: u8 = 3;
}

/// Fields of `CLASS`.
pub mod class {
    pub const CURRENT: u8 = 0;
    pub const RECORD: u8 = 1;
}

/// Fields of `CLUSTER`.
pub mod cluster_part {
    pub const RECORD: u8 = 0;
    /// `kind number`; nodes are kind 0, clients 1.
    pub const MEMBER: u8 = 1;
    pub const TOKEN: u8 = 2;
    pub const TARGET: u8 = 3;
    pub const LAST_TARGET: u8 = 4;
    /// `node session`.
    pub const LOCKS: u8 = 5;
    /// `node session number`.
    pub const DONE: u8 = 6;
    /// `number` of a target that was taken out of the list.
    pub const REMOVED_TARGET: u8 = 7;
    /// `name` of a pool of targets.
    pub const TARGET_POOL: u8 = 8;
}

/// Fields of `REQUEST`.
pub mod req {
    pub const RECORD: u8 = 0;
    pub const OPEN: u8 = 1;
    pub const ITEM: u8 = 2;
    pub const PENDING: u8 = 3;
    /// One volume of a request.
    pub const VOLUME: u8 = 4;
}

fn number(table: u8, n: u64) -> [u8; 9] {
    let mut k = [table; 9];
    k[1..].copy_from_slice(&n.to_be_bytes());
    k
}

fn numbers(table: u8, a: u64, b: u64) -> [u8; 17] {
    let mut k = [table; 17];
    k[1..9].copy_from_slice(&a.to_be_bytes());
    k[9..].copy_from_slice(&b.to_be_bytes());
    k
}

fn text(head: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(head.len() + tail.len());
    k.extend_from_slice(head);
    k.extend_from_slice(tail);
    k
}

/// Maps signed seconds to a number of the same order.
fn ordered(secs: i64) -> u64 {
    (secs as u64) ^ (1 << 63)
}

/// The first key behind all keys that begin with `prefix`.
pub fn end(prefix: &[u8]) -> Vec<u8> {
    let mut k = prefix.to_vec();
    while let Some(last) = k.pop() {
        if last < u8::MAX {
            k.push(last + 1);
            return k;
        }
    }
    vec![u8::MAX; kv::MAX_KEY]
}

/// The smallest key greater than `key`.
pub fn after(key: &[u8]) -> Vec<u8> {
    text(key, &[0])
}

/// Reads the big-endian number at `at`; None if the key is too short.
pub fn number_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?))
}

/// Reads the seconds at `at` of an index key.
pub fn secs_at(key: &[u8], at: usize) -> Option<i64> {
    number_at(key, at).map(|n| (n ^ (1 << 63)) as i64)
}

pub fn meta_key(what: u8) -> [u8; 2] {
    [META, what]
}

pub fn inode(ino: Ino, what: u8) -> [u8; 10] {
    let mut k = [what; 10];
    k[..9].copy_from_slice(&number(INODE, ino.0));
    k
}

pub fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    text(&inode(ino, part::XATTR), name)
}

pub fn name(dir: Ino, name: &[u8]) -> Vec<u8> {
    text(&number(NAME, dir.0), name)
}

pub fn names(dir: Ino) -> [u8; 9] {
    number(NAME, dir.0)
}

pub fn entry(dir: Ino, cookie: u64) -> [u8; 17] {
    numbers(ENTRY, dir.0, cookie)
}

pub fn link(ino: Ino, dir: Ino, cookie: u64) -> [u8; 25] {
    let mut k = [0; 25];
    k[..17].copy_from_slice(&numbers(LINK, ino.0, dir.0));
    k[17..].copy_from_slice(&cookie.to_be_bytes());
    k
}

pub fn links(ino: Ino) -> [u8; 9] {
    number(LINK, ino.0)
}

pub fn orphan(ino: Ino) -> [u8; 9] {
    number(ORPHAN, ino.0)
}

pub fn writing(ino: Ino) -> [u8; 9] {
    number(WRITING, ino.0)
}

pub fn object(object: ObjectId) -> [u8; 9] {
    number(OBJECT, object.0)
}

pub fn unowned(object: ObjectId) -> [u8; 9] {
    number(UNOWNED, object.0)
}

pub fn far(object: ObjectId) -> [u8; 9] {
    number(FAR, object.0)
}

pub fn stale(object: ObjectId) -> [u8; 9] {
    number(STALE, object.0)
}

pub fn stray(object: ObjectId, target: TargetId) -> [u8; 13] {
    let mut k = [0; 13];
    k[..9].copy_from_slice(&number(STRAY, object.0));
    k[9..].copy_from_slice(&target.0.to_be_bytes());
    k
}

pub fn lent(object: ObjectId) -> [u8; 9] {
    number(LENT, object.0)
}

pub fn spare(ino: Ino, epoch: u64) -> [u8; 17] {
    let mut k = [0; 17];
    k[..9].copy_from_slice(&number(SPARE, ino.0));
    k[9..].copy_from_slice(&epoch.to_be_bytes());
    k
}

pub fn junction(dir: Ino) -> [u8; 9] {
    number(JUNCTION, dir.0)
}

pub fn versions(ino: Ino) -> [u8; 9] {
    number(VERSION, ino.0)
}

pub fn version(ino: Ino, version: Version) -> [u8; 13] {
    let mut k = [0; 13];
    k[..9].copy_from_slice(&versions(ino));
    k[9..].copy_from_slice(&version.0.to_be_bytes());
    k
}

pub fn copy(ino: Ino, v: Version, copy: CopyNo) -> [u8; 14] {
    let mut k = [copy.0; 14];
    k[..13].copy_from_slice(&version(ino, v));
    k
}

pub fn parts(ino: Ino, v: Version) -> [u8; 13] {
    let mut k = version(ino, v);
    k[0] = PART;
    k
}

pub fn part(ino: Ino, v: Version, (offset, length): (u64, u64)) -> Vec<u8> {
    [&parts(ino, v)[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat()
}

pub fn candidate(due: i64, ino: Ino) -> [u8; 17] {
    numbers(CANDIDATE, ordered(due), ino.0)
}

pub fn purge(access: i64, ino: Ino) -> [u8; 17] {
    numbers(PURGE, ordered(access), ino.0)
}

pub fn purge_far(access: i64, ino: Ino) -> [u8; 17] {
    numbers(PURGE_FAR, ordered(access), ino.0)
}

pub fn gone(ino: Ino) -> [u8; 9] {
    number(GONE, ino.0)
}

pub fn mend(ino: Ino) -> [u8; 9] {
    number(MEND, ino.0)
}

pub fn sum_user(what: u8, uid: u32) -> [u8; 6] {
    let u = uid.to_be_bytes();
    [SUM, what, u[0], u[1], u[2], u[3]]
}

pub fn quota(uid: Option<u32>) -> [u8; 5] {
    let u = uid.unwrap_or(u32::MAX).to_be_bytes();
    [QUOTA, u[0], u[1], u[2], u[3]]
}

pub fn drive(serial: &str) -> Vec<u8> {
    text(&[DRIVE], serial.as_bytes())
}

pub fn sum_files(uid: u32, class: u32) -> [u8; 10] {
    let mut k = [0; 10];
    k[..6].copy_from_slice(&sum_user(sum::FILES, uid));
    k[6..].copy_from_slice(&class.to_be_bytes());
    k
}

pub fn sum_text(what: u8, name: &str) -> Vec<u8> {
    text(&[SUM, what], name.as_bytes())
}

pub fn volume(what: u8, barcode: &Barcode) -> Vec<u8> {
    text(&[VOLUME, what], barcode.as_str().as_bytes())
}

pub fn tape(tree: u64, dir: TapeDir, name: &str) -> Vec<u8> {
    text(&numbers(TAPE, tree, dir.0), name.as_bytes())
}

pub fn tape_dir(tree: u64, dir: TapeDir) -> [u8; 17] {
    numbers(TAPE, tree, dir.0)
}

pub fn tape_tree(tree: u64) -> [u8; 9] {
    number(TAPE, tree)
}

pub fn drop_tree(tree: u64) -> [u8; 9] {
    number(DROP, tree)
}

/// The number here of an inode of another namespace.
pub fn import(foreign: Ino, site: &str) -> Vec<u8> {
    text(&number(IMPORT, foreign.0), site.as_bytes())
}

pub fn class_current(name: &ClassName) -> Vec<u8> {
    text(&[CLASS, class::CURRENT], name.0.as_bytes())
}

pub fn class_record(id: u32) -> [u8; 6] {
    let i = id.to_be_bytes();
    [CLASS, class::RECORD, i[0], i[1], i[2], i[3]]
}

pub fn pool(name: &PoolName) -> Vec<u8> {
    text(&[POOL], name.0.as_bytes())
}

pub fn cluster() -> [u8; 2] {
    [CLUSTER, cluster_part::RECORD]
}

pub fn members() -> [u8; 2] {
    [CLUSTER, cluster_part::MEMBER]
}

pub fn member(id: MemberId) -> Vec<u8> {
    let (kind, number) = match id {
        MemberId::Node(id) => (0, id.0),
        MemberId::Client(id) => (1, id.0),
    };
    text(&[CLUSTER, cluster_part::MEMBER, kind], &number.to_be_bytes())
}

pub fn tokens() -> [u8; 2] {
    [CLUSTER, cluster_part::TOKEN]
}

pub fn token(id: &[u8; 16]) -> Vec<u8> {
    text(&tokens(), id)
}

pub fn targets() -> [u8; 2] {
    [CLUSTER, cluster_part::TARGET]
}

pub fn target(id: TargetId) -> Vec<u8> {
    text(&targets(), &id.0.to_be_bytes())
}

pub fn removed_targets() -> [u8; 2] {
    [CLUSTER, cluster_part::REMOVED_TARGET]
}

pub fn removed_target(id: TargetId) -> Vec<u8> {
    text(&removed_targets(), &id.0.to_be_bytes())
}

pub fn target_pools() -> [u8; 2] {
    [CLUSTER, cluster_part::TARGET_POOL]
}

pub fn target_pool(name: &str) -> Vec<u8> {
    text(&target_pools(), name.as_bytes())
}

pub fn last_target() -> [u8; 2] {
    [CLUSTER, cluster_part::LAST_TARGET]
}

pub fn lock_sessions() -> [u8; 2] {
    [CLUSTER, cluster_part::LOCKS]
}

pub fn lock_session(node: NodeId, number: u64) -> Vec<u8> {
    let mut key = text(&lock_sessions(), &node.0.to_be_bytes());
    key.extend(number.to_be_bytes());
    key
}

pub fn done_calls() -> [u8; 2] {
    [CLUSTER, cluster_part::DONE]
}

pub fn done_in(node: NodeId, session: u64) -> Vec<u8> {
    let mut key = text(&done_calls(), &node.0.to_be_bytes());
    key.extend(session.to_be_bytes());
    key
}

pub fn done_call(node: NodeId, session: u64, number: u64) -> Vec<u8> {
    let mut key = done_in(node, session);
    key.extend(number.to_be_bytes());
    key
}

fn req_key(what: u8, id: u64) -> [u8; 10] {
    let mut k = [what; 10];
    k[0] = REQUEST;
    k[2..].copy_from_slice(&id.to_be_bytes());
    k
}

pub fn request(id: RequestId) -> [u8; 10] {
    req_key(req::RECORD, id.0)
}

pub fn open_request(id: RequestId) -> [u8; 10] {
    req_key(req::OPEN, id.0)
}

pub fn items(id: RequestId) -> [u8; 10] {
    req_key(req::ITEM, id.0)
}

pub fn item(id: RequestId, ino: Ino) -> Vec<u8> {
    text(&items(id), &ino.0.to_be_bytes())
}

pub fn pendings(ino: Ino) -> [u8; 10] {
    req_key(req::PENDING, ino.0)
}

pub fn pending(ino: Ino, id: RequestId) -> Vec<u8> {
    text(&pendings(ino), &id.0.to_be_bytes())
}

pub fn request_volumes(id: RequestId) -> [u8; 10] {
    req_key(req::VOLUME, id.0)
}

pub fn request_volume(id: RequestId, volume: &Barcode) -> Vec<u8> {
    text(&request_volumes(id), volume.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    /// Tables are the constants of this file that are written in hexadecimal digits.
    #[test]
    fn no_two_tables_share_a_prefix() {
        let tables = include_str!("keys.rs").lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("pub const ")?.split_once(": u8 = 0x")?;
            Some((value, name))
        });
        let mut tables: Vec<(&str, &str)> = tables.collect();
        tables.sort_unstable();
        assert!(tables.len() > 20, "{tables:?}");
        let shared: Vec<_> = tables.windows(2).filter(|two| two[0].0 == two[1].0).collect();
        assert!(shared.is_empty(), "{shared:?}");
    }
}
