//! Requests that wait for tape or for a lock, and the thread that ends a wait when its caller is signalled.

use crate::signals::{self, Verdict};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use types::api::{FileApi, WaitId};

/// How often waiting callers are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How many of them per tick, so that thousands of waiters do not cost a processor (a look takes about 20 microseconds).
const PER_TICK: usize = 128;

const NEW: u8 = 0;
const ENTERED: u8 = 1;
const FINISHED: u8 = 2;

/// All waiting requests of a mount.
pub(crate) struct Waits {
    next: AtomicU64,
    state: Mutex<State>,
    /// Somebody waits, or the end has come.
    wake: Condvar,
    /// The end has come.
    stop: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Waiter>,
    ended: bool,
}

#[derive(Clone, Copy)]
struct Waiter {
    id: WaitId,
    tid: u32,
}

/// One request; shared between the thread that starts it and the completion.
pub(crate) struct Wait {
    waits: Arc<Waits>,
    key: u64,
    phase: AtomicU8,
}

impl Waits {
    pub(crate) fn new() -> Arc<Self> {
        let (next, state, wake, stop) = Default::default();
        Arc::new(Self { next, state, wake, stop })
    }

    /// A request that may come to wait.
    pub(crate) fn begin(self: &Arc<Self>) -> Arc<Wait> {
        let key = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Wait { waits: Arc::clone(self), key, phase: AtomicU8::new(NEW) })
    }

    /// Ends every wait and the watching thread: the mount is gone.
    pub(crate) fn end(&self, api: &dyn FileApi) {
        let waiting = {
            let mut state = self.state.lock();
            state.ended = true;
            self.wake.notify_all();
            self.stop.notify_all();
            state.waiting.values().copied().collect::<Vec<_>>()
        };
        waiting.iter().for_each(|w| api.cancel_wait(w.id));
    }

    /// The watching thread: sleeps while nobody waits.
    pub(crate) fn watch(&self, api: &dyn FileApi) {
        let mut last = 0;
        loop {
            let batch = {
                let mut state = self.state.lock();
                while state.waiting.is_empty() && !state.ended {
                    self.wake.wait(&mut state);
                }
                if !state.ended {
                    self.stop.wait_for(&mut state, TICK);
                }
                if state.ended {
                    return;
                }
                next_batch(&state.waiting, &mut last)
            };
            batch.iter().filter(|w| must_end(w.tid)).for_each(|w| api.cancel_wait(w.id));
        }
    }
}

fn next_batch(waiting: &BTreeMap<u64, Waiter>, last: &mut u64) -> Vec<Waiter> {
    let after = waiting.range((Bound::Excluded(*last), Bound::Unbounded)).take(PER_TICK);
    let batch: Vec<(u64, Waiter)> = after.map(|(k, w)| (*k, *w)).collect();
    *last = if batch.len() < PER_TICK { 0 } else { batch[PER_TICK - 1].0 };
    batch.into_iter().map(|(_, w)| w).collect()
}

fn must_end(tid: u32) -> bool {
    if tid == 0 {
        return false; // a caller of another pid namespace
    }
    match signals::look(tid) {
        Verdict::Wait => false,
        Verdict::Fatal => true,
        Verdict::Handled => signals::waits_by_call(tid),
    }
}

impl Wait {
    /// The request waits, on behalf of thread `tid` (0: not known, then no signal ends it).
    pub(crate) fn enter(&self, id: WaitId, tid: u32) {
        let mut state = self.waits.state.lock();
        if self.phase.compare_exchange(NEW, ENTERED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            state.waiting.insert(self.key, Waiter { id, tid });
            self.waits.wake.notify_one();
        }
    }

    /// The completion was called.
    pub(crate) fn finish(&self) {
        if self.phase.swap(FINISHED, Ordering::AcqRel) == ENTERED {
            self.waits.state.lock().waiting.remove(&self.key);
        }
    }
}
