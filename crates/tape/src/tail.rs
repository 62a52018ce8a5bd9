//! Where a volume ends: checking, before anything is written, that the medium is what the catalogue says it is.

use crate::coherency::{self, IndexAt, SessionMark};
use crate::head::{Item, Place};
use crate::layout::{DATA_PARTITION, FIRST_INDEX_MARK, INDEX_PARTITION};
use crate::{Blame, Fault, Mounted, Result, index_read};
use format::ltfs::mam::Coherency;
use types::Volume;

const DOING: &str = "checking where the volume ends";

/// What the catalogue knows of the end of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendPoint {
    /// LTFS uuid of the volume.
    pub uuid: String,
    /// Data partition: logical object at which the next record goes; behind it nothing counts.
    pub block: u64,
    /// Volume change reference after our last write.
    pub vcr: u64,
    /// Generation of the newest index ...
    pub generation: u64,
    /// ... and where it starts on the data partition.
    pub index_block: u64,
}

impl From<&Volume> for AppendPoint {
    fn from(v: &Volume) -> Self {
        Self {
            uuid: v.uuid.clone(),
            block: v.append_block,
            vcr: v.vcr,
            generation: v.generation,
            index_block: v.index_block,
        }
    }
}

/// The verified end of a volume in this session.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// What the caller gave when it was verified: he may not know yet of an index found behind it.
    asked: AppendPoint,
    pub uuid: String,
    pub block: u64,
    pub vcr: u64,
    /// Newest index on the data partition ...
    pub data: IndexAt,
    /// ... and on the index partition.
    pub index: IndexAt,
    /// Session mark as written last; None: not yet in this session.
    pub mark: Option<SessionMark>,
    /// VCR in the coherency attributes.
    pub coherent_vcr: u64,
    /// The index partition may hold anything (its rewriting was interrupted): its coherency says so until it is
    /// written again.
    pub index_stale: bool,
}

/// What cartridge memory says.
struct Memory {
    vcr: u64,
    mark: Option<SessionMark>,
    index: Option<Coherency>,
    data: Option<Coherency>,
}

