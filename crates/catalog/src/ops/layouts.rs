//! Where the bytes of files lie that are spread over disk targets of the cluster.
//!
//! A file names one object, as any other; of one on targets it is the first of the layout kept beside it, and the others follow it in
//! number. So everything that holds for objects holds for these: whoever loses the file gives up the object in the same transaction, and it
//! stays on record until all targets have removed theirs.

use super::{target_pools, targets};
use crate::keys::{self, ON_TARGETS, part};
use crate::rec::{self, FarRec, RuleRec};
use crate::store::{Tx, View, each_past_damage};
use crate::{CatalogError, Result};
use format::record;
use layout::{Candidate, Component, Layout, Redundancy, Spread};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use types::*;

/// Where an object lies that is on disk targets, and what of it may not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Far {
    /// Where its bytes lie.
    pub layout: Layout,
    /// Component and column of what is out of date until it is rebuilt.
    pub stale: Vec<(u16, u16)>,
    /// What it gets when it grows beyond its components.
    pub then: Vec<Widening>,
    /// Pool of targets that all of it is to lie in, wherever it moves; none: any targets.
    pub pool: Option<String>,
}

impl Far {
    /// The rule by which it was made, what it has yet to get included.
    pub fn rule(&self) -> LayoutRule {
        let (copies, parity) = match self.layout.components.first().map(|first| first.redundancy) {
            None | Some(Redundancy::None) => (1, 0),
            Some(Redundancy::Mirror { copies }) => (copies, 0),
            Some(Redundancy::Coded { parity, .. }) => (1, parity),
        };
        let part = |component: &Component| {
            let data = component.targets.len().saturating_sub(parity.into());
            let stripes = (data / usize::from(copies.max(1))) as u16;
            Widening { from: component.range.start, stripes, unit_bytes: component.unit_bytes }
        };
        let mut parts = self.layout.components.iter().map(part).chain(self.then.iter().copied());
        let first =
            parts.next().unwrap_or(Widening { from: 0, stripes: 1, unit_bytes: layout::MIN_UNIT_BYTES });
        let Widening { stripes, unit_bytes, .. } = first;
        LayoutRule { unit_bytes, stripes, copies, parity, then: parts.collect(), pool: self.pool.clone() }
    }

    /// Whether the parts that it has and those that it is to get follow each other.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        self.layout.check().map_err(|e| e.to_string())?;
        let mut ends = self.then.iter().map(|part| part.from).chain([u64::MAX]);
        let mut end = self.layout.end();
        if ends.next() != Some(end) {
            return Err(format!("it ends at byte {end}, and what is to follow does not begin there"));
        }
        match ends.all(|next| std::mem::replace(&mut end, next) < next) {
            true => Ok(()),
            false => Err(format!("what it is to get from byte {end} on has no end behind that")),
        }
    }

    /// Component and column of what lies on these targets.
    pub fn on(&self, targets: &BTreeSet<TargetId>) -> Vec<(u16, u16)> {
        let columns = (0..).zip(&self.layout.components).flat_map(|(number, component): (u16, _)| {
            (0..).zip(&component.targets).map(move |(column, target)| ((number, column), target))
        });
        columns.filter(|(_, target)| targets.contains(target)).map(|(place, _)| place).collect()
    }

    /// What it has got last, as if it were all of it.
    pub fn last_part(&self) -> Self {
        let components: Vec<_> = self.layout.components.last().cloned().into_iter().collect();
        let number = self.layout.components.len().saturating_sub(1) as u16;
        let stale = self.stale.iter().filter(|place| place.0 == number).map(|place| (0, place.1)).collect();
        let pool = self.pool.clone();
        Self { layout: Layout { components, ..self.layout }, stale, then: Vec::new(), pool }
    }

    /// Whether all bytes are still there without these targets, and without what is out of date.
    pub fn can_spare(&self, away: &BTreeSet<TargetId>) -> bool {
        let missing = self.on(away);
        (0..).zip(&self.layout.components).all(|(number, component): (u16, _)| {
            let counts = |column: &u16| {
                let place = (number, *column);
                !missing.contains(&place) && !self.stale.contains(&place)
            };
            let columns = 0..component.targets.len() as u16;
            match component.redundancy {
                Redundancy::None => columns.into_iter().all(|column| counts(&column)),
                Redundancy::Mirror { .. } => {
                    columns.into_iter().all(|column| component.replicas(column).any(|copy| counts(&copy)))
                }
                Redundancy::Coded { data, .. } => columns.filter(counts).count() >= usize::from(data),
            }
        })
    }
}

