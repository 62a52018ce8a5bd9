//! Attributes in cartridge memory (SPC-4 section 7.4, LTFS 2.4 section 10): who wrote the volume, and whether its
//! indexes are in step with its data.

use super::{VERSION, is_uuid};

/// Volume change reference, kept by the drive.
pub const VOLUME_CHANGE_REFERENCE: u16 = 0x0009;
/// Volume coherency information, one per partition.
pub const VOLUME_COHERENCY: u16 = 0x080C;
/// Length of an attribute's header: id, format, length of the value.
pub const HEADER: usize = 5;

/// How the value of an attribute is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// Bytes.
    Binary,
    /// ASCII, padded with spaces.
    Ascii,
    /// Text in the character set of the attribute 0805, padded with NUL.
    Text,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Identifier.
    pub id: u16,
    /// Format.
    pub format: ValueFormat,
    /// Set only by the drive.
    pub read_only: bool,
    /// Value, shorter than 64 KiB.
    pub value: Vec<u8>,
}

/// Why bytes of cartridge memory could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cartridge memory attribute {id:#06x} is damaged: {what}")]
pub struct MamError {
    /// Identifier of the attribute.
    pub id: u16,
    /// What is wrong.
    pub what: String,
}

impl Attribute {
    /// An attribute that a host may write.
    fn host(id: u16, format: ValueFormat, value: Vec<u8>) -> Self {
        Self { id, format, read_only: false, value }
    }

    /// Identifier, format, length and value, as in the data of READ and WRITE ATTRIBUTE. A value of 64 KiB or more,
    /// which no attribute has, is cut.
    pub fn encode(&self) -> Vec<u8> {
        let length = u16::try_from(self.value.len()).unwrap_or(u16::MAX);
        let format = match self.format {
            ValueFormat::Binary => 0,
            ValueFormat::Ascii => 1,
            ValueFormat::Text => 2,
        };
        let mut out = Vec::with_capacity(HEADER + self.value.len());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.push(format | if self.read_only { 0x80 } else { 0 });
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.value[..usize::from(length)]);
        out
    }

    /// Reads one attribute at the start of `bytes`; gives the bytes behind it too.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), MamError> {
        let [id0, id1, flags, length0, length1, rest @ ..] = bytes else {
            return Err(MamError {
                id: 0,
                what: format!("{} bytes left where a header of 5 belongs", bytes.len()),
            });
        };
        let id = u16::from_be_bytes([*id0, *id1]);
        let length = usize::from(u16::from_be_bytes([*length0, *length1]));
        let format = match flags & 3 {
            0 => ValueFormat::Binary,
            1 => ValueFormat::Ascii,
            2 => ValueFormat::Text,
            _ => return Err(MamError { id, what: "unknown format 3".to_owned() }),
        };
        match rest.split_at_checked(length) {
            Some((value, rest)) => {
                let read_only = flags & 0x80 != 0;
                Ok((Self { id, format, read_only, value: value.to_vec() }, rest))
            }
            None => Err(MamError { id, what: format!("{} of {length} bytes of its value", rest.len()) }),
        }
    }

    /// Reads attributes one behind the other (the list of READ ATTRIBUTE without its length field).
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Self>, MamError> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (attribute, rest) = Self::decode(bytes)?;
            all.push(attribute);
            bytes = rest;
        }
        Ok(all)
    }
}

