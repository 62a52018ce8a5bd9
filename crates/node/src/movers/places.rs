//! Which columns leave their targets, and where they may go.

use catalog::Far;
use layout::{Candidate, Redundancy, Spread};
use std::collections::{BTreeMap, BTreeSet};
use types::*;

/// Targets that are fuller than all together by this are emptied to that, in parts of a hundred.
const UNEVEN_PERCENT: u64 = 2;

/// Where columns may come from and go to.
#[derive(Default)]
pub(super) struct Places {
    /// Bytes that are to leave each target.
    pub(super) from: BTreeMap<TargetId, u64>,
    pub(super) to: Vec<Candidate>,
    /// Others that do not answer just now: they may have room, too.
    pub(super) away: BTreeSet<TargetId>,
    /// Of all targets.
    pub(super) domains: BTreeMap<TargetId, u32>,
    pub(super) lost: BTreeSet<TargetId>,
}

impl Places {
    /// Where what lies in a `pool`, or (None) anywhere, may come from and go to.
    pub(super) fn of(views: &[TargetView], kind: RequestKind, pool: Option<&str>) -> Self {
        let mut places = Self::default();
        let mut domains = BTreeMap::new();
        for TargetView { target, .. } in views {
            let next = domains.len() as u32;
            places.domains.insert(target.id, *domains.entry(target.domain.clone()).or_insert(next));
        }
        let up = views.iter().filter(|view| view.state == TargetState::Up && view.is_in(pool));
        let up: Vec<&Target> = up.map(|view| &view.target).collect();
        let candidate = |target: &Target, weight| {
            let domain = places.domains.get(&target.id).copied().unwrap_or_default();
            Candidate { target: target.id, domain, weight }
        };
        if kind == RequestKind::Balance {
            let capacity: u64 = up.iter().map(|target| target.capacity).sum();
            let used = |target: &Target| target.capacity.saturating_sub(target.free);
            let all: u64 = up.iter().map(|target| used(target)).sum();
            let share = |target: &Target, more: u64| {
                let part = u128::from(all) * u128::from(target.capacity) / u128::from(capacity.max(1));
                part as u64 + target.capacity / 100 * more
            };
            for target in up {
                let (used, even) = (used(target), share(target, 0));
                if used > share(target, UNEVEN_PERCENT) {
                    places.from.insert(target.id, used - even);
                } else if used < even {
                    places.to.push(candidate(target, even - used));
                }
            }
            return places;
        }
        places.to = up.iter().map(|target| candidate(target, target.free)).collect();
        let stays = |view: &&TargetView| !view.target.draining && !view.target.lost && view.is_in(pool);
        let away = views.iter().filter(stays).filter(|view| view.state != TargetState::Up);
        places.away = away.map(|view| view.target.id).collect();
        for TargetView { target, .. } in views.iter().filter(|view| view.target.draining || view.target.lost)
        {
            places.from.insert(target.id, u64::MAX);
            if target.lost {
                places.lost.insert(target.id);
            }
        }
        places
    }

    /// Where a column may go: to a target that has nothing of the component, and where bytes lie more than once to another domain than
    /// the others if there is one.
    pub(super) fn choose(&self, far: &Far, (number, column): (u16, u16)) -> Option<TargetId> {
        let component = far.layout.components.get(usize::from(number))?;
        let open: Vec<Candidate> =
            self.to.iter().copied().filter(|one| !component.targets.contains(&one.target)).collect();
        let others = (0..).zip(&component.targets).filter(|(other, _)| *other != column);
        let together: BTreeSet<u32> = others
            .filter(|(other, _)| match component.redundancy {
                Redundancy::None => false,
                Redundancy::Mirror { .. } => component.replicas(column).contains(other),
                Redundancy::Coded { .. } => true,
            })
            .filter_map(|(_, target)| self.domains.get(target).copied())
            .collect();
        let apart: Vec<Candidate> =
            open.iter().copied().filter(|one| !together.contains(&one.domain)).collect();
        let from = if apart.iter().any(|one| one.weight > 0) { apart } else { open };
        let seed = component.object(column).0.wrapping_add(far.layout.generation.into());
        layout::place(seed, &from, 1, Spread::Targets).ok()?.first().copied()
    }

    /// Whether one that does not answer just now may take a column for which no other has room.
    pub(super) fn may_come(&self, far: &Far, number: u16) -> bool {
        let component = far.layout.components.get(usize::from(number));
        component.is_some_and(|component| self.away.iter().any(|one| !component.targets.contains(one)))
    }

