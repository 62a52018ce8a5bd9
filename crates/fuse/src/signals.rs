//! Has the thread that waits been sent a signal, and what does it wait for?
//!
//! The protocol crate answers the kernel's INTERRUPT with "not implemented", after which the kernel never sends another.
//! So the waiting thread's pending signals are read from `/proc/<tid>/status` (proc_pid_status(5)).

use std::fs;
use std::time::Duration;

/// What should happen to a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing is pending.
    Wait,
    /// The thread is to be ended, or is gone: end the wait.
    Fatal,
    /// A handler is to run: end the wait if the system call can return EINTR.
    Handled,
}

/// Looks at thread `tid` now.
pub(crate) fn look(tid: u32) -> Verdict {
    match fs::read_to_string(format!("/proc/{tid}/status")) {
        Ok(status) => verdict(&status),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Verdict::Fatal,
        Err(_) => Verdict::Wait,
    }
}

/// Which family of locks a thread asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockCall {
    /// fcntl(2), for its process.
    Process,
    /// fcntl(2), for its open file (`F_OFD_SETLK`).
    Description,
    /// flock(2).
    File,
}

/// The call for a lock that `tid` is inside of; None if that cannot be seen.
///
/// It waits for our answer, so it sleeps soon if it does not yet; before, nothing can be seen of it.
pub(crate) fn lock_call(tid: u32) -> Option<LockCall> {
    look_asleep(&|| fs::read_to_string(format!("/proc/{tid}/syscall")).ok())
}

/// How often, and between two looks how long.
const LOOKS: u32 = 5000;
const PAUSE: Duration = Duration::from_micros(100);

fn look_asleep(line: &dyn Fn() -> Option<String>) -> Option<LockCall> {
    for _ in 0..LOOKS {
        let line = line()?;
        if line.trim_end() != "running" {
            return asks_for(&line);
        }
        std::thread::sleep(PAUSE);
    }
    None
}

/// Numbers of the same calls for programs of 32 bits (x86 and ARM); no call for a lock has them on machines of 64.
const FLOCK_32: i64 = 143;
const FCNTL_32: i64 = 55;
const FCNTL64_32: i64 = 221;

fn asks_for(line: &str) -> Option<LockCall> {
    let mut words = line.split_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let mut argument = words.skip(1).map(|word| i64::from_str_radix(word.trim_start_matches("0x"), 16));
    match call {
        libc::SYS_flock | FLOCK_32 => Some(LockCall::File),
        libc::SYS_fcntl | FCNTL_32 | FCNTL64_32 => match argument.next()?.ok()? as i32 {
            libc::F_OFD_SETLK | libc::F_OFD_SETLKW => Some(LockCall::Description),
            _ => Some(LockCall::Process),
        },
        _ => None,
    }
}

/// Whether `tid` is inside a system call that may return EINTR for a read or a lock. A page fault (mapping, exec) may not: the
/// program would get SIGBUS instead of its signal handler.
pub(crate) fn waits_by_call(tid: u32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/syscall")).is_ok_and(|line| interruptible(&line))
}

fn interruptible(line: &str) -> bool {
    const CALLS: [i64; 10] = [
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_readv,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_sendfile,
        libc::SYS_splice,
        libc::SYS_copy_file_range,
        libc::SYS_fcntl,
        libc::SYS_flock,
    ];
    line.split_whitespace().next().and_then(|n| n.parse().ok()).is_some_and(|n: i64| CALLS.contains(&n))
}

fn verdict(status: &str) -> Verdict {
    let mask = |field: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|v| u64::from_str_radix(v.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn");
    let kill = 1u64 << (libc::SIGKILL - 1);
    match pending {
        0 => Verdict::Wait,
        p if p & kill != 0 => Verdict::Fatal,
        _ => Verdict::Handled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, shared: u64, blocked: u64, ignored: u64) -> String {
        format!(
            "Name:\tcat\nSigQ:\t0/95\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t0\n"
        )
    }

    #[test]
    fn only_deliverable_signals_count() {
        let alarm = 1 << (libc::SIGALRM - 1);
        let kill = 1 << (libc::SIGKILL - 1);
        assert_eq!(verdict(&status(0, 0, 0, 0)), Verdict::Wait);
        assert_eq!(verdict(&status(alarm, 0, 0, 0)), Verdict::Handled);
        assert_eq!(verdict(&status(0, alarm, 0, 0)), Verdict::Handled);
        assert_eq!(verdict(&status(alarm, 0, alarm, 0)), Verdict::Wait);
        assert_eq!(verdict(&status(alarm, 0, 0, alarm)), Verdict::Wait);
        assert_eq!(verdict(&status(kill | alarm, 0, 0, 0)), Verdict::Fatal);
        assert_eq!(verdict("nonsense"), Verdict::Wait);
    }

    #[test]
    fn page_faults_are_not_interruptible() {
        assert!(interruptible(&format!("{} 0x3 0x7f 0x1000 0x7ffe 0x7f\n", libc::SYS_read)));
        assert!(!interruptible("-1 0x7ffe 0x7f\n"));
        assert!(!interruptible("running\n"));
        assert!(!interruptible(&format!("{} 0x3\n", libc::SYS_execve)));
    }

    #[test]
    fn calls_for_locks_are_told_apart() {
        let line =
            |call: i64, command: i32| asks_for(&format!("{call} 0x3 {command:#x} 0x7ffe 0x0 0x0 0x7f\n"));
        assert_eq!(line(libc::SYS_flock, libc::LOCK_EX), Some(LockCall::File));
        assert_eq!(line(libc::SYS_fcntl, libc::F_SETLKW), Some(LockCall::Process));
        assert_eq!(line(libc::SYS_fcntl, libc::F_OFD_SETLKW), Some(LockCall::Description));
        assert_eq!(line(libc::SYS_read, 0), None);
        // Programs of 32 bits.
        assert_eq!(line(143, libc::LOCK_EX), Some(LockCall::File));
        assert_eq!(line(55, 6), Some(LockCall::Process));
        assert_eq!(line(221, libc::F_OFD_SETLK), Some(LockCall::Description));
        assert_eq!(asks_for("running\n"), None);
    }

    #[test]
    fn who_does_not_sleep_yet_is_looked_at_again() {
        let looks = std::cell::Cell::new(0);
        let found = look_asleep(&|| {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 3 { "running\n".into() } else { format!("{} 0x3 0x2\n", libc::SYS_flock) })
        });
        assert_eq!((found, looks.get()), (Some(LockCall::File), 3));
        assert_eq!(look_asleep(&|| None), None);
    }

    #[test]
    fn a_thread_that_is_gone_waits_no_longer() {
        assert_eq!(look(u32::MAX >> 1), Verdict::Fatal);
        assert_eq!(look(std::process::id()), Verdict::Wait);
    }
}
