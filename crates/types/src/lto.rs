//! Generations of LTO (Ultrium) tape: how they are told, and which drives read and write which.

use crate::Barcode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Generation of a medium, or of a drive by the newest that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Generation {
    /// LTO-1.
    Lto1,
    /// LTO-2.
    Lto2,
    /// LTO-3.
    Lto3,
    /// LTO-4.
    Lto4,
    /// LTO-5.
    Lto5,
    /// LTO-6.
    Lto6,
    /// LTO-7.
    Lto7,
    /// LTO-7 medium written at the density of type M8, which LTO-8 drives alone use.
    Lto7M8,
    /// LTO-8.
    Lto8,
    /// LTO-9.
    Lto9,
    /// LTO-10.
    Lto10,
}

/// What is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Reading only.
    Read,
    /// Writing, which takes reading too.
    Write,
}

use Generation as G;

impl Generation {
    /// All, oldest first.
    pub const ALL: [Self; 11] = [
        G::Lto1,
        G::Lto2,
        G::Lto3,
        G::Lto4,
        G::Lto5,
        G::Lto6,
        G::Lto7,
        G::Lto7M8,
        G::Lto8,
        G::Lto9,
        G::Lto10,
    ];

    /// By the media identifier that ends a bar code of eight characters or more (`L1` to `L9`, `LA`; `M8`; of WORM media
    /// `LT` to `LZ`), if it is one.
    pub fn of(volume: &Barcode) -> Option<Self> {
        let code = volume.as_str().as_bytes();
        let media = code.last_chunk::<2>().filter(|_| code.len() >= 8)?;
        Some(match media {
            b"L1" => G::Lto1,
            b"L2" => G::Lto2,
            b"L3" | b"LT" => G::Lto3,
            b"L4" | b"LU" => G::Lto4,
            b"L5" | b"LV" => G::Lto5,
            b"L6" | b"LW" => G::Lto6,
            b"L7" | b"LX" => G::Lto7,
            b"M8" => G::Lto7M8,
            b"L8" | b"LY" => G::Lto8,
            b"L9" | b"LZ" => G::Lto9,
            b"LA" => G::Lto10,
            _ => return None,
        })
    }

    /// By what people write: `LTO8`, `lto-8`, `L8`, `8`, `M8`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_uppercase();
        if text == "M8" {
            return Some(G::Lto7M8);
        }
        let digits = ["LTO-", "LTO", "L"].iter().find_map(|head| text.strip_prefix(head)).unwrap_or(&text);
        let plain = |g: &Self| *g != G::Lto7M8 && g.number().to_string() == digits;
        Self::ALL.into_iter().find(plain)
    }

    /// By the density code of a medium, of LTO-1 to LTO-9. That of LTO-10 is not published: see [`Generation::described`].
    pub fn of_density(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.density() == Some(code))
    }

    /// Density code (MODE SENSE, REPORT DENSITY SUPPORT).
    pub fn density(self) -> Option<u8> {
        Some(match self {
            G::Lto1 => 0x40,
            G::Lto2 => 0x42,
            G::Lto3 => 0x44,
            G::Lto4 => 0x46,
            G::Lto5 => 0x58,
            G::Lto6 => 0x5A,
            G::Lto7 => 0x5C,
            G::Lto7M8 => 0x5D,
            G::Lto8 => 0x5E,
            G::Lto9 => 0x60,
            G::Lto10 => return None,
        })
    }

    /// By the description of a density, `Ultrium 9/32T`.
    pub fn described(text: &str) -> Option<Self> {
        let (number, _) = text.trim().strip_prefix("Ultrium ")?.split_once('/')?;
        Self::parse(number)
    }

    /// Number of the generation; of type M8 that of its medium, 7.
    pub fn number(self) -> u8 {
        match self {
            G::Lto1 => 1,
            G::Lto2 => 2,
            G::Lto3 => 3,
            G::Lto4 => 4,
            G::Lto5 => 5,
            G::Lto6 => 6,
            G::Lto7 | G::Lto7M8 => 7,
            G::Lto8 => 8,
            G::Lto9 => 9,
            G::Lto10 => 10,
        }
    }

    /// Whether a drive of this generation can do so with such a medium: up to LTO-7 drives read two generations back and
    /// write one, LTO-8 and LTO-9 read and write one back (LTO-8 type M8 too), LTO-10 none.
    pub fn takes(self, medium: Self, access: Access) -> bool {
        let back = match (self, access) {
            (G::Lto7M8, _) => return false, // no drive, but a density of LTO-8 drives
            (G::Lto10, _) => 0,
            (G::Lto8 | G::Lto9, _) | (_, Access::Write) => 1,
            (_, Access::Read) => 2,
        };
        match medium {
            G::Lto7M8 => self == G::Lto8,
            _ => self >= medium && self.number() - medium.number() <= back,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            G::Lto7M8 => f.write_str("LTO-7 type M8"),
            _ => write!(f, "LTO-{}", self.number()),
        }
    }
}

/// Media that a drive reads and writes. A medium of which nothing is known is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    reads: u16,
    writes: u16,
}

impl Default for Reach {
    /// Everything: of a drive that does not say.
    fn default() -> Self {
        Self { reads: u16::MAX, writes: u16::MAX }
    }
}

impl Reach {
    /// Nothing.
    const NONE: Self = Self { reads: 0, writes: 0 };

