//! The header block of a member (POSIX.1-1988 ustar).

use super::BLOCK;

/// A regular file.
pub const FILE: u8 = b'0';
/// Records for the next member.
pub const PAX: u8 = b'x';

/// What a header block says. Numbers too large for their fields are written as zero: a pax record has them then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Name, at most 100 bytes; the rest is cut off, a pax record has it.
    pub name: Vec<u8>,
    /// Kind of the member.
    pub kind: u8,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Length of the data (bytes).
    pub size: u64,
    /// Modification time (seconds since 1970).
    pub mtime: u64,
    /// Target of a link, at most 100 bytes; the rest is cut off, a pax record has it.
    pub link: Vec<u8>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

/// Longest name in the header block (bytes).
pub const MAX_NAME: usize = 100;
/// Largest number in a field of 7 octal digits.
pub const MAX_SEVEN: u64 = 0o7_777_777;
/// Largest number in a field of 11 octal digits.
pub const MAX_ELEVEN: u64 = 0o77_777_777_777;

impl Header {
    /// The block.
    pub fn encode(&self) -> [u8; BLOCK as usize] {
        let mut block = [0; BLOCK as usize];
        let name = &self.name[..self.name.len().min(MAX_NAME)];
        block[..name.len()].copy_from_slice(name);
        octal(&mut block[100..108], self.mode.into(), MAX_SEVEN);
        octal(&mut block[108..116], self.uid, MAX_SEVEN);
        octal(&mut block[116..124], self.gid, MAX_SEVEN);
        octal(&mut block[124..136], self.size, MAX_ELEVEN);
        octal(&mut block[136..148], self.mtime, MAX_ELEVEN);
        block[156] = self.kind;
        let link = &self.link[..self.link.len().min(MAX_NAME)];
        block[157..157 + link.len()].copy_from_slice(link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        octal(&mut block[329..337], self.device.0.into(), MAX_SEVEN);
        octal(&mut block[337..345], self.device.1.into(), MAX_SEVEN);
        let sum = format!("{:06o}\0 ", checksum(&block));
        block[148..156].copy_from_slice(sum.as_bytes());
        block
    }

    /// Reads a block; the error says what is wrong with it. Names that use the prefix field are put together.
    pub fn decode(block: &[u8; BLOCK as usize]) -> Result<Self, String> {
        let sum = number(&block[148..156]).ok_or("the checksum of the header is no number")?;
        if sum != u64::from(checksum(block)) {
            return Err("the checksum of the header is wrong".to_owned());
        }
        if &block[257..263] != b"ustar\0" {
            return Err("the header is not of the pax format".to_owned());
        }
        let field = |name: &str, from: usize, to: usize| {
            number(&block[from..to]).ok_or_else(|| format!("the {name} in the header is no octal number"))
        };
        let (name, prefix) = (text(&block[..MAX_NAME]), text(&block[345..500]));
        let name = if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() };
        Ok(Self {
            name,
            kind: block[156],
            mode: field("mode", 100, 108)? as u32,
            uid: field("owner", 108, 116)?,
            gid: field("group", 116, 124)?,
            size: field("size", 124, 136)?,
            mtime: field("time", 136, 148)?,
            link: text(&block[157..257]).to_vec(),
            // Some programs leave these empty, and only devices have them.
            device: (
                number(&block[329..337]).unwrap_or(0) as u32,
                number(&block[337..345]).unwrap_or(0) as u32,
            ),
        })
    }
}

fn octal(field: &mut [u8], value: u64, most: u64) {
    let width = field.len() - 1;
    let value = if value > most { 0 } else { value };
    field[..width].copy_from_slice(format!("{value:0width$o}").as_bytes());
}

/// Octal digits up to a space, a NUL or the end; at least one.
fn number(field: &[u8]) -> Option<u64> {
    let field = field.trim_ascii_start();
    let end = field.iter().position(|&byte| byte == b' ' || byte == 0).unwrap_or(field.len());
    let (digits, rest) = field.split_at(end);
    let only_octal = digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let ended = rest.iter().all(|&byte| byte == b' ' || byte == 0);
    let text = std::str::from_utf8(digits).ok().filter(|text| only_octal && ended && !text.is_empty())?;
    u64::from_str_radix(text, 8).ok()
}

fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&byte| byte == 0).unwrap_or(field.len())]
}

/// Sum of all bytes, those of the checksum counted as spaces.
fn checksum(block: &[u8; BLOCK as usize]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            name in prop::collection::vec(1..=255_u8, 1..=100), mode in 0..0o10_000_u32, uid in 0..=MAX_SEVEN,
            gid in 0..=MAX_SEVEN, size in 0..=MAX_ELEVEN, mtime in 0..=MAX_ELEVEN,
            link in prop::collection::vec(1..=255_u8, 0..=100), device in (0..4096_u32, 0..=MAX_SEVEN as u32),
        ) {
            let header = Header { name, kind: FILE, mode, uid, gid, size, mtime, link, device };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0..500_usize, change in 1..=255_u8) {
            let header = Header { name: b"name".to_vec(), kind: FILE, mode: 0o644, ..Header::default() };
            let mut block = header.encode();
            block[at] ^= change;
            // the field of the checksum itself may say the same in other words
            prop_assert!((148..156).contains(&at) || Header::decode(&block).is_err());
        }
    }

    #[test]
    fn too_large_numbers_are_zero() {
        let header = Header { name: vec![b'x'; 200], size: 1 << 40, uid: 1 << 32, ..Header::default() };
        let found = Header::decode(&header.encode()).unwrap();
        assert_eq!((found.name.len(), found.size, found.uid), (100, 0, 0));
    }
}
