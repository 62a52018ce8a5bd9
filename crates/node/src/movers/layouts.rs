//! Layouts: what new files of a directory get, and making their objects.

use super::DOWN_AFTER;
use super::ways::PATIENCE;
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, fs_error, fs_failure, refused};
use catalog::{CatalogError, Far};
use data::frame::Op;
use layout::Candidate;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::Failure;

/// Between two looks whether targets have been heard of.
const UNHEARD: Duration = Duration::from_millis(100);
/// How often objects are made anew on other targets when one does not take them.
pub(super) const ATTEMPTS: usize = 3;
/// Before targets are asked again that did not answer.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Parts of a file begin at multiples of so many bytes, so that direct IO stays aligned.
const ALIGNED: u64 = layout::MIN_UNIT_BYTES as u64;
/// How often a file may be dealt out anew as it grows.
const MOST_PARTS: usize = 8;
/// A target of which less than so many parts of a hundred are free gets new files only where there is no other.
pub(super) const TIGHT_PERCENT: u64 = 3;

impl Node {
    /// The layout of a path.
    pub(crate) fn layout_of(&self, cx: &Cx, path: &[u8]) -> Result<LayoutView, Failure> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let fail = |e| refused(&shown, &e);
        let inode = self.catalog.resolve(cx, path, true).map_err(fail)?;
        let mut view = LayoutView::default();
        if inode.attr.kind == FileKind::Directory {
            view.rule = self.catalog.layout_rule(inode.attr.ino).map_err(fail)?;
        }
        let object = inode.file.filter(|f| f.far).and_then(|f| f.object);
        if let Some(object) = object
            && let Some(far) = self.catalog.far(object).map_err(fail)?
        {
            view.file = Some(placed(&far));
        }
        Ok(view)
    }

    /// Sets what new files of a directory get.
    pub(crate) fn set_layout(&self, cx: &Cx, path: &[u8], rule: Option<LayoutRule>) -> Result<(), Failure> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let inode = self.catalog.resolve(cx, path, true).map_err(|e| refused(&shown, &e))?;
        if !self.is_admin(cx) && inode.attr.uid != cx.uid {
            return Err(fs_failure(&shown, FsError::NotPermitted));
        }
        if inode.attr.kind != FileKind::Directory {
            let message = format!(
                "{shown} is no directory: a file keeps the layout that its directory had when it was made; `thermo protect` changes that"
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        if let Some(rule) = &rule {
            self.check_rule(rule)?;
        }
        self.catalog.set_layout_rule(inode.attr.ino, rule).map_err(|e| refused(&shown, &e))
    }

    pub(crate) fn check_rule(&self, rule: &LayoutRule) -> Result<(), Failure> {
        let invalid = |message: String| Err(failure(ErrorClass::Invalid, message));
        let mut end = 0;
        for next in &rule.then {
            if next.from <= end || next.from > i64::MAX as u64 || !next.from.is_multiple_of(ALIGNED) {
                return invalid(format!(
                    "--then {}: each begins behind the one before, at a multiple of 4 KiB",
                    next.from
                ));
            }
            end = next.from;
            self.check_part(&rule.at(*next))?;
        }
        if rule.then.len() > MOST_PARTS {
            return invalid(format!("a file is dealt out anew at most {MOST_PARTS} times as it grows"));
        }
        self.check_part(rule)
    }

    fn check_part(&self, rule: &LayoutRule) -> Result<(), Failure> {
        let invalid = |message: String| Err(failure(ErrorClass::Invalid, message));
        if rule.copies == 0 || (rule.parity > 0 && (rule.copies > 1 || rule.stripes < 2)) {
            return invalid(
                "a layout has copies, or 2 units of data and more with units of parity".to_owned(),
            );
        }
        let unit = rule.unit_bytes;
        if rule.parity > 0 && unit as usize > data::frame::MAX_IO {
            return invalid(format!("stripe size {unit}: with parity it is at most 4 MiB"));
        }
        if !(layout::MIN_UNIT_BYTES..=layout::MAX_UNIT_BYTES).contains(&unit)
            || !unit.is_multiple_of(layout::MIN_UNIT_BYTES)
        {
            return invalid(format!("stripe size {unit}: it is a multiple of 4 KiB, at most 1 GiB"));
        }
        let own = self.membership()?;
        if own.is_none_or(|own| !own.holds_names()) {
            return invalid(
                "layouts are for the namespace of a cluster's first node; see `thermo cluster status`"
                    .to_owned(),
            );
        }
        let known = self.targets_for(rule)?;
        if rule.stripes == 0 || rule.columns() > known {
            let whose =
                rule.pool.as_ref().map_or_else(|| "the cluster".to_owned(), |p| format!("target pool {p}"));
            return invalid(format!(
                "this layout needs {} targets, at least 1, and {whose} has {known}; see `thermo target ls`",
                rule.columns()
            ));
        }
        Ok(())
    }

    /// Objects for a new file, made on their targets: from the stock, or now. They are reserved until [`super::Movers::settle`].
    pub(crate) fn make_far(&self, rule: &LayoutRule) -> FsResult<(ObjectId, Far)> {
        match self.take_from_stock(rule) {
            Some(ready) => Ok(ready),
            None => self.make_far_beside(rule, &BTreeSet::new()),
        }
    }

    /// The same, made now on other targets than some.
    pub(crate) fn make_far_beside(
        &self,
        rule: &LayoutRule,
        without: &BTreeSet<TargetId>,
    ) -> FsResult<(ObjectId, Far)> {
        let (mut avoid, mut silent, until) = (BTreeSet::new(), false, Moment::now() + PATIENCE);
        // Where no others will do, those that did not answer are waited for.
        let again = || Moment::now() < until && !self.stops_within(AGAIN);
        loop {
            let mut views = self.target_views().map_err(|e| {
                tracing::error!("a new file gets no targets: {e}");
                FsError::Io
            })?;
            views.retain(|view| view.is_in(rule.pool.as_deref()) && !without.contains(&view.target.id));
            // Nobody could hear them before this node was started.
            let unheard = self.started.elapsed() < DOWN_AFTER
                && views.iter().any(|view| view.state == TargetState::Down);
            let reserved = self.reserve_on(rule, &Candidates::of(views, &avoid));
            if matches!(reserved, Err(CatalogError::Refused { .. })) {
                if unheard && !self.stops_within(UNHEARD) {
                    continue;
                }
                if silent && again() {
                    (avoid, silent) = (BTreeSet::new(), false);
                    continue;
                }
            }
            let (object, far) = reserved.map_err(|e| match e {
                CatalogError::Refused { .. } => {
                    tracing::error!("{e}; see `thermo target ls` for targets that are down or full");
                    FsError::NoSpace
                }
                e => fs_error("create", &e),
            })?;
            // On record before there is anything to remove.
            self.catalog.sync().map_err(|e| fs_error("create", &e))?;
            let Err((target, e)) = self.make_objects(&[&far]) else { return Ok((object, far)) };
            self.movers.settle(object);
            self.movers.wake();
            avoid.insert(target);
            silent |= e.class == ErrorClass::Retry;
            if avoid.len() >= ATTEMPTS && silent && again() {
                (avoid, silent) = (BTreeSet::new(), false);
            } else if avoid.len() >= ATTEMPTS {
                tracing::error!("a new file gets no objects: {e}");
                return Err(if e.class == ErrorClass::NoSpace { FsError::NoSpace } else { FsError::Io });
            }
            tracing::warn!("a new file gets other targets: {e}");
        }
    }

    pub(super) fn reserve_on(
        &self,
        rule: &LayoutRule,
        candidates: &Candidates,
    ) -> catalog::Result<(ObjectId, Far)> {
        candidates.try_each(rule.is_redundant(), |from, away| {
            self.movers.reserve(|| self.catalog.reserve_far(rule, from, away))
        })
    }

    /// Makes the objects of some files, of which a target has at most [`data::frame::MAX_CREATE`]; each is asked once.
    pub(super) fn make_objects(&self, files: &[&Far]) -> Result<(), (TargetId, Failure)> {
        let mut wanted: BTreeMap<TargetId, Vec<u64>> = BTreeMap::new();
        for far in files {
            for (n, component) in (0..).zip(&far.layout.components) {
                let there = component.places().filter(|(_, column)| !far.stale.contains(&(n, *column)));
                for (object, column) in there {
                    let target = component.target(column);
                    target.into_iter().for_each(|target| wanted.entry(target).or_default().push(object.0));
                }
            }
        }
        let asked: Vec<_> = wanted
            .into_iter()
            .map(|(target, objects)| (target, self.ask_of_many(target, Op::Create, &objects), objects))
            .collect();
        let mut made = Ok(());
        for (target, ticket, objects) in asked {
            let answer = ticket.and_then(|ticket| {
                ticket.wait().map_err(|e| failure(e.class(), format!("target {target}: {e}")))
            });
            if let Err(e) = answer {
                if e.class == ErrorClass::Exists {
                    self.movers.note_others(target, &objects);
                }
                made = Err((target, e));
            }
        }
        made
    }
}

