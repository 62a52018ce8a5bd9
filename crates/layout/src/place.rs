//! Which targets get the columns of a new component.

use crate::prng::SplitMix64;
use types::TargetId;

/// A target that may get a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The target.
    pub target: TargetId,
    /// What fails together with it: host, shelf, room, as the cluster numbers them.
    pub domain: u32,
    /// How much of the load it is to get, in proportion to the others: its free bytes. 0: none.
    pub weight: u64,
}

/// What may share a failure domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Every column needs a domain of its own (redundancy).
    Domains,
    /// Domains are all used before one is used again (striping alone).
    Targets,
}

/// Why there is no placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Too few failure domains have room.
    #[error(
        "{wanted} columns need as many failure domains with room, and there are {found}: add targets, or choose a layout with less redundancy"
    )]
    Domains {
        /// Columns to be placed.
        wanted: usize,
        /// Domains with room.
        found: usize,
    },
    /// Too few targets have room.
    #[error(
        "{wanted} columns need as many targets with room, and there are {found}: add targets, or choose fewer stripes"
    )]
    Targets {
        /// Columns to be placed.
        wanted: usize,
        /// Targets with room.
        found: usize,
    },
}

/// Draws `count` different targets, each with a probability in proportion to its weight among those that are left, from the domains that
/// have been used least. The same seed and candidates (in any order) give the same targets on every machine and in every release:
///
/// 1. candidates without weight are left out, the others put in order of their numbers;
/// 2. of these, those of the least used domains take part (with [`Spread::Domains`]: of unused domains only);
/// 3. [`SplitMix64::below`] of the sum of their weights, cut to 64 bits by shifting all weights right together, gives a point on the line
///    on which the weights lie end to end; the target on which it falls is taken; back to 2.
///
/// # Errors
/// Too few targets or domains have room.
pub fn place(
    seed: u64,
    candidates: &[Candidate],
    count: usize,
    spread: Spread,
) -> Result<Vec<TargetId>, PlaceError> {
    let mut left: Vec<Candidate> = candidates.iter().copied().filter(|c| c.weight > 0).collect();
    left.sort_by_key(|c| c.target);
    left.dedup_by_key(|c| c.target);
    if left.len() < count {
        return Err(PlaceError::Targets { wanted: count, found: left.len() });
    }
    let mut used: std::collections::BTreeMap<u32, usize> = left.iter().map(|c| (c.domain, 0)).collect();
    if spread == Spread::Domains && used.len() < count {
        return Err(PlaceError::Domains { wanted: count, found: used.len() });
    }
    let mut numbers = SplitMix64::new(seed);
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let uses = |c: &Candidate| used.get(&c.domain).copied().unwrap_or_default();
        let least = left.iter().map(uses).min().unwrap_or_default();
        let open: Vec<usize> = (0..left.len()).filter(|&n| uses(&left[n]) == least).collect();
        let taken = left.remove(draw(&mut numbers, &left, &open));
        *used.entry(taken.domain).or_default() += 1;
        chosen.push(taken.target);
    }
    Ok(chosen)
}

/// One of `open` (not empty), by weight.
fn draw(numbers: &mut SplitMix64, all: &[Candidate], open: &[usize]) -> usize {
    let sum: u128 = open.iter().map(|&n| u128::from(all[n].weight)).sum();
    let shift = 64_u32.saturating_sub(sum.leading_zeros());
    let weight = |n: usize| (all[n].weight >> shift).max(1);
    let total = open.iter().map(|&n| weight(n)).fold(0_u64, u64::saturating_add);
    let mut point = numbers.below(total);
    for &n in open {
        match point.checked_sub(weight(n)) {
            Some(rest) => point = rest,
            None => return n,
        }
    }
    open[open.len() - 1]
}
