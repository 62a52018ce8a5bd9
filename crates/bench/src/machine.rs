//! What was measured on.

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processors.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Memory (MiB).
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// File system of the directory in which everything is measured, with its mount options.
    pub file_system: String,
    /// How long an idle processor of a virtual machine looks for work before it halts (ns): waking a halted one takes the host's help.
    /// `guest_halt_poll_ns` of <https://docs.kernel.org/virt/guest-halt-polling.html>.
    #[serde(default)]
    pub halt_poll_ns: u64,
}

impl Machine {
    /// This one; `dir` is the directory in which everything is measured.
    pub fn here(dir: &Path) -> Result<Self> {
        let processors = read("/proc/cpuinfo")?;
        let model = processors.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown");
        let memory = read("/proc/meminfo")?;
        let total = memory.lines().find_map(|l| l.strip_prefix("MemTotal:")).unwrap_or("0 kB");
        let total: u64 = total.trim().trim_end_matches(" kB").parse().context("MemTotal in /proc/meminfo")?;
        Ok(Self {
            processor: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: total >> 10,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: file_system(dir)?,
            halt_poll_ns: halt_poll(),
        })
    }
}

/// 0 where processors do not do that.
fn halt_poll() -> u64 {
    let text = read("/sys/module/haltpoll/parameters/guest_halt_poll_ns");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Mean number of runnable threads during the last minute, from /proc/loadavg.
pub fn load() -> Result<f64> {
    let text = read("/proc/loadavg")?;
    text.split(' ').next().unwrap_or_default().parse().context("/proc/loadavg")
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

/// Type and options of the mount that holds `dir`, as proc(5) gives them in mountinfo.
fn file_system(dir: &Path) -> Result<String> {
    let seen = statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)
        .with_context(|| format!("looking at {}", dir.display()))?;
    let id = seen.stx_mnt_id.to_string();
    let mounts = read("/proc/self/mountinfo")?;
    let of = |line: &str| -> Option<String> {
        let (front, back) = line.split_once(" - ")?;
        (front.split(' ').next()? == id).then_some(())?;
        let mut back = back.split(' ');
        let (kind, _source, options) = (back.next()?, back.next()?, back.next()?);
        Some(format!("{kind} ({options})"))
    };
    Ok(mounts.lines().find_map(of).unwrap_or_else(|| "unknown".into()))
}
