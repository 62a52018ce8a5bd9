//! SCSI over a unix socket: how the virtual library is reached from other processes.
//!
//! All numbers are little-endian u32. Request: CDB length (1 to 16), bytes out, room for bytes in, 0; CDB padded to 16;
//! the bytes out. Reply: status, bytes in; sense padded to 96; the bytes in. One request at a time per connection.

use crate::{CHECK_CONDITION, Data, Reply, Transport, TransportError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of a request header with its CDB.
pub const REQUEST_BYTES: usize = 32;
/// Length of a reply header with its sense data.
pub const REPLY_BYTES: usize = 104;
/// Most data in one command (bytes).
pub const MAX_DATA: u32 = 32 << 20;

/// Head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    cdb: [u8; 16],
    cdb_len: u8,
    /// Bytes of data that follow.
    pub out_len: u32,
    /// Most bytes of data wanted back.
    pub in_alloc: u32,
}

/// Head of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// SCSI status byte.
    pub status: u8,
    /// Bytes of data that follow.
    pub data_len: u32,
    /// Sense data; empty unless CHECK CONDITION.
    pub sense: Vec<u8>,
}

/// A frame that breaks the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad frame: {field} is {value}")]
pub struct FrameError {
    /// Which field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
}

fn word(raw: &[u8], at: usize) -> u32 {
    raw.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn limited(field: &'static str, value: u32, max: u32) -> Result<u32, FrameError> {
    if value > max { Err(FrameError { field, value }) } else { Ok(value) }
}

impl RequestHead {
    /// A request; the CDB must have 1 to 16 bytes, the lengths must not exceed [`MAX_DATA`].
    pub fn new(cdb: &[u8], out_len: usize, in_alloc: usize) -> Result<Self, FrameError> {
        let mut raw = [0u8; REQUEST_BYTES];
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        raw[..4].copy_from_slice(&word(cdb.len()));
        raw[4..8].copy_from_slice(&word(out_len));
        raw[8..12].copy_from_slice(&word(in_alloc));
        let n = cdb.len().min(16);
        raw[16..16 + n].copy_from_slice(&cdb[..n]);
        Self::decode(&raw)
    }

    /// The CDB.
    pub fn cdb(&self) -> &[u8] {
        &self.cdb[..usize::from(self.cdb_len)]
    }

    /// As bytes on the wire.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut raw = [0u8; REQUEST_BYTES];
        raw[0] = self.cdb_len;
        raw[4..8].copy_from_slice(&self.out_len.to_le_bytes());
        raw[8..12].copy_from_slice(&self.in_alloc.to_le_bytes());
        raw[16..].copy_from_slice(&self.cdb);
        raw
    }

    /// From bytes on the wire.
    pub fn decode(raw: &[u8; REQUEST_BYTES]) -> Result<Self, FrameError> {
        let cdb_len = limited("CDB length", word(raw, 0), 16)? as u8;
        if cdb_len == 0 {
            return Err(FrameError { field: "CDB length", value: 0 });
        }
        let mut cdb = [0u8; 16];
        cdb.copy_from_slice(&raw[16..]);
        let out_len = limited("data-out length", word(raw, 4), MAX_DATA)?;
        Ok(Self { cdb, cdb_len, out_len, in_alloc: limited("allocation length", word(raw, 8), MAX_DATA)? })
    }
}

impl ReplyHead {
    /// As bytes on the wire; sense beyond 96 bytes is cut.
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut raw = [0u8; REPLY_BYTES];
        raw[0] = self.status;
        raw[4..8].copy_from_slice(&self.data_len.to_le_bytes());
        let n = self.sense.len().min(96);
        raw[8..8 + n].copy_from_slice(&self.sense[..n]);
        raw
    }

    /// From bytes on the wire. The length of sense data is taken from the sense data itself.
    pub fn decode(raw: &[u8; REPLY_BYTES]) -> Result<Self, FrameError> {
        let status = limited("status", word(raw, 0), 255)? as u8;
        let data_len = limited("data length", word(raw, 4), MAX_DATA)?;
        let sense = match status {
            CHECK_CONDITION => raw[8..8 + (8 + usize::from(raw[15])).min(96)].to_vec(),
            _ => Vec::new(),
        };
        Ok(Self { status, data_len, sense })
    }
}

/// Initiator side. A connection that broke or timed out is dropped; the next command connects anew (the device then
/// reports what happened meanwhile by a unit attention).
pub struct SocketTransport {
    path: PathBuf,
    name: String,
    stream: Option<UnixStream>,
}

impl SocketTransport {
    /// A way to a device's socket; it is connected by the first command.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), name: path.display().to_string(), stream: None }
    }

    /// Connects to a device's socket.
    pub fn connect(path: &Path) -> Result<Self, TransportError> {
        let mut transport = Self::new(path);
        transport.stream = Some(transport.open()?);
        Ok(transport)
    }

    fn open(&self) -> Result<UnixStream, TransportError> {
        UnixStream::connect(&self.path).map_err(|e| self.lost(format!("cannot connect: {e}")))
    }

    fn lost(&self, detail: String) -> TransportError {
        TransportError::Lost { device: self.name.clone(), detail }
    }
}

impl Transport for SocketTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        data.must_be_here(&self.name)?;
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        match exchange(&stream, cdb, data, timeout) {
            Ok(reply) => {
                self.stream = Some(stream);
                Ok(reply)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(TransportError::Timeout { device: self.name.clone(), seconds: timeout.as_secs() })
            }
            Err(e) => Err(self.lost(e.to_string())),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn exchange(mut stream: &UnixStream, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Reply> {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)?;
    let (out, room): (&[u8], &mut [u8]) = match data {
        Data::None | Data::There(_) | Data::Keep(_) => (&[], &mut []),
        Data::Out(out) => (out, &mut []),
        Data::In(room) => (&[], room),
    };
    let head = RequestHead::new(cdb, out.len(), room.len()).map_err(io::Error::other)?;
    stream.write_all(&head.encode())?;
    stream.write_all(out)?;
    let mut raw = [0u8; REPLY_BYTES];
    stream.read_exact(&mut raw)?;
    let reply = ReplyHead::decode(&raw).map_err(io::Error::other)?;
    let length = reply.data_len as usize;
    let Some(room) = room.get_mut(..length) else {
        return Err(io::Error::other(FrameError { field: "data length", value: reply.data_len }));
    };
    stream.read_exact(room)?;
    let transferred = if out.is_empty() { length } else { out.len() };
    Ok(Reply { status: reply.status, transferred, sense: reply.sense })
}
