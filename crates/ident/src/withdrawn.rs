//! Who was removed from the cluster: a list that the authority signs, so that a node believes it whoever brings it.
//!
//! As bytes: `thermo-removed-1` (16 bytes), cluster (16), number of members (u32, little-endian), for each in ascending order kind (u8: 0 node,
//! 1 client) and number (u32, little-endian), [signed](crate::signed).
//!
//! Members are named, not certificates: whatever certificates somebody has, he is out. Numbers are never given twice, so lists only grow, and
//! an old one that is brought again changes nothing.

use crate::signed::{self, bad};
use crate::{Authority, IdentError, Role};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{ClientId, NodeId};
use uuid::Uuid;

const HEAD: &[u8; 16] = b"thermo-removed-1";
/// Bytes of one member.
const ROW: usize = 5;

/// Who is not believed any more, for all connections of a process.
#[derive(Clone, Debug, Default)]
pub struct Withdrawn(Arc<RwLock<BTreeSet<Role>>>);

impl Withdrawn {
    /// Whether that one was removed.
    pub fn contains(&self, role: Role) -> bool {
        self.0.read().contains(&role)
    }

    /// Adds members, and gives those that were not among them yet.
    pub fn add(&self, roles: impl IntoIterator<Item = Role>) -> Vec<Role> {
        let mut all = self.0.write();
        roles.into_iter().filter(|role| all.insert(*role)).collect()
    }

    /// All of them.
    pub fn all(&self) -> BTreeSet<Role> {
        self.0.read().clone()
    }
}

impl Authority {
    /// The signed list of those.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn withdraw(&self, roles: &BTreeSet<Role>) -> Result<Vec<u8>, IdentError> {
        let mut list = signed::begin(HEAD, self);
        let count = u32::try_from(roles.len()).map_err(|_| bad("it is too long"))?;
        list.extend_from_slice(&count.to_le_bytes());
        for role in roles {
            let (kind, number) = match role {
                Role::Node(NodeId(number)) => (0, *number),
                Role::Client(ClientId(number)) => (1, *number),
            };
            list.push(kind);
            list.extend_from_slice(&number.to_le_bytes());
        }
        signed::end(list, self)
    }
}

/// Reads a list, and makes sure that it is of that cluster and signed by its authority (certificate, DER).
///
/// # Errors
/// [`IdentError::List`]; what the certificate of the authority is.
pub fn read_withdrawn(list: &[u8], cluster: Uuid, authority: &[u8]) -> Result<BTreeSet<Role>, IdentError> {
    let rest = signed::behind(HEAD, list, cluster)?;
    let (count, rest) = rest.split_first_chunk().ok_or(bad("it ends early"))?;
    let length = (u32::from_le_bytes(*count) as usize).saturating_mul(ROW);
    let (rows, signature) = rest.split_at_checked(length).ok_or(bad("it ends early"))?;
    signed::check(list, signature, authority)?;
    let (rows, _) = rows.as_chunks::<ROW>();
    rows.iter().map(row).collect()
}

fn row(&[kind, number @ ..]: &[u8; ROW]) -> Result<Role, IdentError> {
    let number = u32::from_le_bytes(number);
    match kind {
        0 => Ok(Role::Node(NodeId(number))),
        1 => Ok(Role::Client(ClientId(number))),
        _ => Err(bad("it is of another release")),
    }
}