/// What new files of a directory get, or what an offline file gets when it comes back.
pub fn rule(view: View<'_>, dir: Ino) -> Result<Option<LayoutRule>> {
    let value = view.r.get(&keys::inode(dir, part::LAYOUT))?;
    value.map(|v| Ok(rec::decode::<RuleRec>("layout of directory", dir, &v)?.0)).transpose()
}

/// Sets or takes away what new files of a directory get.
pub fn set_rule(tx: &mut Tx<'_>, dir: Ino, rule: Option<LayoutRule>) -> Result<()> {
    tx.load(dir)?;
    tx.view().load_dir(dir)?;
    let key = keys::inode(dir, part::LAYOUT);
    match rule {
        Some(rule) => tx.w.put(&key, &record::encode(&RuleRec(rule)))?,
        None => tx.w.delete(&key)?,
    }
    Ok(())
}

/// Whether an object that a file gets lies on targets; what was kept for its return has served then.
pub fn belongs(tx: &mut Tx<'_>, ino: Ino, object: ObjectId) -> Result<bool> {
    let placed = tx.w.get_for_update(&keys::far(object))?.is_some();
    if placed {
        tx.w.delete(&keys::inode(ino, part::LAYOUT))?;
    }
    Ok(placed)
}

/// A file leaves its targets: what it has there is kept for its return.
pub fn keep(tx: &mut Tx<'_>, ino: Ino, object: ObjectId) -> Result<()> {
    let Some(far) = far(tx.view(), object)? else { return Ok(()) };
    Ok(tx.w.put(&keys::inode(ino, part::LAYOUT), &record::encode(&RuleRec(far.rule())))?)
}

/// The bytes of a file lie in another object on targets from now on; the one that it had is to be removed.
pub fn replace(tx: &mut Tx<'_>, ino: Ino, from: ObjectId, to: ObjectId) -> Result<Far> {
    let far = take_reserved(tx, ino, to)?;
    let old = tx.load_file(ino)?;
    let mut rec = old.clone();
    match &mut rec.file {
        Some(f) if f.object == Some(from) && f.far => f.object = Some(to),
        _ => return Err(other_content(ino)),
    }
    tx.replace(Some(&old), Some(&rec))?;
    Ok(far)
}

/// The bytes of a file that lay in the node's disk tier lie in an object on targets from now on; the one that it had is to be removed. `expect`: how that
/// one was when it was copied, with nobody writing.
pub fn leave_tier(
    tx: &mut Tx<'_>,
    ino: Ino,
    (from, expect): (ObjectId, &ObjectStamp),
    (to, stamp): (ObjectId, &ObjectStamp),
) -> Result<Far> {
    let far = take_reserved(tx, ino, to)?;
    let old = tx.load_file(ino)?;
    let written = tx.w.get(&keys::writing(ino))?.is_some();
    let mut rec = old.clone();
    match &mut rec.file {
        Some(f)
            if (f.object, f.far, f.sealed, written) == (Some(from), false, true, false)
                && f.stamp.is_some_and(|known| known.same_content(expect))
                && stamp.size == rec.size =>
        {
            (f.object, f.far, f.stamp) = (Some(to), true, Some(*stamp));
        }
        _ => return Err(other_content(ino)),
    }
    // It may have been on targets before, and have come back to the disk tier because none took it.
    tx.w.delete(&keys::inode(ino, part::LAYOUT))?;
    tx.replace(Some(&old), Some(&rec))?;
    Ok(far)
}

