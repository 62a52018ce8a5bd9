//! A mounted volume: one session of one drive.

use crate::head::Head;
use crate::keys;
use crate::layout::DATA_PARTITION;
use crate::tail::Tail;
use crate::{Blame, Drive, Fault, LabelState, Result, Unloaded, alert, coherency, label};
use format::ltfs::label::LtfsLabel;
use scsi::{Ssc, TapeCapacity, There};
use types::{Barcode, Generation};

/// A volume in a drive, ready to be read and written. Borrows the drive, so that there is one session per drive.
/// Dropping it leaves the cartridge loaded and its removal prevented; [`Mounted::unload`] ends the session properly.
pub struct Mounted<'d> {
    pub(crate) drive: &'d mut Drive,
    pub(crate) label: LabelState,
    pub(crate) capacity: Option<TapeCapacity>,
    alerts: Vec<u8>,
    write_protected: bool,
    pub(crate) worm: bool,
    medium: Option<Generation>,
    /// Where the volume ends, once verified in this session.
    pub(crate) tail: Option<Tail>,
    /// The record read last and its block: small files share records.
    pub(crate) record: Vec<u8>,
    pub(crate) record_block: Option<u64>,
    /// It is at the drive's host.
    pub(crate) record_there: Option<There>,
}

impl<'d> Mounted<'d> {
    /// The rest of the load sequence: position, write protection, TapeAlert, capacity, labels.
    pub(crate) fn open(drive: &'d mut Drive, expect: Option<&Barcode>) -> Result<Self> {
        drive.head.ask_position()?;
        let (write_protected, density) = drive.head.attempt("asking for write protection", Ssc::medium)?;
        let worm = drive.head.attempt("asking for the kind of medium", Ssc::worm)?;
        let alerts = drive.alerts()?;
        let keys = drive.keys.clone();
        keys::unlock(&mut drive.head, keys.as_ref())?;
        let label = label::read(&mut drive.head, expect)?;
        let mut mounted = Self {
            drive,
            label,
            capacity: None,
            alerts,
            write_protected,
            worm,
            medium: density.and_then(Generation::of_density),
            tail: None,
            record: Vec::new(),
            record_block: None,
            record_there: None,
        };
        mounted.capacity = mounted.read_capacity()?;
        Ok(mounted)
    }

    /// What the labels of the cartridge say.
    pub fn label(&self) -> &LabelState {
        &self.label
    }

    /// TapeAlert flags that were active at mount.
    pub fn alerts(&self) -> &[u8] {
        &self.alerts
    }

    /// Generation of the medium, where the drive tells it.
    pub fn medium(&self) -> Option<Generation> {
        self.medium
    }

    /// Whether the drive has asked to be cleaned since this was asked last.
    pub fn take_cleaning_request(&mut self) -> bool {
        self.head().ssc.take_cleaning_request()
    }

    /// Name of the key that the volume is encrypted with.
    pub fn key(&self) -> Option<&str> {
        self.drive.head.key.as_deref()
    }

    /// Whether the drive is reserved for us.
    pub fn claimed(&self) -> crate::Claim {
        self.drive.claimed()
    }

    /// The write-protect tab is set.
    pub fn write_protected(&self) -> bool {
        self.write_protected
    }

    /// Block of the data partition from which on reading goes forward, as far as known: where the head stands, or the
    /// block before if that was read last, because it is still at hand. 0 when the head stands elsewhere.
    pub fn reads_from(&self) -> u64 {
        let data = self.data_partition();
        let Some(at) = self.drive.head.at().filter(|at| at.partition == data) else { return 0 };
        self.record_block.filter(|held| held + 1 == at.block).unwrap_or(at.block)
    }

    /// Capacity of the data partition at mount or after [`Mounted::format`], where the drive tells (bytes).
    pub fn capacity(&self) -> Option<TapeCapacity> {
        self.capacity
    }

    /// Allows removal and unloads. What was not flushed is not safe even if this succeeds: only flushed positions were handed out.
    ///
    /// # Errors
    /// The drive failed; the cartridge may still be in it.
    pub fn unload(mut self) -> Result<Unloaded> {
        // A mark that stays open only means that the next session looks at what is behind the append point.
        let _ = self.close_session();
        self.drive.unload()
    }

    /// Capacity of the data partition now.
    pub(crate) fn read_capacity(&mut self) -> Result<Option<TapeCapacity>> {
        let both = self.head().attempt("asking for the capacity", Ssc::capacity)?;
        let blank_alone = both[usize::from(DATA_PARTITION)].is_none_or(|c| c.maximum == 0);
        let partition = if blank_alone { 0 } else { self.data_partition() };
        Ok(both[usize::from(partition)])
    }

    pub(crate) fn head(&mut self) -> &mut Head {
        &mut self.drive.head
    }

    /// The label of an LTFS volume, or an error that says what the cartridge is instead.
    pub(crate) fn ltfs(&self, doing: &str) -> Result<&LtfsLabel> {
        if let LabelState::Ltfs(label) = &self.label {
            return Ok(label);
        }
        let what =
            format!("the cartridge is not an LTFS volume of ours, it carries {}", self.label.describe());
        let advice = "put the right cartridge there, or label it again if nothing on it is needed";
        Err(self.drive.head.error(Fault::NotLtfs, Blame::Medium, doing, what, advice))
    }

    /// Partition that holds data.
    fn data_partition(&self) -> u8 {
        if matches!(self.label, LabelState::Ltfs(_)) { DATA_PARTITION } else { 0 }
    }

    /// Partition that holds data, and the size of its records (bytes).
    pub(crate) fn data(&self, doing: &str) -> Result<(u8, usize)> {
        match &self.label {
            LabelState::Sections(label) => Ok((0, label.block_size as usize)),
            _ => Ok((DATA_PARTITION, self.ltfs(doing)?.block_size as usize)),
        }
    }

    /// Whether the medium can have the two partitions that LTFS needs.
    ///
    /// # Errors
    /// The drive does not say.
    pub fn takes_partitions(&mut self) -> Result<bool> {
        let page = self.head().attempt("asking for the partitions", Ssc::partition_page)?;
        Ok(page.additional.max(page.max_additional) > 0)
    }

    /// Fails if the volume must not be written: protected, or alerts are active.
    pub(crate) fn writable(&self, doing: &str) -> Result<()> {
        let head = &self.drive.head;
        if self.write_protected {
            let advice = "move the write-protect tab, or mark the volume read-only";
            let what = "the cartridge is write protected";
            return Err(head.error(Fault::WriteProtected, Blame::Medium, doing, what, advice));
        }
        alert::against_writing(head, doing, &self.alerts).map_or(Ok(()), Err)
    }

    /// Closes the session mark: from here on another VCR means another writer.
    fn close_session(&mut self) -> Result<()> {
        let Some(mut mark) = self.tail.as_ref().and_then(|tail| tail.mark) else { return Ok(()) };
        mark.newest = coherency::vcr(self.head())?;
        mark.open = false;
        coherency::write_mark(self.head(), mark)
    }
}
