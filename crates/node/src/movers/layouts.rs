//! Layouts: what new files of a directory get, and making their objects.

use crate::Node;
use crate::error::{failure, fs_error, fs_failure, refused};
use catalog::Far;
use data::frame::Op;
use layout::Candidate;
use std::collections::{BTreeMap, BTreeSet};
use types::api::FsResult;
use types::*;
use wire::Failure;

/// How often objects are made anew on other targets when one does not take them.
const ATTEMPTS: usize = 3;

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
            view.file = placed(&far);
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
                "{shown} is no directory: a file keeps the layout that its directory had when it was made; copy it to change that"
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        if let Some(rule) = &rule {
            self.check_rule(rule)?;
        }
        self.catalog.set_layout_rule(inode.attr.ino, rule).map_err(|e| refused(&shown, &e))
    }

    fn check_rule(&self, rule: &LayoutRule) -> Result<(), Failure> {
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
        if own.is_none_or(|own| own.credentials.authority_key.is_none()) {
            return invalid(
                "layouts are for the namespace of a cluster's first node; see `thermo cluster status`"
                    .to_owned(),
            );
        }
        let known = self.catalog.targets().map_err(|e| refused("the targets", &e))?.len() as u64;
        if rule.stripes == 0 || rule.columns() > known {
            return invalid(format!(
                "this layout needs {} targets, at least 1, and the cluster has {known}; see `thermo target ls`",
                rule.columns()
            ));
        }
        Ok(())
    }

    /// Reserves objects for a new file and makes them on their targets. They are reserved until [`super::Movers::settle`].
    pub(crate) fn make_far(&self, rule: &LayoutRule) -> FsResult<(ObjectId, Far)> {
        let mut avoid = BTreeSet::new();
        loop {
            let (candidates, others) = self.candidates(&avoid).map_err(|e| {
                tracing::error!("a new file gets no targets: {e}");
                FsError::Io
            })?;
            let reserve = |from: &[Candidate], away: &BTreeSet<TargetId>| {
                self.movers.reserve(|| self.catalog.reserve_far(rule, from, away))
            };
            let reserved = match reserve(&candidates, &BTreeSet::new()) {
                // What others can stand in for may be written later.
                Err(catalog::CatalogError::Refused { .. }) if rule.is_redundant() => {
                    let away = others.iter().map(|other| other.target).collect();
                    reserve(&[candidates, others].concat(), &away)
                }
                reserved => reserved,
            };
            let (object, far) = reserved.map_err(|e| match e {
                catalog::CatalogError::Refused { .. } => {
                    tracing::error!("{e}; see `thermo target ls` for targets that are down or full");
                    FsError::NoSpace
                }
                e => fs_error("create", &e),
            })?;
            // On record before there is anything to remove.
            self.catalog.sync().map_err(|e| fs_error("create", &e))?;
            let Err((target, e)) = self.make_objects(&far) else { return Ok((object, far)) };
            self.movers.settle(object);
            self.movers.wake();
            avoid.insert(target);
            if avoid.len() >= ATTEMPTS {
                tracing::error!("a new file gets no objects: {e}");
                return Err(FsError::Io);
            }
            tracing::warn!("a new file gets other targets: {e}");
        }
    }

    fn make_objects(&self, far: &Far) -> Result<(), (TargetId, Failure)> {
        let mut asked = Vec::new();
        for (n, component) in (0..).zip(&far.layout.components) {
            for (object, column) in component.places() {
                let Some(target) = component.target(column) else { continue };
                if far.stale.contains(&(n, column)) {
                    continue;
                }
                asked.push((target, self.ask_far(target, Op::Create, object, 1)));
            }
        }
        let mut made = Ok(());
        for (target, ticket) in asked {
            let answer = ticket.and_then(|ticket| {
                ticket.wait().map_err(|e| failure(e.class(), format!("target {target}: {e}")))
            });
            if let Err(e) = answer {
                made = Err((target, e));
            }
        }
        made
    }

    /// Targets that may get something, by what they can still take; and those that would, if they answered.
    fn candidates(&self, avoid: &BTreeSet<TargetId>) -> Result<(Vec<Candidate>, Vec<Candidate>), Failure> {
        let mut domains = BTreeMap::new();
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for TargetView { target, state } in self.target_views()? {
            let next = domains.len() as u32;
            let domain = *domains.entry(target.domain).or_insert(next);
            let one = Candidate { target: target.id, domain, weight: target.free };
            match state {
                TargetState::Up if !avoid.contains(&target.id) => found.push(one),
                TargetState::Draining => {}
                _ if target.draining => {}
                TargetState::Up | TargetState::Down => others.push(one),
            }
        }
        Ok((found, others))
    }
}

/// How users see it. Files have one component so far.
fn placed(far: &Far) -> Option<PlacedView> {
    let component = far.layout.components.first()?;
    let columns = component.places().filter_map(|(object, column)| {
        let current = !far.stale.contains(&(0, column));
        Some(ColumnView { object, target: component.target(column)?, current })
    });
    Some(PlacedView { generation: far.layout.generation, rule: far.rule(), columns: columns.collect() })
}