fn other_content(ino: Ino) -> CatalogError {
    CatalogError::refused(format!("inode {ino}"), "it has other content by now")
}

/// What was reserved is about to belong to a file, under another generation.
fn take_reserved(tx: &mut Tx<'_>, ino: Ino, object: ObjectId) -> Result<Far> {
    let far = raise_generation(tx, object)?;
    stay(tx, far.pool.as_deref(), far.layout.components.iter(), || format!("inode {ino}"))?;
    match tx.w.get_for_update(&keys::unowned(object))?.as_deref() == Some(&[ON_TARGETS]) {
        true => Ok(far),
        false => Err(CatalogError::refused(
            format!("inode {ino}"),
            "its new objects belong to another file, or are gone",
        )),
    }
}

/// An operator may have begun to empty a target since it was chosen for these components, and counts what is there only; or have taken it out of the
/// pool that all of the file is to lie in.
pub(super) fn stay<'a>(
    tx: &mut Tx<'_>,
    pool: Option<&str>,
    components: impl Iterator<Item = &'a Component>,
    what: impl Fn() -> String,
) -> Result<()> {
    let pool =
        pool.map(|name| Ok::<_, CatalogError>((name, target_pools::members(tx, name)?))).transpose()?;
    for target in components.flat_map(|component| &component.targets) {
        let why = match &pool {
            _ if !targets::takes_more(tx, *target)? => "is being emptied by now".to_owned(),
            Some((name, members)) if !members.contains(target) => {
                format!("is not in target pool {name} any more")
            }
            _ => continue,
        };
        let why = format!("target {target}, which it was to lie on, {why}");
        return Err(CatalogError::refused(what(), why));
    }
    Ok(())
}

/// What a file that is on tape only gets when it comes back.
pub fn set_return(tx: &mut Tx<'_>, ino: Ino, rule: LayoutRule) -> Result<()> {
    let rec = tx.load_file(ino)?;
    if rec.file.is_none_or(|f| f.object.is_some()) {
        return Err(CatalogError::refused(format!("inode {ino}"), "it is on disk by now"));
    }
    Ok(tx.w.put(&keys::inode(ino, part::LAYOUT), &record::encode(&RuleRec(rule)))?)
}

/// A new directory gets what the one above it has.
pub fn inherit(tx: &mut Tx<'_>, parent: Ino, dir: Ino) -> Result<()> {
    let Some(value) = tx.w.get(&keys::inode(parent, part::LAYOUT))? else { return Ok(()) };
    Ok(tx.w.put(&keys::inode(dir, part::LAYOUT), &value)?)
}

/// Where an object lies, if it is on targets.
pub fn far(view: View<'_>, object: ObjectId) -> Result<Option<Far>> {
    view.r.get(&keys::far(object))?.map(|v| decode(object, &v)).transpose()
}

fn decode(object: ObjectId, value: &[u8]) -> Result<Far> {
    let FarRec { layout, stale, then, pool } = rec::decode("layout of object", object, value)?;
    let far = Far { layout, stale, then, pool };
    far.check().map_err(|e| CatalogError::corrupt("layout of object", object, e))?;
    Ok(far)
}

pub(super) fn store(tx: &mut Tx<'_>, object: ObjectId, far: &Far) -> Result<()> {
    let Far { layout, stale, then, pool } = far.clone();
    let record = FarRec { layout, stale, then, pool };
    match far.stale.is_empty() {
        true => tx.w.delete(&keys::stale(object))?,
        false => tx.w.put(&keys::stale(object), &[])?,
    }
    Ok(tx.w.put(&keys::far(object), &record::encode(&record))?)
}

