//! The labels around the data of a section: HDR1, HDR2, UHL1, UHL2 before it, EOF1, EOF2, UTL1, UTL2 behind it, or EOV1,
//! EOV2, UTL1, UTL2 where its data goes on on the next volume.

use super::card::{Card, Fields};
use super::volume::{SYSTEM, full_time, good_block_size};
use super::{AnsiError, LENGTH, RECORD_LENGTH, SECTION_LABELS};
use crate::ltfs::{is_uuid, time, vol1};
use types::Time;

/// Never to be overwritten by programs that look at it: the last day of 2099.
const EXPIRES: &str = "099365";
/// Numbers in fields of ten digits stay below this.
const TEN_DIGITS: u64 = 10_000_000_000;

/// The labels of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionLabel {
    /// Serial number of the first volume on which data of this section lies.
    pub set: String,
    /// Number of the section, counted from 1 through all sections of the volume that it begins on.
    pub section: u64,
    /// 1, and one more on each further volume onto which its data goes on.
    pub part: u16,
    /// Block of the volume at which HDR1 lies.
    pub first_block: u64,
    /// Size of the blocks of data (bytes), the last may be shorter.
    pub block_size: u32,
    /// Uuid of the volume that these labels are on.
    pub volume: String,
    /// When the section was begun (years 0 to 9999).
    pub begun: Time,
}

/// What follows the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// EOF: the section is complete.
    Section,
    /// EOV: its data goes on on the next volume.
    Volume,
    /// EOF, and what lies between its first block and these labels does not count: a section that was cut off on a medium that
    /// cannot be overwritten. Blocks are those up to the filemark before these labels, whatever they hold.
    Void,
}

/// What UTL2 says of a section that does not count.
const VOID: &str = "VOID";

/// What the labels behind the data say beyond those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// How the data ends here.
    pub ending: Ending,
    /// Blocks of data on this volume.
    pub blocks: u64,
    /// Bytes of data on this volume.
    pub bytes: u64,
}

impl Ending {
    fn prefix(self) -> &'static str {
        match self {
            Ending::Section | Ending::Void => "EOF",
            Ending::Volume => "EOV",
        }
    }
}

impl SectionLabel {
    /// The labels before the data.
    ///
    /// # Errors
    /// A value that does not fit into its field.
    pub fn header(&self) -> Result<[[u8; LENGTH]; SECTION_LABELS], AnsiError> {
        self.group(("HDR", "UHL", ""), 0, 0)
    }

    /// The labels behind the data.
    ///
    /// # Errors
    /// A value that does not fit into its field.
    pub fn trailer(&self, trailer: &Trailer) -> Result<[[u8; LENGTH]; SECTION_LABELS], AnsiError> {
        let note = if trailer.ending == Ending::Void { VOID } else { "" };
        self.group((trailer.ending.prefix(), "UTL", note), trailer.blocks, trailer.bytes)
    }

    fn group(
        &self,
        (name, user, note): (&str, &str, &str),
        blocks: u64,
        bytes: u64,
    ) -> Result<[[u8; LENGTH]; SECTION_LABELS], AnsiError> {
        self.fits(blocks)?;
        let begun = time::encode(self.begun);
        let begun = String::from_utf8_lossy(&begun);
        let one = Card::new(&format!("{name}1"))
            .text(&identifier(self.section), 17)
            .text(&self.set, 6)
            .number(self.part.into(), 4)
            .number(self.section, 4)
            .text("000100", 6)
            .text(&day(&begun), 6)
            .text(EXPIRES, 6)
            .text("", 1)
            .number(blocks, 6)
            .text(SYSTEM, 13);
        let short = if self.block_size < 100_000 { self.block_size } else { 0 };
        let two = Card::new(&format!("{name}2"))
            .text("F", 1)
            .number(short.into(), 5)
            .number(RECORD_LENGTH.into(), 5)
            .text("", 35)
            .text("00", 2);
        let third = Card::new(&format!("{user}1"))
            .number(self.section, 10)
            .number(self.block_size.into(), 10)
            .number(RECORD_LENGTH.into(), 10)
            .number(self.first_block, 10)
            .number(blocks, 10)
            .number(bytes, 20);
        let fourth = Card::new(&format!("{user}2")).text(&self.volume, 36).text(&begun, 30).text(note, 10);
        Ok([one.done(), two.done(), third.done(), fourth.done()])
    }

    fn fits(&self, blocks: u64) -> Result<(), AnsiError> {
        let unfit = |field, value: String, rule| Err(AnsiError::Unfit { field, value, rule });
        if !(1..TEN_DIGITS).contains(&self.section) {
            return unfit("section", self.section.to_string(), "it must have 1 to 10 digits");
        }
        if !(1..=9999).contains(&self.part) {
            return unfit("part", self.part.to_string(), "it must be 1 to 9999");
        }
        if self.first_block.max(blocks) >= TEN_DIGITS {
            let value = self.first_block.max(blocks).to_string();
            return unfit("number of blocks", value, "it must have at most 10 digits");
        }
        if vol1::serial(&self.set).is_err() || self.set.len() > 6 {
            return unfit("serial", self.set.clone(), "it must have 1 to 6 letters A-Z and digits");
        }
        if !is_uuid(&self.volume) {
            return unfit("uuid", self.volume.clone(), "it must be 32 hex digits in groups of 8-4-4-4-12");
        }
        if !good_block_size(self.block_size) {
            let rule = "it must be a multiple of 512 and at least 4096";
            return unfit("block size", self.block_size.to_string(), rule);
        }
        Ok(())
    }

