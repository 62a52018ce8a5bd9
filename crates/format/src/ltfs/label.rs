//! The label of an LTFS volume: VOL1 and an XML document on each partition (LTFS 2.4 section 6).

use super::vol1::{self, BarcodeError, Vol1};
use super::xml::{Step, Xml, XmlError, escape_into};
use super::{Partition, VERSION, is_uuid, readable_version, time};
use types::Time;

/// Smallest block size that LTFS allows (bytes).
pub const MIN_BLOCK_SIZE: u32 = 4096;

/// What the labels of one partition say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LtfsLabel {
    /// Volume serial number of VOL1: the first six characters of the barcode.
    pub serial: String,
    /// Uuid of the volume.
    pub uuid: String,
    /// When the volume was formatted.
    pub format_time: Time,
    /// Record size (bytes).
    pub block_size: u32,
    /// Whether the drive compresses.
    pub compression: bool,
    /// Letter of the index partition.
    pub index_partition: Partition,
    /// Letter of the data partition.
    pub data_partition: Partition,
    /// Partition that this label is on.
    pub partition: Partition,
    /// Program that formatted the volume.
    pub creator: String,
    /// Format version.
    pub version: String,
}

/// Why a partition shows no LTFS label that we can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing is written there.
    #[error("blank: no label")]
    Blank,
    /// Something that is not LTFS.
    #[error("not an LTFS volume: it begins with {what}")]
    Foreign {
        /// What was seen.
        what: String,
    },
    /// An LTFS label of a format version that we do not know.
    #[error("LTFS format version {found}; versions 1.0.0 to 2.99.99 can be read")]
    Version {
        /// Version found.
        found: String,
    },
    /// An LTFS label with something wrong in it.
    #[error("the LTFS label is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
}

impl LtfsLabel {
    /// The label of a new volume of ours, as it goes onto `partition`; `partition` may be changed for the other one.
    pub fn new(
        barcode: &str,
        uuid: &str,
        now: Time,
        block_size: u32,
        creator: &str,
    ) -> Result<Self, BarcodeError> {
        Ok(Self {
            serial: vol1::serial(barcode)?.to_owned(),
            uuid: uuid.to_owned(),
            format_time: time::clamp(now),
            block_size,
            compression: true,
            index_partition: Partition::INDEX,
            data_partition: Partition::DATA,
            partition: Partition::INDEX,
            creator: creator.to_owned(),
            version: VERSION.to_owned(),
        })
    }

    /// The same label as it goes onto another partition.
    pub fn on(&self, partition: Partition) -> Self {
        Self { partition, ..self.clone() }
    }
}

/// The XML part of the label, one record.
pub fn encode(label: &LtfsLabel) -> Vec<u8> {
    let mut out = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ltfslabel version=\"".to_vec();
    escape_into(&mut out, &label.version);
    out.extend_from_slice(b"\">\n");
    let format_time = time::encode(label.format_time);
    let mut element = |before: &str, text: &str, after: &str| {
        out.extend_from_slice(before.as_bytes());
        escape_into(&mut out, text);
        out.extend_from_slice(after.as_bytes());
    };
    element("<creator>", &label.creator, "</creator>\n");
    element("<formattime>", &String::from_utf8_lossy(&format_time), "</formattime>\n");
    element("<volumeuuid>", &label.uuid, "</volumeuuid>\n");
    element("<location><partition>", &label.partition.to_string(), "</partition></location>\n");
    element("<partitions><index>", &label.index_partition.to_string(), "</index>");
    element("<data>", &label.data_partition.to_string(), "</data></partitions>\n");
    element("<blocksize>", &label.block_size.to_string(), "</blocksize>\n");
    element("<compression>", if label.compression { "true" } else { "false" }, "</compression>\n");
    element("</ltfslabel>", "", "\n");
    out
}

