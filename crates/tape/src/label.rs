//! What the labels of a cartridge say, read from both partitions.

use crate::head::{Head, Item, Place};
use crate::layout::{DATA_PARTITION, INDEX_PARTITION, MAX_LABEL_RECORD};
use crate::{Fault, Result, TarLabel, section, tar};
use format::ansi::{AnsiError, AnsiLabel};
use format::ltfs::label::{LabelError, LtfsLabel, check_pair, decode};
use format::ltfs::vol1;
use scsi::Ssc;
use types::Barcode;

/// What a cartridge is, by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelState {
    /// Nothing is written on it.
    Blank,
    /// An LTFS volume; the labels of both partitions agree.
    Ltfs(LtfsLabel),
    /// A volume of ours without partitions: sections between ANSI labels.
    Sections(AnsiLabel),
    /// Tar archives of another program, with ANSI labels or without: only read.
    Tar(TarLabel),
    /// Something that is not ours to touch: another format, another program's layout, another volume than expected.
    Foreign {
        /// What was seen.
        what: String,
    },
    /// An LTFS label that is incomplete, contradictory or cannot be read.
    Damaged {
        /// What is wrong.
        what: String,
        /// Volume of each side that can be read: labelling that was cut short leaves one, or two that differ.
        uuids: Vec<String>,
    },
}

impl LabelState {
    /// Uuid of the volume, where it is an LTFS volume or one of ours, or what stands for it.
    pub fn uuid(&self) -> Option<&str> {
        match self {
            Self::Ltfs(label) => Some(&label.uuid),
            Self::Sections(label) => Some(&label.uuid),
            Self::Tar(label) => Some(&label.uuid),
            Self::Blank | Self::Foreign { .. } | Self::Damaged { .. } => None,
        }
    }

    /// In a few words, what is on it.
    pub fn describe(&self) -> String {
        match self {
            Self::Blank => "nothing".into(),
            Self::Ltfs(label) => format!("the LTFS volume {:?} ({})", label.serial, label.uuid),
            Self::Sections(label) => {
                format!("the ANSI volume {:?} of Thermocline ({})", label.serial, label.uuid)
            }
            Self::Tar(TarLabel { serial: Some(serial), .. }) => {
                format!("the ANSI volume {serial:?} of another program")
            }
            Self::Tar(_) => "a tar archive of another program".into(),
            Self::Foreign { what } => what.clone(),
            Self::Damaged { what, .. } => format!("a damaged LTFS label ({what})"),
        }
    }
}

/// What one partition shows.
type Side = std::result::Result<LtfsLabel, LabelError>;

/// Reads the labels of both partitions and compares them with each other and with the barcode.
pub(crate) fn read(head: &mut Head, expect: Option<&Barcode>) -> Result<LabelState> {
    let additional = head.attempt("asking for the partitions", Ssc::partition_page)?.additional;
    if additional == 0 {
        // Ours first: another look would mean to go back.
        if let Some(label) = section::read_label(head, expect)? {
            return Ok(LabelState::Sections(label));
        }
        return match read_partition(head, INDEX_PARTITION)? {
            Ok(_) => Ok(damaged("an LTFS label, but the medium has one partition only".into())),
            Err(error @ LabelError::Foreign { .. }) => {
                Ok(tar::recognise(head)?.map_or_else(|| alone(error), LabelState::Tar))
            }
            Err(error) => Ok(alone(error)),
        };
    }
    let index = read_partition(head, INDEX_PARTITION)?;
    let data = read_partition(head, DATA_PARTITION)?;
    Ok(combine(index, data, expect))
}

fn damaged(what: String) -> LabelState {
    LabelState::Damaged { what, uuids: Vec::new() }
}

fn alone(error: LabelError) -> LabelState {
    match error {
        LabelError::Blank => LabelState::Blank,
        LabelError::Foreign { what } => LabelState::Foreign { what },
        LabelError::Version { .. } => LabelState::Foreign { what: error.to_string() },
        LabelError::Damaged { what } => damaged(what),
    }
}

