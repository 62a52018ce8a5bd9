//! Cartridge memory: the volume change reference, LTFS coherency, and our session mark.
//!
//! The session mark (attribute 1548h of partition 0, in the range for hosts' own use) tells a crash of ours from a
//! foreign writer when the volume change reference (VCR) is not the one recorded. 18 bytes: version 1; open (1) or
//! closed (0); u64 VCR at the beginning of our session; u64 newest VCR that we have seen in it. Big-endian.

use crate::head::Head;
use crate::layout::INDEX_PARTITION;
use crate::{Blame, Fault, Result};
use format::ltfs::mam::{self, Coherency};
use scsi::Attribute;

/// Attribute of the session mark.
const MARK: u16 = 0x1548;
/// Partition whose memory has what concerns the whole volume.
const VOLUME: u8 = INDEX_PARTITION;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionMark {
    pub open: bool,
    pub base: u64,
    pub newest: u64,
}

impl SessionMark {
    fn encode(self) -> Attribute {
        let mut value = vec![1, u8::from(self.open)];
        value.extend_from_slice(&self.base.to_be_bytes());
        value.extend_from_slice(&self.newest.to_be_bytes());
        Attribute::binary(MARK, value)
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (head, numbers) = value.split_first_chunk::<2>()?;
        let (base, newest) = numbers.split_first_chunk::<8>()?;
        let newest = <[u8; 8]>::try_from(newest).ok()?;
        (head[0] == 1 && head[1] <= 1).then_some(Self {
            open: head[1] == 1,
            base: u64::from_be_bytes(*base),
            newest: u64::from_be_bytes(newest),
        })
    }
}

/// Where the newest index of a partition starts, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexAt {
    pub generation: u64,
    pub block: u64,
}

/// Volume change reference; 0 where the drive cannot tell.
pub(crate) fn vcr(head: &mut Head) -> Result<u64> {
    let found = head.attempt("reading the volume change reference", |ssc| {
        ssc.read_attribute(VOLUME, mam::VOLUME_CHANGE_REFERENCE)
    })?;
    Ok(found.and_then(|a| mam::decode_vcr(&a.value)).unwrap_or(0))
}

/// Coherency of a partition; None where there is none that can be understood.
pub(crate) fn read(head: &mut Head, partition: u8) -> Result<Option<Coherency>> {
    let found = head.attempt("reading the coherency attribute", |ssc| {
        ssc.read_attribute(partition, mam::VOLUME_COHERENCY)
    })?;
    Ok(found.and_then(|a| Coherency::decode(&a.value).ok()))
}

/// Records where the newest index of a partition is, and that it was so when the VCR was `vcr` (0: that it may not be
/// relied upon).
pub(crate) fn write(head: &mut Head, partition: u8, uuid: &str, vcr: u64, at: IndexAt) -> Result<()> {
    const DOING: &str = "recording coherency";
    let value = Coherency { vcr, generation: at.generation, block: at.block, uuid: uuid.to_owned() };
    let encoded = value.encode().map_err(|e| {
        head.error(Fault::Misuse, Blame::Us, DOING, e.to_string(), "report this; nothing was lost")
    })?;
    write_attributes(head, DOING, partition, &[to_scsi(&encoded)])
}

pub(crate) fn read_mark(head: &mut Head) -> Result<Option<SessionMark>> {
    let found = head.attempt("reading the session mark", |ssc| ssc.read_attribute(VOLUME, MARK))?;
    Ok(found.and_then(|a| SessionMark::decode(&a.value)))
}

pub(crate) fn write_mark(head: &mut Head, mark: SessionMark) -> Result<()> {
    write_attributes(head, "writing the session mark", VOLUME, &[mark.encode()])
}

/// Writes attributes to the cartridge memory of a partition.
pub(crate) fn write_attributes(
    head: &mut Head,
    doing: &str,
    partition: u8,
    list: &[Attribute],
) -> Result<()> {
    head.attempt(doing, |ssc| ssc.write_attributes(partition, list))
}

/// An attribute of the format as SCSI carries it.
pub(crate) fn to_scsi(attribute: &mam::Attribute) -> Attribute {
    let format = match attribute.format {
        mam::ValueFormat::Binary => scsi::mam::Format::Binary,
        mam::ValueFormat::Ascii => scsi::mam::Format::Ascii,
        mam::ValueFormat::Text => scsi::mam::Format::Text,
    };
    Attribute { id: attribute.id, format, read_only: attribute.read_only, value: attribute.value.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trip_and_refusals() {
        let mark = SessionMark { open: true, base: 7, newest: u64::MAX };
        let value = mark.encode().value;
        assert_eq!(value.len(), 18);
        assert_eq!(SessionMark::decode(&value), Some(mark));
        for cut in 0..value.len() {
            assert_eq!(SessionMark::decode(&value[..cut]), None);
        }
        for (at, byte) in [(0, 2), (1, 2)] {
            let mut bad = value.clone();
            bad[at] = byte;
            assert_eq!(SessionMark::decode(&bad), None);
        }
    }
}
