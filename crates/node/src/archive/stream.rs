//! What lies where in the stream of bytes that one turn writes to a volume: from positions in the stream to blocks on tape.

use super::feed::{NewFile, Part};
use super::hand::Ticket;
use catalog::NewSegment;
use tape::Flushed;
use types::*;

/// A run of bytes of a file.
struct Run {
    file_offset: u64,
    /// Position in the stream.
    at: u64,
    length: u64,
}

/// A file that has begun.
struct Begun {
    file: NewFile,
    runs: Vec<Run>,
}

/// A file that is whole.
struct Whole {
    begun: Begun,
    digest: Option<Digest>,
    /// Length of the stream behind it.
    end: u64,
}

/// See the module.
pub struct Stream {
    block_size: u64,
    next_uid: u64,
    /// Position at which the appender began.
    appender: u64,
    /// Position and block at which the batch began.
    batch: (u64, u64),
    files: Vec<Whole>,
    open: Option<Begun>,
    /// Everything up to here was given to the drive.
    at: u64,
    /// The drive warned: only the file that has begun is ended.
    warned: bool,
}

impl Stream {
    /// Nothing written.
    pub fn new(block_size: u32, next_uid: u64) -> Self {
        Self {
            block_size: u64::from(block_size).max(1),
            next_uid,
            appender: 0,
            batch: (0, 0),
            files: Vec::new(),
            open: None,
            at: 0,
            warned: false,
        }
    }

    /// The stream goes on with a fresh appender, at the beginning of this block.
    pub fn begin(&mut self, block: u64) {
        self.appender = self.at;
        self.batch = (self.at, block);
    }

    /// LTFS uid of the next file.
    pub fn next_uid(&self) -> u64 {
        self.next_uid
    }

    /// Files to be flushed.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Nothing to be flushed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// How many bytes of a piece of the stream are to be written: all of them, unless the end is near.
    pub fn takes(&self, at: u64, bytes: usize, parts: &[(u64, Part)]) -> usize {
        let end = parts.iter().find(|(_, part)| matches!(part, Part::End(_) | Part::Lost));
        match end {
            Some((end, _)) if self.warned => (end.saturating_sub(at) as usize).min(bytes),
            _ => bytes,
        }
    }

    /// Notes what was written up to `to`.
    pub fn pass(&mut self, to: u64, parts: Vec<(u64, Part)>) {
        self.at = to;
        for (at, part) in parts {
            // Behind the end that was taken.
            if at > to || (self.warned && self.open.is_none()) {
                break;
            }
            match part {
                Part::Begin(file) => self.open = Some(Begun { file: *file, runs: Vec::new() }),
                Part::Bytes { file_offset, length } => {
                    if let Some(open) = &mut self.open {
                        open.runs.push(Run { file_offset, at, length });
                    }
                }
                Part::End(digest) => {
                    self.files.extend(self.open.take().map(|begun| Whole { begun, digest, end: at }));
                }
                Part::Lost => self.open = None,
            }
        }
    }

    /// The drive warned of the end: false if nothing has begun that should be ended.
    pub fn end_is_near(&mut self) -> bool {
        self.warned = true;
        self.open.as_ref().is_some_and(|open| !open.runs.is_empty())
    }

    /// What is safe after a flush, to be recorded. Where the volume ended within a file, what is safe of it counts as
    /// a segment if the file is to be split (`split`). Whatever is not returned goes elsewhere.
    pub fn flushed(
        &mut self,
        flushed: &Flushed,
        split: impl Fn(&NewFile) -> bool,
    ) -> Vec<(Ticket, NewSegment)> {
        let safe = self.appender + flushed.safe_bytes;
        let mut segments = Vec::with_capacity(self.files.len());
        let mut cut = self.open.take();
        for Whole { begun, digest, end } in std::mem::take(&mut self.files) {
            if end > safe {
                cut = Some(begun);
                break;
            }
            let to = begun.file.to;
            segments.push(self.segment(begun, safe, to, digest));
        }
        if let Some(begun) = cut.filter(|b| split(&b.file)) {
            let last = begun.runs.iter().rfind(|run| run.at < safe);
            let to = last.map(|run| run.file_offset + run.length.min(safe - run.at));
            segments.extend(to.map(|to| self.segment(begun, safe, to, None)));
        }
        self.batch = (self.at, flushed.append_block);
        segments
    }