    /// Columns of a file that are to leave where they are.
    pub(super) fn leaving(&self, far: &Far) -> Vec<((u16, u16), TargetId)> {
        let places = far.on(&self.from.keys().copied().collect()).into_iter();
        let target = |(component, column): (u16, u16)| {
            far.layout.components.get(usize::from(component)).and_then(|c| c.target(column))
        };
        places.filter_map(|place| Some((place, target(place)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(id: u32, domain: &str, free: u64, state: TargetState) -> TargetView {
        let target = Target {
            id: TargetId(id),
            uuid: String::new(),
            node: NodeId(id),
            data: Vec::new(),
            domain: domain.to_owned(),
            draining: matches!(state, TargetState::Draining | TargetState::Lost),
            lost: state == TargetState::Lost,
            capacity: 1000,
            free,
            seen: Time::new(1, 0),
        };
        TargetView { target, state, pools: Vec::new() }
    }

    fn far(redundancy: Redundancy, targets: &[u32]) -> Far {
        let targets = targets.iter().copied().map(TargetId).collect();
        let component = layout::Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy,
            base: ObjectId(1),
            targets,
        };
        Far {
            layout: layout::Layout { generation: 1, components: vec![component] },
            stale: Vec::new(),
            then: Vec::new(),
            pool: None,
        }
    }

    #[test]
    fn balancing_takes_from_those_above_all_together_and_gives_to_those_below() {
        let up = TargetState::Up;
        let views = [
            view(1, "a", 100, up),
            view(2, "b", 900, up),
            view(3, "c", 490, up),
            view(4, "d", 0, TargetState::Down),
        ];
        let places = Places::of(&views, RequestKind::Balance, None);
        // 1510 of 3000 bytes are used, 503 of 1000.
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 397)]));
        let to: Vec<(u32, u64)> = places.to.iter().map(|one| (one.target.0, one.weight)).collect();
        assert_eq!(to, [(2, 403)], "one that is about right gets nothing");
        let even = [view(1, "a", 500, up), view(2, "b", 490, up)];
        assert!(Places::of(&even, RequestKind::Balance, None).from.is_empty());
    }

    #[test]
    fn what_leaves_a_target_goes_where_nothing_of_the_file_is_and_apart_from_its_copies() {
        let up = TargetState::Up;
        let views = [
            view(1, "a", 500, TargetState::Draining),
            view(2, "b", 500, up),
            view(3, "b", 900, up),
            view(4, "c", 1, up),
            view(5, "d", 900, TargetState::Lost),
        ];
        let places = Places::of(&views, RequestKind::Drain, None);
        assert_eq!(places.from.keys().map(|target| target.0).collect::<Vec<_>>(), [1, 5]);
        let mirror = far(Redundancy::Mirror { copies: 2 }, &[1, 2]);
        assert_eq!(places.leaving(&mirror), [((0, 0), TargetId(1))]);
        assert_eq!(places.choose(&mirror, (0, 0)), Some(TargetId(4)), "its copy is in the domain of 2 and 3");
        let striped = far(Redundancy::None, &[1, 2, 4]);
        assert_eq!(places.choose(&striped, (0, 0)), Some(TargetId(3)));
        let everywhere = far(Redundancy::None, &[1, 2, 3, 4]);
        assert_eq!(places.choose(&everywhere, (0, 0)), None);
        assert!(!places.may_come(&everywhere, 0), "what is lost does not come");
        let away = [view(6, "e", 0, TargetState::Down), view(7, "f", 0, TargetState::Behind)];
        for one in away {
            let six = Places::of(&[&views[..], &[one]].concat(), RequestKind::Drain, None);
            assert_eq!(six.choose(&everywhere, (0, 0)), None);
            assert!(six.may_come(&everywhere, 0) && six.may_come(&mirror, 0));
        }
    }

    #[test]
    fn what_lies_in_a_pool_leaves_a_target_for_others_of_it_only_and_is_balanced_among_them() {
        let up = TargetState::Up;
        let fast = |view: TargetView| TargetView { pools: vec!["fast".to_owned()], ..view };
        let views = [
            fast(view(1, "a", 500, TargetState::Draining)),
            fast(view(2, "b", 1, up)),
            view(3, "c", 900, up),
            fast(view(4, "d", 400, TargetState::Down)),
        ];
        let places = |pool| Places::of(&views, RequestKind::Drain, pool);
        let striped = Far { pool: Some("fast".to_owned()), ..far(Redundancy::None, &[1]) };
        for generation in 0..200 {
            let layout = layout::Layout { generation, ..striped.layout.clone() };
            let striped = Far { layout, ..striped.clone() };
            assert_eq!(places(Some("fast")).choose(&striped, (0, 0)), Some(TargetId(2)));
        }
        let both = Far { pool: Some("fast".to_owned()), ..far(Redundancy::Mirror { copies: 2 }, &[1, 2]) };
        assert_eq!(places(Some("fast")).choose(&both, (0, 0)), None, "there is room outside only");
        assert_eq!(
            places(None).choose(&far(Redundancy::Mirror { copies: 2 }, &[1, 2]), (0, 0)),
            Some(TargetId(3))
        );
        assert_eq!(places(Some("gone")).choose(&striped, (0, 0)), None);
        assert!(places(Some("fast")).may_come(&both, 0) && !places(Some("gone")).may_come(&both, 0));
        // What is outside its pool by now leaves a target like all the rest.
        assert_eq!(places(Some("gone")).leaving(&striped), [((0, 0), TargetId(1))]);
        let uneven = [fast(view(1, "a", 100, up)), fast(view(2, "b", 500, up)), view(3, "c", 1000, up)];
        let places = Places::of(&uneven, RequestKind::Balance, Some("fast"));
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 200)]));
        assert_eq!(places.to.iter().map(|one| one.target.0).collect::<Vec<_>>(), [2]);
        let places = Places::of(&uneven, RequestKind::Balance, None);
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 434), (TargetId(2), 34)]));
    }
}
