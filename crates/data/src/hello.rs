//! What both ends say first: who they are, which version they speak, and a random number each.

use crate::Refusal;
use crate::frame::{Session, VERSION, long, word};

/// Length of what each end says first (bytes).
pub const HELLO_LEN: usize = 64;
const MAGIC: [u8; 8] = *b"THERMOD\n";

/// What a client says of itself. That it is the client is shown by its capabilities only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// Newest version that it speaks.
    pub version: u32,
    /// The client.
    pub client: u64,
    /// Its channel: sequence numbers go on in it over connections.
    pub channel: u64,
    /// UUID of the cluster.
    pub cluster: [u8; 16],
    /// Random.
    pub nonce: [u8; 16],
}

/// What a mover says of itself. That it is the mover is shown by the signatures of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoverHello {
    /// Version that is spoken.
    pub version: u32,
    /// Changes whenever the machine starts: what was not made durable before may be lost.
    pub boot: u64,
    /// UUID of the cluster.
    pub cluster: [u8; 16],
    /// Random.
    pub nonce: [u8; 16],
}

impl ClientHello {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        encode(self.version, &[self.client, self.channel], &self.cluster, &self.nonce)
    }

    /// Inverse of [`ClientHello::encode`].
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if it is not of this protocol.
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, Refusal> {
        let (version, cluster, nonce) = decode(bytes)?;
        Ok(Self { version, client: long(bytes, 16), channel: long(bytes, 24), cluster, nonce })
    }
}

impl MoverHello {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        encode(self.version, &[self.boot, 0], &self.cluster, &self.nonce)
    }

    /// Inverse of [`MoverHello::encode`].
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if it is not of this protocol.
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, Refusal> {
        let (version, cluster, nonce) = decode(bytes)?;
        Ok(Self { version, boot: long(bytes, 16), cluster, nonce })
    }
}

/// What both ends sign with everything.
pub fn session(client: &ClientHello, mover: &MoverHello) -> Session {
    let mut both = [0; 32];
    both[..16].copy_from_slice(&client.nonce);
    both[16..].copy_from_slice(&mover.nonce);
    Session(both)
}

/// The version that both speak: the lower of the newest ones.
///
/// # Errors
/// [`Refusal::Malformed`] if this program does not know it (any more).
pub fn agree(theirs: u32) -> Result<u32, Refusal> {
    match theirs.min(VERSION) {
        VERSION => Ok(VERSION),
        _ => Err(Refusal::Malformed("no common version of the data protocol")),
    }
}

fn encode(version: u32, numbers: &[u64; 2], cluster: &[u8; 16], nonce: &[u8; 16]) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&numbers[0].to_le_bytes());
    bytes[24..32].copy_from_slice(&numbers[1].to_le_bytes());
    bytes[32..48].copy_from_slice(cluster);
    bytes[48..].copy_from_slice(nonce);
    bytes
}

fn decode(bytes: &[u8; HELLO_LEN]) -> Result<(u32, [u8; 16], [u8; 16]), Refusal> {
    if bytes[..8] != MAGIC {
        return Err(Refusal::Malformed("this is not the data protocol"));
    }
    let sixteen = |at: usize| {
        let mut field = [0; 16];
        field.copy_from_slice(&bytes[at..at + 16]);
        field
    };
    Ok((word(bytes, 8), sixteen(32), sixteen(48)))
}