/// The number in attribute 0x0009, a big-endian number of 1 to 8 bytes (LTO has 4). A drive that cannot tell gives
/// all ones, which is none.
pub fn decode_vcr(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 8 || value.iter().all(|&b| b == 0xff) {
        return None;
    }
    Some(value.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

/// Volume coherency information of one partition: the index it ends with, and the volume change reference at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coherency {
    /// Volume change reference when the attribute was written.
    pub vcr: u64,
    /// Generation of the partition's newest index.
    pub generation: u64,
    /// Block at which that index starts.
    pub block: u64,
    /// Uuid of the volume.
    pub uuid: String,
}

/// Length of the value of attribute 0x080C.
pub const COHERENCY_LENGTH: usize = 70;

impl Coherency {
    /// The attribute as it is written. `uuid` must have its 36 characters; anything else is an error.
    pub fn encode(&self) -> Result<Attribute, MamError> {
        if !is_uuid(&self.uuid) {
            return Err(MamError { id: VOLUME_COHERENCY, what: format!("{:?} is no uuid", self.uuid) });
        }
        let mut value = Vec::with_capacity(COHERENCY_LENGTH);
        value.push(8);
        value.extend_from_slice(&self.vcr.to_be_bytes());
        value.extend_from_slice(&self.generation.to_be_bytes());
        value.extend_from_slice(&self.block.to_be_bytes());
        value.extend_from_slice(&43_u16.to_be_bytes());
        value.extend_from_slice(b"LTFS\0");
        value.extend_from_slice(self.uuid.as_bytes());
        value.extend_from_slice(&[0, 1]);
        Ok(Attribute::host(VOLUME_COHERENCY, ValueFormat::Binary, value))
    }

    /// Reads the value of attribute 0x080C.
    pub fn decode(value: &[u8]) -> Result<Self, MamError> {
        let damaged = |what: &str| MamError { id: VOLUME_COHERENCY, what: what.to_owned() };
        if value.len() < COHERENCY_LENGTH {
            return Err(damaged("shorter than 70 bytes"));
        }
        if value[0] != 8 || value[25..27] != [0, 43] || &value[27..32] != b"LTFS\0" {
            return Err(damaged("not written by LTFS"));
        }
        let number = |at: usize| value[at..at + 8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let uuid = std::str::from_utf8(&value[32..68]).ok().filter(|text| is_uuid(text));
        Ok(Self {
            vcr: number(1),
            generation: number(9),
            block: number(17),
            uuid: uuid.ok_or_else(|| damaged("its uuid is none"))?.to_owned(),
        })
    }
}

/// What the host attributes of partition 0 say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo<'a> {
    /// Version of the program (8 characters are kept).
    pub program_version: &'a str,
    /// Barcode of the cartridge.
    pub barcode: &'a str,
    /// Name of the volume for people (160 bytes of UTF-8 are kept).
    pub text_label: &'a str,
    /// Tape pool.
    pub pool: &'a str,
    /// Lock state of attribute 1623: 0 unlocked, 1 locked, 2 to 6 write error or permanent.
    pub lock: u8,
}

/// The attributes that go into partition 0 when a volume is labelled.
pub fn host_attributes(info: &HostInfo<'_>) -> Vec<Attribute> {
    vec![
        ascii(0x0800, "THERMO", 8),
        ascii(0x0801, "Thermocline", 32),
        ascii(0x0802, info.program_version, 8),
        text(0x0803, info.text_label, 160),
        Attribute::host(0x0805, ValueFormat::Binary, vec![0x81]),
        ascii(0x0806, info.barcode, 32),
        text(0x0808, info.pool, 160),
        ascii(0x080B, VERSION, 16),
        Attribute::host(0x1623, ValueFormat::Binary, vec![info.lock]),
    ]
}

fn ascii(id: u16, value: &str, width: usize) -> Attribute {
    let mut bytes: Vec<u8> = value
        .chars()
        .map(|c| if c.is_ascii_graphic() || c == ' ' { c as u8 } else { b'?' })
        .take(width)
        .collect();
    bytes.resize(width, b' ');
    Attribute::host(id, ValueFormat::Ascii, bytes)
}

fn text(id: u16, value: &str, width: usize) -> Attribute {
    let mut bytes = super::name::cut(value, width).as_bytes().to_vec();
    bytes.resize(width, 0);
    Attribute::host(id, ValueFormat::Text, bytes)
}
