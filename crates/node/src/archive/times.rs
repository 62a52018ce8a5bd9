//! How long drives and robot really take: learnt from every job, kept over restarts, and used for all estimates.

use super::state::State;
use super::tapes;
use crate::Node;
use crate::clock::Moment;
use format::record;
use parking_lot::Mutex;
use sched::{Calibration, Factors, Learnt, Mechanics, Timed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::{Barcode, DriveNo};

/// File of the state directory that keeps them.
const FILE: &str = "times";
/// A crash loses what was learnt in this time.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Something that took its time: what, how long the model expects it to take, and how long it took (seconds).
pub type Observed = (Timed, f64, f64);

/// What was learnt. Taken as a whole by those who estimate, changed by the drives' threads.
#[derive(Default)]
pub struct Times {
    learnt: Mutex<Arc<Calibration>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    as_of: Option<Arc<Calibration>>,
    at: Option<Moment>,
}

impl Times {
    /// What is known now.
    pub fn known(&self) -> Arc<Calibration> {
        self.learnt.lock().clone()
    }

    /// A drive has written so many files, whose bytes take `bytes_s` by the model.
    pub fn note_written(&self, drive: DriveNo, bytes_s: f64, files: u64, took_s: f64) {
        Arc::make_mut(&mut self.learnt.lock()).note_written(drive, bytes_s, files, took_s);
    }

    /// A drive's job is done.
    pub fn note(&self, drive: DriveNo, observed: &[Observed]) {
        let mut learnt = self.learnt.lock();
        let learnt = Arc::make_mut(&mut learnt);
        for (what, expected_s, took_s) in observed {
            learnt.note(drive, *what, *expected_s, *took_s);
        }
    }
}

/// What is kept: drives by serial number, since numbers change with the configuration.
#[derive(Serialize, Deserialize)]
struct TimesRec {
    drives: Vec<(String, Factors)>,
    all: Factors,
}

/// [`TimesRec`] before what goes by from one file to the next was learnt.
#[derive(Deserialize)]
struct TimesV1 {
    drives: Vec<(String, FactorsV1)>,
    all: FactorsV1,
}

/// Moves, loads, unloads, locates, reads, writes.
#[derive(Deserialize)]
struct FactorsV1([Learnt; 6]);

impl From<FactorsV1> for FactorsV2 {
    fn from(FactorsV1([moves, load, unload, locate, read, write]): FactorsV1) -> Self {
        Self([moves, load, unload, locate, read, write, Learnt::default()])
    }
}

/// [`TimesRec`] before what goes by with each file that is written was learnt.
#[derive(Deserialize)]
struct TimesV2 {
    drives: Vec<(String, FactorsV2)>,
    all: FactorsV2,
}

/// The same and what goes by with files that are read.
#[derive(Deserialize)]
struct FactorsV2([Learnt; 7]);

impl From<FactorsV2> for Factors {
    fn from(FactorsV2([moves, load, unload, locate, read, write, file]): FactorsV2) -> Self {
        Self { moves, load, unload, locate, read, write, file, written: Learnt::default() }
    }
}

impl From<TimesV1> for TimesV2 {
    fn from(TimesV1 { drives, all }: TimesV1) -> Self {
        let drives = drives.into_iter().map(|(serial, factors)| (serial, factors.into())).collect();
        Self { drives, all: all.into() }
    }
}

impl record::Record for TimesRec {
    const NAME: &'static str = "TimesRec";
    const VERSION: u8 = 3;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, record::RecordError> {
        let (name, length) = (Self::NAME, bytes.len() + 1);
        let found = match version {
            1 => Some(record::body::<TimesV1>(bytes).map(TimesV2::from)),
            2 => Some(record::body::<TimesV2>(bytes)),
            _ => None,
        };
        let TimesV2 { drives, all } = match found {
            Some(body) => body.map_err(|why| record::RecordError::Damaged { name, length, why })?,
            None => return Err(record::RecordError::Unknown { name, found: version }),
        };
        let drives = drives.into_iter().map(|(serial, factors)| (serial, factors.into())).collect();
        Ok(Self { drives, all: all.into() })
    }
}

impl Node {
    /// What the drives and the robot have taught so far.
    pub fn learnt(&self) -> Arc<Calibration> {
        self.archive.times.known()
    }
}

/// Reads what an earlier run has learnt. Of a file that cannot be read only the estimates suffer.
pub fn load(node: &Node) {
    let path = node.config.state_dir.join(FILE);
    let kept = match fs::read(&path) {
        Ok(bytes) => record::decode::<TimesRec>(&bytes).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => Err(e.to_string()),
    };
    let kept = match kept {
        Ok(kept) => kept,
        Err(why) => {
            tracing::warn!("{}: {why}; the times of drives are learnt anew", path.display());
            return;
        }
    };
    let numbers = numbers(&node.archive.state.lock());
    let mine = |(serial, factors): (String, Factors)| Some((*numbers.get(&serial)?, factors));
    let learnt = Calibration { drives: kept.drives.into_iter().filter_map(mine).collect(), all: kept.all };
    let learnt = Arc::new(learnt);
    *node.archive.times.learnt.lock() = learnt.clone();
    node.archive.times.kept.lock().as_of = Some(learnt);
}

/// Keeps what was learnt, if there is news and the last time is long enough ago (or `now`).
pub fn keep(node: &Node, now: bool) {
    let times = &node.archive.times;
    let mut kept = times.kept.lock();
    let early = kept.at.get_or_insert_with(Moment::now).elapsed() < KEEP_EVERY;
    let learnt = times.known();
    let news =
        kept.as_of.as_ref().is_none_or(|as_of| !Arc::ptr_eq(as_of, &learnt)) && learnt.all.load.count > 0;
    if (early && !now) || !news {
        return;
    }
    let serials: BTreeMap<DriveNo, String> =
        numbers(&node.archive.state.lock()).into_iter().map(|(serial, no)| (no, serial)).collect();
    let of_drive = |(no, factors): (&DriveNo, &Factors)| Some((serials.get(no)?.clone(), *factors));
    let rec = TimesRec { drives: learnt.drives.iter().filter_map(of_drive).collect(), all: learnt.all };
    if let Err(e) = replace(&node.config.state_dir, &record::encode(&rec)) {
        tracing::warn!("the times learnt from drives are not kept: {}: {e}", node.config.state_dir.display());
    }
    (kept.as_of, kept.at) = (Some(learnt), Some(Moment::now()));
}

fn numbers(state: &State) -> BTreeMap<String, DriveNo> {
    let known = state.drives.values().filter(|d| !d.serial.is_empty());
    known.map(|d| (d.serial.clone(), d.no)).collect()
}

/// The old file or the new one, whatever happens.
fn replace(state_dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = state_dir.join(format!("{FILE}.new"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, state_dir.join(FILE))?;
    File::open(state_dir)?.sync_all()
}

/// The model that estimates and observations of a volume are in terms of.
pub fn mechanics(node: &Node, volume: &Barcode) -> Mechanics {
    let block_bytes = node.config.tape.block_size.0;
    match tapes::in_wraps(node, volume) {
        Some(generation) => Mechanics::of(generation, block_bytes),
        None => Mechanics { block_bytes, ..Mechanics::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Old {
        drives: Vec<(String, [Learnt; 6])>,
        all: [Learnt; 6],
    }

    #[derive(Serialize, Deserialize)]
    struct Older {
        drives: Vec<(String, [Learnt; 7])>,
        all: [Learnt; 7],
    }

    format::records! { Old = 1, Older = 2 }

    fn learn(node: &Node, took_s: f64) {
        for _ in 0..10 {
            node.archive.times.note(DriveNo(1), &[(Timed::Load, 16.0, took_s), (Timed::Read, 10.0, took_s)]);
        }
    }

    #[test]
    fn what_was_learnt_of_a_drive_is_known_after_a_restart_also_under_another_number() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        learn(node, 8.0);
        keep(node, true);
        let written = fs::read(node.config.state_dir.join(FILE)).unwrap();
        keep(node, true);
        let before = node.archive.times.known();
        *node.archive.times.learnt.lock() = Arc::default();
        {
            let mut state = node.archive.state.lock();
            let [a, b] = [0, 1].map(|n| state.drives[&DriveNo(n)].serial.clone());
            state.drives.get_mut(&DriveNo(0)).unwrap().serial = b;
            state.drives.get_mut(&DriveNo(1)).unwrap().serial = a;
        }
        load(node);
        let after = node.archive.times.known();
        assert_eq!((after.drives.get(&DriveNo(0)), after.all), (before.drives.get(&DriveNo(1)), before.all));
        assert_eq!(after.drives.len(), 1);
        // Nothing new: nothing is written.
        fs::remove_file(node.config.state_dir.join(FILE)).unwrap();
        keep(node, true);
        assert!(!node.config.state_dir.join(FILE).exists() && !written.is_empty());
    }

    #[test]
    fn what_an_earlier_release_has_learnt_is_known() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let serial = node.archive.state.lock().drives[&DriveNo(1)].serial.clone();
        let learnt = |mean| Learnt { mean, variance: 0.5, count: 7, weight_s: 30.0 };
        // Version 1: moves, load, unload, locate, read, write of each drive, and of all.
        let old = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(learnt);
        let bytes = record::encode(&Old { drives: vec![(serial.clone(), old)], all: old });
        fs::write(node.config.state_dir.join(FILE), bytes).unwrap();
        load(node);
        let known = node.archive.times.known();
        let Factors { moves, write, file, .. } = known.drives[&DriveNo(1)];
        assert_eq!((moves.mean, write.mean, file), (1.0, 6.0, Learnt::default()));
        assert_eq!(known.all.unload, learnt(3.0));
        // Version 2: files read as well.
        let older = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0].map(learnt);
        let bytes = record::encode(&Older { drives: vec![(serial, older)], all: older });
        fs::write(node.config.state_dir.join(FILE), bytes).unwrap();
        load(node);
        let Factors { write, file, written, .. } = node.archive.times.known().drives[&DriveNo(1)];
        assert_eq!((write.mean, file.mean, written), (6.0, 7.0, Learnt::default()));
    }

    #[test]
    fn a_file_of_times_that_is_damaged_or_newer_is_left_aside() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        learn(node, 8.0);
        keep(node, true);
        let path = node.config.state_dir.join(FILE);
        let good = fs::read(&path).unwrap();
        for bytes in [&b""[..], &good[..good.len() / 2], &[99, 1, 2]] {
            *node.archive.times.learnt.lock() = Arc::default();
            fs::write(&path, bytes).unwrap();
            load(node);
            assert_eq!(*node.archive.times.known(), Calibration::default(), "{} bytes", bytes.len());
        }
    }
}
