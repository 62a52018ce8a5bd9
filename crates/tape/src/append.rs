//! Appending a stream of bytes to a volume, in full records, with flushes that make it durable.

use crate::head::{Place, Wrote};
use crate::layout::DATA_PARTITION;
use crate::protect::SUM;
use crate::there::{Load, Record, TWO_PLACES, rest};
use crate::{AppendPoint, Blame, Fault, Mounted, Result};

const DOING: &str = "appending";

/// Bytes that [`Appender::write_from`] wants behind the data.
pub const SPARE: usize = SUM;

/// Whether there is room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Go on.
    Ok,
    /// The end is near: everything was taken; end at the next file, then close the volume.
    EarlyWarning,
    /// The volume is full: the last bytes were not taken. [`Appender::flush`] says how many bytes of the stream are on
    /// the volume; continue behind them on another one.
    Full,
}

/// What is safe after a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Data partition: where the next record goes; everything before it is on the medium.
    pub append_block: u64,
    /// Volume change reference.
    pub vcr: u64,
    /// Bytes of the stream, from the opening of this appender, that are on the medium. Equal to all bytes written
    /// unless the volume is full.
    pub safe_bytes: u64,
}

/// Appends to the data partition. Files follow each other without gaps: small ones share records. Nothing counts
/// until [`Appender::flush`] has returned; dropping the appender leaves what was not flushed to be overwritten.
pub struct Appender<'m, 'd> {
    mounted: &'m mut Mounted<'d>,
    block_size: usize,
    /// The record being filled.
    record: Record,
    /// Block of that record.
    block: u64,
    /// Block and byte of the stream up to which everything is flushed.
    safe: (u64, u64),
    /// Bytes in records handed to the drive, and in the buffer.
    taken: u64,
    /// Records that fit before the reserve for the index.
    records_left: u64,
    /// The drive's position was verified for the batch that began after the last flush.
    verified: bool,
    /// Something was written.
    begun: bool,
    room: Room,
    failed: bool,
}

impl<'d> Mounted<'d> {
    /// Begins to append at the recorded end of the volume. Before that it checks that this is the volume meant (uuid),
    /// that nobody else wrote to it (volume change reference; our own crash is told from a foreign writer by the session
    /// mark), and that all that was recorded as safe is there. Records behind the recorded end never counted and are
    /// overwritten, except for a whole index of ours, behind which it goes on. `index_reserve_bytes` of what the
    /// drive says remains are kept free for the index: where they begin, the volume counts as full. 0 leaves the index
    /// only what the drive itself has behind its early warning.
    ///
    /// # Errors
    /// [`Fault::NotLtfs`], [`Fault::WrongVolume`], [`Fault::ForeignWriter`], [`Fault::DataMissing`],
    /// [`Fault::WriteProtected`] (all `Blame::Medium`), active TapeAlert flags, and failures of the drive.
    pub fn appender(&mut self, point: &AppendPoint, index_reserve_bytes: u64) -> Result<Appender<'_, 'd>> {
        self.verify_tail(point)?;
        let block_size = self.ltfs(DOING)?.block_size as usize;
        let block = self.tail.as_ref().map_or(point.block, |tail| tail.block);
        self.head().locate(Place { partition: DATA_PARTITION, block })?;
        let remaining = match index_reserve_bytes {
            0 => None,
            _ => self.read_capacity()?.map(|c| c.remaining),
        };
        let records_left =
            remaining.map_or(u64::MAX, |bytes| bytes.saturating_sub(index_reserve_bytes) / block_size as u64);
        self.open_session()?;
        Ok(Appender {
            mounted: self,
            block_size,
            record: Record::new(block_size),
            block,
            safe: (block, 0),
            taken: 0,
            records_left,
            verified: false,
            begun: false,
            room: if records_left == 0 { Room::Full } else { Room::Ok },
            failed: false,
        })
    }
}

impl Appender<'_, '_> {
    /// Block and byte offset of the next byte written: the start of an extent.
    pub fn here(&self) -> (u64, u32) {
        (self.block, self.record.bytes() as u32)
    }

    /// Whether the volume takes more, as far as is known.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Bytes of the stream taken so far, flushed or not.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Appends bytes. With [`Room::Full`] the end of `data` may not have been taken.
    ///
    /// # Errors
    /// Medium, drive and path errors, and a drive that is not where it should be. The session is then over: nothing
    /// since the last flush counts.
    pub fn write(&mut self, data: &[u8]) -> Result<Room> {
        self.usable()?;
        let mut rest = data;
        while !rest.is_empty() && self.room != Room::Full {
            let taken = self.gather(rest)?;
            rest = &rest[taken..];
        }
        Ok(self.room)
    }

    /// The same without a copy of whole records: they go to the drive straight from `room`, of which the last
    /// [`SPARE`] bytes are no data. The bytes behind a record hold its sum while it is written.
    ///
    /// # Errors
    /// As [`Appender::write`].
    pub fn write_from(&mut self, room: &mut [u8]) -> Result<Room> {
        self.usable()?;
        let end = room.len().saturating_sub(SPARE);
        let mut at = 0;
        while at < end && self.room != Room::Full {
            let behind = at + self.block_size;
            at += if self.record.bytes() == 0 && behind <= end {
                let written = self.put_record(&mut Load::Here(&mut room[at..behind + SPARE]))?;
                self.taken += written as u64;
                written
            } else {
                self.gather(&room[at..end])?
            };
        }
        Ok(self.room)
    }