    /// Reads the labels before the data: four records of any length and content.
    ///
    /// # Errors
    /// Foreign (somebody else's label) or damaged.
    pub fn decode_header<R: AsRef<[u8]>>(records: &[R; SECTION_LABELS]) -> Result<Self, AnsiError> {
        let (label, blocks, bytes, void) = decode(records, "HDR", "UHL")?;
        if (blocks, bytes, void) == (0, 0, false) {
            return Ok(label);
        }
        let what = "it counts data before there is any".to_owned();
        Err(AnsiError::Damaged { label: "UHL1".to_owned(), what })
    }

    /// Reads the labels behind the data.
    ///
    /// # Errors
    /// Foreign (somebody else's label) or damaged.
    pub fn decode_trailer<R: AsRef<[u8]>>(
        records: &[R; SECTION_LABELS],
    ) -> Result<(Self, Trailer), AnsiError> {
        let ending = if records[0].as_ref().starts_with(b"EOV1") { Ending::Volume } else { Ending::Section };
        let (label, blocks, bytes, void) = decode(records, ending.prefix(), "UTL")?;
        let size = u64::from(label.block_size);
        if void && (ending, bytes) == (Ending::Section, 0) {
            return Ok((label, Trailer { ending: Ending::Void, blocks, bytes }));
        }
        if void || bytes.div_ceil(size) != blocks || !bytes.is_multiple_of(u64::from(RECORD_LENGTH)) {
            let what = format!("{bytes} bytes are not {blocks} blocks of {size} bytes");
            return Err(AnsiError::Damaged { label: "UTL1".to_owned(), what });
        }
        Ok((label, Trailer { ending, blocks, bytes }))
    }
}

/// Name of the section for programs that know the standard labels only.
fn identifier(section: u64) -> String {
    format!("SECTION{section:010}")
}

/// Reads the four labels: what they say, blocks and bytes, and whether they do not count.
fn decode<R: AsRef<[u8]>>(
    records: &[R; SECTION_LABELS],
    name: &str,
    user: &str,
) -> Result<(SectionLabel, u64, u64, bool), AnsiError> {
    let mut one = Fields::of(records[0].as_ref(), &format!("{name}1"))?;
    let (identified, set, part, short_section) = (one.text(17), one.text(6), one.number(4)?, one.number(4)?);
    one.expect("000100", 6)?;
    let (day_begun, expires) = (one.text(6), one.text(6));
    one.expect("", 1)?;
    let short_blocks = one.number(6)?;
    let system = one.text(13);
    if system != SYSTEM {
        let what = format!("label {name}1 of file {identified:?} by system {system:?}");
        return Err(AnsiError::Foreign { what });
    }
    one.expect("", 7)?;
    let mut two = Fields::of(records[1].as_ref(), &format!("{name}2"))?;
    two.expect("F", 1)?;
    let short_size = two.number(5)?;
    two.expect(&format!("{RECORD_LENGTH:05}"), 5)?;
    two.expect("", 35)?;
    two.expect("00", 2)?;
    two.expect("", 28)?;
    let mut third = Fields::of(records[2].as_ref(), &format!("{user}1"))?;
    let (section, size) = (third.number(10)?, third.number(10)?);
    third.expect(&format!("{RECORD_LENGTH:010}"), 10)?;
    let (first_block, blocks, bytes) = (third.number(10)?, third.number(10)?, third.number(20)?);
    third.expect("", 6)?;
    let mut fourth = Fields::of(records[3].as_ref(), &format!("{user}2"))?;
    let (volume, begun, note) = (fourth.text(36), fourth.text(30), fourth.text(10));
    if !matches!(note, "" | VOID) {
        return Err(fourth.wrong(format!("{note:?} behind the time")));
    }
    let time = full_time(begun).ok_or_else(|| fourth.wrong(format!("{begun:?} is no time")))?;
    let label = SectionLabel {
        set: set.to_owned(),
        section,
        part: u16::try_from(part).unwrap_or(0),
        first_block,
        block_size: u32::try_from(size).unwrap_or(0),
        volume: volume.to_owned(),
        begun: time,
    };
    label.fits(blocks).map_err(|error| third.wrong(error.to_string()))?;
    let shown = if size < 100_000 { size } else { 0 };
    let agree = identified == identifier(section)
        && short_section == section % 10_000
        && short_blocks == blocks % 1_000_000
        && short_size == shown
        && day_begun == day(begun)
        && expires == EXPIRES;
    if agree {
        Ok((label, blocks, bytes, note == VOID))
    } else {
        Err(one.wrong(format!("it does not agree with {user}1 and {user}2")))
    }
}