    /// That of a drive of this generation, by the rules of LTO.
    pub fn of(drive: Generation) -> Self {
        let bits = |access| {
            let takes = G::ALL.into_iter().filter(|medium| drive.takes(*medium, access));
            takes.map(Generation::bit).fold(0, |all, bit| all | bit)
        };
        Self { reads: bits(Access::Read), writes: bits(Access::Write) }
    }

    /// That of a drive which says of each density that it knows whether it writes it too; None if it names none of LTO.
    pub fn reported(densities: impl Iterator<Item = (Generation, bool)>) -> Option<Self> {
        let mut reach = Self::NONE;
        for (medium, writable) in densities {
            reach.reads |= medium.bit();
            reach.writes |= medium.bit() * u16::from(writable);
        }
        (reach != Self::NONE).then_some(reach)
    }

    /// Whether it takes a medium (None: unknown).
    pub fn takes(self, medium: Option<Generation>, access: Access) -> bool {
        let set = match access {
            Access::Read => self.reads,
            Access::Write => self.writes,
        };
        medium.is_none_or(|medium| set & medium.bit() != 0)
    }

    /// The same but for a medium that it was seen to refuse.
    pub fn without(self, medium: Generation, access: Access) -> Self {
        let reads = if access == Access::Read { self.reads & !medium.bit() } else { self.reads };
        Self { reads, writes: self.writes & !medium.bit() }
    }

    /// Generation of the drive: the newest that it writes; None if it does not say what it takes.
    pub fn generation(self) -> Option<Generation> {
        let known = self != Self::default();
        G::ALL.into_iter().rev().find(|g| known && self.takes(Some(*g), Access::Write))
    }
}

impl fmt::Display for Reach {
    /// `LTO-7, LTO-8; reads LTO-6`: what it writes and, if there is more, what it only reads; empty if it does not say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        let list = |set: u16| {
            let names: Vec<String> =
                G::ALL.iter().filter(|g| set & g.bit() != 0).map(ToString::to_string).collect();
            names.join(", ")
        };
        f.write_str(&list(self.writes))?;
        match self.reads & !self.writes {
            0 => Ok(()),
            only => write!(f, "; reads {}", list(only)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_told_by_their_bar_codes() {
        let of = |code: &str| Generation::of(&Barcode::from(code));
        assert_eq!(of("TC0001L9"), Some(G::Lto9));
        assert_eq!((of("TC0001LA"), of("TC0001M8")), (Some(G::Lto10), Some(G::Lto7M8)));
        assert_eq!((of("TC0001L4"), of("L9"), of("TC01L9"), of("")), (Some(G::Lto4), None, None, None));
        assert_eq!((of("TC0001LZ"), of("TC0001LT"), of("TC0001LB")), (Some(G::Lto9), Some(G::Lto3), None));
    }

    #[test]
    fn densities_and_names_are_known() {
        for g in G::ALL {
            assert_eq!(g.density().and_then(Generation::of_density), g.density().map(|_| g));
        }
        assert_eq!(Generation::of_density(0), None);
        let described = ["Ultrium 9/32T", "Ultrium 10/32T", "Ultrium 1/8T", "DDS-4", "Ultrium "];
        assert_eq!(
            described.map(Generation::described),
            [Some(G::Lto9), Some(G::Lto10), Some(G::Lto1), None, None]
        );
        let parsed = ["LTO6", "lto-6", "6", "L6", "LTO10", "m8", "LTO0", "x"].map(Generation::parse);
        let six = Some(G::Lto6);
        assert_eq!(parsed, [six, six, six, six, Some(G::Lto10), Some(G::Lto7M8), None, None]);
    }

    /// The table that makers publish, row by row.
    #[test]
    fn drives_read_and_write_what_the_makers_say() {
        let media = [G::Lto3, G::Lto4, G::Lto5, G::Lto6, G::Lto7, G::Lto7M8, G::Lto8, G::Lto9, G::Lto10];
        let row = |drive: Generation| -> String {
            let reach = Reach::of(drive);
            let one = |m: &Generation| match [Access::Read, Access::Write].map(|a| reach.takes(Some(*m), a)) {
                [true, true] => 'w',
                [true, false] => 'r',
                [false, false] => '-',
                [false, true] => '?',
            };
            media.iter().map(one).collect()
        };
        assert_eq!(row(G::Lto5), "rww------");
        assert_eq!(row(G::Lto6), "-rww-----");
        assert_eq!(row(G::Lto7), "--rww----");
        assert_eq!(row(G::Lto8), "----www--");
        assert_eq!(row(G::Lto9), "------ww-");
        assert_eq!(row(G::Lto10), "--------w");
        assert!(
            Reach::default().takes(Some(G::Lto1), Access::Write)
                && Reach::of(G::Lto9).takes(None, Access::Write)
        );
    }

    #[test]
    fn what_a_drive_reports_counts_and_what_it_refused_does_not() {
        let told = [(G::Lto5, false), (G::Lto6, true), (G::Lto7, true)];
        assert_eq!(Reach::reported(told.into_iter()), Some(Reach::of(G::Lto7)));
        assert_eq!(Reach::reported(std::iter::empty()), None);
        let seven = Reach::of(G::Lto7);
        assert_eq!(seven.generation(), Some(G::Lto7));
        assert_eq!(Reach::default().generation(), None);
        assert_eq!(seven.to_string(), "LTO-6, LTO-7; reads LTO-5");
        assert_eq!(seven.without(G::Lto6, Access::Write).to_string(), "LTO-7; reads LTO-5, LTO-6");
        assert_eq!(seven.without(G::Lto6, Access::Read).to_string(), "LTO-7; reads LTO-5");
        assert_eq!(Reach::default().to_string(), "");
    }
}
