//! Random command sequences against a model of a tape in memory, with power failures and restarts in between.

use proptest::prelude::*;
use scsi::mode::PartitionPage;
use scsi::{FormatKind, ReadOutcome, SenseKey, Smc, Ssc};
use std::sync::Arc;
use vtl::{Library, VtlConfig};

#[derive(Clone, Debug, PartialEq)]
enum Object {
    Record(Vec<u8>),
    Mark,
}

/// What a tape is: partitions of objects, of which the first `flushed` survive a power failure.
#[derive(Clone, Debug, Default)]
struct Model {
    partitions: [Vec<Object>; 2],
    flushed: [usize; 2],
    at: (usize, usize),
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, u16),
    Marks(u8, bool),
    Read(u16),
    Locate(u8, u8),
    SpaceMarks(i8),
    SpaceBlocks(i8),
    EndOfData,
    Rewind,
    Erase,
    PowerFailure,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 1u16..3000).prop_map(|(b, n)| Step::Write(b, n)),
        2 => (0u8..3, any::<bool>()).prop_map(|(n, i)| Step::Marks(n, i)),
        6 => (1u16..4000).prop_map(Step::Read),
        3 => (0u8..2, 0u8..40).prop_map(|(p, b)| Step::Locate(p, b)),
        1 => (-4i8..5).prop_map(Step::SpaceMarks),
        1 => (-9i8..10).prop_map(Step::SpaceBlocks),
        1 => Just(Step::EndOfData),
        1 => Just(Step::Rewind),
        1 => Just(Step::Erase),
        1 => Just(Step::PowerFailure),
        1 => Just(Step::Reopen),
    ]
}

impl Model {
    fn here(&mut self) -> &mut Vec<Object> {
        &mut self.partitions[self.at.0]
    }

    fn append(&mut self, object: Object) {
        let (p, at) = self.at;
        self.flushed[p] = self.flushed[p].min(at);
        self.here().truncate(at);
        self.here().push(object);
        self.at.1 += 1;
    }

    fn flush(&mut self) {
        self.flushed = [self.partitions[0].len(), self.partitions[1].len()];
    }

    fn lose_power(&mut self) {
        for p in 0..2 {
            self.partitions[p].truncate(self.flushed[p]);
        }
        self.at = (0, 0);
    }

    /// Moves `count` steps by single objects; `stop` says which objects count as a step, marks end block spacing.
    fn space(&mut self, count: i64, marks: bool) -> scsi_outcome::Outcome {
        use scsi_outcome::Outcome::*;
        let mut left = count.abs();
        while left > 0 {
            let forward = count > 0;
            let next = if forward { Some(self.at.1) } else { self.at.1.checked_sub(1) };
            let Some(next) = next else { return Beginning };
            let Some(object) = self.here().get(next).cloned() else { return End };
            self.at.1 = if forward { next + 1 } else { next };
            let is_mark = object == Object::Mark;
            if !marks && is_mark {
                return Mark;
            }
            left -= i64::from(is_mark == marks);
        }
        Done
    }
}

mod scsi_outcome {
    #[derive(Debug, PartialEq)]
    pub enum Outcome {
        Done,
        Mark,
        End,
        Beginning,
    }
}

/// A drive with the first cartridge in it, formatted with two partitions.
struct Bench {
    dir: tempfile::TempDir,
    library: Option<Arc<Library>>,
    drive: Ssc,
}

fn config(dir: &std::path::Path) -> VtlConfig {
    VtlConfig { cartridges: 1, slots: 1, drives: 1, ..VtlConfig::new(dir) }
}

/// Consumes unit attentions.
fn ready(drive: &mut Ssc) {
    while let Err(e) = drive.test_unit_ready() {
        assert_eq!(e.sense().map(|s| s.key), Some(SenseKey::UnitAttention), "{e}");
    }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::open(config(dir.path())).unwrap();
        let mut changer = Smc::new(Box::new(library.changer()));
        assert!(changer.test_unit_ready().is_err());
        changer.move_medium(1001, 1).unwrap();
        let mut drive = Ssc::new(Box::new(library.drive(0)));
        ready(&mut drive);
        let mut page = drive.partition_page().unwrap();
        page.additional = 1;
        page.flags = PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM;
        (page.units, page.sizes) = (9, vec![1, 0xFFFF]);
        drive.set_partition_page(&page).unwrap();
        drive.format_medium(FormatKind::Partition).unwrap();
        Self { dir, library: Some(library), drive }
    }

    fn reopen(&mut self) {
        // The old handle keeps the library open, so give it up first.
        self.drive = Ssc::new(Box::new(Nothing));
        self.library = None;
        let library = Library::open(config(self.dir.path())).unwrap();
        self.drive = Ssc::new(Box::new(library.drive(0)));
        self.library = Some(library);
        ready(&mut self.drive);
    }
}

