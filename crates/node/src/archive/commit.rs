//! Records what lies flushed on tape, on a thread of its own: meanwhile the drive streams on. Nothing that a drive wrote
//! may be relied on before that.

use super::hand::{InHand, Ticket};
use super::trouble::ours;
use super::worker::Worker;
use catalog::{NewSegment, RecordOutcome, VolumeAppend};
use crossbeam_channel::{Receiver, Sender, unbounded};
use tape::TapeError;
use types::*;

/// What the recorder is told. Each batch is announced by `Sync` when its last byte has been read from disk; the disk
/// objects reach stable storage while the tape is being flushed.
pub enum Order {
    /// Sync the disk objects read so far.
    Sync,
    /// Record a flushed batch.
    Record(VolumeAppend, Vec<(Ticket, NewSegment)>),
}

/// The thread of a turn that records.
pub struct Recorder<'t> {
    worker: &'t Worker,
    volume: &'t Barcode,
    hand: &'t InHand<'t>,
    /// Syncs of the disk tier that had failed when the turn began: if there are more now, bytes may be lost that were
    /// read in this turn, whoever was told of it.
    failed_syncs: u64,
    /// How the last sync of the disk tier ended.
    synced: Result<(), TapeError>,
}

impl<'t> Recorder<'t> {
    /// Before the first file is read.
    pub fn new(worker: &'t Worker, volume: &'t Barcode, hand: &'t InHand<'t>) -> Self {
        Self { worker, volume, hand, failed_syncs: worker.node.disk.failed_syncs(), synced: Ok(()) }
    }

    /// Records batches in order and says after each how the volume stands. After a failure nothing is recorded any more:
    /// what follows would stand on records that the catalogue does not know.
    pub fn run(mut self, orders: &Receiver<Order>, done: &Sender<Result<Volume, TapeError>>) {
        while let Ok(order) = orders.recv() {
            // One sync serves all batches that have come while the last one ran.
            let waiting: Vec<Order> = std::iter::once(order).chain(orders.try_iter()).collect();
            if !self.carry_out(waiting, done) {
                return;
            }
        }
    }

    /// Carries out some orders; false after a failure.
    pub fn carry_out(&mut self, orders: Vec<Order>, done: &Sender<Result<Volume, TapeError>>) -> bool {
        if orders.iter().any(|order| matches!(order, Order::Sync)) {
            self.synced = self.sync();
        }
        for order in orders {
            let Order::Record(append, files) = order else { continue };
            let recorded = self.synced.clone().and_then(|()| self.record(&append, files));
            let failed = recorded.is_err();
            let _ = done.send(recorded);
            if failed {
                return false;
            }
        }
        true
    }

    /// A copy of bytes that a power failure takes from the disk would make the file look changed.
    fn sync(&self) -> Result<(), TapeError> {
        let disk = &self.worker.node.disk;
        disk.sync_fs().map_err(|e| ours(self.volume, "syncing the disk tier", e))?;
        if disk.failed_syncs() == self.failed_syncs {
            return Ok(());
        }
        let what = "a sync failed while these files were copied; look at the kernel log and at the disk";
        Err(ours(self.volume, "syncing the disk tier", what))
    }

    fn record(&self, append: &VolumeAppend, files: Vec<(Ticket, NewSegment)>) -> Result<Volume, TapeError> {
        let (node, name) = (&self.worker.node, self.volume);
        let (tickets, segments): (Vec<Ticket>, Vec<NewSegment>) = files.into_iter().unzip();
        let outcomes = node.catalog.record_copies(append, &segments);
        let outcomes = outcomes.map_err(|e| ours(name, "recording copies", e))?;
        for ((ticket, segment), outcome) in tickets.into_iter().zip(&segments).zip(outcomes) {
            match outcome {
                // Stays in hand until the turn ends: the rest goes to another volume.
                RecordOutcome::Partial => {
                    let to = segment.file_offset + segment.length;
                    node.writes.flights.part((segment.ino, segment.copy), to);
                }
                RecordOutcome::Counted => {
                    self.hand.finish(ticket);
                    node.finish_migrated(segment.ino);
                }
                RecordOutcome::Damaged { why } => {
                    self.hand.hold(ticket, true, append.now);
                    node.cannot_migrate(segment.ino, why);
                }
                RecordOutcome::Stale { why } => {
                    tracing::info!("volume {name}: the copy of inode {} is dead already: {why}", segment.ino);
                    self.hand.hold(ticket, true, append.now);
                    node.finish_migrated(segment.ino);
                    node.migrate_again(segment.ino);
                }
            }
        }
        node.note_begun();
        node.governor.wake();
        super::migrate::volume(self.worker, name)
    }
}

