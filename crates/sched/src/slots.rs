//! Limits of drives in the simulated future: when those whom they bind get one drive more.

use crate::calibration::Span;
use crate::{AccountId, SchedView};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use types::Barcode;

/// A moment; the later is the greater.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At(pub Span);

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.mean_s.total_cmp(&other.0.mean_s)
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// For each cap, when each of the drives that it allows is free again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Vec<BinaryHeap<Reverse<At>>>);

impl Slots {
    pub(crate) fn new(view: &SchedView<'_>) -> Self {
        let all = view.drives.len();
        let free = |drives: u32| vec![Reverse(At(Span::default())); all.min(drives as usize)].into();
        Self(view.accounts.caps.iter().map(|cap| free(cap.drives)).collect())
    }

    /// From when on the limits of an account allow one drive more; None: never.
    pub(crate) fn open(&self, view: &SchedView<'_>, account: AccountId) -> Option<Span> {
        let mut latest = At(Span::default());
        for cap in view.accounts.caps_of(account) {
            let Some(slots) = self.0.get(*cap) else { continue };
            latest = latest.max(slots.peek()?.0);
        }
        Some(latest.0)
    }

    /// A drive works for an account until then.
    pub(crate) fn take(&mut self, view: &SchedView<'_>, account: AccountId, until: Span) {
        for cap in view.accounts.caps_of(account) {
            let Some(mut first) = self.0.get_mut(*cap).and_then(|slots| slots.peek_mut()) else { continue };
            *first = Reverse(At(until));
        }
    }
}

/// The later of two moments.
pub(crate) fn later(a: Span, b: Span) -> Span {
    At(a).max(At(b)).0
}

/// Volumes whose turn it was, of accounts that had as many drives as they may, in the order of their turns.
#[derive(Default)]
pub(crate) struct Held<'v>(Vec<(AccountId, VecDeque<&'v Barcode>)>);

impl<'v> Held<'v> {
    pub(crate) fn push(&mut self, account: AccountId, volume: &'v Barcode) {
        match self.0.iter_mut().find(|(of, _)| *of == account) {
            Some((_, volumes)) => volumes.push_back(volume),
            None => self.0.push((account, [volume].into())),
        }
    }

    /// Whether others of this account wait already.
    pub(crate) fn has(&self, account: AccountId) -> bool {
        self.0.iter().any(|(of, volumes)| *of == account && !volumes.is_empty())
    }

    /// The first of those whose limits allow a drive soonest.
    pub(crate) fn next(&self, view: &SchedView<'_>, slots: &Slots) -> Option<(AccountId, &'v Barcode)> {
        let heads = self.0.iter().filter_map(|(account, volumes)| Some((*account, *volumes.front()?)));
        let open =
            heads.filter_map(|(account, volume)| Some((At(slots.open(view, account)?), account, volume)));
        open.min_by_key(|(at, ..)| *at).map(|(_, account, volume)| (account, volume))
    }

    /// That one has its turn now.
    pub(crate) fn pop(&mut self, account: AccountId) {
        if let Some((_, volumes)) = self.0.iter_mut().find(|(of, _)| *of == account) {
            volumes.pop_front();
        }
    }
}