impl Mounted<'_> {
    /// Forgets what was verified: after an error the next writer looks at the medium again.
    pub(crate) fn distrust(&mut self) {
        self.tail = None;
        self.drive.head.forget_position();
    }

    /// The tail of a volume just formatted.
    pub(crate) fn fresh_tail(&mut self, uuid: &str, block: u64, vcr: u64) {
        let first = IndexAt { generation: 1, block: FIRST_INDEX_MARK + 1 };
        let asked =
            AppendPoint { uuid: uuid.to_owned(), block, vcr, generation: 1, index_block: first.block };
        self.tail = Some(Tail {
            uuid: uuid.to_owned(),
            asked,
            block,
            vcr,
            data: first,
            index: first,
            mark: None,
            coherent_vcr: vcr,
            index_stale: false,
        });
    }

    /// Verifies that the volume is the one meant, that nobody else wrote to it, and that what was recorded as safe is
    /// there; leaves the verified end in `self.tail` and the head anywhere. Within a session only the first call
    /// looks at the medium, and any that comes from another point than the last ended at.
    pub(crate) fn verify_tail(&mut self, point: &AppendPoint) -> Result<()> {
        self.writable(DOING)?;
        self.rewritable(DOING)?;
        let uuid = self.ltfs(DOING)?.uuid.clone();
        if uuid != point.uuid {
            let what = format!("the cartridge carries volume {uuid}, not {}", point.uuid);
            let advice =
                "nothing was written; see which cartridge is in the slot, and take the inventory again";
            return Err(self.drive.head.error(Fault::WrongVolume, Blame::Medium, DOING, what, advice));
        }
        if let Some(tail) = &self.tail {
            if tail.block == point.block || tail.asked == *point {
                return Ok(());
            }
            // What this session wrote last was not recorded: it does not count, and the medium says what is there.
            self.distrust();
        }
        let memory = self.read_memory()?;
        self.check_writer(point, &memory)?;
        let tail = self.find_tail(point, &memory)?;
        self.tail = Some(tail);
        Ok(())
    }

    fn read_memory(&mut self) -> Result<Memory> {
        let head = self.head();
        Ok(Memory {
            vcr: coherency::vcr(head)?,
            mark: coherency::read_mark(head)?,
            index: coherency::read(head, INDEX_PARTITION)?,
            data: coherency::read(head, DATA_PARTITION)?,
        })
    }

    /// The volume change reference is the one recorded, or our own session mark explains why it is not: the session
    /// did not end, or its last result was not recorded.
    fn check_writer(&self, point: &AppendPoint, memory: &Memory) -> Result<()> {
        let ours = memory.mark.is_some_and(|mark| {
            (mark.base..=mark.newest).contains(&point.vcr) && (mark.open || mark.newest == memory.vcr)
        });
        if memory.vcr == point.vcr || ours {
            return Ok(());
        }
        let seen = format!("its volume change reference is {}, {} was recorded", memory.vcr, point.vcr);
        Err(self.foreign_writer(&seen))
    }

    fn foreign_writer(&self, seen: &str) -> crate::TapeError {
        let what = format!("somebody else wrote to this volume ({seen})");
        let advice = "nothing was written; mark the volume read-only, check it, and find out who uses it";
        self.drive.head.error(Fault::ForeignWriter, Blame::Medium, DOING, what, advice)
    }

    /// Goes to the append point and looks at what is behind it: nothing, data that never counted, or an index of ours
    /// whose writing was not recorded.
    fn find_tail(&mut self, point: &AppendPoint, memory: &Memory) -> Result<Tail> {
        let place = Place { partition: DATA_PARTITION, block: point.block };
        self.head().locate(place).map_err(|mut e| {
            if e.fault == Fault::DataMissing {
                e.what = format!(
                    "the medium ends before block {}, up to which data was recorded as safe",
                    point.block
                )
                .into();
            }
            e
        })?;
        self.head().verify(DOING, place)?;
        let recorded = IndexAt { generation: point.generation, block: point.index_block };
        let known = |found: &Option<Coherency>| {
            let found = found.as_ref().filter(|c| c.uuid == point.uuid);
            found.map_or(recorded, |c| IndexAt { generation: c.generation, block: c.block })
        };
        let mut tail = Tail {
            asked: point.clone(),
            uuid: point.uuid.clone(),
            block: point.block,
            vcr: memory.vcr,
            data: known(&memory.data),
            index: known(&memory.index),
            mark: None,
            coherent_vcr: memory.data.as_ref().map_or(0, |c| c.vcr),
            index_stale: memory.index.as_ref().is_none_or(|c| c.vcr == 0),
        };
        if let Some((at, behind)) = self.index_behind(point)? {
            // The index partition is written after the data partition: it is whole only if its coherency says so.
            tail.index_stale |= tail.index.generation != at.generation;
            (tail.data, tail.block, tail.coherent_vcr) = (at, behind, 0);
        }
        // An index beyond what we know would be lost by appending; so would be one that lies behind the append point.
        let newest = tail.data.generation.max(tail.index.generation);
        if tail.data.block >= tail.block || newest < point.generation {
            let seen = format!(
                "its newest index is generation {} at block {}; generation {} and the end of data {} were recorded",
                newest, tail.data.block, point.generation, tail.block
            );
            return Err(self.foreign_writer(&seen));
        }
        Ok(tail)
    }

    /// A whole index of this volume that starts exactly at the append point: where it is, and the block behind it.
    fn index_behind(&mut self, point: &AppendPoint) -> Result<Option<(IndexAt, u64)>> {
        let first = point.block + 1;
        let mut probe = [0; 1];
        let found = match self.head().read(&mut probe) {
            Ok(Item::Filemark) => index_read::header_at(self, DATA_PARTITION, first)?,
            Ok(_) => None,
            // A record longer than a byte, or half of one: data that never counted.
            Err(e) if matches!(e.fault, Fault::BadRecord | Fault::MediumError) => None,
            Err(e) => return Err(e),
        };
        let Some(found) = found.filter(|h| h.volume_uuid == point.uuid && h.generation > point.generation)
        else {
            return Ok(None);
        };
        let Some(end) = index_read::end_of(self, DATA_PARTITION, first)? else { return Ok(None) };
        Ok(Some((IndexAt { generation: found.generation, block: first }, end)))
    }

    /// Says in cartridge memory that we are writing, before the first write of a session.
    pub(crate) fn open_session(&mut self) -> Result<()> {
        let Some(tail) = &mut self.tail else { return Ok(()) };
        if tail.mark.is_some() {
            return Ok(());
        }
        let mark = SessionMark { open: true, base: tail.asked.vcr, newest: tail.vcr };
        tail.mark = Some(mark);
        coherency::write_mark(&mut self.drive.head, mark)
    }

    /// After a flush: rewrites coherency and session mark if the drive changed the volume change reference.
    pub(crate) fn record_vcr(&mut self, index_changed: bool) -> Result<u64> {
        let vcr = coherency::vcr(self.head())?;
        let Some(tail) = &mut self.tail else { return Ok(vcr) };
        tail.vcr = vcr;
        if index_changed || tail.coherent_vcr != vcr {
            let index_vcr = if tail.index_stale { 0 } else { vcr };
            let head = &mut self.drive.head;
            coherency::write(head, INDEX_PARTITION, &tail.uuid, index_vcr, tail.index)?;
            coherency::write(head, DATA_PARTITION, &tail.uuid, vcr, tail.data)?;
            tail.coherent_vcr = vcr;
        }
        if let Some(mark) = &mut tail.mark
            && mark.newest != vcr
        {
            mark.newest = vcr;
            coherency::write_mark(&mut self.drive.head, *mark)?;
        }
        Ok(vcr)
    }
}