/// Targets that may get something, by what they can still take.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) roomy: Vec<Candidate>,
    /// Nearly full: used where there are no others.
    pub(super) tight: Vec<Candidate>,
    /// They do not answer, or have just refused.
    pub(super) away: Vec<Candidate>,
}

impl Candidates {
    /// Those of all targets, where some have just refused.
    pub(super) fn of(views: Vec<TargetView>, avoid: &BTreeSet<TargetId>) -> Self {
        let mut domains = BTreeMap::new();
        let mut found = Self::default();
        for TargetView { target, state, .. } in views {
            let next = domains.len() as u32;
            let domain = *domains.entry(target.domain).or_insert(next);
            let one = Candidate { target: target.id, domain, weight: target.free };
            match state {
                _ if target.draining || target.lost => {}
                TargetState::Up if !avoid.contains(&target.id) => {
                    match target.free < target.capacity / 100 * TIGHT_PERCENT {
                        // What it has told may be old.
                        true => found.tight.push(Candidate { weight: one.weight.max(1), ..one }),
                        false => found.roomy.push(one),
                    }
                }
                // Drawn last.
                _ => found.away.push(Candidate { weight: 1, ..one }),
            }
        }
        found
    }

    /// Reserves something on those that have room, else on those nearly full too, else, where others can stand in for them, also on those that
    /// are away.
    pub(super) fn try_each<T>(
        &self,
        is_redundant: bool,
        reserve: impl Fn(&[Candidate], &BTreeSet<TargetId>) -> catalog::Result<T>,
    ) -> catalog::Result<T> {
        let Self { roomy, tight, away } = self;
        let refused = |made: &catalog::Result<_>| matches!(made, Err(catalog::CatalogError::Refused { .. }));
        let nobody = BTreeSet::new();
        let mut made = reserve(roomy, &nobody);
        if refused(&made) && !tight.is_empty() {
            made = reserve(&[roomy.clone(), tight.clone()].concat(), &nobody);
        }
        if refused(&made) && !away.is_empty() && is_redundant {
            // What others can stand in for may be written later.
            let missing = away.iter().map(|one| one.target).collect();
            made = reserve(&[roomy.clone(), tight.clone(), away.clone()].concat(), &missing);
        }
        made
    }
}

