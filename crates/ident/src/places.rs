//! Where the namespace of a cluster is to be had, as who has the authority's key says it: a host that has heard of no other place than one where nobody is any more
//! cannot ask.
//!
//! As bytes: `thermo-places-v1`, then the turn of who says it (u64, little-endian), length (u32, little-endian) of the addresses (`host:port`, UTF-8, a line feed
//! between two) and those, [signed](crate::signed). What one of an earlier turn than another one says is asked last.

use crate::signed::{self, bad};
use crate::{Authority, IdentError};
use uuid::Uuid;

const HEAD: &[u8; 16] = b"thermo-places-v1";

/// What such a list says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Of who says it: whoever takes over has a higher one.
    pub turn: u64,
    /// Where the namespace is to be had (`host:port`), the likeliest first.
    pub addresses: Vec<String>,
}

impl Authority {
    /// The signed list.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn place(&self, places: &Places) -> Result<Vec<u8>, IdentError> {
        let mut list = signed::begin(HEAD, self);
        let text = places.addresses.join("\n");
        let length = u32::try_from(text.len()).map_err(|_| bad("it is too long"))?;
        list.extend_from_slice(&places.turn.to_le_bytes());
        list.extend_from_slice(&length.to_le_bytes());
        list.extend_from_slice(text.as_bytes());
        signed::end(list, self)
    }
}

/// Reads such a list, and makes sure that it is of that cluster and signed by its authority (certificate, DER).
///
/// # Errors
/// [`IdentError::List`]; what the certificate of the authority is.
pub fn read_places(list: &[u8], cluster: Uuid, authority: &[u8]) -> Result<Places, IdentError> {
    let rest = signed::behind(HEAD, list, cluster)?;
    let (turn, rest) = rest.split_first_chunk().ok_or(bad("it ends early"))?;
    let (length, rest) = rest.split_first_chunk().ok_or(bad("it ends early"))?;
    let (text, signature) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(bad("it ends early"))?;
    signed::check(list, signature, authority)?;
    let text = std::str::from_utf8(text).map_err(|_| bad("it is of another release"))?;
    let addresses = text.lines().map(str::to_owned).collect();
    Ok(Places { turn: u64::from_le_bytes(*turn), addresses })
}
