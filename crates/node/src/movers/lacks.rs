//! What targets lack that were away, as it is on record.

use super::moves::bytes_of;
use crate::Node;
use crate::clock::Moment;
use catalog::Far;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{FsError, ObjectId, TargetId};
use wire::OutOfDate;

/// About so many files are looked at at most ...
const MOST: usize = 10_000;
/// ... and about so long, so many at a time: each is asked for by itself, which takes a while where the engine is on another host.
const LOOKS: Duration = Duration::from_secs(1);
const PART: usize = 64;

impl Node {
    /// What is out of date on targets, and whether there is more of it than was looked at.
    pub(crate) fn out_of_date(&self) -> catalog::Result<(Vec<OutOfDate>, bool)> {
        self.out_of_date_within(LOOKS)
    }

    fn out_of_date_within(&self, time: Duration) -> catalog::Result<(Vec<OutOfDate>, bool)> {
        let (mut all, mut after, mut looked, begun) = (BTreeMap::new(), ObjectId(0), 0, Moment::now());
        let more = loop {
            let page = self.catalog.stale_far(after, PART)?;
            let Some((last, _)) = page.last() else { break false };
            if looked >= MOST || (looked > 0 && begun.elapsed() >= time) {
                break true;
            }
            (after, looked) = (*last, looked + page.len());
            for (object, far) in &page {
                let size = self.size_of(*object)?;
                size.into_iter().for_each(|size| count(&mut all, far, size));
            }
        };
        Ok((all.into_values().collect(), more))
    }

    /// None: no file has it any more.
    fn size_of(&self, object: ObjectId) -> catalog::Result<Option<u64>> {
        let Some(ino) = self.catalog.object_owner(object)? else { return Ok(None) };
        match self.catalog.inode(ino) {
            Err(e) if e.fs() == FsError::NotFound => Ok(None),
            inode => inode.map(|inode| Some(inode.attr.size)),
        }
    }
}

/// Counts what is out of date of one file.
fn count(all: &mut BTreeMap<TargetId, OutOfDate>, far: &Far, size: u64) {
    let mut counted = BTreeSet::new();
    for place in &far.stale {
        let component = far.layout.components.get(usize::from(place.0));
        let Some(target) = component.and_then(|component| component.target(place.1)) else { continue };
        let lacks = all.entry(target).or_insert(OutOfDate { target, files: 0, bytes: 0 });
        lacks.files += u64::from(counted.insert(target));
        lacks.bytes += bytes_of(far, *place, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use catalog::{New, Reported};
    use layout::{Candidate, Component, Layout, Redundancy};
    use types::{Cx, Ino, LayoutRule, NodeId};

    #[test]
    fn whoever_has_no_time_to_look_at_all_says_that_there_is_more() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        for uuid in ["a", "b"] {
            let said = Reported { uuid, node: NodeId(1), data: &[], domain: uuid, capacity: 100, free: 50 };
            node.catalog.report_target(&said, crate::now(), crate::now()).unwrap();
        }
        assert_eq!(node.out_of_date_within(Duration::ZERO).unwrap(), (vec![], false));
        let rule =
            LayoutRule { unit_bytes: 4096, stripes: 1, copies: 2, parity: 0, then: vec![], pool: None };
        let from = [1, 2].map(|n| Candidate { target: TargetId(n), domain: n, weight: 1 });
        for n in 0..PART + 1 {
            let far = node.catalog.reserve_far(&rule, &from, &BTreeSet::from([TargetId(2)])).unwrap();
            let new = New { far: true, ..New::file(0o644, far.layout.components[0].base) };
            node.catalog.create(&Cx::admin(crate::now()), Ino::ROOT, n.to_string().as_bytes(), &new).unwrap();
        }
        let lacks = |files| vec![OutOfDate { target: TargetId(2), files, bytes: 0 }];
        let (some, all) = (PART as u64, PART as u64 + 1);
        assert_eq!(node.out_of_date_within(Duration::ZERO).unwrap(), (lacks(some), true));
        assert_eq!(node.out_of_date_within(Duration::from_secs(3600)).unwrap(), (lacks(all), false));
        node.stop(true);
    }

    #[test]
    fn a_file_counts_once_for_each_target_that_lacks_something_of_it() {
        let component = |range: std::ops::Range<u64>, targets: [u32; 2], base| Component {
            range,
            unit_bytes: 4096,
            redundancy: Redundancy::Mirror { copies: 2 },
            base: ObjectId(base),
            targets: targets.map(TargetId).to_vec(),
        };
        let components = vec![component(0..8192, [1, 2], 1), component(8192..u64::MAX, [2, 3], 3)];
        let layout = Layout { generation: 1, components };
        let far = Far { layout, stale: vec![(0, 1), (1, 0), (1, 1)], then: Vec::new(), pool: None };
        let mut all = BTreeMap::new();
        count(&mut all, &far, 10_000);
        let lack = |target, files, bytes| OutOfDate { target: TargetId(target), files, bytes };
        let second = bytes_of(&far, (1, 0), 10_000);
        let found: Vec<OutOfDate> = all.values().copied().collect();
        assert_eq!(found, [lack(2, 1, 8192 + second), lack(3, 1, second)]);
        count(&mut all, &far, 0);
        assert_eq!(all[&TargetId(2)].files, 2);
    }
}
