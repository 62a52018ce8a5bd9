//! Taking targets out of the list: of what is to be emptied and got nothing more, and on which nothing lies any more.

use super::PAGE;
use crate::Node;
use crate::error::{failure, refused};
use std::collections::BTreeSet;
use types::*;
use wire::Failure;

/// What the catalogue has on a target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    /// Files with something there.
    files: usize,
    /// Objects that belong to no file: they are being made or removed.
    objects: usize,
    /// Objects of which the catalogue does not say to whom they belong since it came back from a backup: nobody removes them.
    forgotten: usize,
}

impl Node {
    /// Takes a target out of the list.
    pub(super) fn remove_target(&self, id: TargetId) -> Result<(), Failure> {
        let fail = |e| refused("the target", &e);
        // Nobody lets it get files again between the look and the removal.
        let _alone = self.movers.listing.lock();
        let views = self.target_views()?;
        let Some(view) = views.iter().find(|view| view.target.id == id) else {
            let message = match self.catalog.removed_targets().map_err(fail)?.iter().any(|gone| gone.id == id)
            {
                true => format!("target {id} is out of the list already"),
                false => format!("there is no target {id}; see `thermo target ls`"),
            };
            return Err(failure(ErrorClass::NotFound, message));
        };
        if let Some(why) = in_use(view) {
            return Err(failure(ErrorClass::Invalid, why));
        }
        if let Some(why) = self.held_by(id).map_err(fail)?.keeps(view) {
            return Err(failure(ErrorClass::Invalid, why));
        }
        self.catalog.remove_target(id).map_err(fail)?;
        tracing::warn!("target {id} ({}) was taken out of the list", view.target.uuid);
        self.tell_of_pools();
        Ok(())
    }

    /// What lies on a target, or is about to. What is to be emptied gets nothing more, so nothing can be missed: a column that moves away meanwhile is a stray
    /// before it is none of its file, and strays are looked at last.
    fn held_by(&self, id: TargetId) -> catalog::Result<Held> {
        let (mut held, here) = (Held::default(), BTreeSet::from([id]));
        let mut after = ObjectId(0);
        loop {
            let page = self.catalog.far_objects(after, PAGE)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (object, _) in page.iter().filter(|(_, far)| !far.on(&here).is_empty()) {
                match self.catalog.object_owner(*object)? {
                    Some(_) => held.files += 1,
                    None if self.is_to_be_removed(*object)? => held.objects += 1,
                    // It may have become a file's meanwhile.
                    None if self.catalog.object_owner(*object)?.is_some() => held.files += 1,
                    None => held.forgotten += 1,
                }
            }
        }
        let mut after = (ObjectId(0), TargetId(0));
        loop {
            let page = self.catalog.strays(after, PAGE)?;
            let Some(last) = page.last() else { return Ok(held) };
            after = *last;
            held.objects += page.iter().filter(|(_, target)| *target == id).count();
        }
    }

    /// Whether an object is on record as nobody's.
    fn is_to_be_removed(&self, object: ObjectId) -> catalog::Result<bool> {
        let next = self.catalog.unowned_far(ObjectId(object.0.saturating_sub(1)), 1)?;
        Ok(next.first().is_some_and(|(first, _)| *first == object))
    }
}

/// Why a target may get new files yet, and what to do.
fn in_use(view: &TargetView) -> Option<String> {
    let Target { id, draining, lost, .. } = &view.target;
    if *draining || *lost {
        return None;
    }
    Some(match view.state {
        TargetState::Down | TargetState::Behind => format!(
            "target {id} is {} and was not drained: have it up and give `thermo target drain {id}`, or, if its disk is lost, `thermo target replace {id}`; \
             then it can be taken out",
            view.state
        ),
        _ => format!(
            "target {id} is in use: give `thermo target drain {id}`; when that is done it can be taken out"
        ),
    })
}

