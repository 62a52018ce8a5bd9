//! Programs that write one coded file together, through the mounts of nodes.

use super::bed::in_memory;
use super::{LARGE, RECORD, SPARE, compared, noise, together};
use crate::cluster::{Cluster, Wanted};
use crate::place::timed;
use crate::{Figure, Plan};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What lies at targets of a file that was removed is gone after so long.
const REST: Duration = Duration::from_secs(2);

/// Who write one file.
struct Writers {
    /// The mount that each has.
    mounts: Vec<PathBuf>,
    figures: [Figure; 3],
}

impl Writers {
    fn new(who: &str, mounts: &[&PathBuf]) -> Self {
        let figures = compared(&format!("4+2 coded, {who}"));
        Self { mounts: mounts.iter().map(|mount| (*mount).clone()).collect(), figures }
    }

    fn measure(&mut self, bytes: u64) -> Result<()> {
        let writers = self.mounts.len() as u64;
        let part = bytes / writers / LARGE * LARGE;
        let segmented = self.write(LARGE, &|writer, n| {
            let at = n * LARGE;
            (at < part).then_some(writer * part + at)
        })?;
        let records = bytes / writers / RECORD;
        let interleaved =
            self.write(RECORD, &|writer, n| (n < records).then_some((n * writers + writer) * RECORD))?;
        let values = [interleaved / segmented, segmented / 1e6, interleaved / 1e6];
        self.figures.iter_mut().zip(values).for_each(|(figure, value)| figure.values.push(value));
        Ok(())
    }

    /// Bytes per second of a new file that each of them syncs in the end; `place` says where the n-th write of a writer goes.
    fn write(&self, size: u64, place: &(dyn Fn(u64, u64) -> Option<u64> + Sync)) -> Result<f64> {
        let name = "coded/file";
        let first = self.mounts.first().context("nobody writes")?.join(name);
        File::create_new(&first)?;
        let open = |mount: &PathBuf| File::options().write(true).open(mount.join(name));
        let files = self.mounts.iter().map(open).collect::<std::io::Result<Vec<_>>>()?;
        let block = noise(size as usize);
        let written = AtomicU64::new(0);
        let (seconds, ()) = timed(|| {
            together(files.len() as u64, &|writer| {
                let file = &files[writer as usize];
                for n in 0.. {
                    let Some(at) = place(writer, n) else { break };
                    file.write_all_at(&block, at)?;
                    written.fetch_add(size, Ordering::Relaxed);
                }
                Ok(file.sync_all()?)
            })
        })?;
        drop(files);
        fs::remove_file(&first)?;
        std::thread::sleep(REST);
        Ok(written.into_inner() as f64 / seconds)
    }
}

/// Measures what they come to.
pub(super) fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let bytes = plan.amount(64 << 20, 384 << 20);
    let place = in_memory(&plan.dir, 4 * bytes + SPARE)?;
    let cluster = Cluster::start(place.path(), &Wanted { targets: [0, 6], ..Wanted::default() })?;
    let [here, there] = [cluster.mount(0)?, cluster.mount(1)?];
    let dir = here.join("coded");
    fs::create_dir(&dir)?;
    cluster.tell(0, &["layout", "set", &dir.to_string_lossy(), "--code", "4+2"])?;
    let mut all = [
        Writers::new("4 programs at the first node's mount", &[&here; 4]),
        Writers::new("a program on each of two hosts", &[&here, &there]),
    ];
    for round in 1..=plan.rounds {
        told(&format!("stripes: programs that write one file through mounts, round {round}"));
        all.iter_mut().try_for_each(|writers| writers.measure(bytes))?;
    }
    let mut figures: Vec<Figure> = all.into_iter().flat_map(|writers| writers.figures).collect();
    if let Some(first) = figures.first_mut() {
        first.note = "six targets of one node without a limit of rate, and another node that holds the names, all on this machine and in its memory; each \
                      program, a thread with the file opened for itself, has one write under way and syncs in the end; the same for all that follow"
            .to_owned();
    }
    Ok(figures)
}
