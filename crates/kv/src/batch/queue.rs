//! Whoever finds nobody committing commits for all that wait.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

use super::{End, Proposal};

/// What one batch may hold (bytes, about); a larger transaction is a batch of its own.
const BATCH: usize = 4 << 20;
/// Transactions in one batch.
const MOST: usize = 1024;

/// Transactions that have come to their end.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<(u64, Proposal)>,
    ended: BTreeMap<u64, End>,
    next: u64,
    committing: bool,
}

impl State {
    fn batch(&mut self) -> (Vec<u64>, Vec<Proposal>) {
        let mut bytes = 0;
        let fits = |(_, proposal): &(u64, Proposal)| {
            bytes += proposal.bytes();
            bytes <= BATCH
        };
        let count = self.waiting.iter().take(MOST).map(fits).take_while(|fits| *fits).count().max(1);
        self.waiting.drain(..count.min(self.waiting.len())).unzip()
    }
}

impl Queue {
    /// Waits for the end of a proposal, which `commit` decides.
    pub(super) fn end(&self, proposal: Proposal, commit: &dyn Fn(&[Proposal]) -> Vec<End>) -> End {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push((number, proposal));
        loop {
            if let Some(end) = state.ended.remove(&number) {
                return end;
            }
            if state.committing {
                self.changed.wait(&mut state);
                continue;
            }
            state.committing = true;
            let (numbers, batch) = state.batch();
            drop(state);
            let ends = commit(&batch);
            state = self.state.lock();
            state.ended.extend(numbers.into_iter().zip(ends));
            state.committing = false;
            self.changed.notify_all();
        }
    }
}
