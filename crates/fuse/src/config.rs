//! What can be chosen at mount.

use crate::readers::Readers;
use std::sync::Arc;
use std::time::Duration;
use types::NonBlock;

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Choices for one mount. The default suits a node that root runs for all users of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Let every user in (permissions are checked by the kernel); otherwise only the user who mounts.
    pub allow_other: bool,
    /// Threads that read requests; 0 chooses by the number of processors. Waiting readers never hold one.
    pub threads: usize,
    /// How long the kernel may answer from its caches. Changes behind its back are pushed, so this can be long.
    pub ttl: Duration,
    /// Hand wholly resident files to the kernel where kernel and privileges allow it.
    pub passthrough: bool,
    /// Honour set-user-id and set-group-id bits of programs on the mount.
    pub suid: bool,
    /// Honour device nodes on the mount.
    pub dev: bool,
    /// What `O_NONBLOCK` means for a regular file whose bytes are on tape.
    pub nonblock: NonBlock,
    /// Refuse every change.
    pub read_only: bool,
    /// Locks of files are asked of the interface, which then learns of each close(2) too; otherwise the kernel keeps those of this mount's
    /// programs by itself.
    pub locks: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: true,
            threads: 0,
            ttl: Duration::from_secs(3600),
            passthrough: true,
            suid: false,
            dev: false,
            nonblock: NonBlock::Eagain,
            read_only: false,
            locks: false,
        }
    }
}

impl MountOptions {
    /// Which of the session's threads read.
    pub(crate) fn readers(&self) -> Option<Arc<Readers>> {
        Readers::new(self.session_threads(), processors())
    }

    /// The number of session threads to start.
    pub(crate) fn session_threads(&self) -> usize {
        match self.threads {
            // Waiting threads are woken in turn, each on another processor: for one client that costs more than the work
            // itself (create+write+close with 1, 2 and 4 threads on 2 processors: about 8,600, 1,900 and 4,000 per second),
            // so more than one only where there are processors to spare.
            0 => (processors() / 4).clamp(1, 16),
            n => n.min(256),
        }
    }

    /// Those of them that may wait for opens and changes, where there are some for other calls besides: below half, as the interface may use others for reads.
    pub(crate) fn threads_for_changes(&self) -> usize {
        self.threads.saturating_sub(1) / 2
    }
}
