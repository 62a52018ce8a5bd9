//! Frames: a header of 13 bytes and a payload. Pure functions over `Read` and `Write`.

use crate::{Hello, SPOKEN, VERSION, WireError};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{ErrorKind, Read, Write};

/// Longest payload of a frame (bytes).
pub const MAX_PAYLOAD: usize = 4 << 20;
/// Most bytes of file content in one `Read` or `Write` call.
pub const MAX_IO: usize = 1 << 20;
/// Length of a frame header (bytes).
pub const HEADER_LEN: usize = 13;
/// First bytes of the payload of a `Hello` frame, in all versions.
pub const MAGIC: [u8; 8] = *b"THERMO\r\n";

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`Hello`], first frame of each direction.
    Hello = 1,
    /// [`crate::Call`], client to node.
    Call = 2,
    /// [`crate::Reply`], node to client.
    Reply = 3,
    /// [`crate::Failure`], node to client.
    Failure = 4,
}

impl TryFrom<u8> for Kind {
    type Error = WireError;
    fn try_from(byte: u8) -> Result<Self, WireError> {
        match byte {
            1 => Ok(Self::Hello),
            2 => Ok(Self::Call),
            3 => Ok(Self::Reply),
            4 => Ok(Self::Failure),
            other => Err(WireError::UnknownKind(other)),
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: Kind,
    /// Call that it belongs to; 0 for `Hello`.
    pub id: u64,
    /// Encoded message.
    pub payload: Vec<u8>,
}

/// Writes one frame; small ones with a single `write`.
///
/// # Errors
/// [`WireError::TooLarge`] before anything was written; [`WireError::Io`], after which the stream is unusable.
pub fn write_frame(w: &mut impl Write, kind: Kind, id: u64, payload: &[u8]) -> Result<(), WireError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(WireError::TooLarge(payload.len() as u64));
    }
    let header = header(kind, id, payload.len() as u32);
    if payload.len() <= 64 << 10 {
        let mut whole = Vec::with_capacity(HEADER_LEN + payload.len());
        whole.extend_from_slice(&header);
        whole.extend_from_slice(payload);
        w.write_all(&whole)?;
    } else {
        w.write_all(&header)?;
        w.write_all(payload)?;
    }
    Ok(())
}

fn header(kind: Kind, id: u64, len: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4] = kind as u8;
    header[5..].copy_from_slice(&id.to_le_bytes());
    header
}

/// Reads one frame.
///
/// # Errors
/// [`WireError::Closed`] at the end of the stream between frames; others after which the stream is unusable.
pub fn read_frame(r: &mut impl Read) -> Result<Frame, WireError> {
    let mut header = [0; HEADER_LEN];
    let got = loop {
        match r.read(&mut header) {
            Ok(0) => return Err(WireError::Closed),
            Ok(n) => break n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    };
    r.read_exact(&mut header[got..])?;
    let [l0, l1, l2, l3, kind, id @ ..] = header;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > MAX_PAYLOAD {
        return Err(WireError::TooLarge(len as u64));
    }
    let kind = Kind::try_from(kind)?;
    let mut payload = Vec::with_capacity(len);
    r.take(len as u64).read_to_end(&mut payload)?;
    if payload.len() < len {
        return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into());
    }
    Ok(Frame { kind, id: u64::from_le_bytes(id), payload })
}

/// Encodes a message as a payload.
///
/// # Errors
/// [`WireError::Encode`] for a type that postcard cannot express: a defect.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    postcard::to_stdvec(message).map_err(WireError::Encode)
}

/// Decodes a payload; bytes left over are an error.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn decode<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(WireError::Malformed { kind, reason: "bytes are left over behind the message" }),
        Err(postcard::Error::DeserializeUnexpectedEnd) => {
            Err(WireError::Malformed { kind, reason: "the message ends early" })
        }
        Err(_) => Err(WireError::Malformed { kind, reason: "not a message of this wire version" }),
    }
}

/// Payload of the first frame of a connection: [`MAGIC`], version (u32 LE), then the program name (UTF-8 up to the end).
/// This layout is the same in all wire versions.
pub fn encode_hello(hello: &Hello) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend_from_slice(&hello.version.to_le_bytes());
    payload.extend_from_slice(hello.program.as_bytes());
    payload
}

/// Inverse of [`encode_hello`]. The name is cut at 256 bytes and invalid UTF-8 replaced.
///
/// # Errors
/// [`WireError::NotThermocline`].
pub fn decode_hello(frame: &Frame) -> Result<Hello, WireError> {
    let rest = match (frame.kind, frame.payload.strip_prefix(&MAGIC)) {
        (Kind::Hello, Some(rest)) => rest,
        _ => return Err(WireError::NotThermocline),
    };
    let (version, name) = rest.split_first_chunk::<4>().ok_or(WireError::NotThermocline)?;
    let name = &name[..name.len().min(256)];
    Ok(Hello {
        version: u32::from_le_bytes(*version),
        program: String::from_utf8_lossy(name).escape_debug().collect(),
    })
}

/// The version both ends speak: the lower of the two newest ones, if this program still knows it.
///
/// # Errors
/// [`WireError::Version`].
pub fn agree(theirs: &Hello) -> Result<u32, WireError> {
    let common = VERSION.min(theirs.version);
    if SPOKEN.contains(&common) {
        return Ok(common);
    }
    Err(WireError::Version { ours: VERSION, theirs: theirs.version, program: theirs.program.clone() })
}
