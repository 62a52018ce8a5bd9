//! The first transaction on an engine: makes the root, or recognises the format.

use super::nodes;
use crate::Result;
use crate::keys::{self, meta};
use crate::rec::{self, FormatRec, InodeRec};
use crate::store::{self, Tx, View};
use format::record;
use types::*;

/// Ids below are given at making: 1 is the root.
const FIRST_ID: i64 = 2;

/// Recognises the catalogue in the engine, or makes an empty one.
pub fn open(tx: &mut Tx<'_>, now: Time) -> Result<()> {
    let key = keys::meta_key(meta::FORMAT);
    match tx.w.get_for_update(&key)? {
        Some(value) => {
            let made: FormatRec = rec::decode("format", "the catalogue", &value)?;
            let now = record::encode(&made);
            if *now != *value {
                // From here on a release before refuses it.
                tx.w.put(&key, &now)?;
            }
            nodes::introduce(tx)
        }
        None => {
            tx.w.put(&key, &record::encode(&FormatRec { created: now }))?;
            tx.w.put(&keys::meta_key(meta::NODES), &[])?;
            tx.w.put(&keys::meta_key(meta::FAR_COUNTED), &[])?;
            make(tx, now)
        }
    }
}

/// The class `default` makes no copies until someone says where.
fn make(tx: &mut Tx<'_>, now: Time) -> Result<()> {
    let class = Class {
        name: "default".into(),
        copies: Vec::new(),
        migrate_after_s: 60,
        migrate_bytes: 0,
        keep_on_disk: false,
    };
    super::class::put(tx, &class)?;
    let id = crate::classes::require(&*tx.w, &class.name)?;
    let root = InodeRec {
        ino: Ino::ROOT,
        kind: FileKind::Directory,
        mode: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        class: id,
        size: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        link: (Ino::ROOT, 0),
        xattrs: 0,
        file: None,
    };
    tx.replace(None, Some(&root))
}

/// Reserves `n` numbers of a counter that starts at `first`; the first of them.
fn reserve(tx: &mut Tx<'_>, what: u8, first: i64, n: u64) -> Result<u64> {
    let key = keys::meta_key(what);
    let next = store::counter(tx.w.get_for_update(&key)?)?.max(first);
    tx.w.put(&key, &next.saturating_add_unsigned(n).to_le_bytes())?;
    Ok(next as u64)
}

/// Reserves inode numbers and cookies.
pub fn reserve_ids(tx: &mut Tx<'_>, n: u64) -> Result<u64> {
    reserve(tx, meta::NEXT_ID, FIRST_ID, n)
}

/// The number of the next object.
pub fn next_object(view: View<'_>) -> Result<ObjectId> {
    let next = store::counter(view.r.get(&keys::meta_key(meta::NEXT_OBJECT))?)?;
    Ok(ObjectId(u64::try_from(next).unwrap_or(0).max(1)))
}

/// Reserves numbers of objects that are not of the node's disk tier.
pub fn reserve_numbers(tx: &mut Tx<'_>, n: u64) -> Result<u64> {
    reserve(tx, meta::NEXT_OBJECT, 1, n)
}

/// Reserves object ids; they are unowned until an inode gets them.
pub fn reserve_objects(tx: &mut Tx<'_>, n: u64) -> Result<u64> {
    let first = reserve(tx, meta::NEXT_OBJECT, 1, n)?;
    for id in first..first.saturating_add(n) {
        tx.w.put(&crate::keys::unowned(types::ObjectId(id)), &[])?;
    }
    Ok(first)
}

/// The next request id.
pub fn reserve_request(tx: &mut Tx<'_>) -> Result<u64> {
    reserve(tx, meta::NEXT_REQUEST, 1, 1)
}
