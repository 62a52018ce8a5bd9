//! Recommended access order (SSC-5): the drive, which knows where its wraps lie, says in which order it would read.

use crate::bytes::{DecodeError, Fields};
use crate::{Data, Result, Ssc, opcode, timeout};

/// Service action of both commands.
const RECOMMENDED_ACCESS_ORDER: u8 = 0x1D;
/// RECEIVE: the limits instead of the list.
const UDS_LIMITS: u8 = 0x80;
/// GENERATE: make a list by the order of access.
const PROCESS: u8 = 2;
/// Descriptors with begin and end only, 32 bytes each.
const UDS_TYPE: u8 = 1;
/// Bytes of a list before its descriptors, and of a descriptor.
pub const HEADER: usize = 8;
/// See [`HEADER`].
pub const DESCRIPTOR: usize = 32;

/// What is to be read in one go: a user data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// Given by the host, and given back.
    pub id: u64,
    /// Partition.
    pub partition: u8,
    /// First logical object.
    pub begin: u64,
    /// Last logical object.
    pub end: u64,
}

impl DataSegment {
    /// As a descriptor: length 1Eh, 3 reserved, name (10 bytes, ours is a number), partition, begin, end.
    pub fn encode(&self) -> [u8; DESCRIPTOR] {
        let mut raw = [0; DESCRIPTOR];
        raw[1] = DESCRIPTOR as u8 - 2;
        raw[7..15].copy_from_slice(&self.id.to_be_bytes());
        raw[15] = self.partition;
        raw[16..24].copy_from_slice(&self.begin.to_be_bytes());
        raw[24..].copy_from_slice(&self.end.to_be_bytes());
        raw
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    /// It is too short.
    pub fn decode(raw: &[u8]) -> std::result::Result<Self, DecodeError> {
        let f = Fields::new("user data segment descriptor", raw);
        Ok(Self { id: f.u64(7)?, partition: f.u8(15)?, begin: f.u64(16)?, end: f.u64(24)? })
    }
}

/// Reads a list: 4 bytes, length of the descriptors, descriptors.
///
/// # Errors
/// It is shorter than it says.
pub fn decode_list(raw: &[u8]) -> std::result::Result<Vec<DataSegment>, DecodeError> {
    let f = Fields::new("recommended access order", raw);
    let length = f.u32(4)? as usize;
    f.slice(HEADER, length)?.chunks_exact(DESCRIPTOR).map(DataSegment::decode).collect()
}

/// A list of these segments.
pub fn encode_list(segments: &[DataSegment]) -> Vec<u8> {
    let mut raw = vec![0; 4];
    raw.extend(((segments.len() * DESCRIPTOR) as u32).to_be_bytes());
    segments.iter().for_each(|segment| raw.extend(segment.encode()));
    raw
}

impl Ssc {
    /// RECEIVE RECOMMENDED ACCESS ORDER: most segments of one list.
    ///
    /// # Errors
    /// 5/20/00 and 5/24/00: the drive does not have it.
    pub fn most_segments(&mut self) -> Result<usize> {
        const NAME: &str = "RECEIVE RECOMMENDED ACCESS ORDER";
        let mut cdb = [0; 12];
        (cdb[0], cdb[1]) = (opcode::MAINTENANCE_IN, RECOMMENDED_ACCESS_ORDER | UDS_LIMITS);
        (cdb[9], cdb[10]) = (4, UDS_TYPE);
        let raw = self.fetch(NAME, &cdb, 4, timeout::SHORT)?;
        self.decoded(NAME, Fields::new("limits of user data segments", &raw).u16(0)).map(usize::from)
    }

    /// GENERATE, then RECEIVE RECOMMENDED ACCESS ORDER: the segments in the order in which the drive would read them from
    /// where it stands.
    ///
    /// # Errors
    /// The drive does not have it, or not for these segments.
    pub fn recommended_order(&mut self, segments: &[DataSegment]) -> Result<Vec<DataSegment>> {
        let list = encode_list(segments);
        let length = (list.len() as u32).to_be_bytes();
        let mut cdb = [0; 12];
        (cdb[0], cdb[1], cdb[2], cdb[3]) =
            (opcode::MAINTENANCE_OUT, RECOMMENDED_ACCESS_ORDER, PROCESS, UDS_TYPE);
        cdb[6..10].copy_from_slice(&length);
        self.must("GENERATE RECOMMENDED ACCESS ORDER", &cdb, Data::Out(&list), timeout::POSITION)?;
        const NAME: &str = "RECEIVE RECOMMENDED ACCESS ORDER";
        let mut cdb = [0; 12];
        (cdb[0], cdb[1]) = (opcode::MAINTENANCE_IN, RECOMMENDED_ACCESS_ORDER);
        cdb[6..10].copy_from_slice(&length);
        cdb[10] = UDS_TYPE;
        let raw = self.fetch(NAME, &cdb, list.len(), timeout::SHORT)?;
        self.decoded(NAME, decode_list(&raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_the_standard_says_and_short_ones_are_refused() {
        let segment = DataSegment { id: 0x0102, partition: 1, begin: 5, end: 9 };
        let raw = encode_list(&[segment]);
        assert_eq!((raw.len(), raw[7], raw[9], raw[HEADER + 14], raw[HEADER + 15]), (40, 32, 0x1E, 2, 1));
        assert_eq!((raw[HEADER + 23], raw[HEADER + 31]), (5, 9));
        assert_eq!(decode_list(&raw).unwrap(), [segment]);
        for len in 0..raw.len() {
            assert!(decode_list(&raw[..len]).is_err(), "{len} bytes");
        }
    }
}
