//! Frames of the data protocol: headers of fixed length in little endian, sums, then bytes as they are. Pure functions.
//! `docs/formats/data.md` has the tables.

use crate::capability::{CapabilityKey, SIGNATURE_LEN};
use crate::refusal::MAX_MESSAGE;
use crate::sum;
use crate::{CAPABILITY_LEN, Refusal};

/// Newest version of the protocol that this program speaks, and the only one so far.
pub const VERSION: u32 = 1;
/// Most bytes of content in one request or answer.
pub const MAX_IO: usize = 4 << 20;
/// Most sums with one request or answer: those of [`MAX_IO`] bytes that begin within a block.
pub const MAX_SUMS: usize = MAX_IO / sum::BLOCK + 1;
/// Length of the header of a request, signature included (bytes).
pub const REQUEST_LEN: usize = 40 + SIGNATURE_LEN;
/// Length of the header of an answer, signature included (bytes).
pub const ANSWER_LEN: usize = 32 + SIGNATURE_LEN;
/// Most objects that one request makes or removes.
pub const MAX_CREATE: u64 = 4096;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Present a capability, which later requests name by its slot.
    Attach = 1,
    /// Read `length` bytes at `offset`; fewer at the end of the object.
    Read = 2,
    /// Write the bytes that follow at `offset`.
    Write = 3,
    /// Make what was written durable, with its sums.
    Sync = 4,
    /// Set the length to `offset`.
    SetLength = 5,
    /// Ask for the length.
    Stat = 6,
    /// Make `length` empty objects from `object` on, or those of the list that follows, durably.
    Create = 7,
    /// Remove the object, or those of the list that follows, durably.
    Remove = 8,
    /// From now on refuse capabilities with a generation below `offset` for the object, durably.
    Fence = 9,
    /// From now on refuse capabilities of the client `object` that were given out before `offset` (nanoseconds since 1970), durably.
    Revoke = 10,
    /// Hand out a descriptor of the object, for reading (same host only).
    Descriptor = 11,
}

impl TryFrom<u8> for Op {
    type Error = Refusal;
    fn try_from(byte: u8) -> Result<Self, Refusal> {
        use Op::*;
        [Attach, Read, Write, Sync, SetLength, Stat, Create, Remove, Fence, Revoke, Descriptor]
            .into_iter()
            .find(|op| *op as u8 == byte)
            .ok_or(Refusal::Malformed("no such operation"))
    }
}

/// Bit of [`Request::flags`]: the bytes of a read must be settled (compared with their sums by the mover, while nobody writes).
pub const SETTLED: u8 = 1;
/// Bit of [`Request::flags`]: a descriptor is wanted for writing too. It is refused: nobody would keep the sums of what is written by it.
pub const FOR_WRITING: u8 = 2;
/// Bit of [`Request::flags`]: the mover compares the blocks of a read with their sums, and sends no bytes.
pub const COMPARED: u8 = 4;
/// Bit of [`Request::flags`]: the numbers of the objects that are to be made or removed follow, 8 bytes each, `length` of them.
pub const LISTED: u8 = 8;
/// Bit of [`Request::flags`]: the bytes of a read need not be sent, the sums are enough: whoever asks reads them by a descriptor. A mover that cannot know
/// that sends them.
pub const HELD: u8 = 16;

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub op: Op,
    /// Bits that say how.
    pub flags: u8,
    /// Slot of the capability on this connection.
    pub slot: u16,
    /// How many sums follow.
    pub sums: u32,
    /// Number of the request in its channel: greater than that of every one before; 0 for [`Op::Attach`].
    pub sequence: u64,
    /// The object.
    pub object: u64,
    /// Where (bytes), or what the operation says.
    pub offset: u64,
    /// How much (bytes): wanted, or following.
    pub length: u64,
}

/// Header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was asked.
    pub op: Op,
    /// 0, or [`Refusal::code`]; the payload is then a message.
    pub code: u8,
    /// How many sums follow.
    pub sums: u32,
    /// Number of the request.
    pub sequence: u64,
    /// Length of the object (bytes).
    pub value: u64,
    /// How many bytes follow the sums.
    pub length: u64,
}

impl Request {
    /// How many bytes follow the sums.
    pub fn payload(&self) -> usize {
        match self.op {
            Op::Attach | Op::Write => self.length as usize,
            Op::Create | Op::Remove if self.flags & LISTED != 0 => self.length as usize * 8,
            _ => 0,
        }
    }