fn combine(index: Side, data: Side, expect: Option<&Barcode>) -> LabelState {
    match (index, data) {
        (Ok(index), Ok(data)) => match check_pair(&index, &data) {
            Ok(()) => recognise(index, expect),
            Err(error) => LabelState::Damaged { what: error.to_string(), uuids: vec![index.uuid, data.uuid] },
        },
        (Err(LabelError::Blank), Err(LabelError::Blank)) => LabelState::Blank,
        (Err(error @ (LabelError::Foreign { .. } | LabelError::Version { .. })), _)
        | (_, Err(error @ (LabelError::Foreign { .. } | LabelError::Version { .. }))) => alone(error),
        (index, data) => {
            let say = |side: Side| side.map_or_else(|e| e.to_string(), |_| "an LTFS label".to_owned());
            let uuids = [&index, &data].into_iter().flatten().map(|label| label.uuid.clone()).collect();
            let what = format!("partition 0: {}; partition 1: {}", say(index), say(data));
            LabelState::Damaged { what, uuids }
        }
    }
}

/// Both labels agree: is it a volume that we can use, and the one expected?
fn recognise(label: LtfsLabel, expect: Option<&Barcode>) -> LabelState {
    if label.partition != label.index_partition {
        let what =
            "an LTFS volume with its index on partition 1, as this program does not write it".to_owned();
        return LabelState::Foreign { what };
    }
    match expect.map(|barcode| (barcode, vol1::serial(barcode.as_str()))) {
        // Some programs write no serial number.
        Some((barcode, Ok(serial))) if serial != label.serial && !label.serial.is_empty() => {
            let what = format!("the LTFS volume {:?}, although its barcode is {barcode}", label.serial);
            LabelState::Foreign { what }
        }
        _ => LabelState::Ltfs(label),
    }
}

/// Reads VOL1, filemark, XML of one partition. What cannot be read counts as damaged; a failing drive is an error.
fn read_partition(head: &mut Head, partition: u8) -> Result<Side> {
    match records(head, partition) {
        Ok(side) => Ok(side),
        Err(e) if matches!(e.fault, Fault::MediumError | Fault::DataMissing | Fault::BadRecord) => {
            Ok(Err(LabelError::Damaged { what: format!("partition {partition} cannot be read: {}", e.what) }))
        }
        Err(e) => Err(e),
    }
}

fn records(head: &mut Head, partition: u8) -> Result<Side> {
    let mut first = vec![0; MAX_LABEL_RECORD];
    head.locate(Place { partition, block: 0 })?;
    match head.read(&mut first) {
        Ok(Item::Record(n)) => first.truncate(n),
        Ok(Item::EndOfData) => return Ok(Err(LabelError::Blank)),
        Ok(Item::Filemark) => return Ok(Err(LabelError::Foreign { what: "a filemark".into() })),
        Err(e) if e.fault == Fault::BadRecord => return Ok(Err(LabelError::Foreign { what: e.what.into() })),
        Err(e) => return Err(e),
    }
    if !first.starts_with(b"VOL1") {
        return Ok(decode(&first, &[])); // no need to read more to say what it is
    }
    match head.read(&mut [0; 1]) {
        Ok(Item::Filemark) => {}
        // Labelling was cut short: nothing lies behind it, and it does not say whose it is.
        Ok(Item::EndOfData) if cut_short(&first) => return Ok(Err(LabelError::Blank)),
        Ok(_) => return Ok(decode(&first, &[])),
        // a longer record: more labels, as on ANSI volumes
        Err(e) if e.fault == Fault::BadRecord => return Ok(decode(&first, &[])),
        Err(e) => return Err(e),
    }
    let mut second = vec![0; MAX_LABEL_RECORD];
    let n = match head.read(&mut second)? {
        Item::Record(n) => n,
        Item::Filemark => 0,
        Item::EndOfData if matches!(decode(&first, &[]), Err(LabelError::Damaged { .. })) => {
            return Ok(Err(LabelError::Blank)); // the same, of LTFS
        }
        Item::EndOfData => 0,
    };
    Ok(decode(&first, &second[..n]))
}

/// The first record of a label of LTFS or of ours, alone. That of another program says whose the cartridge is, though empty.
fn cut_short(vol1: &[u8]) -> bool {
    matches!(decode(vol1, &[]), Err(LabelError::Damaged { .. }))
        || matches!(AnsiLabel::decode(vol1, &[]), Err(AnsiError::Damaged { .. }))
}
