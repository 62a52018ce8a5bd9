//! Room on disk targets: when one gets full, or a file that comes back from tape lacks room there ([`super::short`]), files whose copies all count leave it, least recently used first. The watermarks are those of the
//! node's own disk tier.

use super::short::Shares;
use super::{PAGE, REPORT_EVERY};
use crate::Node;
use crate::error::fs_error;
use catalog::{Far, PurgeCandidate};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::*;

/// Between two rounds for one target: what was released is removed there meanwhile, and its node says what is free now.
const ROUND: Duration = Duration::from_secs(3 * REPORT_EVERY.as_secs());

/// When room was made last.
#[derive(Default)]
pub(super) struct Rounds(Mutex<BTreeMap<TargetId, Time>>);

impl Rounds {
    /// Targets that are due, with the bytes that have to leave them.
    fn due(&self, views: &[TargetView], percent: (u8, u8), now: Time) -> BTreeMap<TargetId, u64> {
        let last = self.0.lock();
        let rested = |target: &TargetId| last.get(target).is_none_or(|at| now.since(*at) >= ROUND);
        views
            .iter()
            .filter(|view| view.state == TargetState::Up && rested(&view.target.id))
            .filter_map(|view| Some((view.target.id, to_release(&view.target, percent)?)))
            .collect()
    }

    fn note(&self, targets: impl Iterator<Item = TargetId>, now: Time) {
        self.0.lock().extend(targets.map(|target| (target, now)));
    }
}

/// Bytes that have to leave a target that is fuller than the second percentage, so that it is as full as the first says.
fn to_release(target: &Target, (low, high): (u8, u8)) -> Option<u64> {
    let share = |percent: u8| (u128::from(target.capacity) * u128::from(percent) / 100) as u64;
    let used = target.capacity.saturating_sub(target.free);
    (used > share(high)).then(|| used - share(low))
}

/// What a file of `size` bytes has on each target (bytes).
pub(super) fn shares(far: &Far, size: u64) -> Shares {
    let mut shares = Shares::new();
    for component in &far.layout.components {
        for (column, target) in (0..).zip(&component.targets) {
            *shares.entry(*target).or_default() += component.object_length(column, size);
        }
    }
    shares
}

/// Of each target the greater number.
fn most(one: &Shares, other: &Shares) -> Shares {
    let mut most = one.clone();
    for (target, bytes) in other {
        most.entry(*target).and_modify(|most| *most = (*most).max(*bytes)).or_insert(*bytes);
    }
    most
}

/// What is still to leave targets of what was `wanted`, when of `all` so much is `left`.
fn unmet(wanted: &Shares, all: &Shares, left: &Shares) -> Shares {
    let of = |shares: &Shares, target: &TargetId| shares.get(target).copied().unwrap_or_default();
    let unmet = |(target, bytes): (&TargetId, &u64)| {
        let released = of(all, target) - of(left, target);
        (*target, bytes.saturating_sub(released))
    };
    wanted.iter().map(unmet).filter(|(_, bytes)| *bytes > 0).collect()
}

impl Node {
    /// Makes room on targets that are too full; how many files left them. No target is asked.
    pub(crate) fn make_room_on_targets(&self, now: Time) -> Result<usize, FsError> {
        let views = self.target_views().map_err(|e| {
            tracing::error!("looking for room on targets: {e}");
            FsError::Io
        })?;
        let disk = &self.settings().disk;
        let percent = (disk.low_watermark, disk.high_watermark);
        self.movers.pressed.look(&views, percent);
        let full = self.movers.rounds.due(&views, percent, now);
        let lacking = self.movers.short.wanted(&views, now);
        if full.is_empty() && lacking.is_empty() {
            return Ok(0);
        }
        self.movers.rounds.note(full.keys().copied(), now);
        let all = most(&full, &lacking);
        let mut wanted = all.clone();
        let (mut released, mut after) = (0, None);
        while !wanted.is_empty() {
            let page = self.catalog.far_purge_candidates(after, PAGE);
            let page = page.map_err(|e| fs_error("look for files to release from targets", &e))?;
            page.damaged.iter().for_each(|(ino, e)| self.note_damage(*ino, e));
            let Some(last) = page.found.last() else { break };
            after = Some(last.key);
            released += page.found.iter().filter(|one| self.release_if_wanted(one, &mut wanted, now)).count();
        }
        if released > 0 {
            tracing::info!("{released} files with all their copies on tape left targets that were too full");
        }
        self.movers.short.round_over(&lacking, &unmet(&lacking, &all, &wanted), now);
        let left = unmet(&full, &all, &wanted);
        for view in views.iter().filter(|view| full.contains_key(&view.target.id)) {
            let left = left.get(&view.target.id).copied().unwrap_or_default();
            self.movers.pressed.note(&view.target, percent, left);
        }
        if !wanted.is_empty() {
            let left: Vec<TargetId> = wanted.keys().copied().collect();
            tracing::debug!("targets {left:?} stay fuller than they should: nothing more can leave them");
        }
        Ok(released)
    }

