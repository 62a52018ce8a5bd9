//! Making an LTFS volume of a cartridge.

use crate::coherency::{self, IndexAt};
use crate::head::{Head, Place, Wrote};
use crate::keys::{self, Key};
use crate::layout::{DATA_PARTITION, FIRST_INDEX_MARK, INDEX_PARTITION};
use crate::{Blame, Fault, LabelState, Mounted, Result, index};
use format::ltfs::index::{DirMeta, EntryTimes, IndexHeader, Location, Xattr};
use format::ltfs::label::{LtfsLabel, encode};
use format::ltfs::mam::{HostInfo, host_attributes};
use format::ltfs::{Partition, is_uuid, vol1};
use scsi::mode::PartitionPage;
use scsi::{FormatKind, Ssc};
use types::{Barcode, Time};

const DOING: &str = "labelling";
/// Largest record size that we format with (bytes); the LTFS reference reads no larger ones.
const MAX_BLOCK_SIZE: u32 = 1 << 20;

/// What a label may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite<'a> {
    /// Nothing: the cartridge must be blank.
    OnlyBlank,
    /// A blank cartridge, or the volume with this uuid.
    Volume(&'a str),
    /// Whatever is on it. Only when an operator said so.
    Anything,
}

/// A volume to be made.
#[derive(Clone, Copy, Debug)]
pub struct LabelSpec<'a> {
    /// Barcode: one to eight capital letters and digits.
    pub barcode: &'a Barcode,
    /// Uuid of the new volume.
    pub uuid: &'a str,
    /// Record size (bytes, 4096 to 1 MiB); [`format::ltfs::label::DEFAULT_BLOCK_SIZE`] suits.
    pub block_size: u32,
    /// Tape pool, for the cartridge memory; may be empty.
    pub pool: &'a str,
    /// Program that makes it, e.g. `Thermocline 0.1.0`.
    pub creator: &'a str,
    /// Version of the program, for the cartridge memory.
    pub version: &'a str,
    /// Time now.
    pub now: Time,
    /// Attributes of the root of an LTFS volume's first index: whose it is.
    pub attributes: &'a [Xattr],
    /// What may be lost.
    pub overwrite: Overwrite<'a>,
    /// The drive encrypts all of the volume with this.
    pub key: Option<&'a Key>,
}

/// A new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatted {
    /// Capacity of the data partition (bytes), where the drive tells.
    pub capacity: Option<u64>,
    /// Data partition: where the first record goes.
    pub append_block: u64,
    /// Generation of its index: 1.
    pub generation: u64,
    /// Where that starts on the data partition.
    pub index_block: u64,
    /// Volume change reference.
    pub vcr: u64,
}

impl Mounted<'_> {
    /// Makes an LTFS volume: two partitions, labels and an empty index on both, attributes in cartridge memory; all on
    /// the medium when this returns. After a power failure in between, the cartridge is blank or its label counts as
    /// damaged, and it can be labelled again.
    ///
    /// # Errors
    /// [`Fault::Refused`] (`Blame::Us`) when the cartridge carries something that `overwrite` does not allow to be lost;
    /// [`Fault::Misuse`] for a bad barcode, uuid or record size; write protection, WORM medium, medium and drive errors.
    pub fn format(&mut self, spec: &LabelSpec<'_>) -> Result<Formatted> {
        let label = self.new_label(spec)?;
        self.rewritable(DOING)?;
        self.may_overwrite(spec.overwrite)?;
        self.writable(DOING)?;
        self.distrust();
        (self.record_block, self.label) =
            (None, LabelState::Damaged { what: "labelling did not finish".into(), uuids: Vec::new() });
        let head = self.head();
        partition(head)?;
        keys::lock(head, spec.key)?;
        let append_block = put_side(head, &label.on(Partition::DATA), spec, DATA_PARTITION)?;
        put_side(head, &label.on(Partition::INDEX), spec, INDEX_PARTITION)?;
        let host = host_attributes(&HostInfo {
            program_version: spec.version,
            barcode: spec.barcode.as_str(),
            text_label: spec.barcode.as_str(),
            pool: spec.pool,
            lock: 0,
        });
        let host: Vec<_> = host.iter().map(coherency::to_scsi).collect();
        coherency::write_attributes(head, DOING, INDEX_PARTITION, &host)?;
        let vcr = coherency::vcr(head)?;
        let first = IndexAt { generation: 1, block: FIRST_INDEX_MARK + 1 };
        for partition in [INDEX_PARTITION, DATA_PARTITION] {
            coherency::write(head, partition, spec.uuid, vcr, first)?;
        }
        coherency::write_mark(head, coherency::SessionMark { open: false, base: vcr, newest: vcr })?;
        self.label = LabelState::Ltfs(label);
        self.fresh_tail(spec.uuid, append_block, vcr);
        self.capacity = self.read_capacity()?;
        let capacity = self.capacity.map(|c| c.maximum);
        Ok(Formatted { capacity, append_block, generation: 1, index_block: first.block, vcr })
    }

    fn new_label(&self, spec: &LabelSpec<'_>) -> Result<LtfsLabel> {
        let misuse = |what: String| {
            let advice = "nothing was written; correct it and try again";
            self.drive.head.error(Fault::Misuse, Blame::Us, DOING, what, advice)
        };
        if !is_uuid(spec.uuid) {
            return Err(misuse(format!("{:?} is no uuid", spec.uuid)));
        }
        if !(format::ltfs::label::MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&spec.block_size) {
            return Err(misuse(format!("a record size of {} bytes is not 4096 to 1 MiB", spec.block_size)));
        }
        LtfsLabel::new(spec.barcode.as_str(), spec.uuid, spec.now, spec.block_size, spec.creator)
            .map_err(|e| misuse(e.to_string()))
    }

    pub(crate) fn may_overwrite(&self, allowed: Overwrite<'_>) -> Result<()> {
        self.not_yet_labelled(DOING)?;
        match (&self.label, allowed) {
            (LabelState::Blank, _) | (_, Overwrite::Anything) => return Ok(()),
            (label, Overwrite::Volume(uuid)) if label.uuid() == Some(uuid) => return Ok(()),
            (LabelState::Damaged { uuids, .. }, Overwrite::Volume(uuid))
                if uuids.iter().any(|u| u == uuid) =>
            {
                return Ok(());
            }
            _ => {}
        }
        let what = format!("the cartridge is not blank: it carries {}", self.label.describe());
        let advice = "nothing was written; force labelling only if nothing on it is needed";
        Err(self.drive.head.error(Fault::Refused, Blame::Us, DOING, what, advice))
    }
}