/// `cyyddd` of a time as 30 characters: century since 1900 (space is the 20th), year in it, day of the year. Years
/// before 1900 and after 2899 are shown as 1900.
fn day(time: &str) -> String {
    let number = |from: usize, to: usize| time[from..to].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let of_year = before[(month.clamp(1, 12) - 1) as usize] + day + u32::from(leap && month > 2);
    match year {
        2000..=2899 => format!("{}{:02}{of_year:03}", (year - 2000) / 100, year % 100),
        1900..=1999 => format!(" {:02}{of_year:03}", year % 100),
        _ => " 00001".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";

    fn label() -> SectionLabel {
        SectionLabel {
            set: "TC0001".to_owned(),
            section: 10_007,
            part: 1,
            first_block: 42,
            block_size: 524_288,
            volume: UUID.to_owned(),
            begun: Time::new(951_827_696, 5),
        }
    }

    #[test]
    fn golden() {
        let header = label().header().unwrap().map(|record| String::from_utf8(record.to_vec()).unwrap());
        let expected = [
            "HDR1SECTION0000010007TC000100010007000100000060099365 000000THERMOCLINE         ",
            "HDR2F0000000512                                   00                            ",
            "UHL10000010007000052428800000005120000000042000000000000000000000000000000",
            "UHL230a91a08-daae-48d1-ae75-69804e61d2ea2000-02-29T12:34:56.000000005Z          ",
        ];
        for (found, expected) in header.iter().zip(expected) {
            assert_eq!(found.trim_end(), expected.trim_end());
        }
        assert_eq!(SectionLabel::decode_header(&header), Ok(label()));
        let trailer = Trailer { ending: Ending::Volume, blocks: 2_000_001, bytes: 2_000_000 * 524_288 + 512 };
        let records = label().trailer(&trailer).unwrap();
        assert!(records[0].starts_with(b"EOV1SECTION0000010007TC000100010007000100000060099365 000001"));
        assert_eq!(SectionLabel::decode_trailer(&records), Ok((label(), trailer)));
        let trailer = Trailer { ending: Ending::Void, blocks: 17, bytes: 0 };
        let records = label().trailer(&trailer).unwrap();
        assert!(records[0].starts_with(b"EOF1") && records[3].ends_with(b"VOID      "));
        assert_eq!(SectionLabel::decode_trailer(&records), Ok((label(), trailer)));
        let mut counts = records;
        counts[2][73] = b'1';
        assert!(SectionLabel::decode_trailer(&counts).is_err(), "it has no bytes");
    }

    #[test]
    fn days() {
        assert_eq!(day("1999-12-31"), " 99365");
        assert_eq!(day("2000-12-31"), "000366");
        assert_eq!(day("2026-11-21"), "026325");
        assert_eq!(day("2100-03-01"), "100060");
        assert_eq!(day("0000-01-01"), " 00001");
    }

    #[test]
    fn foreign_and_contradictory_labels_are_refused() {
        let good = label().header().unwrap();
        let mut foreign = good;
        foreign[0][60..73].copy_from_slice(b"CASTOR 2.1.13");
        assert!(matches!(SectionLabel::decode_header(&foreign), Err(AnsiError::Foreign { .. })));
        for (record, at, byte) in
            [(0, 20, b'8'), (0, 4, b'X'), (1, 4, b'D'), (2, 13, b'8'), (3, 5, b'x'), (2, 47, b'1')]
        {
            let mut bad = good;
            bad[record][at] = byte;
            let found = SectionLabel::decode_header(&bad);
            assert!(matches!(found, Err(AnsiError::Damaged { .. })), "{record} {at}: {found:?}");
        }
        assert!(SectionLabel { section: 0, ..label() }.header().is_err());
        assert!(SectionLabel { part: 0, ..label() }.header().is_err());
        assert!(SectionLabel { first_block: TEN_DIGITS, ..label() }.header().is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            section in 1..TEN_DIGITS, part in 1..10_000_u16, first_block in 0..TEN_DIGITS, times: (i64, u32),
            size in 8..4096_u32, blocks in 0..TEN_DIGITS, short in 0..8_u64, continued: bool,
        ) {
            let begun = time::clamp(Time::new(times.0, times.1));
            let label = SectionLabel { section, part, first_block, block_size: size * 512, begun, ..label() };
            prop_assert_eq!(SectionLabel::decode_header(&label.header().unwrap()), Ok(label.clone()));
            let bytes = (blocks * u64::from(label.block_size)).saturating_sub(short * 512);
            let ending = if continued { Ending::Volume } else { Ending::Section };
            let trailer = Trailer { ending, blocks, bytes };
            let found = SectionLabel::decode_trailer(&label.trailer(&trailer).unwrap());
            prop_assert_eq!(found, Ok((label, trailer)));
        }

        #[test]
        fn a_changed_byte_is_noticed_or_harmless(record in 0..4_usize, at in 0..80_usize, byte: u8) {
            let mut records = label().header().unwrap();
            records[record][at] = byte;
            if let Ok(found) = SectionLabel::decode_header(&records) {
                prop_assert_eq!(found.header().unwrap(), records); // nothing that was read is lost
            }
        }
    }
}
