//! Targets that stay nearly full when everything has left them that may: files on them that wait for their age go to tape at once, so that they
//! may leave. The marks are those of the node's own disk tier.

use super::REPORT_EVERY;
use super::room::shares;
use crate::Node;
use crate::error::fs_error;
use crate::governor::EVER;
use catalog::{Candidate, CandidateKey};
use parking_lot::Mutex;
use policy::{DiskMode, DiskUse, Pressure};
use std::collections::{BTreeMap, BTreeSet};
use types::*;

/// Files that wait for migration looked at together.
const LOOK: usize = 500;

/// Which targets are in need, and how far the files that wait for migration have been gone through for them.
#[derive(Default)]
pub(super) struct Pressed {
    targets: Mutex<BTreeSet<TargetId>>,
    walk: Mutex<Walk>,
}

/// A way through all files that wait for migration, earliest due first.
#[derive(Default)]
struct Walk {
    /// Where it goes on.
    at: Option<CandidateKey>,
    /// When it goes on, or the next one begins: the index may be long, and what it has is queued by then.
    next: Option<Time>,
}

/// How much need a target has of which so many bytes are used.
fn pressure(target: &Target, used: u64, (low, high): (u8, u8), pressed: bool) -> Pressure {
    let last = DiskMode { pressure: if pressed { Pressure::Hard } else { Pressure::None }, purging: false };
    DiskUse { used, last, ..DiskUse::with_percent(target.capacity, low, high) }.pressure()
}

fn used(target: &Target) -> u64 {
    target.capacity.saturating_sub(target.free)
}

impl Pressed {
    /// Those that have room again, or are not used, are in need no more.
    pub(super) fn look(&self, views: &[TargetView], percent: (u8, u8)) {
        let needs = |view: &TargetView| {
            view.state == TargetState::Up
                && pressure(&view.target, used(&view.target), percent, true) == Pressure::Hard
        };
        let mut targets = self.targets.lock();
        if !targets.is_empty() {
            targets.retain(|id| views.iter().any(|view| view.target.id == *id && needs(view)));
        }
    }

    /// Everything has left a target that may: it is still `left` bytes above its low watermark.
    pub(super) fn note(&self, target: &Target, percent: (u8, u8), left: u64) {
        let low = DiskUse::with_percent(target.capacity, percent.0, percent.1).low;
        let mut targets = self.targets.lock();
        let pressed = targets.contains(&target.id);
        if pressure(target, low.saturating_add(left), percent, pressed) != Pressure::Hard {
            targets.remove(&target.id);
        } else if targets.insert(target.id) {
            tracing::warn!(
                "target {} is nearly full, and too little of what it has may leave it: files on it go to tape at once, whatever their age",
                target.id
            );
        }
    }

    fn targets(&self) -> BTreeSet<TargetId> {
        self.targets.lock().clone()
    }
}

impl Node {
    /// Has files go to tape that lie on targets in need, whatever their age; how many copies were queued. Goes through a part of the files that wait
    /// for migration, and never through the namespace.
    pub(crate) fn hurry_from_targets(
        &self,
        classes: &BTreeMap<ClassName, Class>,
        now: Time,
    ) -> Result<usize, FsError> {
        let targets = self.movers.pressed.targets();
        let mut walk = self.movers.pressed.walk.lock();
        if targets.is_empty() {
            *walk = Walk::default();
            return Ok(0);
        }
        if walk.next.is_some_and(|next| now < next) {
            return Ok(0);
        }
        let sated = self.writes.sated();
        let page = self.catalog.candidates(EVER, walk.at, LOOK);
        let page = page.map_err(|e| fs_error("look for files to migrate from targets", &e))?;
        page.damaged.iter().for_each(|(ino, e)| self.note_damage(*ino, e));
        let makes_room = |one: &&Candidate| {
            let leaves = classes.get(&one.class).is_some_and(|class| !class.keep_on_disk);
            let taken = one.missing.iter().any(|(_, pool)| !sated.contains(pool));
            leaves && taken && self.lies_on(one, &targets) && !self.is_pinned(one.ino)
        };
        let wanted = page.found.iter().filter(makes_room).map(|one| one.ino);
        let pushed = self.push_files(wanted, now)?;
        let ended = page.found.len() + page.damaged.len() < LOOK;
        // Whatever found no room: others go to other pools, and the next walk comes by again.
        walk.at = page.found.last().map(|one| one.key).filter(|_| !ended);
        let rests = walk.at.is_none() || pushed.full;
        walk.next = rests.then(|| now.plus(REPORT_EVERY));
        Ok(pushed.added)
    }

    /// Whether a file stays where it is by the word of a user: a copy of it makes no room.
    fn is_pinned(&self, ino: Ino) -> bool {
        self.catalog.inode(ino).is_ok_and(|inode| inode.file.is_some_and(|file| file.pinned))
    }

    /// Whether one of these targets has bytes of a file.
    fn lies_on(&self, one: &Candidate, targets: &BTreeSet<TargetId>) -> bool {
        let Some(object) = one.object.filter(|_| one.far) else { return false };
        // What cannot be looked at now shows when it is read.
        let Ok(Some(far)) = self.catalog.far(object) else { return false };
        shares(&far, one.size).iter().any(|(target, bytes)| *bytes > 0 && targets.contains(target))
    }