    /// The segment of a file that ends at `to`, of whose bytes those before `safe` are on tape.
    fn segment(&mut self, begun: Begun, safe: u64, to: u64, digest: Option<Digest>) -> (Ticket, NewSegment) {
        let Begun { file, runs } = begun;
        let uid = self.next_uid;
        self.next_uid += 1;
        let extents = runs.iter().filter(|run| run.at < safe).map(|run| {
            let (from, block) = self.batch;
            let offset = run.at - from;
            Extent {
                file_offset: run.file_offset,
                start_block: block + offset / self.block_size,
                byte_offset: (offset % self.block_size) as u32,
                byte_count: run.length.min(safe - run.at),
            }
        });
        let segment = NewSegment {
            ino: file.item.ino,
            version: file.item.version,
            copy: file.item.copy,
            file_offset: file.from,
            length: to - file.from,
            extents: extents.collect(),
            size: file.origin.stamp.size,
            digest,
            uid,
            told: None,
        };
        (file.ticket, segment)
    }
}

#[cfg(test)]
mod tests {
    use super::super::WriteQueue;
    use super::super::hand::InHand;
    use super::super::source::Origin;
    use super::*;
    use policy::{MigrateBatch, MigrateItem, MigrateWhy};

    const BLOCK: u64 = 100;

    /// Files in hand, a stream of them, and what has been made of it.
    struct Rig {
        queue: WriteQueue,
        pool: PoolName,
    }

    fn rig(files: u64) -> Rig {
        let rig = Rig { queue: WriteQueue::default(), pool: PoolName("p".into()) };
        let item = |n| MigrateItem {
            ino: Ino(n),
            version: Version(1),
            copy: CopyNo(1),
            size: 10,
            due: Time::default(),
        };
        let batch = MigrateBatch {
            class: ClassName("default".into()),
            pool: rig.pool.clone(),
            items: (1..=files).map(item).collect(),
            bytes: 0,
            why: MigrateWhy::Age,
        };
        rig.queue.push(&batch, false, Time::default());
        rig
    }

    fn begin(hand: &InHand<'_>, size: u64, from: u64) -> Part {
        let (ticket, item) = hand.pop().unwrap();
        let stamp = ObjectStamp { size, ..ObjectStamp::default() };
        Part::Begin(Box::new(NewFile {
            ticket,
            item,
            origin: Origin { object: ObjectId(1), stamp, far: false },
            from,
            to: size,
            moves: false,
        }))
    }

    fn bytes(file_offset: u64, length: u64) -> Part {
        Part::Bytes { file_offset, length }
    }

    fn stream() -> Stream {
        let mut stream = Stream::new(BLOCK as u32, 7);
        stream.begin(20);
        stream
    }

    fn on_tape(segment: &NewSegment) -> Vec<(u64, u64, u32, u64)> {
        let extent = |e: &Extent| (e.file_offset, e.start_block, e.byte_offset, e.byte_count);
        segment.extents.iter().map(extent).collect()
    }

