//! The labels of a volume: VOL1 and UVL1 at its beginning.

use super::card::{Card, Fields};
use super::{AnsiError, LENGTH};
use crate::ltfs::label::MIN_BLOCK_SIZE;
use crate::ltfs::vol1::{self, Vol1};
use crate::ltfs::{is_uuid, time};
use types::Time;

/// Who we are, in the implementation field of VOL1 and the system field of HDR1.
pub(super) const SYSTEM: &str = "THERMOCLINE";
/// Version of the standard, X3.27-1978 and ISO 1001:1979, whose blocks may have any length.
const STANDARD: &str = "3";

/// What the labels of a volume say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsiLabel {
    /// Volume serial number: the first six characters of the barcode.
    pub serial: String,
    /// Uuid of the volume.
    pub uuid: String,
    /// When the volume was labelled (years 0 to 9999).
    pub format_time: Time,
    /// Size of the blocks of data (bytes).
    pub block_size: u32,
}

impl AnsiLabel {
    /// The labels of a new volume.
    ///
    /// # Errors
    /// A barcode, uuid or block size that cannot be put into them.
    pub fn new(barcode: &str, uuid: &str, now: Time, block_size: u32) -> Result<Self, AnsiError> {
        let unfit = |field, value: &str, rule| AnsiError::Unfit { field, value: value.to_owned(), rule };
        let serial = vol1::serial(barcode)
            .map_err(|_| unfit("barcode", barcode, "it must have 1 to 8 letters A-Z and digits"))?;
        if !is_uuid(uuid) {
            return Err(unfit("uuid", uuid, "it must be 32 hex digits in groups of 8-4-4-4-12"));
        }
        if !good_block_size(block_size) {
            let rule = "it must be a multiple of 512 and at least 4096";
            return Err(unfit("block size", &block_size.to_string(), rule));
        }
        let format_time = time::clamp(now);
        Ok(Self { serial: serial.to_owned(), uuid: uuid.to_owned(), format_time, block_size })
    }

    /// VOL1 and UVL1.
    pub fn encode(&self) -> [[u8; LENGTH]; 2] {
        let vol1 =
            Card::new("VOL1").text(&self.serial, 6).text("", 1 + 13).text(SYSTEM, 13).text("", 14 + 28);
        let vol1 = vol1.text(STANDARD, 1).done();
        let at = time::encode(self.format_time);
        let uvl1 = Card::new("UVL1").text(&self.uuid, 36).text(&String::from_utf8_lossy(&at), 30);
        [vol1, uvl1.number(self.block_size.into(), 10).done()]
    }

    /// Reads the first two records of a medium, of any length and content (empty where there is none).
    ///
    /// # Errors
    /// Blank, foreign or damaged.
    pub fn decode(first: &[u8], second: &[u8]) -> Result<Self, AnsiError> {
        let damaged = |what| AnsiError::Damaged { label: "VOL1".to_owned(), what };
        match vol1::decode(first) {
            Vol1::Blank => return Err(AnsiError::Blank),
            Vol1::Ltfs { serial } => {
                return Err(AnsiError::Foreign { what: format!("the label of LTFS volume {serial:?}") });
            }
            Vol1::Damaged { what } => return Err(damaged(what)),
            Vol1::Foreign { .. } if first.starts_with(b"VOL1") && is_ours(first) => {}
            Vol1::Foreign { what } => return Err(AnsiError::Foreign { what }),
        }
        let mut vol1 = Fields::of(first, "VOL1")?;
        let serial = vol1.text(6).to_owned();
        if vol1::serial(&serial).is_err() {
            return Err(vol1.wrong(format!("the serial number is {serial:?}")));
        }
        vol1.text(1 + 13 + 13);
        vol1.expect("", 14 + 28)?;
        vol1.expect(STANDARD, 1)?;
        if second.is_empty() {
            return Err(AnsiError::Damaged { label: "UVL1".to_owned(), what: "it is missing".to_owned() });
        }
        let mut uvl1 = Fields::of(second, "UVL1")?;
        let (uuid, at, size) = (uvl1.text(36), uvl1.text(30), uvl1.number(10)?);
        if !is_uuid(uuid) {
            return Err(uvl1.wrong(format!("{uuid:?} is no uuid")));
        }
        let format_time = full_time(at).ok_or_else(|| uvl1.wrong(format!("{at:?} is no time")))?;
        let block_size = u32::try_from(size).ok().filter(|&size| good_block_size(size));
        let block_size = block_size.ok_or_else(|| uvl1.wrong(format!("a block size of {size} bytes")))?;
        Ok(Self { serial, uuid: uuid.to_owned(), format_time, block_size })
    }
}

/// A time with all its digits.
pub(super) fn full_time(text: &str) -> Option<Time> {
    time::decode(text).filter(|_| text.len() == 30)
}

/// Whether blocks of this size hold whole records of tar.
pub(super) fn good_block_size(size: u32) -> bool {
    size >= MIN_BLOCK_SIZE && size.is_multiple_of(super::RECORD_LENGTH)
}

fn is_ours(record: &[u8]) -> bool {
    record.get(24..37).is_some_and(|field| field.trim_ascii_end() == SYSTEM.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";

    fn label() -> AnsiLabel {
        AnsiLabel::new("TC0001L4", UUID, Time::new(951_827_696, 5), 524_288).unwrap()
    }

    #[test]
    fn golden() {
        let [vol1, uvl1] = label().encode();
        let vol1_text = "VOL1TC0001              THERMOCLINE                                            3";
        let uvl1_text = "UVL130a91a08-daae-48d1-ae75-69804e61d2ea2000-02-29T12:34:56.000000005Z0000524288";
        assert_eq!(String::from_utf8_lossy(&vol1), vol1_text);
        assert_eq!(String::from_utf8_lossy(&uvl1), uvl1_text);
        assert_eq!(AnsiLabel::decode(&vol1, &uvl1), Ok(label()));
    }

    #[test]
    fn blank_foreign_and_damaged_are_told_apart() {
        let [vol1, uvl1] = label().encode();
        assert_eq!(AnsiLabel::decode(b"", b""), Err(AnsiError::Blank));
        let ltfs = vol1::encode("TC0001L9").unwrap();
        let mut other = vol1;
        other[24..35].copy_from_slice(b"CASTOR 2.11");
        let mut tar = [0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for foreign in [&ltfs[..], &other, &tar, b"HDR1", b"backup of 1999"] {
            let found = AnsiLabel::decode(foreign, &uvl1);
            assert!(matches!(found, Err(AnsiError::Foreign { .. })), "{found:?}");
        }
        let mut standard = vol1;
        standard[79] = b'4';
        for (first, second) in
            [(&vol1[..], &b""[..]), (&vol1, &uvl1[..79]), (&standard, &uvl1), (&vol1, &vol1)]
        {
            let found = AnsiLabel::decode(first, second);
            assert!(matches!(found, Err(AnsiError::Damaged { .. })), "{found:?}");
        }
    }

    #[test]
    fn unfit_values_are_refused() {
        let now = Time::new(0, 0);
        assert!(AnsiLabel::new("lower", UUID, now, 4096).is_err());
        assert!(AnsiLabel::new("TC0001", "no uuid", now, 4096).is_err());
        for size in [0, 512, 4097] {
            assert!(AnsiLabel::new("TC0001", UUID, now, size).is_err());
        }
    }
}