    /// What operators are to be told of targets in need.
    pub(crate) fn pressed_targets(&self) -> Vec<String> {
        let told = |target: &TargetId| {
            format!(
                "target {target} is nearly full, and too little of what it has is on tape: its files go to tape at once, whatever the age that their class \
                 asks for. If it stays so, add targets, or remove files; see `thermo target ls`"
            )
        };
        self.movers.pressed.targets().iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use catalog::{New, Reported};
    use layout::Candidate as Place;

    fn report(node: &Node, id: u32, free: u64) {
        let uuid = format!("u{id}");
        let said = Reported {
            uuid: &uuid,
            node: NodeId(1),
            data: &["a:1".to_owned()],
            domain: &uuid,
            capacity: 1000 << 20,
            free,
        };
        let now = crate::now();
        assert_eq!(node.catalog.report_target(&said, now, now).unwrap().id, TargetId(id));
    }

    /// A file of some MiB on a target, closed.
    fn file(node: &Node, name: &str, target: u32, size: u64) -> Ino {
        let rule = LayoutRule {
            unit_bytes: 1 << 20,
            stripes: 1,
            copies: 1,
            parity: 0,
            then: Vec::new(),
            pool: None,
        };
        let place = Place { target: TargetId(target), domain: 0, weight: 1 };
        let far = node.catalog.reserve_far(&rule, &[place], &BTreeSet::new()).unwrap();
        let object = far.layout.components[0].base;
        let (cx, new) = (Cx::admin(crate::now()), New { far: true, ..New::file(0o644, object) });
        let ino = node.catalog.create(&cx, Ino::ROOT, name.as_bytes(), &new).unwrap().attr.ino;
        let stamp = ObjectStamp { size, allocated: size, mtime: cx.now, ctime: cx.now };
        node.catalog.observe(&cx, ino, object, &stamp, true, kv::Durability::Relaxed).unwrap();
        ino
    }

    /// What waits to be written to one pool, in that order.
    fn queued(node: &Node, pool: &PoolName) -> Vec<Ino> {
        std::iter::from_fn(|| {
            let item = node.writes.pop(pool)?;
            node.writes.finish(&item);
            Some(item.ino)
        })
        .collect()
    }

    #[test]
    fn what_lies_on_a_target_that_stays_nearly_full_is_hurried_to_tape_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.cluster_init("first").unwrap();
        node.stop(true);
        let mib = |n: u64| n << 20;
        [(1, 500), (2, 500)].into_iter().for_each(|(id, free)| report(&node, id, mib(free)));
        let class = node.catalog.classes().unwrap().remove(0);
        let pools = class.copies.clone();
        node.catalog.put_class(&Class { migrate_after_s: 1_000_000, ..class.clone() }).unwrap();
        while node.catalog.refresh_classes(100, crate::now()).unwrap() {}
        let kept = Class { name: "kept".into(), keep_on_disk: true, ..class };
        node.catalog.put_class(&kept).unwrap();
        let here = file(&node, "here", 1, mib(3));
        let _elsewhere = file(&node, "elsewhere", 2, mib(3));
        let _empty = file(&node, "empty", 1, 0);
        let stays = file(&node, "stays", 1, mib(3));
        node.catalog.set_class(stays, &"kept".into(), crate::now()).unwrap();
        let pinned = file(&node, "pinned", 1, mib(3));
        node.catalog.pin(pinned, true).unwrap();
        let again = file(&node, "again", 1, mib(3));
        let mut later = crate::now();
        let mut look = || {
            // Each time a round is due, and the next way through the files.
            later = later.plus(std::time::Duration::from_secs(16));
            node.make_room_on_targets(later).unwrap();
            let hurried = node.hurry_from_targets(&node.class_map().unwrap(), later).unwrap();
            pools.iter().map(|pool| queued(&node, pool)).for_each(|found| {
                assert!(found == [here, again] || (hurried == 0 && found.is_empty()), "{found:?}");
            });
            hurried
        };
        assert_eq!(look(), 0, "there is room");
        report(&node, 1, mib(60));
        assert_eq!(look(), 0, "above the high watermark, and not nearly full");
        assert!(node.pressed_targets().is_empty());
        report(&node, 1, mib(40));
        assert_eq!(look(), 4, "two files, two copies");
        let told = node.target_warnings().unwrap();
        assert!(told.iter().any(|told| told.contains("target 1 is nearly full")), "{told:?}");
        report(&node, 1, mib(60));
        assert_eq!(look(), 4, "until it is below the high watermark");
        report(&node, 1, mib(101));
        assert_eq!(look(), 0);
        assert!(node.pressed_targets().is_empty());
    }

    #[test]
    fn what_may_leave_a_target_counts_as_gone() {
        let target = Target {
            id: TargetId(1),
            uuid: String::new(),
            node: NodeId(1),
            data: Vec::new(),
            domain: String::new(),
            draining: false,
            lost: false,
            capacity: 1000,
            free: 10,
            seen: Time::new(1, 0),
        };
        let pressed = Pressed::default();
        let is = || !pressed.targets().is_empty();
        pressed.note(&target, (80, 90), 100);
        assert!(!is(), "what is left comes to 900 of 1000 bytes");
        pressed.note(&target, (80, 90), 150);
        assert!(is(), "950: midway between the high watermark and full");
        pressed.note(&target, (80, 90), 101);
        assert!(is(), "until it is below the high watermark");
        pressed
            .look(&[TargetView { target: target.clone(), state: TargetState::Up, pools: vec![] }], (80, 90));
        assert!(is());
        pressed.look(
            &[TargetView { target: target.clone(), state: TargetState::Down, pools: vec![] }],
            (80, 90),
        );
        assert!(!is(), "nothing can be read there");
        pressed.note(&target, (80, 90), 150);
        pressed.look(&[], (80, 90));
        assert!(!is(), "it is there no more");
    }
}
