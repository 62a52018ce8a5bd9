//! How long an owner may go on by the clock of his own host, where others wait to take over from him.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{DatabaseOptions, KvError, Result};

/// In one lease it is renewed so often.
pub(crate) const RENEWALS: u32 = 5;

/// Since this machine was started; goes on while it sleeps. Only differences mean something.
pub(crate) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither is negative: a machine is started once.
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}

/// A lease, as its owner knows it. The server counts it from when the renewal got there, the owner from when it was sent, and a fifth less,
/// because clocks may run differently: so it ends here first.
pub(crate) struct Lease {
    /// None: nobody waits, and only another owner's epoch ends this one.
    most: Option<Duration>,
    /// When the last renewal that was answered was sent (nanoseconds of [`now`]).
    sent: AtomicU64,
}

impl Lease {
    /// Of an engine that was opened by what was sent at `sent`.
    pub(crate) fn new(options: &DatabaseOptions, sent: Duration) -> Self {
        let most = options.others_wait.then(|| options.lease - options.lease / RENEWALS);
        let lease = Self { most, sent: AtomicU64::default() };
        lease.renewed(sent);
        lease
    }

    /// The server has answered a renewal.
    pub(crate) fn renewed(&self, sent: Duration) {
        self.sent.fetch_max(u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Whether it holds now.
    pub(crate) fn holds(&self, path: impl FnOnce() -> PathBuf) -> Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        let since = now().saturating_sub(Duration::from_nanos(self.sent.load(Ordering::Acquire)));
        if since < most { Ok(()) } else { Err(KvError::Lapsed { path: path(), seconds: since.as_secs() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_a_fifth_early_counted_from_when_it_was_asked_for() {
        let mut options = DatabaseOptions::new("x");
        options.lease = Duration::from_secs(1000);
        let holds = |lease: &Lease| lease.holds(PathBuf::new).is_ok();
        let ago = |seconds| now().saturating_sub(Duration::from_secs(seconds));
        let Some(begun) = now().checked_sub(Duration::from_secs(900)) else { return };
        assert!(holds(&Lease::new(&options, begun)), "nobody waits");
        options.others_wait = true;
        let lease = Lease::new(&options, begun);
        assert!(!holds(&lease));
        lease.renewed(ago(790));
        assert!(holds(&lease));
        lease.renewed(ago(850));
        assert!(holds(&lease), "an answer that comes late takes nothing back");
        assert!(!holds(&Lease::new(&options, ago(801))));
    }
}