/// Reads the label of a partition from its record 0 and the record behind the filemark (empty if there is none).
pub fn decode(vol1_record: &[u8], xml_record: &[u8]) -> Result<LtfsLabel, LabelError> {
    let serial = match vol1::decode(vol1_record) {
        Vol1::Ltfs { serial } => serial,
        Vol1::Blank => return Err(LabelError::Blank),
        Vol1::Foreign { what } => return Err(LabelError::Foreign { what }),
        Vol1::Damaged { what } => return Err(LabelError::Damaged { what }),
    };
    if xml_record.is_empty() {
        return Err(LabelError::Damaged { what: "VOL1 is there, but no XML label behind it".to_owned() });
    }
    let mut xml = Xml::new(xml_record);
    if xml.step().map_err(damaged)? != Step::Open || xml.name() != b"ltfslabel" {
        return Err(LabelError::Damaged { what: "the record behind VOL1 is not an LTFS label".to_owned() });
    }
    let version = xml.attribute("version").unwrap_or_default();
    if !readable_version(&version) {
        return Err(LabelError::Version { found: version });
    }
    elements(&mut xml, serial, version).map_err(damaged)
}

fn damaged(error: XmlError) -> LabelError {
    LabelError::Damaged { what: format!("{} at byte {} of the XML label", error.what, error.offset) }
}

fn elements(xml: &mut Xml<&[u8]>, serial: String, version: String) -> Result<LtfsLabel, XmlError> {
    let (mut creator, mut format_time, mut uuid, mut compression) = (None, None, None, None);
    let (mut location, mut index, mut data, mut block_size) = (None, None, None, None);
    while xml.child()? {
        match xml.name() {
            b"creator" => creator = Some(xml.text()?.to_owned()),
            b"formattime" => format_time = Some(xml.time()?),
            b"volumeuuid" => {
                uuid = Some(xml.value("a uuid", |t| is_uuid(t.trim()).then(|| t.trim().to_owned()))?);
            }
            b"location" => {
                while xml.child()? {
                    if xml.name() == b"partition" { location = Some(xml.partition()?) } else { xml.skip()? }
                }
            }
            b"partitions" => {
                while xml.child()? {
                    match xml.name() {
                        b"index" => index = Some(xml.partition()?),
                        b"data" => data = Some(xml.partition()?),
                        _ => xml.skip()?,
                    }
                }
            }
            b"blocksize" => {
                let size = |text: &str| text.trim().parse().ok().filter(|&size| size >= MIN_BLOCK_SIZE);
                block_size = Some(xml.value("a block size of at least 4096", size)?);
            }
            b"compression" => compression = Some(xml.boolean()?),
            _ => xml.skip()?,
        }
    }
    let missing = |what: &str| xml.error(format!("no <{what}>"));
    let label = LtfsLabel {
        serial,
        uuid: uuid.ok_or_else(|| missing("volumeuuid"))?,
        format_time: format_time.ok_or_else(|| missing("formattime"))?,
        block_size: block_size.ok_or_else(|| missing("blocksize"))?,
        compression: compression.ok_or_else(|| missing("compression"))?,
        index_partition: index.ok_or_else(|| missing("index"))?,
        data_partition: data.ok_or_else(|| missing("data"))?,
        partition: location.ok_or_else(|| missing("location"))?,
        creator: creator.ok_or_else(|| missing("creator"))?,
        version,
    };
    let two = label.index_partition != label.data_partition;
    if two && [label.index_partition, label.data_partition].contains(&label.partition) {
        Ok(label)
    } else {
        Err(xml.error("index, data and own partition contradict each other"))
    }
}

/// Checks that the labels of the two partitions belong together: equal in everything but their own partition.
pub fn check_pair(first: &LtfsLabel, second: &LtfsLabel) -> Result<(), LabelError> {
    let what = if first.partition == second.partition {
        "partition"
    } else if first.serial != second.serial {
        "volume serial number"
    } else if first.uuid != second.uuid {
        "uuid"
    } else if first.format_time != second.format_time {
        "format time"
    } else if first.block_size != second.block_size {
        "block size"
    } else if first.compression != second.compression {
        "compression"
    } else if first.index_partition != second.index_partition || first.data_partition != second.data_partition
    {
        "partition letters"
    } else if first.version != second.version {
        "format version"
    } else {
        return Ok(());
    };
    Err(LabelError::Damaged { what: format!("the labels of the two partitions disagree on the {what}") })
}
