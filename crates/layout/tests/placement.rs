//! Placement is fair, spread, and the same for ever.

use layout::{Candidate, PlaceError, Spread, place};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::TargetId;

fn candidates(targets: u32, per_domain: u32) -> Vec<Candidate> {
    let one = |n| Candidate { target: TargetId(n), domain: n / per_domain, weight: 1 << 40 };
    (0..targets).map(one).collect()
}

#[test]
fn decisions_of_this_release_are_those_of_every_release() {
    let chosen = |seed, spread| {
        place(seed, &candidates(12, 2), 4, spread).unwrap().iter().map(|t| t.0).collect::<Vec<_>>()
    };
    assert_eq!(chosen(1, Spread::Domains), GOLDEN[0]);
    assert_eq!(chosen(2, Spread::Domains), GOLDEN[1]);
    assert_eq!(chosen(3, Spread::Targets), GOLDEN[2]);
}

/// Worked out with the steps in the documentation of `place`, by another program.
const GOLDEN: [[u32; 4]; 3] = [[6, 9, 11, 2], [7, 9, 4, 10], [1, 9, 6, 2]];

#[test]
fn load_follows_the_weights() {
    let mut all = candidates(10, 1);
    all[3].weight *= 3;
    all[4].weight = 0;
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    for seed in 0..11_000 {
        for target in place(seed, &all, 1, Spread::Targets).unwrap() {
            *taken.entry(target.0).or_default() += 1;
        }
    }
    assert_eq!(taken.get(&4), None, "a full target gets nothing");
    for (target, count) in taken {
        let expected = if target == 3 { 3000 } else { 1000 };
        assert!(
            count.abs_diff(expected) < expected / 6,
            "target {target}: {count}, expected about {expected}"
        );
    }
}

#[test]
fn too_few_targets_or_domains_are_named() {
    let all = candidates(6, 3);
    assert_eq!(place(1, &all, 7, Spread::Targets), Err(PlaceError::Targets { wanted: 7, found: 6 }));
    assert_eq!(place(1, &all, 3, Spread::Domains), Err(PlaceError::Domains { wanted: 3, found: 2 }));
    assert_eq!(place(1, &all, 0, Spread::Domains), Ok(vec![]));
}

proptest! {
    #[test]
    fn targets_differ_and_domains_are_used_evenly(
        seed: u64,
        weights in prop::collection::vec(0_u64..=u64::MAX, 1..40),
        per_domain in 1..6_u32,
        count in 0..12_usize,
    ) {
        let all: Vec<Candidate> = weights.iter().enumerate().map(|(n, weight)| {
            Candidate { target: TargetId(n as u32), domain: n as u32 / per_domain, weight: *weight }
        }).collect();
        let Ok(chosen) = place(seed, &all, count, Spread::Targets) else { return Ok(()) };
        prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), count);
        let mut reversed = all.clone();
        reversed.reverse();
        prop_assert_eq!(place(seed, &reversed, count, Spread::Targets).unwrap(), chosen.clone());
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        for candidate in all.iter().filter(|c| c.weight > 0) {
            *room.entry(candidate.domain).or_default() += 1;
        }
        let mut used: BTreeMap<u32, usize> = BTreeMap::new();
        for target in &chosen {
            *used.entry(target.0 / per_domain).or_default() += 1;
        }
        let most = used.values().copied().max().unwrap_or_default();
        for (domain, targets) in room {
            let here = used.get(&domain).copied().unwrap_or_default();
            prop_assert!(here + 1 >= most || here == targets, "domain {} has {} of at most {}", domain, here, most);
        }
        if let Ok(apart) = place(seed, &all, count, Spread::Domains) {
            let domains: BTreeSet<u32> = apart.iter().map(|t| t.0 / per_domain).collect();
            prop_assert_eq!(domains.len(), count);
        }
    }
}
