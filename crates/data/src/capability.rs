//! Capabilities: what a metadata service lets a client do with objects of one target, as the target itself can check.
//!
//! After NASD (H. Gobioff, "Security for a High Performance Commodity Storage Subsystem", CMU-CS-99-160, chapter 4; G. Gibson et al.,
//! CMU-CS-97-185): the metadata service and a target share a secret. A [`Capability`] is public; its key is the keyed digest of its bytes
//! under the secret, and is given to the client over an encrypted connection. The client signs every request with the key. The target
//! makes the key again from the capability and its secret, so it keeps nothing and asks nobody, and whoever overhears a capability can do
//! nothing with it.

use crate::Refusal;
use ring::hmac;
use std::ops::Range;
use subtle::ConstantTimeEq;
use types::{Ino, ObjectId, TargetId, Time};

/// Length of an encoded capability (bytes).
pub const CAPABILITY_LEN: usize = 104;
/// Length of a signature (bytes): HMAC-SHA256 (RFC 2104, FIPS 180-4), whole.
pub const SIGNATURE_LEN: usize = 32;
/// Version of the encoding.
const VERSION: u16 = 1;
/// What is digested before a capability, so that no signature of anything else can be taken for a key.
const KEY_OF: &[u8] = b"thermocline capability key 1\0";

/// What may be done, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u16);

impl Rights {
    /// Read bytes, ask for the length.
    pub const READ: Self = Self(1);
    /// Write bytes, set the length, make durable.
    pub const WRITE: Self = Self(2);
    /// Make and remove objects, raise fences, revoke: metadata services only.
    pub const MANAGE: Self = Self(4);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `wanted` are among these.
    pub const fn allow(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// Permission for a client to use some objects of one target for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Which of the target's secrets signs it; they are changed now and then.
    pub epoch: u32,
    /// UUID of the cluster.
    pub cluster: [u8; 16],
    /// The target.
    pub target: TargetId,
    /// File that the objects belong to, for messages and logs.
    pub file: Ino,
    /// The objects.
    pub objects: Range<u64>,
    /// Generation of the file's layout; an object refuses those below its fence.
    pub generation: u64,
    /// What may be done.
    pub rights: Rights,
    /// With which bytes of each object.
    pub range: Range<u64>,
    /// User on whose behalf.
    pub user: u32,
    /// Client that may use it.
    pub client: u64,
    /// When it was given out.
    pub issued: Time,
    /// When it ends.
    pub expires: Time,
}

impl Capability {
    /// Its bytes, as they travel and are digested. Little endian; `docs/formats/data.md` has the table.
    pub fn encode(&self) -> [u8; CAPABILITY_LEN] {
        let mut bytes = [0; CAPABILITY_LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&VERSION.to_le_bytes());
        put(&self.rights.0.to_le_bytes());
        put(&self.epoch.to_le_bytes());
        put(&self.cluster);
        put(&self.target.0.to_le_bytes());
        put(&self.user.to_le_bytes());
        put(&self.file.0.to_le_bytes());
        put(&self.objects.start.to_le_bytes());
        put(&self.objects.end.to_le_bytes());
        put(&self.generation.to_le_bytes());
        put(&self.range.start.to_le_bytes());
        put(&self.range.end.to_le_bytes());
        put(&self.client.to_le_bytes());
        put(&self.issued.as_nanos().to_le_bytes());
        put(&self.expires.as_nanos().to_le_bytes());
        bytes
    }

    /// Inverse of [`Capability::encode`].
    ///
    /// # Errors
    /// [`Refusal::Capability`] for another version.
    pub fn decode(bytes: &[u8; CAPABILITY_LEN]) -> Result<Self, Refusal> {
        let mut rest = Fields(bytes);
        if u16::from_le_bytes(rest.take()) != VERSION {
            return Err(Refusal::Capability("its version is not known here"));
        }
        Ok(Self {
            rights: Rights(u16::from_le_bytes(rest.take())),
            epoch: u32::from_le_bytes(rest.take()),
            cluster: rest.take(),
            target: TargetId(u32::from_le_bytes(rest.take())),
            user: u32::from_le_bytes(rest.take()),
            file: Ino(rest.number()),
            objects: rest.number()..rest.number(),
            generation: rest.number(),
            range: rest.number()..rest.number(),
            client: rest.number(),
            issued: Time::from_nanos(i64::from_le_bytes(rest.take())),
            expires: Time::from_nanos(i64::from_le_bytes(rest.take())),
        })
    }

    /// Whether it lets its bearer do `wanted` with `range` of `object` at `now`. Fences are the target's own.
    ///
    /// # Errors
    /// What of it is not enough.
    pub fn allows(
        &self,
        wanted: Rights,
        object: ObjectId,
        range: &Range<u64>,
        now: Time,
    ) -> Result<(), Refusal> {
        if now >= self.expires {
            return Err(Refusal::Expired);
        }
        if !self.objects.contains(&object.0) {
            return Err(Refusal::Capability("it is for other objects"));
        }
        if !self.rights.allow(wanted) {
            return Err(Refusal::Capability("it does not give this right"));
        }
        if range.start < self.range.start || range.end > self.range.end {
            return Err(Refusal::Capability("it is for other bytes"));
        }
        Ok(())
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (head, rest) = self.0.split_at(N.min(self.0.len()));
        field[..head.len()].copy_from_slice(head);
        self.0 = rest;
        field
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// What a metadata service and a target share.
#[derive(Clone)]
pub struct TargetSecret(hmac::Key);

impl TargetSecret {
    /// From 32 random bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Whether it is the same as another one.
    pub fn is(&self, other: &Self) -> bool {
        let of = |secret: &Self| secret.key(&[0; CAPABILITY_LEN]).secret();
        of(self) == of(other)
    }

    /// The key that belongs to a capability.
    pub fn key(&self, capability: &[u8; CAPABILITY_LEN]) -> CapabilityKey {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(KEY_OF);
        context.update(capability);
        let tag = context.sign();
        let mut secret = [0; SIGNATURE_LEN];
        secret.copy_from_slice(tag.as_ref());
        CapabilityKey { secret, key: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }
}

impl std::fmt::Debug for TargetSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TargetSecret(..)")
    }
}

/// The key of a capability: whoever has it may use the capability.
#[derive(Clone)]
pub struct CapabilityKey {
    secret: [u8; SIGNATURE_LEN],
    key: hmac::Key,
}

impl CapabilityKey {
    /// As it was given out by the metadata service.
    pub fn from_secret(secret: [u8; SIGNATURE_LEN]) -> Self {
        Self { secret, key: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    /// What is given to the client, over an encrypted connection only.
    pub fn secret(&self) -> [u8; SIGNATURE_LEN] {
        self.secret
    }

    /// Signature of the parts one after the other.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; SIGNATURE_LEN] {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(context.sign().as_ref());
        signature
    }

    /// Whether `signature` is that of the parts, in a time that does not depend on where it differs.
    pub fn verifies(&self, parts: &[&[u8]], signature: &[u8; SIGNATURE_LEN]) -> bool {
        self.sign(parts).ct_eq(signature).into()
    }
}

impl std::fmt::Debug for CapabilityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CapabilityKey(..)")
    }
}