struct Nothing;
impl scsi::Transport for Nothing {
    fn execute(
        &mut self,
        _: &[u8],
        _: scsi::Data<'_>,
        _: std::time::Duration,
    ) -> Result<scsi::Reply, scsi::TransportError> {
        unreachable!("no command goes to a closed library")
    }
    fn name(&self) -> &str {
        "closed"
    }
}

fn spaced(drive: &mut Ssc, count: i64, marks: bool) -> scsi_outcome::Outcome {
    use scsi::SpaceOutcome as S;
    use scsi_outcome::Outcome::*;
    let outcome = if marks { drive.space_filemarks(count) } else { drive.space_blocks(count) };
    match outcome.unwrap() {
        S::Done => Done,
        S::Filemark => Mark,
        S::EndOfData => End,
        S::BeginningOfPartition => Beginning,
    }
}

fn read(bench: &mut Bench, model: &mut Model, room: usize) {
    let mut buf = vec![0u8; room];
    let outcome = bench.drive.read(&mut buf).unwrap();
    model.flush();
    let at = model.at.1;
    let expected = model.here().get(at).cloned();
    match (expected, outcome) {
        (None, ReadOutcome::EndOfData) => return,
        (Some(Object::Mark), ReadOutcome::Filemark) => {}
        (Some(Object::Record(r)), ReadOutcome::Record { bytes }) => assert_eq!(&buf[..bytes], &r[..]),
        (Some(Object::Record(r)), ReadOutcome::TooLong { length }) => {
            assert_eq!(length, Some(r.len() as u64));
            assert_eq!(buf, r[..room]);
        }
        (expected, outcome) => panic!("{outcome:?} instead of {expected:?}"),
    }
    model.at.1 += 1;
}

fn apply(bench: &mut Bench, model: &mut Model, step: &Step) {
    let drive = &mut bench.drive;
    match *step {
        Step::Write(byte, n) => {
            let record: Vec<u8> = (0..n).map(|i| byte.wrapping_add(i as u8)).collect();
            drive.write(&record).unwrap();
            model.append(Object::Record(record));
        }
        Step::Marks(n, immediate) => {
            drive.write_filemarks(n.into(), immediate).unwrap();
            (0..n).for_each(|_| model.append(Object::Mark));
            if !immediate {
                model.flush();
            }
        }
        Step::Read(room) => read(bench, model, room.into()),
        Step::Locate(p, b) => {
            let (p, b) = (usize::from(p), usize::from(b));
            model.flush();
            let end = model.partitions[p].len();
            match drive.locate(p as u8, b as u64) {
                Ok(()) => assert!(b <= end, "located beyond the end"),
                Err(e) => {
                    assert!(b > end && e.sense().unwrap().key == SenseKey::BlankCheck, "{e}");
                }
            }
            model.at = (p, b.min(end));
        }
        Step::SpaceMarks(n) | Step::SpaceBlocks(n) => {
            model.flush();
            let marks = matches!(step, Step::SpaceMarks(_));
            assert_eq!(spaced(drive, n.into(), marks), model.space(n.into(), marks));
        }
        Step::EndOfData => {
            drive.space_to_end_of_data().unwrap();
            model.flush();
            model.at.1 = model.here().len();
        }
        Step::Rewind => {
            drive.rewind().unwrap();
            model.flush();
            model.at.1 = 0;
        }
        Step::Erase => {
            drive.erase(false).unwrap();
            model.flush();
            let (p, at) = model.at;
            model.here().truncate(at);
            model.flushed[p] = model.flushed[p].min(at);
        }
        Step::PowerFailure => {
            bench.library.as_ref().unwrap().power_cycle().unwrap();
            ready(drive);
            model.lose_power();
        }
        Step::Reopen => {
            bench.reopen();
            model.lose_power();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_drive_behaves_like_a_tape(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for step in &steps {
            apply(&mut bench, &mut model, step);
            let position = bench.drive.read_position().unwrap();
            prop_assert_eq!((position.partition as usize, position.block as usize), model.at, "after {:?}", step);
            let before = &model.partitions[model.at.0][..model.at.1];
            let marks = before.iter().filter(|o| **o == Object::Mark).count() as u64;
            prop_assert_eq!(position.filemarks, Some(marks));
            prop_assert_eq!(position.bop, model.at.1 == 0);
        }
    }
}