/// How users see it.
fn placed(far: &Far) -> PlacedView {
    let mut columns = Vec::new();
    for (number, component) in (0..).zip(&far.layout.components) {
        let range = &component.range;
        columns.extend(component.places().filter_map(|(object, column)| {
            let current = !far.stale.contains(&(number, column));
            let until = Some(range.end).filter(|end| *end < u64::MAX);
            Some(ColumnView { object, target: component.target(column)?, current, from: range.start, until })
        }));
    }
    PlacedView { generation: far.layout.generation, rule: far.rule(), columns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_go_where_there_is_room_else_to_what_is_nearly_full_and_never_where_it_is_to_be_empty() {
        let view = |id, free, state| {
            let target = Target {
                id: TargetId(id),
                uuid: String::new(),
                node: NodeId(id),
                data: Vec::new(),
                domain: format!("d{id}"),
                draining: state == TargetState::Draining,
                lost: state == TargetState::Lost,
                capacity: 1000,
                free,
                seen: Time::new(1, 0),
            };
            TargetView { target, state, pools: Vec::new() }
        };
        let views = [
            view(1, 500, TargetState::Up),
            view(2, 29, TargetState::Up),
            view(3, 500, TargetState::Down),
            view(4, 500, TargetState::Draining),
            view(5, 500, TargetState::Lost),
            view(6, 500, TargetState::Up),
            view(7, 0, TargetState::Up),
        ];
        let found = Candidates::of(views.to_vec(), &BTreeSet::from([TargetId(6)]));
        let of = |all: &[Candidate]| all.iter().map(|one| (one.target.0, one.weight)).collect::<Vec<_>>();
        assert_eq!(of(&found.roomy), [(1, 500)]);
        assert_eq!(of(&found.tight), [(2, 29), (7, 1)]);
        assert_eq!(of(&found.away), [(3, 1), (6, 1)]);
    }
}
