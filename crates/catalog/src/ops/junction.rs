//! Junctions: empty directories that lead to a subsystem. Hosts mount its namespace over such a directory, so nothing is made in
//! it here, and it is neither removed nor renamed as long as it leads there; directories above it may be.

use super::{nodes, path, remove, resolve};
use crate::keys;
use crate::rec::{self, InodeRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::{Cx, FsError, Ino, Junction, JunctionState, JunctionView, PathText, Time, escape};

/// Where a directory leads; None: nowhere.
pub fn find(view: View<'_>, dir: Ino) -> Result<Option<Junction>> {
    let value = view.r.get(&keys::junction(dir))?;
    value.map(|v| rec::decode("junction", dir, &v)).transpose()
}

/// All junctions with the paths that they have now, in order of these.
pub fn all(view: View<'_>) -> Result<Vec<JunctionView>> {
    let mut found = Vec::new();
    for (dir, junction) in records(view)? {
        let path = match path::path_of(view, dir) {
            Ok(path) => path.into(),
            // The check tells more; those beside it are shown.
            Err(e) if e.is_damage() || e.fs() == FsError::NotFound => {
                PathText::from(format!("(inode {dir}: {e})"))
            }
            Err(e) => return Err(e),
        };
        found.push(JunctionView { path, ino: dir, junction, state: JunctionState::default() });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn records(view: View<'_>) -> Result<Vec<(Ino, Junction)>> {
    let mut values = Vec::new();
    view.r.scan(&[keys::JUNCTION], &[keys::JUNCTION + 1], &mut |k, v| {
        values.extend(keys::number_at(k, 1).map(|dir| (Ino(dir), v.to_vec())));
        ControlFlow::Continue(())
    })?;
    let decoded = values.into_iter().map(|(dir, v)| Ok((dir, rec::decode("junction", dir, &v)?)));
    decoded.collect()
}

/// Notes the directories that lead somewhere when a catalogue is opened.
pub fn note_all(view: View<'_>) -> Result<()> {
    store::each_past_damage(view.r, &[keys::JUNCTION], &[keys::JUNCTION + 1], |k, _| {
        keys::number_at(k, 1).into_iter().for_each(|dir| view.leading.enter(Ino(dir)));
        ControlFlow::Continue(())
    })
}

/// Has the empty directory at a path lead to a subsystem, which no other one leads to.
pub fn make(tx: &mut Tx<'_>, cx: &Cx, at: &[u8], junction: &Junction) -> Result<JunctionView> {
    let shown = escape(at);
    let rec = resolve::resolve(tx.view(), cx, at, false)?;
    if !rec.is_dir() {
        return Err(FsError::NotADirectory.into());
    }
    if rec.ino == Ino::ROOT {
        let why = "the root of a namespace leads nowhere else; make a directory for the junction";
        return Err(CatalogError::refused(shown, why));
    }
    for (dir, other) in records(tx.view())? {
        let leads = format!("leads to subsystem {}", other.subsystem);
        if dir == rec.ino {
            let why = format!("it {leads} already; `thermo junction rm` it first");
            return Err(CatalogError::refused(shown, why));
        }
        if other.subsystem == junction.subsystem {
            let there = path::path_of(tx.view(), dir)?;
            let why = format!("{} {leads}, which would be one file system at two places", escape(&there));
            return Err(CatalogError::refused(shown, why));
        }
    }
    remove::check_empty(tx.view(), rec.ino)?;
    tx.leading.enter(rec.ino);
    tx.w.put(&keys::junction(rec.ino), &record::encode(junction))?;
    touch(tx, rec.ino, cx.now)?;
    let path = path::path_of(tx.view(), rec.ino)?.into();
    Ok(JunctionView { path, ino: rec.ino, junction: junction.clone(), state: JunctionState::default() })
}

/// The directory at a path leads nowhere from now on: it is an empty one. Where it led.
pub fn unmake(tx: &mut Tx<'_>, cx: &Cx, at: &[u8]) -> Result<Junction> {
    let dir = resolve::resolve(tx.view(), cx, at, false)?.ino;
    let known = find(tx.view(), dir)?.ok_or_else(|| CatalogError::missing("junction", escape(at)))?;
    tx.w.delete(&keys::junction(dir))?;
    touch(tx, dir, cx.now)?;
    Ok(known)
}

/// Writes the directory's record: whoever has read it to make something in it goes before or behind this, on every engine (see [`Leading`](crate::leading::Leading)).
fn touch(tx: &mut Tx<'_>, dir: Ino, now: Time) -> Result<()> {
    let old = tx.load(dir)?;
    let mut rec = InodeRec { ctime: now, ..old.clone() };
    nodes::changed(tx, &old, &mut rec, now)?;
    tx.replace(Some(&old), Some(&rec))
}

/// Refuses to make something in a directory that leads elsewhere.
pub fn check_inside(view: View<'_>, dir: Ino) -> Result<()> {
    if !view.leading.may(dir) {
        return Ok(());
    }
    why_absent(view, dir)?.map_or(Ok(()), Err)
}

/// Why something is not found in a directory that leads elsewhere; None: it does not.
pub fn why_absent(view: View<'_>, dir: Ino) -> Result<Option<CatalogError>> {
    find(view, dir)?.map(|junction| elsewhere(view, dir, junction)).transpose()
}

fn elsewhere(view: View<'_>, dir: Ino, junction: Junction) -> Result<CatalogError> {
    let path = escape(&path::path_of(view, dir)?);
    let address = junction.addresses.into_iter().next().unwrap_or_default();
    Ok(CatalogError::Elsewhere { path, subsystem: junction.subsystem, address })
}

/// Refuses to take away, or to move, a directory that leads elsewhere.
pub fn check_itself(view: View<'_>, rec: &InodeRec) -> Result<()> {
    if !rec.is_dir() {
        return Ok(());
    }
    let Some(junction) = find(view, rec.ino)? else { return Ok(()) };
    let path = escape(&path::path_of(view, rec.ino)?);
    Err(CatalogError::Junction { path, subsystem: junction.subsystem })
}