/// Makes two partitions: the smallest that the drive can make for the index, the rest for data.
fn partition(head: &mut Head) -> Result<()> {
    head.locate(Place { partition: INDEX_PARTITION, block: 0 })?;
    let old = head.attempt("asking for the partitions", Ssc::partition_page)?;
    if old.max_additional == 0 {
        let advice = "use LTO-5 or later drives and media";
        return Err(head.error(
            Fault::Refused,
            Blame::Medium,
            DOING,
            "the medium cannot be partitioned",
            advice,
        ));
    }
    let page = PartitionPage {
        additional: 1,
        flags: PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM,
        units: 9,
        sizes: vec![1, 0xFFFF],
        ..old
    };
    head.attempt("defining two partitions", |ssc| ssc.set_partition_page(&page))?;
    head.allow_format()?;
    head.forget_position();
    head.attempt("formatting the medium", |ssc| ssc.format_medium(FormatKind::Partition))
}

/// Writes VOL1, filemark, XML, filemark, and the first index between filemarks; returns the block behind.
fn put_side(head: &mut Head, label: &LtfsLabel, spec: &LabelSpec<'_>, partition: u8) -> Result<u64> {
    let start = Place { partition, block: 0 };
    head.locate(start)?;
    head.verify(DOING, start)?;
    let vol1 = vol1::encode(spec.barcode.as_str())
        .map_err(|e| head.error(Fault::Misuse, Blame::Us, DOING, e.to_string(), "correct the barcode"))?;
    for record in [&vol1[..], &encode(label)] {
        let record = head.write(record)?;
        room(head, record)?;
        let mark = head.filemarks(1, true)?;
        room(head, mark)?;
    }
    let here = Location { partition: label.partition, block: FIRST_INDEX_MARK + 1 };
    let on_data = Location { partition: Partition::DATA, ..here };
    let header = IndexHeader {
        creator: spec.creator.to_owned(),
        comment: None,
        volume_uuid: spec.uuid.to_owned(),
        generation: 1,
        update_time: spec.now,
        location: here,
        previous: (partition == INDEX_PARTITION).then_some(on_data),
        allow_policy_update: true,
        highest_file_uid: 1,
        unknown: Vec::new(),
    };
    let now = spec.now;
    let times = EntryTimes { creation: now, change: now, modify: now, access: now, backup: now };
    let xattrs = spec.attributes.to_vec();
    let root = DirMeta { name: spec.barcode.to_string(), uid: 1, times, xattrs, ..DirMeta::default() };
    index::put(
        head,
        Place { partition, block: FIRST_INDEX_MARK },
        spec.block_size as usize,
        &header,
        &mut |w| {
            w.enter_dir(&root)?;
            w.leave_dir()?;
            Ok(())
        },
    )
}

fn room(head: &Head, wrote: Wrote) -> Result<()> {
    match wrote {
        Wrote::Good | Wrote::EarlyWarning => Ok(()),
        Wrote::Overflow => {
            let advice = "the cartridge is too small or defective; do not use it";
            Err(head.error(
                Fault::Full,
                Blame::Medium,
                DOING,
                "the partition has no room for a label",
                advice,
            ))
        }
    }
}
