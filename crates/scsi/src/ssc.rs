//! A sequential-access device: tape drive (SSC-4).

use crate::bytes::Fields;
use crate::log::{self, TapeCapacity, VolumeStatistics};
use crate::mode::{self, DataProtection, PartitionPage};
use crate::position::{self, Position};
use crate::{
    Data, Device, Result, ScsiError, Sense, SenseKey, There, Transport, TransportError, opcode, timeout,
};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A tape drive. Commands common to all devices come from [`Device`].
pub struct Ssc(Device);

impl Deref for Ssc {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.0
    }
}

impl DerefMut for Ssc {
    fn deref_mut(&mut self) -> &mut Device {
        &mut self.0
    }
}

/// What READ found at the position. The position is behind it, except for [`ReadOutcome::EndOfData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A record, wholly in the first `bytes` bytes of the buffer.
    Record {
        /// Its length.
        bytes: usize,
    },
    /// A record that is longer than the buffer, whose beginning is in the buffer.
    TooLong {
        /// Its true length, where the drive says so.
        length: Option<u64>,
    },
    /// A filemark.
    Filemark,
    /// Nothing more is recorded in this partition.
    EndOfData,
}

/// A WRITE or WRITE FILEMARKS that was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The drive is past early warning: finish and close the volume.
    pub early_warning: bool,
    /// The drive has just passed the programmable early warning.
    pub programmable_early_warning: bool,
}

/// How SPACE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceOutcome {
    /// As far as was asked.
    Done,
    /// Stopped behind (or, going back, before) a filemark while spacing over records.
    Filemark,
    /// Stopped at the end of data.
    EndOfData,
    /// Stopped at the beginning of the partition.
    BeginningOfPartition,
}

/// What FORMAT MEDIUM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FormatKind {
    /// One partition over the whole medium.
    Default = 0,
    /// Partitions as in mode page 11h.
    Partition = 1,
    /// Default format, then partitions as in mode page 11h.
    DefaultThenPartition = 2,
}

/// READ BLOCK LIMITS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Longest record (bytes; 0: no limit given).
    pub max: u32,
    /// Shortest record (bytes).
    pub min: u16,
}

/// One entry of REPORT DENSITY SUPPORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Density {
    /// Primary density code.
    pub code: u8,
    /// The drive can write it.
    pub writable: bool,
    /// It is the default.
    pub default: bool,
    /// Capacity in units of 10^6 bytes.
    pub megabytes: u32,
    /// Name, e.g. `U-9`.
    pub name: String,
    /// Description, e.g. `Ultrium 9/32T`.
    pub description: String,
}