/// Reserves objects for a new file from `first` on, and chooses their targets. What comes to lie on those that are `away` is out of date from the
/// beginning.
pub fn reserve(
    tx: &mut Tx<'_>,
    first: u64,
    rule: &LayoutRule,
    targets: &[Candidate],
    away: &BTreeSet<TargetId>,
) -> Result<Far> {
    let end = rule.then.first().map_or(u64::MAX, |next| next.from);
    let components = vec![component(tx, first, rule, 0..end, targets)?];
    let layout = Layout { generation: 1, components };
    let mut far = Far { layout, stale: Vec::new(), then: rule.then.clone(), pool: rule.pool.clone() };
    far.check().map_err(|e| CatalogError::refused("layout", e))?;
    if !far.can_spare(away) {
        return Err(CatalogError::refused("a new file", "too many of the targets that have room are down"));
    }
    far.stale = far.on(away);
    store(tx, ObjectId(first), &far)?;
    tx.w.put(&keys::unowned(ObjectId(first)), &[ON_TARGETS])?;
    Ok(far)
}

/// A component for a range of a file, its objects from `first` on.
pub(super) fn component(
    tx: &mut Tx<'_>,
    first: u64,
    rule: &LayoutRule,
    range: std::ops::Range<u64>,
    targets: &[Candidate],
) -> Result<Component> {
    let redundancy = match (rule.copies, rule.parity) {
        (0 | 1, 0) => Redundancy::None,
        (copies, 0) => Redundancy::Mirror { copies },
        (_, parity) => {
            let data = u8::try_from(rule.stripes);
            let data = data.map_err(|_| CatalogError::refused("layout", "at most 255 units of data"))?;
            Redundancy::Coded { data, parity }
        }
    };
    let pool = rule.pool.as_deref().map(|name| target_pools::known_members(tx, name)).transpose()?;
    let mut takes = Vec::new();
    for one in targets.iter().filter(|one| pool.as_ref().is_none_or(|pool| pool.contains(&one.target))) {
        // An operator may have begun to empty one since they were looked at.
        takes.extend(targets::takes_more(tx, one.target)?.then_some(*one));
    }
    let targets = choose(first, rule, &takes)?;
    Ok(Component { range, unit_bytes: rule.unit_bytes, redundancy, base: ObjectId(first), targets })
}

/// Targets of the columns. Those that hold the same bytes have nothing in common that fails.
fn choose(seed: u64, rule: &LayoutRule, targets: &[Candidate]) -> Result<Vec<TargetId>> {
    let refused = |e: layout::PlaceError| match &rule.pool {
        Some(pool) => CatalogError::refused(format!("a new file in target pool {pool}"), e),
        None => CatalogError::refused("a new file", e),
    };
    if rule.copies <= 1 {
        let spread = if rule.parity > 0 { Spread::Domains } else { Spread::Targets };
        return layout::place(seed, targets, rule.columns() as usize, spread).map_err(refused);
    }
    let mut chosen: Vec<TargetId> = Vec::new();
    for stripe in 0..u64::from(rule.stripes) {
        let left: Vec<Candidate> = targets.iter().copied().filter(|c| !chosen.contains(&c.target)).collect();
        let group = layout::place(seed.wrapping_add(stripe), &left, rule.copies.into(), Spread::Domains);
        chosen.extend(group.map_err(refused)?);
    }
    Ok(chosen)
}