    /// The header, signed together with `sums` (and, of an attachment or a list, the `body`).
    pub fn encode(
        &self,
        session: &Session,
        key: &CapabilityKey,
        sums: &[u8],
        body: &[u8],
    ) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..40].copy_from_slice(&self.plain());
        let signature = key.sign(&[&session.0, b"q", &self.plain(), sums, self.signed(body)]);
        bytes[40..].copy_from_slice(&signature);
        bytes
    }

    /// Reads a header and says what is to follow; the signature is checked by [`Request::verify`] once that is there.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, Refusal> {
        let request = Self {
            op: Op::try_from(bytes[0])?,
            flags: bytes[1],
            slot: u16::from_le_bytes([bytes[2], bytes[3]]),
            sums: word(bytes, 4),
            sequence: long(bytes, 8),
            object: long(bytes, 16),
            offset: long(bytes, 24),
            length: long(bytes, 32),
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), Refusal> {
        let refuse = |bad: bool, why| if bad { Err(Refusal::Malformed(why)) } else { Ok(()) };
        let moves = matches!(self.op, Op::Read | Op::Write);
        refuse(moves && self.length > MAX_IO as u64, "too many bytes at once")?;
        refuse(
            moves && self.offset.checked_add(self.length).is_none(),
            "the range goes beyond the largest offset",
        )?;
        let many = matches!(self.op, Op::Create | Op::Remove);
        refuse(many && self.length > MAX_CREATE, "too many objects at once")?;
        refuse(self.object.checked_add(MAX_CREATE).is_none(), "no such object")?;
        refuse(
            self.op == Op::Attach && self.length != CAPABILITY_LEN as u64,
            "not the length of a capability",
        )?;
        let sums = if self.op == Op::Write { sum::touched(self.offset, self.length) } else { 0 };
        refuse(u64::from(self.sums) != sums, "not as many sums as blocks")?;
        refuse((self.op == Op::Attach) != (self.sequence == 0), "only an attachment has the number 0")
    }

    /// Whether the bytes of the header are signed by whoever has the key.
    pub fn verify(
        header: &[u8; REQUEST_LEN],
        session: &Session,
        key: &CapabilityKey,
        sums: &[u8],
        body: &[u8],
    ) -> Result<Self, Refusal> {
        let request = Self::decode(header)?;
        let (plain, signature) = header.split_at(40);
        let signature: &[u8; SIGNATURE_LEN] = signature.try_into().map_err(|_| Refusal::Signature)?;
        match key.verifies(&[&session.0, b"q", plain, sums, request.signed(body)], signature) {
            true => Ok(request),
            false => Err(Refusal::Signature),
        }
    }

    /// What of the body is signed: bytes of files are covered by the sums, which are.
    fn signed<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        if matches!(self.op, Op::Attach | Op::Create | Op::Remove) { body } else { &[] }
    }

    fn plain(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[0] = self.op as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sums.to_le_bytes());
        for (n, field) in [self.sequence, self.object, self.offset, self.length].into_iter().enumerate() {
            bytes[8 + 8 * n..16 + 8 * n].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

impl Answer {
    /// The header, signed together with `sums`, and with the message of a refusal; without a key it is not signed.
    pub fn encode(
        &self,
        session: &Session,
        key: Option<&CapabilityKey>,
        sums: &[u8],
        body: &[u8],
    ) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        bytes[..32].copy_from_slice(&self.plain());
        if let Some(key) = key {
            bytes[32..].copy_from_slice(&key.sign(&[
                &session.0,
                b"a",
                &self.plain(),
                sums,
                self.signed(body),
            ]));
        }
        bytes
    }

    /// Reads a header and says what is to follow.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn decode(bytes: &[u8; ANSWER_LEN]) -> Result<Self, Refusal> {
        let answer = Self {
            op: Op::try_from(bytes[0])?,
            code: bytes[1],
            sums: word(bytes, 4),
            sequence: long(bytes, 8),
            value: long(bytes, 16),
            length: long(bytes, 24),
        };
        let most = if answer.code == 0 { MAX_IO } else { MAX_MESSAGE };
        if answer.length > most as u64 || answer.sums as usize > MAX_SUMS || bytes[2..4] != [0, 0] {
            return Err(Refusal::Malformed("an answer is longer than any can be"));
        }
        Ok(answer)
    }

    /// Whether the bytes of the header are signed by the target that knows the key.
    pub fn verify(
        header: &[u8; ANSWER_LEN],
        session: &Session,
        key: &CapabilityKey,
        sums: &[u8],
        body: &[u8],
    ) -> Result<Self, Refusal> {
        let answer = Self::decode(header)?;
        let (plain, signature) = header.split_at(32);
        let signature: &[u8; SIGNATURE_LEN] = signature.try_into().map_err(|_| Refusal::Signature)?;
        match key.verifies(&[&session.0, b"a", plain, sums, answer.signed(body)], signature) {
            true => Ok(answer),
            false => Err(Refusal::Signature),
        }
    }

    fn signed<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        if self.code == 0 { &[] } else { body }
    }

    fn plain(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = self.op as u8;
        bytes[1] = self.code;
        bytes[4..8].copy_from_slice(&self.sums.to_le_bytes());
        for (n, field) in [self.sequence, self.value, self.length].into_iter().enumerate() {
            bytes[8 + 8 * n..16 + 8 * n].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// The random numbers of both ends of a connection: part of all that is signed on it, so that nothing signed on one is worth anything on
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(pub(crate) [u8; 32]);

/// Numbers of objects as they travel.
pub fn encode_list(objects: &[u64]) -> Vec<u8> {
    objects.iter().flat_map(|object| object.to_le_bytes()).collect()
}

/// Inverse of [`encode_list`]; bytes that are left over are left out.
pub fn decode_list(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|object| u64::from_le_bytes(*object)).collect()
}

/// Sums as they travel.
pub fn encode_sums(sums: &[u32]) -> Vec<u8> {
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

/// Inverse of [`encode_sums`]; bytes that are left over are left out.
pub fn decode_sums(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect()
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
