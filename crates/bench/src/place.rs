//! Where measuring happens: a directory of its own, looked at for space first, removed in the end.

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes free for us in the file system of `dir`.
pub fn free(dir: &Path) -> Result<u64> {
    let fs = rustix::fs::statvfs(dir).with_context(|| format!("looking at {}", dir.display()))?;
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// A new directory in `dir`, with `need` bytes free and as many again left to others.
pub fn make(dir: &Path, need: u64) -> Result<TempDir> {
    let free = free(dir)?;
    ensure!(
        free / 2 >= need,
        "{}: {} MiB are free, this measurement wants {} MiB and leaves half of the space to others; name another \
         directory with --dir, or use --quick",
        dir.display(),
        free >> 20,
        need >> 20
    );
    tempfile::Builder::new()
        .prefix("thermo-bench-")
        .tempdir_in(dir)
        .with_context(|| format!("making a directory in {}", dir.display()))
}

/// Seconds that `work` takes, and its result.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begin = Instant::now();
    let out = work()?;
    Ok((begin.elapsed().as_secs_f64().max(1e-9), out))
}

/// Processor time of all threads of this program.
pub fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Bytes per second of one writer that makes a new file durable; the file is removed again.
pub fn write_rate(path: &Path, bytes: u64) -> Result<f64> {
    let block = vec![0xa5; 1 << 20];
    let mut file = File::create(path)?;
    let (secs, ()) = timed(|| {
        for _ in 0..bytes >> 20 {
            file.write_all(&block)?;
        }
        Ok(file.sync_all()?)
    })?;
    std::fs::remove_file(path)?;
    Ok(bytes as f64 / secs)
}

/// A sequence of numbers without order, the same in every run.
pub struct Scatter(pub u64);

impl Scatter {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % bound.max(1)
    }
}