    /// Releases a file if that makes room where it is wanted.
    fn release_if_wanted(&self, one: &PurgeCandidate, wanted: &mut Shares, now: Time) -> bool {
        let Ok(Some(far)) = self.catalog.far(one.object) else { return false };
        let shares = shares(&far, one.stamp.size);
        if !shares.iter().any(|(target, bytes)| *bytes > 0 && wanted.contains_key(target)) {
            return false;
        }
        if let Err(why) = self.purge_file(one.ino, one.version, one.object) {
            tracing::debug!("inode {} stays on its targets: {why}", one.ino);
            return false;
        }
        self.movers.short.released(&shares, now);
        for (target, bytes) in shares {
            let left = wanted.get(&target).map(|left| left.saturating_sub(bytes));
            match left {
                Some(0) => drop(wanted.remove(&target)),
                Some(left) => drop(wanted.insert(target, left)),
                None => {}
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(id: u32, capacity: u64, free: u64) -> TargetView {
        let target = Target {
            id: TargetId(id),
            uuid: "u".into(),
            node: NodeId(1),
            data: Vec::new(),
            domain: "d".into(),
            draining: false,
            lost: false,
            capacity,
            free,
            seen: Time::new(1, 0),
        };
        TargetView { target, state: TargetState::Up, pools: Vec::new() }
    }

    #[test]
    fn a_target_above_the_high_watermark_is_emptied_to_the_low_one_and_then_given_time() {
        let rounds = Rounds::default();
        let views = [target(1, 1000, 101), target(2, 1000, 99), target(3, 1000, 0)];
        let at = |secs| Time::new(1_000 + secs, 0);
        let due = rounds.due(&views, (80, 90), at(0));
        assert_eq!(due, BTreeMap::from([(TargetId(2), 101), (TargetId(3), 200)]));
        rounds.note([TargetId(2)].into_iter(), at(0));
        assert_eq!(rounds.due(&views, (80, 90), at(1)), BTreeMap::from([(TargetId(3), 200)]));
        assert_eq!(rounds.due(&views, (80, 90), at(ROUND.as_secs() as i64)).len(), 2);
        let down = TargetView { state: TargetState::Down, ..target(3, 1000, 0) };
        assert!(rounds.due(&[down], (80, 90), at(0)).is_empty());
    }

    #[test]
    fn what_recalls_lack_is_told_apart_from_what_watermarks_ask_for() {
        let shares =
            |each: &[(u32, u64)]| -> Shares { each.iter().map(|(id, b)| (TargetId(*id), *b)).collect() };
        let lacking = shares(&[(1, 50), (2, 50), (3, 50)]);
        let all = most(&shares(&[(1, 200), (4, 10)]), &lacking);
        assert_eq!(all, shares(&[(1, 200), (2, 50), (3, 50), (4, 10)]));
        let left = shares(&[(1, 150), (2, 20), (4, 10)]);
        assert_eq!(unmet(&lacking, &all, &left), shares(&[(2, 20)]));
        assert_eq!(unmet(&lacking, &all, &shares(&[(1, 151)])), shares(&[(1, 1)]));
    }

    #[test]
    fn each_target_has_the_share_of_its_columns() {
        let component = layout::Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy: layout::Redundancy::Mirror { copies: 2 },
            base: ObjectId(1),
            targets: [1, 2, 3, 4].map(TargetId).to_vec(),
        };
        let layout = layout::Layout { generation: 1, components: vec![component] };
        let far = Far { layout, stale: Vec::new(), then: Vec::new(), pool: None };
        let shares: Vec<u64> = shares(&far, 10_000).into_values().collect();
        assert_eq!(shares, [4096 + 1808, 4096 + 1808, 4096, 4096]);
    }
}
