//! A defect has ended a drive's thread: whoever waits for what it was doing is told.

use super::state::Errand;
use super::worker::{Ended, Job, Wanted, Worker};
use super::{blocked, trouble};
use types::*;

/// What must be told to whom if an order does not come to its end.
pub struct Current {
    volume: Barcode,
    wanted: Vec<Wanted>,
    /// Until it is answered. Tickets tell by themselves that they were dropped.
    errand: Option<Errand>,
}

impl Current {
    /// Of an order that is about to be carried out.
    pub fn new(volume: &Barcode, job: &Job) -> Self {
        let wanted = if let Job::Recall(wanted) = job { wanted.clone() } else { Vec::new() };
        let errand = match job {
            Job::Label { errand: Some(Errand::Label { request, .. }), .. } => {
                Some(Errand::Label { request: *request, pool: None, force: false, key: None })
            }
            Job::Check { deep, answer } => Some(Errand::Check { deep: *deep, answer: answer.clone() }),
            Job::Adopt { import, answer } => {
                Some(Errand::Adopt { import: import.clone(), answer: answer.clone() })
            }
            _ => None,
        };
        Self { volume: volume.clone(), wanted, errand }
    }
}

impl Worker {
    /// The thread has ended with the order that it had.
    pub(super) fn broke_off(&self, panic: &(dyn std::any::Any + Send)) {
        self.progress.end();
        let Some(Current { volume, wanted, errand }) = self.current.lock().take() else { return };
        let e = trouble::defect(&volume, &panic_text(panic));
        if let Some(errand) = errand {
            blocked::refuse(&self.node, &volume, errand, &e);
        }
        let failed = wanted.into_iter().map(|one| (one, e.clone())).collect();
        self.report(Ended { failed, ..Ended::new(self.no, volume, None, Err(e)) });
    }

    /// Whoever waited for the errand has his answer, and gets no other.
    pub(super) fn answered(&self) {
        if let Some(current) = &mut *self.current.lock() {
            current.errand = None;
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::progress::Progress;
    use super::super::worker::OpenDrive;
    use super::*;
    use crate::Node;
    use parking_lot::Mutex;
    use scsi::{Data, Reply, Transport, TransportError};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    use tape::{Changer, Drive};

    const NO: DriveNo = DriveNo(0);

    /// A drive whose driver has a defect that shows once.
    struct Defect<T>(T, Arc<AtomicBool>);

    impl<T: Transport> Transport for Defect<T> {
        fn execute(
            &mut self,
            cdb: &[u8],
            data: Data<'_>,
            timeout: Duration,
        ) -> Result<Reply, TransportError> {
            assert!(!self.1.swap(false, Ordering::Relaxed), "cannot be");
            self.0.execute(cdb, data, timeout)
        }

        fn name(&self) -> &str {
            self.0.name()
        }
    }

    /// A node, one drive of which has met a defect with this order.
    fn with_a_defect_at(job: Job) -> (Arc<Node>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::Config { state_dir: dir.path().to_owned(), ..crate::Config::default() };
        let node = Node::start(config).unwrap();
        let sleeper = || -> tape::Sleeper { Box::new(std::thread::sleep) };
        let robot = Changer::open(Box::new(node.virtual_library().changer()), sleeper()).unwrap();
        let due = Arc::new(AtomicBool::new(false));
        let library = node.virtual_library().clone();
        let switch = due.clone();
        let open: OpenDrive = Box::new(move || {
            let sleeper: tape::Sleeper = Box::new(std::thread::sleep);
            Drive::open(Box::new(Defect(library.drive(0), switch.clone())), sleeper)
        });
        let drive = open().unwrap();
        let (robot, progress) = (Arc::new(Mutex::new(robot)), Arc::new(Progress::default()));
        let worker = Worker::new(node.clone(), NO, (LibraryNo(0), 0), robot, progress);
        let (orders, queue) = crossbeam_channel::bounded(1);
        due.store(true, Ordering::Relaxed);
        orders.send((Barcode::from("TC0001L9"), job)).unwrap();
        worker.run(Some(drive), &open, &queue);
        (node, dir)
    }

    #[test]
    fn a_defect_takes_the_drive_out_of_use_and_the_node_still_stops() {
        let (node, _dir) = with_a_defect_at(Job::Unmount { to: 0 });
        let begun = Instant::now();
        let suspect = || match &*node.archive.state.lock().drives[&NO].status {
            DriveStatus::Suspect(why) => Some(why.clone()),
            _ => None,
        };
        while suspect().is_none() && begun.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let why = suspect().unwrap();
        assert!(why.contains("TC-D056") && why.contains("cannot be"), "{why}");
        node.stop(true);
    }

    #[test]
    fn whoever_waits_for_what_a_defect_ended_hears_of_it_once() {
        let (answer, checked) = crossbeam_channel::unbounded();
        let (node, _dir) = with_a_defect_at(Job::Check { deep: false, answer });
        let told: Vec<String> =
            checked.iter().flat_map(|c| c.findings).map(|finding| finding.problem).collect();
        assert!(told.len() == 1 && told[0].contains("a defect ended the drive's thread"), "{told:?}");
        node.stop(true);
        let (answer, adopted) = crossbeam_channel::unbounded();
        let (node, _dir) = with_a_defect_at(Job::Adopt { import: None, answer });
        let told: Vec<_> = adopted.iter().map(|(volume, adopted)| (volume, adopted.failed)).collect();
        let [(volume, Some(why))] = &told[..] else { panic!("{told:?}") };
        assert!(volume.as_str() == "TC0001L9" && why.contains("a defect ended the drive's thread"), "{why}");
        node.stop(true);
    }
}
