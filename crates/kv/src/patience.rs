//! Why something over a network did not succeed; how often, and for how long, it is tried again.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use crate::{KvError, Result};

/// Attempts beside others; then one alone.
const BESIDE: u32 = 4;
/// Attempts in all. The last ones run alone in this process: what they lose against are other processes.
const MOST: u32 = 200;
/// Pauses after a lost conflict, and while a server does not answer.
const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(50);
const RECONNECT: Duration = Duration::from_millis(20);
const RECONNECT_LONGEST: Duration = Duration::from_secs(1);

/// Why something did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Another transaction was in the way: once more.
    Conflict,
    /// The servers, or the way to them, do not work now.
    Lost(String),
    /// It will not go better a second time.
    Failed(KvError),
}

impl From<KvError> for Fault {
    fn from(e: KvError) -> Self {
        Self::Failed(e)
    }
}

/// The attempts at one operation.
pub(crate) struct Patience {
    /// How long a server may be silent.
    limit: Duration,
    lost: Option<Instant>,
    pause: Duration,
    conflicts: u32,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, lost: None, pause: RECONNECT, conflicts: 0 }
    }

    /// Whether it has lost so often that it must run alone.
    pub(crate) fn needs_turn(&self) -> bool {
        self.conflicts > BESIDE
    }

    /// Waits before the next attempt at something that the servers at this address do; the error when there is none.
    pub(crate) fn after(&mut self, address: &dyn Display, fault: Fault) -> Result<()> {
        let refuses = |detail: String| KvError::Server { address: address.to_string(), detail };
        match fault {
            Fault::Failed(e) => Err(e),
            Fault::Conflict if self.conflicts < MOST => {
                thread::sleep((SHORTEST * self.conflicts.saturating_sub(1)).min(LONGEST));
                self.conflicts += 1;
                Ok(())
            }
            Fault::Conflict => Err(refuses(format!(
                "a change lost against others {MOST} times; another service may keep the same data locked"
            ))),
            Fault::Lost(detail) => {
                let since = *self.lost.get_or_insert_with(Instant::now);
                if since.elapsed() + self.pause > self.limit {
                    let seconds = since.elapsed().as_secs();
                    return Err(refuses(format!(
                        "no answer for {seconds} s, the last attempt said: {detail}"
                    )));
                }
                thread::sleep(self.pause);
                self.pause = (self.pause * 2).min(RECONNECT_LONGEST);
                Ok(())
            }
        }
    }
}
