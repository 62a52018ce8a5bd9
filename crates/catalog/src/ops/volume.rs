//! Volumes, and the dropping of their trees.

use super::version;
use crate::keys::{self, meta, vol};
use crate::rec::{self, TapeEntry, VolumeRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::record;
use kv::{KvError, Reader};
use std::ops::ControlFlow;
use types::*;

/// Longest barcode (bytes; a volume tag has 32).
const MAX_BARCODE: usize = 64;

/// A volume's record without its live sums.
pub fn load(r: &dyn Reader, barcode: &Barcode) -> Result<Option<VolumeRec>> {
    let value = r.get(&keys::volume(vol::RECORD, barcode))?;
    value.map(|v| rec::decode("volume", barcode, &v)).transpose()
}

/// The same for a change; `Missing` if there is none.
pub fn load_for_update(tx: &mut Tx<'_>, barcode: &Barcode) -> Result<VolumeRec> {
    let value = tx.w.get_for_update(&keys::volume(vol::RECORD, barcode))?;
    let value = value.ok_or_else(|| CatalogError::missing("volume", barcode))?;
    rec::decode("volume", barcode, &value)
}

/// Writes a volume's record.
pub fn store(tx: &mut Tx<'_>, volume: &VolumeRec) -> Result<()> {
    let barcode = &volume.volume.barcode;
    let mut stored = volume.clone();
    (stored.volume.live, stored.volume.live_files) = (0, 0);
    Ok(tx.w.put(&keys::volume(vol::RECORD, barcode), &record::encode(&stored))?)
}

/// Changes the live sums, which have keys of their own so that deletes do not wait for each other.
pub fn add_live(tx: &mut Tx<'_>, barcode: &Barcode, bytes: i64, files: i64) -> Result<()> {
    tx.w.add(&keys::volume(vol::LIVE, barcode), bytes)?;
    Ok(tx.w.add(&keys::volume(vol::LIVE_FILES, barcode), files)?)
}

/// The public shape of a volume.
pub fn shown(r: &dyn Reader, rec: VolumeRec) -> Result<Volume> {
    let mut volume = rec.volume;
    let sum = |what| -> Result<u64> {
        let n = store::counter(r.get(&keys::volume(what, &volume.barcode))?)?;
        u64::try_from(n)
            .map_err(|_| CatalogError::corrupt("volume", &volume.barcode, "its live sums are negative"))
    };
    (volume.live, volume.live_files) = (sum(vol::LIVE)?, sum(vol::LIVE_FILES)?);
    Ok(volume)
}

/// One volume.
pub fn volume(view: View<'_>, barcode: &Barcode) -> Result<Option<Volume>> {
    load(view.r, barcode)?.map(|rec| shown(view.r, rec)).transpose()
}

/// All volumes in order of barcode.
#[derive(Debug, Default)]
pub struct Volumes {
    /// Those that can be read.
    pub found: Vec<Volume>,
    /// Those of which a record is damaged, and what is wrong with it.
    pub damaged: Vec<(Barcode, CatalogError)>,
}

/// All volumes in order of barcode.
pub fn volumes(view: View<'_>) -> Result<Volumes> {
    let mut all = Volumes::default();
    let mut values = Vec::new();
    let (mut from, to) = (vec![keys::VOLUME, vol::RECORD], [keys::VOLUME, vol::LIVE]);
    loop {
        let scanned = view.r.scan(&from, &to, &mut |k, v| {
            values.push((k.to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        });
        // A value that the engine finds damaged: go on behind it.
        let Err(KvError::BadValue { path, key }) = scanned else {
            scanned?;
            break;
        };
        from = keys::after(&key);
        all.damaged.push((barcode_of(&key), KvError::BadValue { path, key }.into()));
    }
    for (key, value) in values {
        let barcode = barcode_of(&key);
        let read = rec::decode("volume", &barcode, &value).and_then(|rec: VolumeRec| {
            if rec.volume.barcode != barcode {
                return Err(CatalogError::corrupt("volume", &barcode, "its record is of another volume"));
            }
            shown(view.r, rec)
        });
        match read {
            Ok(volume) => all.found.push(volume),
            Err(e) if e.is_damage() => all.damaged.push((barcode, e)),
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

fn barcode_of(key: &[u8]) -> Barcode {
    Barcode::from(&*String::from_utf8_lossy(key.get(2..).unwrap_or_default()))
}

fn new_tree(tx: &mut Tx<'_>) -> Result<u64> {
    let key = keys::meta_key(meta::NEXT_TREE);
    let tree = store::counter(tx.w.get_for_update(&key)?)?;
    tx.w.put(&key, &(tree + 1).to_le_bytes())?;
    Ok(tree as u64)
}

/// Enters or overwrites.
pub fn put(tx: &mut Tx<'_>, volume: &Volume) -> Result<()> {
    let barcode = &volume.barcode;
    if barcode.as_str().is_empty() || barcode.as_str().len() > MAX_BARCODE {
        let why = format!("a barcode has 1 to {MAX_BARCODE} bytes");
        return Err(CatalogError::refused(format!("volume {:?}", barcode.as_str()), why));
    }
    let rec = match load(&*tx.w, barcode)? {
        Some(old) => VolumeRec { volume: volume.clone(), ..old },
        None => VolumeRec { volume: volume.clone(), tree: new_tree(tx)?, next_dir: 1, before: None },
    };
    store(tx, &rec)
}

/// Changes. What it was before it was to be emptied is forgotten once it is not emptied any more.
pub fn update(tx: &mut Tx<'_>, barcode: &Barcode, change: &mut dyn FnMut(&mut Volume)) -> Result<Volume> {
    let mut rec = load_for_update(tx, barcode)?;
    let mut shown = shown(&*tx.w, rec.clone())?;
    let live = (shown.live, shown.live_files);
    change(&mut shown);
    shown.barcode = barcode.clone();
    (shown.live, shown.live_files) = live;
    if rec.volume.state == VolumeState::Repacking && shown.state != VolumeState::Repacking {
        rec.before = None;
    }
    store(tx, &VolumeRec { volume: shown.clone(), ..rec })?;
    Ok(shown)
}

/// It is back from where it was exported to, or is not emptied after all: changes it, with what it was before, which is forgotten if its
/// state is another one then.
pub fn come_back(
    tx: &mut Tx<'_>,
    barcode: &Barcode,
    change: &mut dyn FnMut(&mut Volume, Option<&Before>),
) -> Result<Volume> {
    let VolumeRec { volume: old, before, .. } = load_for_update(tx, barcode)?;
    let now = update(tx, barcode, &mut |v| change(v, before.as_ref()))?;
    if now.state != old.state {
        let rec = load_for_update(tx, barcode)?;
        store(tx, &VolumeRec { before: None, ..rec })?;
    }
    Ok(now)
}

/// It is taken from those that are read and written, for a while; refused if somebody has taken it out of use, or for other work.
pub fn set_aside(
    tx: &mut Tx<'_>,
    barcode: &Barcode,
    state: VolumeState,
    why: String,
    now: Time,
) -> Result<()> {
    use VolumeState as S;
    let mut rec = load_for_update(tx, barcode)?;
    if !matches!(rec.volume.state, S::Filling | S::Full | S::ReadOnly | S::Suspect) {
        let why = "its state was changed a moment ago; look at it and ask again";
        return Err(CatalogError::refused(format!("volume {barcode}"), why));
    }
    let Volume { state: was, ref reason, by, .. } = rec.volume;
    rec.before = Some(Before { state: was, reason: reason.clone(), by });
    rec.volume.becomes(state, why, now);
    store(tx, &rec)
}

/// What it was before it was closed for its way out, or to be emptied.
pub fn before(view: View<'_>, barcode: &Barcode) -> Result<Option<Before>> {
    Ok(load(view.r, barcode)?.and_then(|rec| rec.before))
}

/// Notes the label that is about to be written. From here on nothing on the volume can be needed again, unless nothing is written of it ([`forget_intended`]).
pub fn intend_label(tx: &mut Tx<'_>, barcode: &Barcode, uuid: &str) -> Result<()> {
    let rec = load_for_update(tx, barcode)?;
    refuse_needed(tx, barcode, rec)?;
    Ok(tx.w.put(&keys::volume(vol::INTENDED, barcode), uuid.as_bytes())?)
}

/// The label that was about to be written.
pub fn intended_label(view: View<'_>, barcode: &Barcode) -> Result<Option<String>> {
    let value = view.r.get(&keys::volume(vol::INTENDED, barcode))?;
    let text = value.map(|v| String::from_utf8(v.to_vec()));
    text.transpose().map_err(|e| CatalogError::corrupt("intended label", barcode, e))
}

/// Nothing was written of it, as the volume carries this one; if that is on record it is forgotten.
pub fn forget_intended(tx: &mut Tx<'_>, barcode: &Barcode, carries: &str) -> Result<bool> {
    let intended = keys::volume(vol::INTENDED, barcode);
    let recorded = load_for_update(tx, barcode)?.volume.uuid;
    let forgets = !carries.is_empty() && recorded == carries && tx.w.get(&intended)?.is_some();
    if forgets {
        tx.w.delete(&intended)?;
    }
    Ok(forgets)
}

fn refuse_needed(tx: &Tx<'_>, barcode: &Barcode, rec: VolumeRec) -> Result<()> {
    let live = shown(&*tx.w, rec)?.live_files;
    if live == 0 {
        return Ok(());
    }
    let why =
        format!("{live} file segments on it are needed by current files; move them to other volumes first");
    Err(CatalogError::refused(format!("volume {barcode}"), why))
}

/// First step of a new label: a new, empty tree; the old one waits to be dropped. What the cartridge has gone through stays with it.
pub fn relabel(tx: &mut Tx<'_>, barcode: &Barcode, fresh: &Volume) -> Result<()> {
    let old = load_for_update(tx, barcode)?;
    refuse_needed(tx, barcode, old.clone())?;
    tx.w.put(&keys::drop_tree(old.tree), barcode.as_str().as_bytes())?;
    tx.w.delete(&keys::volume(vol::INTENDED, barcode))?;
    let Volume { mounts, errors, .. } = old.volume;
    let volume = Volume { barcode: barcode.clone(), mounts, errors, ..fresh.clone() };
    let tree = new_tree(tx)?;
    store(tx, &VolumeRec { volume, tree, next_dir: old.next_dir, before: None })
}

/// Pairs of a tree, the first `limit`.
fn tree_part(r: &dyn Reader, tree: u64, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let prefix = keys::tape_tree(tree);
    let mut found = Vec::new();
    r.scan(&prefix, &keys::end(&prefix), &mut |k, v| {
        found.push((k.to_vec(), v.to_vec()));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Drops up to `limit` entries of trees that wait for it; false when none waits any more.
pub fn drop_some(tx: &mut Tx<'_>, limit: usize) -> Result<bool> {
    let mut waiting = None;
    tx.w.scan(&[keys::DROP], &[keys::DROP + 1], &mut |k, v| {
        waiting = Some((k.to_vec(), Barcode::from(&*String::from_utf8_lossy(v))));
        ControlFlow::Break(())
    })?;
    let Some((key, barcode)) = waiting else { return Ok(false) };
    // another key could never be deleted below, and this would go on for ever
    let tree = keys::number_at(&key, 1).filter(|tree| keys::drop_tree(*tree) == key[..]);
    let tree = tree.ok_or_else(|| CatalogError::corrupt("tree to be dropped", &barcode, "bad key"))?;
    let part = tree_part(&*tx.w, tree, limit)?;
    for (key, value) in &part {
        let dir = keys::number_at(key, 9).map(TapeDir);
        let name = String::from_utf8_lossy(key.get(17..).unwrap_or_default());
        if let (Some(dir), TapeEntry::File(file)) = (dir, rec::decode("volume tree", &barcode, value)?) {
            version::forget_segment(tx, &file, &barcode, (dir, &name))?;
        }
        tx.w.delete(key)?;
    }
    if part.len() < limit {
        tx.w.delete(&keys::drop_tree(tree))?;
    }
    Ok(true)
}