impl Ssc {
    /// Takes over a transport to a tape drive.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self(Device::new(transport))
    }

    fn simple(&mut self, command: &'static str, cdb: &[u8], timeout: Duration) -> Result<()> {
        self.must(command, cdb, Data::None, timeout).map(|_| ())
    }

    /// REWIND to the beginning of the current partition; flushes first.
    pub fn rewind(&mut self) -> Result<()> {
        self.simple("REWIND", &[opcode::REWIND, 0, 0, 0, 0, 0], timeout::POSITION)
    }

    /// READ BLOCK LIMITS.
    pub fn read_block_limits(&mut self) -> Result<BlockLimits> {
        const NAME: &str = "READ BLOCK LIMITS";
        let raw = self.fetch(NAME, &[opcode::READ_BLOCK_LIMITS, 0, 0, 0, 0, 0], 6, timeout::SHORT)?;
        let limits = decode_block_limits(&raw);
        self.decoded(NAME, limits)
    }

    /// READ(6) of the next record in variable block mode. The buffer may be larger than the record (at most 2^24-1
    /// bytes of it are used). SILI stays off, so a record that does not fit is never cut silently.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<ReadOutcome> {
        let asked = buf.len().min(0xFF_FFFF);
        self.get(asked, Data::In(&mut buf[..asked])).map(|(found, _)| found)
    }

    /// The same into memory at the device's host. What it keeps there of a record is as long as this says, without its sum.
    pub fn read_there(&mut self, place: There) -> Result<ReadOutcome> {
        let seal = place.len() - place.bytes;
        let (found, kept) = self.get(place.len(), Data::Keep(place))?;
        if let ReadOutcome::Record { bytes } = found
            && bytes != kept
        {
            let detail = format!("READ: {kept} bytes of a record of {bytes} arrived");
            return Err(TransportError::Lost { device: self.name().to_owned(), detail }.into());
        }
        Ok(match found {
            ReadOutcome::Record { bytes } => ReadOutcome::Record { bytes: bytes.saturating_sub(seal) },
            ReadOutcome::TooLong { length } => {
                ReadOutcome::TooLong { length: length.map(|n| n.saturating_sub(seal as u64)) }
            }
            other => other,
        })
    }

    /// What was found, and how many bytes were transferred.
    fn get(&mut self, asked: usize, room: Data<'_>) -> Result<(ReadOutcome, usize)> {
        let len = (asked as u32).to_be_bytes();
        let cdb = [opcode::READ_6, 0, len[1], len[2], len[3], 0];
        let done = self.run("READ", &cdb, room, timeout::TRANSFER)?;
        let kept = done.transferred;
        let Some(sense) = done.sense else { return Ok((ReadOutcome::Record { bytes: kept }, kept)) };
        if sense.deferred {
            return Err(self.check("READ", sense));
        }
        let found = match sense.key {
            SenseKey::NoSense | SenseKey::RecoveredError if sense.filemark => ReadOutcome::Filemark,
            SenseKey::BlankCheck => ReadOutcome::EndOfData,
            SenseKey::NoSense | SenseKey::RecoveredError if sense.ili => match sense.information {
                Some(short) if (0..=asked as i64).contains(&short) => {
                    ReadOutcome::Record { bytes: asked - short as usize }
                }
                over => ReadOutcome::TooLong { length: over.map(|n| asked as u64 + n.unsigned_abs()) },
            },
            SenseKey::NoSense | SenseKey::RecoveredError => ReadOutcome::Record { bytes: kept },
            _ => return Err(self.check("READ", sense)),
        };
        Ok((found, kept))
    }

    /// WRITE(6) of one record of up to 2^24-1 bytes in variable block mode; a record of which a part did not arrive is an error. GOOD means "in the drive's buffer": only a
    /// synchronous [`Ssc::write_filemarks`] makes it durable. A full medium is an error with key `VolumeOverflow`.
    pub fn write(&mut self, record: &[u8]) -> Result<WriteOutcome> {
        self.put(record.len(), Data::Out(record))
    }

    /// The same of a record that lies at the device's host.
    pub fn write_there(&mut self, record: There) -> Result<WriteOutcome> {
        self.put(record.len(), Data::There(record))
    }

    fn put(&mut self, bytes: usize, record: Data<'_>) -> Result<WriteOutcome> {
        let len = u32::try_from(bytes).ok().filter(|n| *n <= 0xFF_FFFF);
        let Some(len) = len.map(u32::to_be_bytes) else {
            return Err(self.check("WRITE", Sense::new(SenseKey::IllegalRequest, 0x24, 0)));
        };
        let cdb = [opcode::WRITE_6, 0, len[1], len[2], len[3], 0];
        let done = self.run("WRITE", &cdb, record, timeout::TRANSFER)?;
        let outcome = self.write_outcome("WRITE", done.sense)?;
        // With GOOD the way says what did not arrive, with an early warning the drive says what it did not take.
        let left = match done.sense {
            None => bytes.saturating_sub(done.transferred),
            Some(sense) => usize::try_from(sense.information.unwrap_or(0)).unwrap_or(0),
        };
        if left > 0 {
            let taken = bytes.saturating_sub(left);
            let detail = format!("WRITE: only {taken} of {bytes} bytes of a record arrived");
            return Err(TransportError::Lost { device: self.name().to_owned(), detail }.into());
        }
        Ok(outcome)
    }

    /// WRITE FILEMARKS(6): `count` (below 2^24) filemarks. With `immediate` false everything written so far, and the
    /// filemarks, are on the medium when this returns Ok; `count` 0 only flushes.
    pub fn write_filemarks(&mut self, count: u32, immediate: bool) -> Result<WriteOutcome> {
        let n = count.to_be_bytes();
        let cdb = [opcode::WRITE_FILEMARKS_6, u8::from(immediate), n[1], n[2], n[3], 0];
        let done = self.run("WRITE FILEMARKS", &cdb, Data::None, timeout::TRANSFER)?;
        self.write_outcome("WRITE FILEMARKS", done.sense)
    }

    fn write_outcome(&self, command: &'static str, sense: Option<Sense>) -> Result<WriteOutcome> {
        let Some(sense) = sense else { return Ok(WriteOutcome::default()) };
        if sense.deferred || !matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError) {
            return Err(self.check(command, sense));
        }
        Ok(WriteOutcome {
            early_warning: sense.eom,
            programmable_early_warning: (sense.asc, sense.ascq) == (0x00, 0x07),
        })
    }

    /// SPACE(16) over filemarks; negative goes back and stops on the beginning-of-partition side of the filemark.
    pub fn space_filemarks(&mut self, count: i64) -> Result<SpaceOutcome> {
        self.space(1, count)
    }

    /// SPACE(16) over records; stops at filemarks.
    pub fn space_blocks(&mut self, count: i64) -> Result<SpaceOutcome> {
        self.space(0, count)
    }

    /// SPACE(16) to the end of data of the current partition.
    pub fn space_to_end_of_data(&mut self) -> Result<()> {
        self.space(3, 0).map(|_| ())
    }

    fn space(&mut self, code: u8, count: i64) -> Result<SpaceOutcome> {
        let mut cdb = [0u8; 16];
        cdb[0] = opcode::SPACE_16;
        cdb[1] = code;
        cdb[4..12].copy_from_slice(&count.to_be_bytes());
        let done = self.run("SPACE", &cdb, Data::None, timeout::POSITION)?;
        match done.sense {
            None => Ok(SpaceOutcome::Done),
            Some(s) if s.deferred => Err(self.check("SPACE", s)),
            Some(s) if s.key == SenseKey::BlankCheck => Ok(SpaceOutcome::EndOfData),
            Some(s) if s.key == SenseKey::NoSense && s.filemark => Ok(SpaceOutcome::Filemark),
            Some(s) if s.key == SenseKey::NoSense && s.eom => Ok(SpaceOutcome::BeginningOfPartition),
            Some(s) if matches!(s.key, SenseKey::NoSense | SenseKey::RecoveredError) => {
                Ok(SpaceOutcome::Done)
            }
            Some(s) => Err(self.check("SPACE", s)),
        }
    }

    /// LOCATE(16) to a logical object, changing the partition; flushes first. A block beyond the end of data is an error
    /// with key `BlankCheck`.
    pub fn locate(&mut self, partition: u8, block: u64) -> Result<()> {
        let mut cdb = [0u8; 16];
        cdb[0] = opcode::LOCATE_16;
        cdb[1] = 0x02;
        cdb[3] = partition;
        cdb[4..12].copy_from_slice(&block.to_be_bytes());
        self.simple("LOCATE", &cdb, timeout::POSITION)
    }

    /// READ POSITION, long form.
    pub fn read_position(&mut self) -> Result<Position> {
        const NAME: &str = "READ POSITION";
        let raw =
            self.fetch(NAME, &[opcode::READ_POSITION, 6, 0, 0, 0, 0, 0, 0, 0, 0], 32, timeout::SHORT)?;
        let position = position::decode_long(&raw);
        let unknown = || ScsiError::PositionUnknown { device: self.name().to_string() };
        self.decoded(NAME, position)?.ok_or_else(unknown)
    }

    /// LOAD: threads the cartridge; waits until it is ready.
    pub fn load(&mut self) -> Result<()> {
        self.simple("LOAD", &[opcode::LOAD_UNLOAD, 0, 0, 0, 1, 0], timeout::LOAD)
    }

    /// UNLOAD: flushes, rewinds, ejects; only then can the robot take the cartridge.
    pub fn unload(&mut self) -> Result<()> {
        self.simple("UNLOAD", &[opcode::LOAD_UNLOAD, 0, 0, 0, 0, 0], timeout::UNLOAD)
    }

    /// True when the loaded medium is write protected (mode parameter header).
    pub fn write_protected(&mut self) -> Result<bool> {
        Ok(self.mode_sense(0, 0)?.write_protected)
    }

    /// The same, and the density code of the loaded medium (block descriptor), where the drive gives one.
    pub fn medium(&mut self) -> Result<(bool, Option<u8>)> {
        let data = self.mode_sense(0, 0)?;
        Ok((data.write_protected, data.block.map(|block| block.density).filter(|code| *code != 0)))
    }

    /// True when the loaded medium can be written once only (page 1Dh, WORMM); false where the drive does not tell.
    pub fn worm(&mut self) -> Result<bool> {
        match self.mode_sense(mode::PAGE_MEDIUM_CONFIGURATION, 0) {
            Ok(data) => Ok(data.pages.get(2).is_some_and(|flags| flags & 1 != 0)),
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The drive's compression (page 0Fh, DCE); None where it has none.
    pub fn compression(&mut self) -> Result<Option<bool>> {
        match self.mode_sense(mode::PAGE_COMPRESSION, 0) {
            // DCC: the drive can compress
            Ok(data) => {
                Ok(data.pages.get(2).filter(|flags| *flags & 0x40 != 0).map(|flags| flags & 0x80 != 0))
            }
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets variable block length and buffered writes.
    pub fn set_variable_blocks(&mut self) -> Result<()> {
        let mut data = self.mode_sense(0, 0)?;
        data.pages.clear();
        data.buffered_mode = 1;
        let block = data.block.get_or_insert_default();
        (block.block_length, block.blocks) = (0, 0);
        self.mode_select(&data)
    }

    /// Switches the drive's compression (page 0Fh, DCE).
    pub fn set_compression(&mut self, on: bool) -> Result<()> {
        let mut data = self.mode_sense(mode::PAGE_COMPRESSION, 0)?;
        let len = data.pages.len();
        let bad = crate::DecodeError { what: "data compression page", at: len, len };
        let flags = data.pages.get_mut(2).ok_or(bad);
        let flags = match flags {
            Ok(flags) => flags,
            Err(e) => return Err(self.malformed("MODE SENSE", e)),
        };
        *flags = (*flags & 0x7F) | (u8::from(on) << 7);
        self.mode_select(&data)
    }

    /// Logical block protection as the drive has it set; None where the drive has none.
    pub fn data_protection(&mut self) -> Result<Option<DataProtection>> {
        let data = match self.mode_sense(mode::PAGE_CONTROL, mode::SUBPAGE_DATA_PROTECTION) {
            Ok(data) => data,
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => return Ok(None),
            Err(e) => return Err(e),
        };
        let page = DataProtection::decode(&data.pages);
        self.decoded("MODE SENSE", page).map(Some)
    }

    /// Sets logical block protection. With it on, the records of [`Ssc::read`] and [`Ssc::write`] end with the sum.
    pub fn set_data_protection(&mut self, protection: DataProtection) -> Result<()> {
        let mut data = self.mode_sense(mode::PAGE_CONTROL, mode::SUBPAGE_DATA_PROTECTION)?;
        let put = protection.put(&mut data.pages);
        self.decoded("MODE SENSE", put)?;
        self.mode_select(&data)
    }

    /// Whether the drive overwrites only what it is allowed to (device configuration extension page 10h/01h, write mode
    /// append-only); None where it has no such mode.
    pub fn append_only(&mut self) -> Result<Option<bool>> {
        let (page, subpage) = (mode::PAGE_DEVICE_CONFIGURATION, mode::SUBPAGE_CONFIGURATION_EXTENSION);
        match self.mode_sense(page, subpage) {
            Ok(data) => Ok(data.pages.get(5).map(|mode| mode >> 4 == 1)),
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets that. A loaded tape must be at the beginning of partition 0 to switch it on; it is switched off only while none is.
    pub fn set_append_only(&mut self, on: bool) -> Result<()> {
        let (page, subpage) = (mode::PAGE_DEVICE_CONFIGURATION, mode::SUBPAGE_CONFIGURATION_EXTENSION);
        let mut data = self.mode_sense(page, subpage)?;
        let len = data.pages.len();
        let Some(flags) = data.pages.get_mut(5) else {
            let bad = crate::DecodeError { what: "device configuration extension page", at: len, len };
            return Err(self.malformed("MODE SENSE", bad));
        };
        *flags = (*flags & 0x0F) | (u8::from(on) << 4);
        self.mode_select(&data)
    }

    /// Medium partition page 11h.
    pub fn partition_page(&mut self) -> Result<PartitionPage> {
        let data = self.mode_sense(mode::PAGE_PARTITIONS, 0)?;
        let page = PartitionPage::decode(&data.pages);
        self.decoded("MODE SENSE", page)
    }

    /// Defines the partitions that the next FORMAT MEDIUM makes.
    pub fn set_partition_page(&mut self, page: &PartitionPage) -> Result<()> {
        let mut data = self.mode_sense(mode::PAGE_PARTITIONS, 0)?;
        data.pages = page.encode();
        self.mode_select(&data)
    }

    /// FORMAT MEDIUM. The drive must stand at the beginning of partition 0. All data on the medium are lost.
    pub fn format_medium(&mut self, kind: FormatKind) -> Result<()> {
        self.simple("FORMAT MEDIUM", &[opcode::FORMAT_MEDIUM, 0, kind as u8, 0, 0, 0], timeout::FORMAT)
    }

    /// SET CAPACITY: the share of the medium to use, in 65535ths (FFFFh: all). All data on the medium are lost.
    pub fn set_capacity(&mut self, proportion: u16) -> Result<()> {
        let p = proportion.to_be_bytes();
        self.simple("SET CAPACITY", &[opcode::SET_CAPACITY, 0, 0, p[0], p[1], 0], timeout::FORMAT)
    }

    /// ERASE(6) from here: `long` wipes to the end of the partition, otherwise only the end of data is set here.
    pub fn erase(&mut self, long: bool) -> Result<()> {
        self.simple("ERASE", &[opcode::ERASE_6, u8::from(long), 0, 0, 0, 0], timeout::ERASE)
    }

    /// ALLOW OVERWRITE at exactly this position, for drives in append-only mode.
    pub fn allow_overwrite(&mut self, partition: u8, block: u64) -> Result<()> {
        let mut cdb = [0u8; 16];
        cdb[0] = opcode::ALLOW_OVERWRITE;
        cdb[2] = 0x01;
        cdb[3] = partition;
        cdb[4..12].copy_from_slice(&block.to_be_bytes());
        self.simple("ALLOW OVERWRITE", &cdb, timeout::SHORT)
    }

    /// ALLOW OVERWRITE for a FORMAT MEDIUM that follows, for drives in append-only mode. The drive must stand at the beginning of
    /// partition 0.
    pub fn allow_format(&mut self) -> Result<()> {
        let mut cdb = [0u8; 16];
        (cdb[0], cdb[2]) = (opcode::ALLOW_OVERWRITE, 0x02);
        self.simple("ALLOW OVERWRITE", &cdb, timeout::SHORT)
    }

    /// REPORT DENSITY SUPPORT of the drive, or of the loaded medium.
    pub fn report_density(&mut self, medium: bool) -> Result<Vec<Density>> {
        const NAME: &str = "REPORT DENSITY SUPPORT";
        let cdb = [opcode::REPORT_DENSITY_SUPPORT, u8::from(medium), 0, 0, 0, 0, 0, 0x10, 0, 0];
        let raw = self.fetch(NAME, &cdb, 0x1000, timeout::SHORT)?;
        self.decoded(NAME, decode_densities(&raw))
    }

    /// TapeAlert flags that are set (log page 2Eh). Reading clears them in the drive.
    pub fn tape_alerts(&mut self) -> Result<Vec<u8>> {
        Ok(log::tape_alerts(&self.log_sense(log::PAGE_TAPE_ALERT, 0)?))
    }

    /// Volume statistics (log page 17h).
    pub fn volume_statistics(&mut self) -> Result<VolumeStatistics> {
        Ok(VolumeStatistics::from_parameters(&self.log_sense(log::PAGE_VOLUME_STATISTICS, 0)?))
    }

    /// Capacity of partitions 0 and 1 (log page 31h).
    pub fn capacity(&mut self) -> Result<[Option<TapeCapacity>; 2]> {
        Ok(log::tape_capacity(&self.log_sense(log::PAGE_CAPACITY, 0)?))
    }
}

/// Decodes READ BLOCK LIMITS data.
pub fn decode_block_limits(raw: &[u8]) -> std::result::Result<BlockLimits, crate::DecodeError> {
    let f = Fields::new("READ BLOCK LIMITS data", raw);
    Ok(BlockLimits { max: f.uint(1, 3)? as u32, min: f.u16(4)? })
}

/// Decodes REPORT DENSITY SUPPORT data (52-byte descriptors).
pub fn decode_densities(raw: &[u8]) -> std::result::Result<Vec<Density>, crate::DecodeError> {
    let f = Fields::new("REPORT DENSITY SUPPORT data", raw);
    let length = usize::from(f.u16(0)?).checked_sub(2).ok_or_else(|| f.bad(0))?;
    f.slice(4, length)?
        .chunks_exact(52)
        .map(|raw| {
            let d = Fields::new("density descriptor", raw);
            Ok(Density {
                code: d.u8(0)?,
                writable: d.u8(2)? & 0x80 != 0,
                default: d.u8(2)? & 0x20 != 0,
                megabytes: d.u32(12)?,
                name: crate::bytes::text(d.slice(24, 8)?),
                description: crate::bytes::text(d.slice(32, 20)?),
            })
        })
        .collect()
}