/// Who records what is flushed.
enum To<'t> {
    /// A thread that takes orders.
    Thread(Sender<Order>),
    /// This one, at once: a simulator runs it alone.
    Here(Box<Recorder<'t>>, Sender<Result<Volume, TapeError>>),
}

/// A turn's side of its recorder: what was ordered and is not yet answered for, and how the volume stands.
pub struct Records<'t> {
    /// As last recorded.
    pub volume: Volume,
    to: To<'t>,
    recorded: Receiver<Result<Volume, TapeError>>,
    /// Batches handed over that have not been answered for.
    unanswered: u32,
}

impl<'t> Records<'t> {
    /// A thread carries out `orders` and answers.
    pub fn by_thread(
        volume: Volume,
        orders: Sender<Order>,
        recorded: Receiver<Result<Volume, TapeError>>,
    ) -> Self {
        Self { volume, to: To::Thread(orders), recorded, unanswered: 0 }
    }

    /// Orders are carried out when they are given.
    pub fn here(volume: Volume, recorder: Recorder<'t>) -> Self {
        let (done, recorded) = unbounded();
        Self { volume, to: To::Here(Box::new(recorder), done), recorded, unanswered: 0 }
    }

    /// Has the disk objects read so far synced.
    pub fn sync(&mut self) -> Result<(), TapeError> {
        self.order(Order::Sync)
    }

    /// Has a flushed batch recorded; takes note of those that are recorded by now.
    pub fn record(
        &mut self,
        append: VolumeAppend,
        files: Vec<(Ticket, NewSegment)>,
    ) -> Result<(), TapeError> {
        self.order(Order::Record(append, files))?;
        self.unanswered += 1;
        while let Ok(answer) = self.recorded.try_recv() {
            self.answered(answer)?;
        }
        Ok(())
    }

    /// Waits until everything flushed is recorded.
    pub fn settle(&mut self) -> Result<(), TapeError> {
        while self.unanswered > 0 {
            let Ok(answer) = self.recorded.recv() else { return Err(self.ended()) };
            self.answered(answer)?;
        }
        Ok(())
    }

    fn order(&mut self, order: Order) -> Result<(), TapeError> {
        let taken = match &mut self.to {
            To::Thread(orders) => orders.send(order).is_ok(),
            To::Here(recorder, done) => {
                recorder.carry_out(vec![order], done);
                true // how it ended waits among the answers
            }
        };
        if taken {
            return Ok(());
        }
        // The recorder has ended, and said why; without a word only if it has panicked, and then so do we.
        self.settle()?;
        Err(self.ended())
    }

    fn answered(&mut self, answer: Result<Volume, TapeError>) -> Result<(), TapeError> {
        self.unanswered -= 1;
        self.volume = answer?;
        Ok(())
    }

    fn ended(&self) -> TapeError {
        ours(&self.volume.barcode, "recording copies", "the recorder has ended")
    }
}

#[cfg(test)]
mod tests {
    use super::super::WriteQueue;
    use super::super::testing::Rig;
    use super::*;

    #[test]
    fn after_a_failure_nothing_is_recorded_and_everything_goes_back() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let items = [rig.put("a", 10), rig.put("b", 10)];
        queue.push(&Rig::batch(&pool, &items), false, crate::now());
        let volume = Barcode::from("NOSUCHL9");
        let hand = InHand::new(&queue, &pool);
        let (orders, given) = unbounded();
        for block in [10, 20] {
            let (ticket, item) = hand.pop().unwrap();
            let append = VolumeAppend {
                volume: volume.clone(),
                append_block: block,
                next_uid: 2,
                vcr: 1,
                now: crate::now(),
                section: None,
            };
            let segment = NewSegment {
                ino: item.ino,
                version: item.version,
                copy: item.copy,
                file_offset: 0,
                length: 10,
                extents: Vec::new(),
                size: 10,
                digest: None,
                uid: 1,
                told: None,
            };
            orders.send(Order::Sync).unwrap();
            orders.send(Order::Record(append, vec![(ticket, segment)])).unwrap();
        }
        drop(orders);
        let (done, answers) = unbounded();
        Recorder::new(&rig.worker, &volume, &hand).run(&given, &done);
        drop(done);
        let answers: Vec<_> = answers.iter().collect();
        let [Err(e)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((e.code(), e.then()), ("TC-U055", tape::policy::Then::Operator), "{e}");
        assert!(e.to_string().contains("recording copies"), "{e}");
        drop(hand);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(&pool)).collect();
        assert_eq!(order, items);
    }
}
