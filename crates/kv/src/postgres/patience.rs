//! How often, and for how long, something is tried again.

use std::thread;
use std::time::{Duration, Instant};

use super::connection::Fault;
use super::server::Server;
use crate::Result;

/// Attempts beside others; then one alone.
const BESIDE: u32 = 4;
/// Attempts in all. The last ones run alone in this process: what they lose against are other processes.
const MOST: u32 = 200;
/// Pauses after a lost conflict, and while a server does not answer.
const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(50);
const RECONNECT: Duration = Duration::from_millis(20);
const RECONNECT_LONGEST: Duration = Duration::from_secs(1);

/// The attempts at one operation.
pub(super) struct Patience {
    /// How long a server may be silent.
    limit: Duration,
    lost: Option<Instant>,
    pause: Duration,
    conflicts: u32,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, lost: None, pause: RECONNECT, conflicts: 0 }
    }

    /// Whether it has lost so often that it must run alone.
    pub(super) fn needs_turn(&self) -> bool {
        self.conflicts > BESIDE
    }

    /// Waits before the next attempt; the error when there is none.
    pub(super) fn after(&mut self, server: &Server, fault: Fault) -> Result<()> {
        match fault {
            Fault::Failed(e) => Err(e),
            Fault::Conflict | Fault::Guard if self.conflicts < MOST => {
                thread::sleep((SHORTEST * self.conflicts.saturating_sub(1)).min(LONGEST));
                self.conflicts += 1;
                Ok(())
            }
            Fault::Conflict | Fault::Guard => {
                let detail = format!(
                    "a change lost against others {MOST} times; another service may keep the same data locked"
                );
                Err(server.refuses(&detail))
            }
            Fault::Lost(detail) => {
                let since = *self.lost.get_or_insert_with(Instant::now);
                if since.elapsed() + self.pause > self.limit {
                    return Err(server.unreachable(since.elapsed(), &detail));
                }
                thread::sleep(self.pause);
                self.pause = (self.pause * 2).min(RECONNECT_LONGEST);
                Ok(())
            }
        }
    }
}
