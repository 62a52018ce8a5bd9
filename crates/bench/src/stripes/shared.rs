//! Programs that write one coded file together, through the mounts of nodes or with the native library.

use super::bed::in_memory;
use super::{LARGE, RECORD, SPARE, compared, noise, together};
use crate::cluster::{Cluster, Wanted};
use crate::place::timed;
use crate::{Figure, Plan};
use anyhow::Result;
use client::native::{self, OpenOptions, Session};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What lies at targets of a file that was removed is gone after so long.
const REST: Duration = Duration::from_secs(2);

/// The file that they write.
const NAME: &str = "coded/file";

/// How a program reaches it.
enum Way<'a> {
    Mount(&'a Path),
    /// Of a session for itself.
    Library(Session),
}

/// It is open.
enum Open {
    File(File),
    Library(Box<native::File>),
}

impl Way<'_> {
    fn open(&self) -> Result<Open> {
        Ok(match self {
            Self::Mount(mount) => Open::File(File::options().write(true).open(mount.join(NAME))?),
            Self::Library(session) => {
                let file = session.open(format!("/{NAME}"), OpenOptions::new().write(true))?;
                Open::Library(Box::new(file))
            }
        })
    }
}

impl Open {
    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, at)?,
            Self::Library(file) => file.write_at(bytes, at)?,
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match self {
            Self::File(file) => file.sync_all()?,
            Self::Library(file) => file.sync()?,
        }
        Ok(())
    }
}

/// Who write one file.
struct Writers<'a> {
    ways: Vec<Way<'a>>,
    figures: [Figure; 3],
}

impl<'a> Writers<'a> {
    fn new(who: &str, ways: impl IntoIterator<Item = Way<'a>>) -> Self {
        let figures = compared(&format!("4+2 coded, {who}"));
        Self { ways: ways.into_iter().collect(), figures }
    }

    fn measure(&mut self, here: &Path, bytes: u64) -> Result<()> {
        let writers = self.ways.len() as u64;
        let part = bytes / writers / LARGE * LARGE;
        let segmented = self.write(here, LARGE, &|writer, n| {
            let at = n * LARGE;
            (at < part).then_some(writer * part + at)
        })?;
        let records = bytes / writers / RECORD;
        let interleaved =
            self.write(here, RECORD, &|writer, n| (n < records).then_some((n * writers + writer) * RECORD))?;
        let values = [interleaved / segmented, segmented / 1e6, interleaved / 1e6];
        self.figures.iter_mut().zip(values).for_each(|(figure, value)| figure.values.push(value));
        Ok(())
    }

    /// Bytes per second of a file, made anew at this mount, that each of them syncs in the end; `place` says where the n-th write of a writer goes.
    fn write(&self, here: &Path, size: u64, place: &(dyn Fn(u64, u64) -> Option<u64> + Sync)) -> Result<f64> {
        File::create_new(here.join(NAME))?;
        let files = self.ways.iter().map(Way::open).collect::<Result<Vec<_>>>()?;
        let block = noise(size as usize);
        let written = AtomicU64::new(0);
        let (seconds, ()) = timed(|| {
            together(files.len() as u64, &|writer| {
                let file = &files[writer as usize];
                for n in 0.. {
                    let Some(at) = place(writer, n) else { break };
                    file.write(&block, at)?;
                    written.fetch_add(size, Ordering::Relaxed);
                }
                file.sync()
            })
        })?;
        drop(files);
        fs::remove_file(here.join(NAME))?;
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
    let library = || Session::connect(&cluster.socket(1)).map(Way::Library);
    let mut all = [
        Writers::new("4 programs at the first node's mount", [(); 4].map(|()| Way::Mount(&here))),
        Writers::new("a program on each of two hosts", [Way::Mount(&here), Way::Mount(&there)]),
        Writers::new("2 programs with the native library on another host", [library()?, library()?]),
    ];
    for round in 1..=plan.rounds {
        told(&format!("stripes: programs that write one file, round {round}"));
        all.iter_mut().try_for_each(|writers| writers.measure(&here, bytes))?;
    }
    let mut figures: Vec<Figure> = all.into_iter().flat_map(|writers| writers.figures).collect();
    if let Some(first) = figures.first_mut() {
        first.note = "six targets of one node without a limit of rate, and another node that holds the names, all on this machine and in its memory; each \
                      program, a thread with the file opened for itself, has one write under way and syncs in the end; the same for all that follow"
            .to_owned();
    }
    Ok(figures)
}