    /// The same of bytes that are here, or at the drive's host.
    ///
    /// # Errors
    /// As [`Appender::write`].
    pub fn write_load(&mut self, load: Load<'_>) -> Result<Room> {
        let data = match load {
            Load::Here(room) => return self.write_from(room),
            Load::There(data) => data,
        };
        self.usable()?;
        let mut at = 0;
        while at < data.bytes && self.room != Room::Full {
            let taken = self.record.gather_there(rest(data, at), self.block_size);
            at += self.gathered(taken)?;
        }
        Ok(self.room)
    }

    /// Takes what fits into the record being filled, and writes it when it is full; how many bytes.
    fn gather(&mut self, data: &[u8]) -> Result<usize> {
        let taken = self.record.gather(data, self.block_size);
        self.gathered(taken)
    }

    fn gathered(&mut self, taken: Option<usize>) -> Result<usize> {
        let Some(n) = taken else {
            let advice = "report this; nothing since the last flush counts";
            return Err(self.mounted.drive.head.error(Fault::Misuse, Blame::Us, DOING, TWO_PLACES, advice));
        };
        self.taken += n as u64;
        if self.record.bytes() == self.block_size {
            self.put_buffer()?;
        }
        Ok(n)
    }

    /// Puts everything on the medium: the short record, then a WRITE FILEMARKS of none without the immediate bit, then
    /// READ POSITION, which must be where it is expected. After that the next byte begins a new record.
    ///
    /// # Errors
    /// As [`Appender::write`]. After an error nothing since the flush before counts.
    pub fn flush(&mut self) -> Result<Flushed> {
        self.usable()?;
        if self.record.bytes() > 0 && self.room != Room::Full {
            self.put_buffer()?;
        }
        let flushed = self.synchronise();
        self.failed |= flushed.is_err();
        if flushed.is_err() {
            self.mounted.distrust();
        }
        flushed
    }

    fn usable(&self) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        let what = "an earlier command of this appender failed";
        let advice = "mount the volume again; what was not flushed must be written again";
        Err(self.mounted.drive.head.error(Fault::Misuse, Blame::Us, DOING, what, advice))
    }

    /// Writes the record being filled, whose bytes count as taken already.
    fn put_buffer(&mut self) -> Result<()> {
        let mut record = std::mem::replace(&mut self.record, Record::new(0));
        let put = record.put(|load| self.put_record(load));
        self.record = record;
        put.map(|_| ())
    }

    /// Hands a record to the drive; bytes taken, 0 when the volume is full.
    fn put_record(&mut self, record: &mut Load<'_>) -> Result<usize> {
        if self.records_left == 0 {
            self.room = Room::Full;
            return Ok(0);
        }
        let wrote = self.write_verified(record);
        if wrote.is_err() {
            self.failed = true;
            self.mounted.distrust();
        }
        match wrote? {
            Wrote::Good => {}
            Wrote::EarlyWarning => self.room = Room::EarlyWarning,
            Wrote::Overflow => {
                self.room = Room::Full;
                return Ok(0);
            }
        }
        self.block += 1;
        self.records_left -= 1;
        if self.records_left == 0 {
            self.room = Room::Full;
        }
        Ok(record.bytes())
    }

    fn write_verified(&mut self, record: &mut Load<'_>) -> Result<Wrote> {
        let place = Place { partition: DATA_PARTITION, block: self.block };
        let head = self.mounted.head();
        if !self.verified {
            head.verify(DOING, place)?;
            if !std::mem::replace(&mut self.begun, true) {
                // What a crash left behind the verified end.
                head.allow_replacing(place)?;
            }
            self.verified = true;
        }
        record.write(head)
    }

    fn synchronise(&mut self) -> Result<Flushed> {
        let head = self.mounted.head();
        let overflow = head.filemarks(0, false)? == Wrote::Overflow;
        let found = head.ask_position()?;
        let full = overflow || self.room == Room::Full;
        let end = Place { partition: DATA_PARTITION, block: self.block };
        // A drive that ran full may hold less than it took; it must never claim more, or another partition.
        let short = found.partition == DATA_PARTITION && (self.safe.0..self.block).contains(&found.block);
        if found != end && !(full && short) {
            head.verify(DOING, end)?;
        }
        // If even the flush overflowed, what the drive took is not known to be on the medium.
        let block = if overflow { self.safe.0 } else { found.block };
        self.settle(block);
        if overflow {
            self.room = Room::Full;
        }
        self.verified = false;
        if let Some(tail) = &mut self.mounted.tail {
            tail.block = block;
        }
        let vcr = self.mounted.record_vcr(false)?;
        Ok(Flushed { append_block: block, vcr, safe_bytes: self.safe.1 })
    }

    /// Everything before `block` is on the medium. All records since the last flush were full, but the last one.
    fn settle(&mut self, block: u64) {
        let whole = self.safe.1 + (block - self.safe.0) * self.block_size as u64;
        self.safe = (block, whole.min(self.taken));
        self.taken = self.safe.1;
        self.block = block;
        self.record.clear();
    }
}