    #[test]
    fn files_lie_behind_each_other_and_a_flush_begins_a_block() {
        let rig = rig(4);
        let hand = InHand::new(&rig.queue, &rig.pool);
        let mut s = stream();
        let digest = Some(Digest([1; 32]));
        s.pass(
            150,
            vec![
                (0, begin(&hand, 30, 0)),
                (0, bytes(0, 30)),
                (30, Part::End(digest)),
                (30, begin(&hand, 500, 0)),
                (30, bytes(100, 200)),
            ],
        );
        assert!(!s.is_empty());
        s.pass(
            260,
            vec![
                (230, bytes(400, 30)),
                (260, Part::End(None)),
                (260, begin(&hand, 0, 0)),
                (260, Part::End(None)),
            ],
        );
        let flushed = Flushed { append_block: 23, vcr: 1, safe_bytes: 260 };
        let files: Vec<NewSegment> = s.flushed(&flushed, |_| false).into_iter().map(|(_, f)| f).collect();
        assert_eq!(on_tape(&files[0]), [(0, 20, 0, 30)]);
        assert_eq!((files[0].uid, files[0].digest, files[0].length), (7, digest, 30));
        assert_eq!(on_tape(&files[1]), [(100, 20, 30, 200), (400, 22, 30, 30)]);
        assert_eq!((files[2].uid, files[2].length, on_tape(&files[2])), (9, 0, vec![]));
        s.pass(270, vec![(260, begin(&hand, 10, 0)), (260, bytes(0, 10)), (270, Part::End(None))]);
        let flushed = Flushed { append_block: 24, vcr: 1, safe_bytes: 270 };
        assert_eq!(on_tape(&s.flushed(&flushed, |_| false)[0].1), [(0, 23, 0, 10)]);
    }

    #[test]
    fn a_lost_file_leaves_its_place_to_nobody() {
        let rig = rig(2);
        let hand = InHand::new(&rig.queue, &rig.pool);
        let mut s = stream();
        s.pass(100, vec![(0, begin(&hand, 300, 0)), (0, bytes(0, 300))]);
        s.pass(
            180,
            vec![(150, Part::Lost), (150, begin(&hand, 30, 0)), (150, bytes(0, 30)), (180, Part::End(None))],
        );
        let flushed = Flushed { append_block: 22, vcr: 1, safe_bytes: 180 };
        let files = s.flushed(&flushed, |_| true);
        assert_eq!(files.len(), 1);
        assert_eq!(on_tape(&files[0].1), [(0, 21, 50, 30)]);
    }

    #[test]
    fn near_the_end_only_the_file_that_has_begun_is_ended() {
        let rig = rig(4);
        let hand = InHand::new(&rig.queue, &rig.pool);
        let mut s = stream();
        s.pass(100, vec![(0, begin(&hand, 150, 0)), (0, bytes(0, 150))]);
        assert!(s.end_is_near(), "its bytes are on their way");
        let parts = vec![
            (150, Part::End(None)),
            (150, begin(&hand, 9, 0)),
            (150, bytes(0, 9)),
            (159, Part::End(None)),
        ];
        assert_eq!(s.takes(100, 100, &parts), 50);
        s.pass(150, parts);
        assert!(!s.end_is_near());
        let flushed = Flushed { append_block: 22, vcr: 1, safe_bytes: 150 };
        assert_eq!(s.flushed(&flushed, |_| true).len(), 1, "what follows goes elsewhere");
    }

    #[test]
    fn where_the_volume_ends_a_file_is_cut_if_it_is_to_be_split() {
        for (split, expected) in [(true, vec![(50, 20, 30, 70)]), (false, vec![])] {
            let rig = rig(3);
            let hand = InHand::new(&rig.queue, &rig.pool);
            let mut s = stream();
            s.pass(
                200,
                vec![
                    (0, begin(&hand, 30, 0)),
                    (0, bytes(0, 30)),
                    (30, Part::End(None)),
                    (30, begin(&hand, 300, 50)),
                    (30, bytes(50, 170)),
                ],
            );
            let flushed = Flushed { append_block: 21, vcr: 1, safe_bytes: 100 };
            let files = s.flushed(&flushed, |_| split);
            let cut: Vec<_> = files.iter().skip(1).flat_map(|(_, f)| on_tape(f)).collect();
            assert_eq!(cut, expected);
            if let Some((_, f)) = files.get(1) {
                assert_eq!((f.file_offset, f.length, f.digest), (50, 70, None));
            }
            drop(hand);
            assert_eq!(rig.queue.backlog()[&rig.pool].files, 3, "nobody has settled them");
        }
    }
}
