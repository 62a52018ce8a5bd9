//! The index of a whole volume in a section of its own: the XML of an LTFS index (`docs/formats/ltfs.md`), cut into members
//! of bounded size, so that neither writing nor reading needs it as a whole in memory. What it says of partition `b` is
//! about the only one.

use super::name;
use super::plan::own_head;
use super::read::{Member, Reader};
use super::{BLOCK, padding};
use std::io::{self, BufRead, Read};
use types::Time;

/// Record of a member that is a part of the index; the value is its number.
pub const MARK: &str = "THERMOCLINE.volume-index";
/// Longest part (bytes).
pub const PART: usize = 1 << 20;
/// Read at a time (bytes).
const PIECE: u64 = 64 << 10;

/// A part of the index of a volume as a member: header, data, padding.
pub fn part(section: u64, number: u32, begun: Time, data: &[u8]) -> Vec<u8> {
    let records = [(MARK.to_owned(), number.to_string().into_bytes())];
    let length = data.len() as u64;
    let mut out = own_head(&name::volume_index(section, number), length, begun, &records);
    out.extend_from_slice(data);
    out.resize(out.len() + padding(length) as usize, 0);
    out
}

/// What ends a section.
pub const END: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];

/// Whether a member is a part of the index of a volume.
pub fn is_part(member: &Member) -> bool {
    member.record(MARK).is_some()
}

/// The parts of an index as one stream.
pub struct Parts<R> {
    reader: Reader<R>,
    member: Option<Member>,
    piece: Vec<u8>,
    at: usize,
}

impl<R: Read> Parts<R> {
    /// Reads from the first byte of a section; None if it begins with something else.
    ///
    /// # Errors
    /// The section is damaged or cannot be read.
    pub fn open(from: R) -> Result<Option<Self>, super::TarError> {
        let mut reader = Reader::new(from);
        let first = reader.next()?.filter(is_part);
        Ok(first.map(|member| Self { reader, member: Some(member), piece: Vec::new(), at: 0 }))
    }

    fn next_piece(&mut self) -> Result<Vec<u8>, super::TarError> {
        while let Some(member) = &self.member {
            let piece = self.reader.read_data(member, PIECE)?;
            if !piece.is_empty() {
                return Ok(piece);
            }
            self.member = self.reader.next()?.filter(is_part);
        }
        Ok(Vec::new())
    }
}

impl<R: Read> BufRead for Parts<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.piece.len() {
            self.piece = self.next_piece().map_err(io::Error::other)?;
            self.at = 0;
        }
        Ok(&self.piece[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.piece.len());
    }
}

impl<R: Read> Read for Parts<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_stream_and_a_cut_one_is_noticed() {
        let text: Vec<u8> = (0..3 * PART as u32 / 2).map(|n| (n % 251) as u8).collect();
        let begun = Time::new(1_790_000_000, 0);
        let mut section: Vec<u8> =
            (0..).zip(text.chunks(PART)).flat_map(|(n, data)| part(7, n, begun, data)).collect();
        section.extend(END);
        let mut found = Vec::new();
        Parts::open(&section[..]).unwrap().unwrap().read_to_end(&mut found).unwrap();
        assert_eq!(found, text);
        let mut cut = Parts::open(&section[..section.len() - 2048]).unwrap().unwrap();
        assert!(cut.read_to_end(&mut Vec::new()).is_err());
        assert!(Parts::open(&END[..]).unwrap().is_none());
    }
}
