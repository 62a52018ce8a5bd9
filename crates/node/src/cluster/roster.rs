//! The roster: the cluster's records once more, in `<state_dir>/cluster/roster` of the host that has the authority's key. A catalogue that was
//! rebuilt from tapes, or is an older backup, gets from it who belongs to the cluster and which numbers were given.
//!
//! For the cluster and then each member: length of the record (u32, little-endian) and the record, as the catalogue has it; at the end the
//! SHA-256 of all that.

use format::record;
use types::{Cluster, Member};

/// Bytes of a digest.
const SUM: usize = 32;

pub(super) fn encode(cluster: &Cluster, members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |record: Vec<u8>| {
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&record);
    };
    put(record::encode(cluster));
    members.iter().for_each(|member| put(record::encode(member)));
    let sum = ident::digest(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// None: damaged, or of another release.
pub(super) fn decode(bytes: &[u8]) -> Option<(Cluster, Vec<Member>)> {
    let (mut rest, sum) = bytes.split_last_chunk::<SUM>()?;
    if ident::digest(rest) != *sum {
        return None;
    }
    let cluster = record::decode(next(&mut rest)?).ok()?;
    let mut members = Vec::new();
    while !rest.is_empty() {
        members.push(record::decode(next(&mut rest)?).ok()?);
    }
    Some((cluster, members))
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk()?;
    let (record, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = tail;
    Some(record)
}