impl Held {
    /// Why a target cannot be taken out yet, and what to do.
    fn keeps(&self, view: &TargetView) -> Option<String> {
        let Target { id, lost, .. } = &view.target;
        let Self { files, objects, forgotten } = *self;
        let have = |n: usize, what: &str| match n {
            1 => format!("1 {what} has something"),
            _ => format!("{n} {what}s have something"),
        };
        if files > 0 {
            let what = match lost {
                true => format!(
                    "`thermo target replace {id}` has that made anew or come from tape, and names the files of which nothing is left: remove these"
                ),
                false => {
                    format!("`thermo target drain {id}` moves it to others, and names what stays and why")
                }
            };
            return Some(format!("{} on target {id}: {what}; then it can be taken out", have(files, "file")));
        }
        if objects > 0 {
            let plural = if objects == 1 { "object of no file has" } else { "objects of no file have" };
            return Some(format!(
                "{objects} {plural} yet to be removed on target {id}, which takes some seconds while its node runs; if its disk is lost: \
                 `thermo target replace {id}`; then it can be taken out"
            ));
        }
        let plural = if forgotten == 1 { "object" } else { "objects" };
        (forgotten > 0 && !lost).then(|| {
            format!(
                "{forgotten} {plural} on target {id} may be of files that were made after the backup from which the catalogue came back: nothing \
                 lists or removes them. If they are not wanted, `thermo target replace {id}` gives up what lies there; then it can be taken out"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use catalog::{New, Reported};
    use wire::{TargetOrder, TargetReport};

    fn report(node: &Node, uuid: &str) -> catalog::Result<Target> {
        let now = crate::now();
        let data = ["a:1".to_owned()];
        let said = Reported { uuid, node: NodeId(1), data: &data, domain: uuid, capacity: 1000, free: 500 };
        node.catalog.report_target(&said, now, now)
    }

    fn order(node: &Node, act: TargetAct) -> Result<(), String> {
        let done = node.move_targets(&Cx::admin(crate::now()), act);
        done.map(drop).map_err(|e| e.message)
    }

    #[test]
    fn a_target_is_taken_out_only_when_it_gets_nothing_more_and_nothing_lies_there() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.cluster_init("first").unwrap();
        node.stop(true);
        let id = TargetId(1);
        ["u", "v"].iter().for_each(|uuid| drop(report(&node, uuid).unwrap()));
        let refused = |node: &Node, id| order(node, TargetAct::Remove(id)).unwrap_err();
        assert!(refused(&node, TargetId(9)).contains("there is no target 9"));
        assert!(refused(&node, id).contains("is in use: give `thermo target drain 1`"));
        let rule =
            LayoutRule { unit_bytes: 4096, stripes: 1, copies: 1, parity: 0, then: Vec::new(), pool: None };
        let place = layout::Candidate { target: id, domain: 0, weight: 1 };
        let cx = Cx::admin(crate::now());
        let make = |name: &[u8]| {
            let far = node.catalog.reserve_far(&rule, &[place], &BTreeSet::new()).unwrap();
            let object = far.layout.components[0].base;
            let new = New { far: true, ..New::file(0o644, object) };
            node.catalog.create(&cx, Ino::ROOT, name, &new).unwrap();
            object
        };
        let (first, second) = (make(b"first"), make(b"second"));
        order(&node, TargetAct::Drain(id)).unwrap();
        let why = refused(&node, id);
        assert!(why.contains("2 files have something on target 1: `thermo target drain 1`"), "{why}");
        // What was removed there is not gone before the target has said so.
        for name in [b"first".as_slice(), b"second"] {
            node.catalog.unlink(&cx, Ino::ROOT, name, &|_| false).unwrap();
        }
        let why = refused(&node, id);
        assert!(why.contains("2 objects of no file have yet to be removed on target 1"), "{why}");
        node.catalog.forget_far(&[first, second]).unwrap();
        // A column that has moved away is a stray there.
        order(&node, TargetAct::Return(id)).unwrap();
        let moved = make(b"moved");
        order(&node, TargetAct::Drain(id)).unwrap();
        node.catalog.relocate_column(moved, (0, 0), TargetId(2), false).unwrap();
        let why = refused(&node, id);
        assert!(why.contains("1 object of no file has yet to be removed on target 1"), "{why}");
        node.catalog.forget_strays(&[(moved, id)]).unwrap();
        order(&node, TargetAct::Remove(id)).unwrap();
        assert!(refused(&node, id).contains("is out of the list already"));
        let left: Vec<TargetId> = node.catalog.targets().unwrap().iter().map(|one| one.id).collect();
        assert_eq!(left, [TargetId(2)]);
        // One that is lost with something of a file that nothing else has.
        order(&node, TargetAct::Replace(TargetId(2))).unwrap();
        let why = refused(&node, TargetId(2));
        assert!(why.contains("1 file has something on target 2") && why.contains("remove these"), "{why}");
    }

    #[test]
    fn objects_of_which_a_catalogue_from_a_backup_knows_nothing_are_told_and_keep_no_target_that_is_given_up()
    {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.cluster_init("first").unwrap();
        node.stop(true);
        let id = TargetId(1);
        ["u", "v"].iter().for_each(|uuid| drop(report(&node, uuid).unwrap()));
        let rule =
            LayoutRule { unit_bytes: 4096, stripes: 1, copies: 1, parity: 0, then: Vec::new(), pool: None };
        let place = layout::Candidate { target: id, domain: 0, weight: 1 };
        node.catalog.reserve_far(&rule, &[place], &BTreeSet::new()).unwrap();
        node.catalog.mark_restored(crate::now()).unwrap();
        order(&node, TargetAct::Drain(id)).unwrap();
        let why = order(&node, TargetAct::Remove(id)).unwrap_err();
        assert!(why.contains("1 object on target 1") && why.contains("after the backup"), "{why}");
        order(&node, TargetAct::Replace(id)).unwrap();
        order(&node, TargetAct::Remove(id)).unwrap();
    }

    #[test]
    fn a_host_that_reports_a_target_that_was_taken_out_is_told_so_and_its_others_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.cluster_init("first").unwrap();
        let report = |uuid: &str| TargetReport {
            uuid: uuid.into(),
            domain: String::new(),
            capacity: 2,
            free: 1,
            turn: 0,
            site: String::new(),
            unclaimed: false,
        };
        let said = TargetOrder { data: vec!["a:1".into()], targets: vec![report("u"), report("v")] };
        let grants = || node.report_targets(NodeId(1), &said).unwrap();
        assert!(grants().iter().all(|grant| grant.refused.is_none()));
        order(&node, TargetAct::Drain(TargetId(1))).unwrap();
        order(&node, TargetAct::Remove(TargetId(1))).unwrap();
        for grant in grants() {
            match grant.uuid.as_str() {
                "u" => {
                    let why = grant.refused.unwrap();
                    let all = ["it was target 1", "taken out of the list", "[[targets]]", "state_dir"];
                    assert!(all.iter().all(|part| why.contains(part)), "{why}");
                    assert!(grant.keys.is_empty(), "it gets no secrets");
                }
                _ => assert!(grant.refused.is_none() && grant.id == TargetId(2)),
            }
        }
        let warnings = node.target_warnings().unwrap();
        assert!(warnings.iter().any(|told| told.contains("target u of node 1 is refused")), "{warnings:?}");
        node.stop(true);
    }
}
