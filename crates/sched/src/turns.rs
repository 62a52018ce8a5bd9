//! Whose turn it is, of those for whom files are read: shares of the drives.

use crate::demand::{Demand, InHand, Level};
use crate::{DriveState, RecallQueue, SchedView, Share};
use std::cmp::Reverse;

/// Owners whose use of drives differs by less than this part of a turn are served in the order of asking.
pub(crate) const STEPS_OF_TURN: f64 = 4.0;

/// Whom a volume is fetched for, of those who want files of it: somebody whose limits allow it, then the one whose turn comes
/// first. Files of the others are read along.
pub(crate) fn for_whom(view: &SchedView<'_>, hand: &InHand<'_>, queue: &RecallQueue) -> Option<Share> {
    let mut shares = queue.shares();
    let first = shares.next()?;
    let key = |share: &Share| {
        let had_s = hand.used(view, share.account) / view.accounts.share(share.account).1;
        (
            hand.is_capped(view, share.account),
            !Level::Recall.starves(view, share.since),
            Reverse(share.priority),
            had_s as u64,
            share.since,
        )
    };
    // Few volumes are wanted by several.
    let Some(second) = shares.next() else { return Some(first) };
    [first, second].into_iter().chain(shares).min_by_key(key)
}

/// Says of each demand what its owner has had by the time of his turn: the use of drives so far, the drives that work for
/// him, and one turn for each of his own demands before it, in proportion to his weight.
pub(crate) fn share_out(view: &SchedView<'_>, hand: &InHand<'_>, recalls: &mut [Demand<'_>]) {
    let Some(first) = recalls.first() else { return };
    if recalls.iter().all(|demand| demand.owner == first.owner) {
        return;
    }
    let mut order: Vec<_> = (0u32..).zip(&*recalls).map(|(n, d)| (d.owner, own_key(d), n)).collect();
    order.sort_unstable();
    let turn_s = view.limits.turn.as_secs_f64().max(1.0);
    let (mut owner, mut had_s) = (None, 0.0);
    for (_, _, n) in order {
        let demand = &mut recalls[n as usize];
        if owner != Some(demand.owner) {
            owner = Some(demand.owner);
            had_s = hand.used(view, demand.account);
            had_s += turn_s * f64::from(hand.drives_of(demand.owner));
        }
        // In steps: who has had about the same is served in the order of asking.
        demand.had = (had_s / demand.weight / turn_s * STEPS_OF_TURN) as u64;
        had_s += turn_s;
    }
}

/// Of one owner's demands, which comes first.
fn own_key(demand: &Demand<'_>) -> impl Ord + use<> {
    let loaded = demand.drive.is_some_and(|drive| matches!(drive.state, DriveState::Loaded(_)));
    let rank = (!demand.starving, Reverse(demand.priority));
    (rank, demand.due.unwrap_or(i64::MAX), !loaded, demand.since, Reverse(demand.files))
}