/// Up to `limit` unowned objects on targets after `after`.
pub fn unowned(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
    let mut found = Vec::new();
    let from = keys::after(&keys::unowned(after));
    view.r.scan(&from, &keys::end(&[keys::UNOWNED]), &mut |k, v| {
        found.extend(keys::number_at(k, 1).map(ObjectId).filter(|_| v == [ON_TARGETS]));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    found.into_iter().map(|object| Ok((object, placed(view, object)?))).collect()
}

fn placed(view: View<'_>, object: ObjectId) -> Result<Far> {
    far(view, object)?.ok_or_else(|| CatalogError::corrupt("layout of object", object, "it is missing"))
}

/// Up to `limit` objects after `after` of which something is out of date.
pub fn stale(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
    let mut found = Vec::new();
    let from = keys::after(&keys::stale(after));
    view.r.scan(&from, &[keys::STALE + 1], &mut |k, _| {
        found.extend(keys::number_at(k, 1).map(ObjectId));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    found.into_iter().map(|object| Ok((object, placed(view, object)?))).collect()
}

/// All targets have removed these objects. What has an owner stays.
pub fn forget(tx: &mut Tx<'_>, objects: &[ObjectId]) -> Result<()> {
    for object in objects {
        if tx.w.get_for_update(&keys::unowned(*object))?.as_deref() == Some(&[ON_TARGETS]) {
            tx.w.delete(&keys::unowned(*object))?;
            tx.w.delete(&keys::far(*object))?;
            tx.w.delete(&keys::stale(*object))?;
            tx.w.delete(&keys::lent(*object))?;
        }
    }
    Ok(())
}

/// Clients may have a right to read an object at its targets from now on.
pub fn lend(tx: &mut Tx<'_>, object: ObjectId) -> Result<()> {
    load(tx, object)?;
    Ok(tx.w.put(&keys::lent(object), &[])?)
}

/// Nobody has a right to read these objects any more.
pub fn end_lending(tx: &mut Tx<'_>, objects: &[ObjectId]) -> Result<()> {
    objects.iter().try_for_each(|object| Ok(tx.w.delete(&keys::lent(*object))?))
}

/// Up to `limit` objects after `after` that clients may have a right to read.
pub fn lent(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    let from = keys::after(&keys::lent(after));
    view.r.scan(&from, &[keys::LENT + 1], &mut |k, _| {
        found.extend(keys::number_at(k, 1).map(ObjectId));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Another generation: whoever was let at the objects before is to be refused there.
pub fn raise_generation(tx: &mut Tx<'_>, object: ObjectId) -> Result<Far> {
    let value = tx.w.get_for_update(&keys::far(object))?;
    let value = value.ok_or_else(|| CatalogError::missing("layout of object", object))?;
    let mut far = decode(object, &value)?;
    far.layout.generation = far.layout.generation.saturating_add(1);
    store(tx, object, &far)?;
    Ok(far)
}

/// A column is out of date from now on, or (`stale` false) is up to date again. Raises the generation where that changes anything.
pub fn set_stale(tx: &mut Tx<'_>, object: ObjectId, column: (u16, u16), stale: bool) -> Result<Far> {
    let mut far = load(tx, object)?;
    if far.stale.contains(&column) == stale {
        return Ok(far);
    }
    far.stale.retain(|one| *one != column);
    if stale {
        far.stale.push(column);
        far.stale.sort_unstable();
    }
    far.layout.generation = far.layout.generation.saturating_add(1);
    store(tx, object, &far)?;
    Ok(far)
}

/// Up to `limit` objects on targets after `after`, whether or not they belong to a file.
pub fn all(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
    let mut found = Vec::new();
    let from = keys::after(&keys::far(after));
    view.r.scan(&from, &[keys::FAR + 1], &mut |k, v| {
        found.extend(keys::number_at(k, 1).map(|object| (ObjectId(object), v.to_vec())));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    found.into_iter().map(|(object, value)| Ok((object, decode(object, &value)?))).collect()
}

/// Numbers of up to `limit` objects on targets after `after`; also of such whose layout is damaged.
pub fn numbers(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    each_past_damage(view.r, &keys::after(&keys::far(after)), &[keys::FAR + 1], |k, _| {
        found.extend(keys::number_at(k, 1).map(ObjectId));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Objects of a column.
fn objects(far: &Far, (component, column): (u16, u16)) -> Vec<ObjectId> {
    let component = far.layout.components.get(usize::from(component));
    let places = component.into_iter().flat_map(Component::places);
    places.filter(|(_, place)| *place == column).map(|(object, _)| object).collect()
}

/// A column is about to be copied to a target: what comes to lie there is to be removed, should nothing come of it. Refused while the target
/// still has something of an earlier attempt.
pub fn intend(tx: &mut Tx<'_>, object: ObjectId, place: (u16, u16), to: TargetId) -> Result<()> {
    let far = load(tx, object)?;
    takes(tx, &far, to)?;
    for object in objects(&far, place) {
        let key = keys::stray(object, to);
        if tx.w.get_for_update(&key)?.is_some() {
            return Err(still_there(object, to));
        }
        tx.w.put(&key, &[])?;
    }
    Ok(())
}

/// Nothing comes to lie on a target that is to be empty: so whoever has seen that nothing is there can rely on it. Nor does anything leave the pool of
/// its file.
fn takes(tx: &mut Tx<'_>, far: &Far, to: TargetId) -> Result<()> {
    let refused = |why: String| Err(CatalogError::refused("moving a column", why));
    if !targets::takes_more(tx, to)? {
        return refused(format!("target {to} is being emptied by now"));
    }
    match &far.pool {
        Some(pool) if !target_pools::members(tx, pool)?.contains(&to) => {
            refused(format!("target {to} is not in target pool {pool}, which all of the file is to lie in"))
        }
        _ => Ok(()),
    }
}

fn still_there(object: ObjectId, target: TargetId) -> CatalogError {
    let why = format!("target {target} has yet to remove an older object {object}");
    CatalogError::refused("moving a column", why)
}

/// A column lies elsewhere from now on (`stale`: and has to be rebuilt there, which is refused while the target still has something of an
/// earlier copy that goes); what its old target has is to be removed there.
pub fn relocate(
    tx: &mut Tx<'_>,
    object: ObjectId,
    (component, column): (u16, u16),
    to: TargetId,
    stale: bool,
) -> Result<Far> {
    let mut far = load(tx, object)?;
    takes(tx, &far, to)?;
    let shape = far.layout.components.get_mut(usize::from(component));
    let target = shape.and_then(|shape| shape.targets.get_mut(usize::from(column)));
    let target = target.ok_or_else(|| CatalogError::missing("column of object", object))?;
    let from = std::mem::replace(target, to);
    for object in objects(&far, (component, column)) {
        if stale && tx.w.get_for_update(&keys::stray(object, to))?.is_some() {
            return Err(still_there(object, to));
        }
        tx.w.delete(&keys::stray(object, to))?;
        tx.w.put(&keys::stray(object, from), &[])?;
    }
    far.check().map_err(|e| CatalogError::refused("moving a column", e))?;
    far.stale.retain(|place| *place != (component, column));
    if stale {
        far.stale.push((component, column));
        far.stale.sort_unstable();
    }
    far.layout.generation = far.layout.generation.saturating_add(1);
    store(tx, object, &far)?;
    Ok(far)
}

/// Up to `limit` objects on targets where they do not belong, after `after`.
pub fn strays(
    view: View<'_>,
    after: (ObjectId, TargetId),
    limit: usize,
) -> Result<Vec<(ObjectId, TargetId)>> {
    let mut found = Vec::new();
    let from = keys::after(&keys::stray(after.0, after.1));
    view.r.scan(&from, &[keys::STRAY + 1], &mut |k, _| {
        let target = k.get(9..13).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
        found.extend(keys::number_at(k, 1).zip(target).map(|(o, t)| (ObjectId(o), TargetId(t))));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Targets have removed what did not belong there.
pub fn forget_strays(tx: &mut Tx<'_>, gone: &[(ObjectId, TargetId)]) -> Result<()> {
    gone.iter().try_for_each(|(object, target)| Ok(tx.w.delete(&keys::stray(*object, *target))?))
}

pub(super) fn load(tx: &mut Tx<'_>, object: ObjectId) -> Result<Far> {
    let value = tx.w.get_for_update(&keys::far(object))?;
    decode(object, &value.ok_or_else(|| CatalogError::missing("layout of object", object))?)
}
