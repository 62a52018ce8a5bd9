//! Files with copies or parity that nobody writes are read straight from the movers too, by whoever reads much of them, with a right that is lent for some
//! seconds. Whatever goes wrong, and as long as there is no right, the node reads: it knows what counts, and has repaired what is damaged.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use stripe::{StripeError, Striped, Ways, layout_of, redundancy};
use wire::LentLayout;

/// A handle through which the node has read so much (bytes) asks for a right.
const MUCH: u64 = 1 << 20;
/// Where there is none, the node is asked again so much later; where it was of no use, too, and twice as much later after each further failure.
const AGAIN: Duration = Duration::from_secs(2);
/// But not later than this.
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Since the machine was started, also while it sleeps.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What is lent through one handle.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Bytes that the node has read.
    served: AtomicU64,
    /// Rights in a row that were of no use.
    failures: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// There was no right, or it was of no use; the node is asked for one then.
    Served(Duration),
    Right(Arc<Right>),
}

/// A right that is lent.
#[derive(Debug)]
struct Right {
    striped: Striped,
    length: u64,
    /// What comes at this time or later is not used.
    ends: Duration,
}

impl Right {
    /// `asked`: when.
    fn new(ways: &Ways, lent: &LentLayout, asked: Duration) -> Result<Self, String> {
        let columns = ways.columns(lent.parts.iter().map(|part| &part.access))?;
        let layout = layout_of(lent.parts.iter().map(|part| (&part.access, redundancy(part))));
        let striped = Striped::open_with(layout, columns, None).map_err(|e| e.to_string())?.quiet();
        for ((component, column), way) in striped.ways() {
            if way.channel.is_away() {
                striped.put_aside(component, column);
            }
        }
        Ok(Self { striped, length: lent.length, ends: asked + lent.term() })
    }

    /// As the node would read; None: it has ended meanwhile, or may have, as no mover was asked: only they are told.
    fn read(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, StripeError> {
        if now() >= self.ends {
            return Ok(None);
        }
        let there = self.length.saturating_sub(offset).min(len as u64);
        let mut bytes = vec![0; there as usize];
        let Some(got) = self.striped.read_confirmed(offset, &mut bytes)? else { return Ok(None) };
        // Behind what the targets have, the file is a hole.
        bytes[got..].fill(0);
        Ok((now() < self.ends).then_some(bytes))
    }
}

/// When the node is asked again after so many failures in a row.
pub(crate) fn pause(failures: u32) -> Duration {
    AGAIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(AGAIN_MOST)
}

impl Lent {
    /// The node has read so many bytes.
    pub(crate) fn note_served(&self, bytes: usize) {
        self.served.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether there is a right. Who asks will read much.
    pub(crate) fn is_there<E: std::fmt::Display>(
        &self,
        ways: &Ways,
        ask: impl FnOnce() -> Result<Option<LentLayout>, E>,
    ) -> bool {
        self.served.fetch_max(MUCH, Ordering::Relaxed);
        self.right(ways, ask).is_some()
    }

    /// Reads from the movers; None: the node is to read. `ask`: what the node lends.
    pub(crate) fn read<E: std::fmt::Display>(
        &self,
        ways: &Ways,
        ask: impl FnOnce() -> Result<Option<LentLayout>, E>,
        offset: u64,
        len: usize,
    ) -> Option<Vec<u8>> {
        if self.served.load(Ordering::Relaxed) < MUCH {
            return None;
        }
        let right = self.right(ways, ask)?;
        match right.read(offset, len) {
            Ok(read) => {
                if read.is_some() {
                    self.failures.store(0, Ordering::Relaxed);
                }
                read
            }
            Err(e) => {
                tracing::debug!("what was lent is read through the node: {e}");
                let mut state = self.state.lock();
                if matches!(&*state, State::Right(current) if Arc::ptr_eq(current, &right)) {
                    *state = self.failed();
                }
                None
            }
        }
    }

    fn failed(&self) -> State {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        State::Served(now() + pause(before.saturating_add(1)))
    }

    fn right<E: std::fmt::Display>(
        &self,
        ways: &Ways,
        ask: impl FnOnce() -> Result<Option<LentLayout>, E>,
    ) -> Option<Arc<Right>> {
        let mut state = self.state.lock();
        let asked = now();
        match &*state {
            State::Right(right) if asked < right.ends => return Some(right.clone()),
            State::Served(until) if asked < *until => return None,
            _ => {}
        }
        let lent = ask().map_err(|e| e.to_string());
        let right = lent.and_then(|lent| lent.map(|lent| Right::new(ways, &lent, asked)).transpose());
        *state = match right {
            Ok(Some(right)) => State::Right(Arc::new(right)),
            Ok(None) => State::Served(now() + AGAIN),
            Err(e) => {
                tracing::debug!("nothing is lent: {e}");
                self.failed()
            }
        };
        match &*state {
            State::Right(right) => Some(right.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_asks_less_and_less_often() {
        let pauses = (1..8).map(|failures| pause(failures).as_secs()).collect::<Vec<_>>();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX), AGAIN_MOST);
    }
}
