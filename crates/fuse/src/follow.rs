//! Keeps a session thread on the processor of the program that it serves.
//!
//! A request wakes a session thread, its answer wakes the program. The scheduler likes to put the two on different
//! processors; as each then sleeps while the other works, every wake-up is an interrupt to a halted processor: tens of
//! microseconds on a virtual machine, more than most requests take. One of the two always waits for the other, so nothing
//! is lost by sharing a processor. With several callers the thread goes back to where the scheduler wants it.
//!
//! Where a caller runs is looked up by a thread of its own, a scout, for which no request waits: the kernel keeps who looks at a process waiting
//! while that starts a program (execve(2)), which ends only when we have answered that its files are closed.
//! docs/PERFORMANCE.md, "Mount", has the figures.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::fs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// So many requests in a row from one thread make it the only caller.
const STREAK: u32 = 16;
/// The caller's processor is looked up once in so many of its requests (a look takes about 20 microseconds).
const LOOK: u32 = 64;

#[derive(Default)]
struct Follow {
    caller: u32,
    streak: u32,
    pinned: Option<Pinned>,
    scout: Option<Scout>,
}

/// Looks up where callers run. Its thread ends with the thread that it works for, or when the look does that it waits in.
struct Scout {
    wanted: SyncSender<u32>,
    /// A caller, and its processor.
    found: Receiver<(u32, usize)>,
}

impl Scout {
    /// None: the system gives no thread, and nobody is followed.
    fn start(home: Option<CpuSet>) -> Option<Self> {
        let ((wanted, asked), (tell, found)) = (sync_channel::<u32>(1), sync_channel(1));
        let look = move || {
            self::home(home);
            for tid in asked {
                if let Some(cpu) = cpu_of(tid) {
                    let _ = tell.try_send((tid, cpu)); // what nobody has taken yet is as good
                }
            }
        };
        std::thread::Builder::new().name("fuse-scout".into()).spawn(look).ok().map(|_| Self { wanted, found })
    }
}

#[derive(Clone, Copy)]
struct Pinned {
    cpu: usize,
    /// Where this thread may run otherwise.
    home: CpuSet,
}

thread_local! {
    static FOLLOW: RefCell<Follow> = RefCell::default();
}

/// A request of thread `tid` (0: not known) is served by this thread.
pub(crate) fn caller(tid: u32) {
    if tid != 0 {
        FOLLOW.with_borrow_mut(|follow| follow.caller(tid));
    }
}

/// Where this thread may run when it follows nobody; None when it follows nobody now. Threads inherit the processors of
/// the thread that starts them: a new one is to be sent [`home`].
pub(crate) fn away_from_home() -> Option<CpuSet> {
    FOLLOW.with_borrow(|follow| follow.pinned.map(|p| p.home))
}

/// Lets this new thread run where its starter was allowed to before it followed somebody.
pub(crate) fn home(cpus: Option<CpuSet>) {
    if let Some(cpus) = cpus {
        move_to(&cpus);
    }
}

impl Follow {
    fn caller(&mut self, tid: u32) {
        if tid != self.caller {
            (self.caller, self.streak) = (tid, 0);
            return self.unpin();
        }
        self.streak = self.streak.wrapping_add(1);
        self.hear();
        if self.streak == STREAK || self.streak.is_multiple_of(LOOK) {
            self.ask();
        }
    }

    /// Has the caller looked up, unless somebody is being looked up now.
    fn ask(&mut self) {
        if self.scout.is_none() {
            self.scout = Scout::start(self.pinned.map(|p| p.home));
        }
        if let Some(scout) = &self.scout {
            let _ = scout.wanted.try_send(self.caller); // it is busy with an earlier one
        }
    }

    /// Goes where the caller was found.
    fn hear(&mut self) {
        match self.scout.as_ref().and_then(|scout| scout.found.try_recv().ok()) {
            Some((tid, cpu)) if tid == self.caller && self.pinned.is_none_or(|p| p.cpu != cpu) => {
                self.pin(cpu)
            }
            _ => {}
        }
    }

    fn pin(&mut self, cpu: usize) {
        let Some(home) = self.pinned.map(|p| p.home).or_else(|| sched_getaffinity(None).ok()) else { return };
        if cpu >= CpuSet::MAX_CPU || !home.is_set(cpu) {
            return self.unpin();
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        if move_to(&only) {
            self.pinned = Some(Pinned { cpu, home });
        }
    }

    fn unpin(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            move_to(&pinned.home);
        }
    }
}

fn move_to(cpus: &CpuSet) -> bool {
    let moved = sched_setaffinity(None, cpus);
    if let Err(error) = moved {
        tracing::debug!(%error, "the system does not let this thread choose its processor");
    }
    moved.is_ok()
}

/// The processor on which a thread ran last.
fn cpu_of(tid: u32) -> Option<usize> {
    parse(&fs::read_to_string(format!("/proc/{tid}/stat")).ok()?)
}

/// Field 39 of proc_pid_stat(5). The second, the name, may hold spaces and brackets.
fn parse(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        assert_eq!(parse(&format!("12 (a) b (c d) {}", fields.join(" "))), Some(39));
        assert_eq!(parse(&format!("12 (a) {}", fields[..36].join(" "))), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_thread_follows_its_only_caller_and_comes_home_for_a_second_one() {
        let before = sched_getaffinity(None).unwrap();
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        for _ in 1..STREAK {
            caller(me);
        }
        assert!(away_from_home().is_none(), "too few requests to tell");
        // The scout says so some requests later.
        while away_from_home().is_none() {
            std::thread::yield_now();
            caller(me);
        }
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        assert_eq!(away_from_home(), Some(before));
        let child = away_from_home();
        let seen = std::thread::spawn(move || {
            home(child);
            sched_getaffinity(None).unwrap()
        });
        assert_eq!(seen.join().unwrap(), before);
        caller(0);
        assert!(away_from_home().is_some(), "unknown callers do not count");
        caller(me + 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(away_from_home().is_none());
    }
}
