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
        if rule.copies != 1 {
            return invalid(
                "layouts with copies are not offered yet: a copy that misses a write could not be told from the others. Use stripes, and \
                 a class of service whose copies are on tape"
                    .to_owned(),
            );
        }
        let unit = rule.unit_bytes;
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
                "{} stripes need as many targets, at least 1, and the cluster has {known}; see `thermo target ls`",
                rule.stripes
            ));
        }
        Ok(())
    }

    /// Reserves objects for a new file and makes them on their targets. They are reserved until [`super::Movers::settle`].
    pub(crate) fn make_far(&self, rule: &LayoutRule) -> FsResult<(ObjectId, Far)> {
        let mut avoid = BTreeSet::new();
        loop {
            let candidates = self.candidates(&avoid).map_err(|e| {
                tracing::error!("a new file gets no targets: {e}");
                FsError::Io
            })?;
            let reserved = self.movers.reserve(|| self.catalog.reserve_far(rule, &candidates));
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
        for component in &far.layout.components {
            for (object, column) in component.places() {
                let Some(target) = component.target(column) else { continue };
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

    /// Targets that may get something, by what they can still take.
    fn candidates(&self, avoid: &BTreeSet<TargetId>) -> Result<Vec<Candidate>, Failure> {
        let mut domains = BTreeMap::new();
        let mut found = Vec::new();
        for TargetView { target, state } in self.target_views()? {
            let next = domains.len() as u32;
            let domain = *domains.entry(target.domain).or_insert(next);
            if state == TargetState::Up && !avoid.contains(&target.id) {
                found.push(Candidate { target: target.id, domain, weight: target.free });
            }
        }
        Ok(found)
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
