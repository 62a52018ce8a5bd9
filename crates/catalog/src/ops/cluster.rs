//! The cluster: itself, its members, its tokens. Every change takes the record of the cluster first, so that two never mix.

use crate::keys;
use crate::rec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use std::time::Duration;
use types::{ClientId, Cluster, Digest, Grant, Member, MemberId, NodeId, Removal, Time, TokenRecord};

/// A token is forgotten so long after its end: until then it is told from one that never was.
const KEEP_TOKENS: Duration = Duration::from_secs(30 * 24 * 3600);

/// What becomes of a member that gets another certificate.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// SHA-256 of that.
    pub certificate: Digest,
    /// Its end.
    pub expires: Time,
    /// Where a node takes calls (`host:port`).
    pub control: Vec<String>,
    /// Where a node moves bytes (`host:port`).
    pub data: Vec<String>,
}

/// The cluster; None if this is none.
pub fn get(view: View<'_>) -> Result<Option<Cluster>> {
    let value = view.r.get(&keys::cluster())?;
    value.map(|v| rec::decode("cluster", "itself", &v)).transpose()
}

fn take(tx: &mut Tx<'_>) -> Result<Cluster> {
    let value = tx.w.get_for_update(&keys::cluster())?;
    let none = || CatalogError::refused("the cluster", "there is none; make one with `thermo cluster init`");
    rec::decode("cluster", "itself", &value.ok_or_else(none)?)
}

/// Makes the cluster, with its first node.
pub fn found(tx: &mut Tx<'_>, cluster: &Cluster, first: &Member) -> Result<()> {
    if tx.w.get_for_update(&keys::cluster())?.is_some() {
        return Err(CatalogError::refused(
            "the cluster",
            "there is one already; see `thermo cluster status`",
        ));
    }
    tx.w.put(&keys::cluster(), &record::encode(cluster))?;
    Ok(tx.w.put(&keys::member(first.id), &record::encode(first))?)
}

/// A number for a member that is about to be admitted; it is never given again, whatever becomes of him.
pub fn number(tx: &mut Tx<'_>, grant: &Grant) -> Result<MemberId> {
    let mut cluster = take(tx)?;
    let spent = || CatalogError::refused("the cluster", "all numbers of members have been given");
    let id = match grant {
        Grant::Node => {
            let id = cluster.next_node;
            cluster.next_node = NodeId(id.0.checked_add(1).ok_or_else(spent)?);
            MemberId::Node(id)
        }
        Grant::Client(_) => {
            let id = cluster.next_client;
            cluster.next_client = ClientId(id.0.checked_add(1).ok_or_else(spent)?);
            MemberId::Client(id)
        }
    };
    tx.w.put(&keys::cluster(), &record::encode(&cluster))?;
    Ok(id)
}

/// Admits the bearer of a token. False, and nothing changes, if the token is used, past its end or unknown by now.
pub fn admit(tx: &mut Tx<'_>, token: &[u8; 16], member: &Member, now: Time) -> Result<bool> {
    take(tx)?;
    let key = keys::token(token);
    let Some(value) = tx.w.get_for_update(&key)? else { return Ok(false) };
    let mut record: TokenRecord = rec::decode("token", "of the cluster", &value)?;
    if record.used.is_some() || record.expires < now {
        return Ok(false);
    }
    record.used = Some(member.id);
    tx.w.put(&key, &record::encode(&record))?;
    tx.w.put(&keys::member(member.id), &record::encode(member))?;
    Ok(true)
}

/// Changes the record of a member that belongs to the cluster. None, and nothing changes, if it was removed.
fn change<T>(tx: &mut Tx<'_>, id: MemberId, change: impl FnOnce(&mut Member) -> T) -> Result<Option<T>> {
    take(tx)?;
    let key = keys::member(id);
    let value = tx.w.get_for_update(&key)?.ok_or_else(|| CatalogError::missing("member", id))?;
    let mut member: Member = rec::decode("member", id.to_string(), &value)?;
    if member.removed.is_some() {
        return Ok(None);
    }
    let changed = change(&mut member);
    tx.w.put(&key, &record::encode(&member))?;
    Ok(Some(changed))
}

/// Removes a member; false if it was removed already.
pub fn remove(tx: &mut Tx<'_>, id: MemberId, removal: &Removal) -> Result<bool> {
    let removed = change(tx, id, |member| {
        (member.removed, member.next) = (Some(removal.clone()), None);
    });
    Ok(removed?.is_some())
}

/// Another certificate is to follow that of a member, which ends then; where a node is reached may be new too. False if it was removed.
pub fn renew(tx: &mut Tx<'_>, id: MemberId, renewed: &Renewed) -> Result<bool> {
    let changed = change(tx, id, |member| {
        (member.next, member.expires) = (Some(renewed.certificate), renewed.expires);
        if matches!(id, MemberId::Node(_)) {
            (member.control, member.data) = (renewed.control.clone(), renewed.data.clone());
        }
    });
    Ok(changed?.is_some())
}

/// A member uses the certificate that was to follow: the one before is not believed any more.
pub fn renewed(tx: &mut Tx<'_>, id: MemberId, certificate: Digest) -> Result<()> {
    change(tx, id, |member| {
        if member.next == Some(certificate) {
            (member.certificate, member.next) = (certificate, None);
        }
    })?;
    Ok(())
}

/// Withdraws all tokens that can still be used; how many those were.
pub fn revoke_tokens(tx: &mut Tx<'_>, now: Time) -> Result<u64> {
    take(tx)?;
    let all = tokens(tx.view())?;
    let open: Vec<_> = all.iter().filter(|token| token.used.is_none() && token.expires >= now).collect();
    for token in &open {
        tx.w.delete(&keys::token(&token.id))?;
    }
    Ok(open.len() as u64)
}

/// Enters what a catalogue that was rebuilt, or is an older backup, does not know: the cluster, members, their removal and newer
/// certificates. How many members were entered or changed.
pub fn recall(tx: &mut Tx<'_>, cluster: &Cluster, members: &[Member]) -> Result<u64> {
    let known = tx.w.get_for_update(&keys::cluster())?;
    let mut kept = match known {
        Some(value) => rec::decode("cluster", "itself", &value)?,
        None => cluster.clone(),
    };
    if kept.id != cluster.id {
        return Err(CatalogError::refused("the cluster", "the catalogue is of another one than the roster"));
    }
    kept.next_node = kept.next_node.max(cluster.next_node);
    kept.next_client = kept.next_client.max(cluster.next_client);
    tx.w.put(&keys::cluster(), &record::encode(&kept))?;
    let mut changed = 0;
    for member in members {
        let key = keys::member(member.id);
        let known: Option<Member> = match tx.w.get_for_update(&key)? {
            Some(value) => Some(rec::decode("member", member.id.to_string(), &value)?),
            None => None,
        };
        let newer = known.is_none_or(|known| {
            known.removed.is_none() && (member.removed.is_some() || member.expires > known.expires)
        });
        if newer {
            tx.w.put(&key, &record::encode(member))?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// Enters a token, and forgets those that ended long ago.
pub fn put_token(tx: &mut Tx<'_>, token: &TokenRecord, now: Time) -> Result<()> {
    take(tx)?;
    for old in tokens(tx.view())? {
        if old.expires.secs.saturating_add(KEEP_TOKENS.as_secs() as i64) < now.secs {
            tx.w.delete(&keys::token(&old.id))?;
        }
    }
    Ok(tx.w.put(&keys::token(&token.id), &record::encode(token))?)
}

/// A token.
pub fn token(view: View<'_>, id: &[u8; 16]) -> Result<Option<TokenRecord>> {
    let value = view.r.get(&keys::token(id))?;
    value.map(|v| rec::decode("token", "of the cluster", &v)).transpose()
}

/// All tokens.
pub fn tokens(view: View<'_>) -> Result<Vec<TokenRecord>> {
    let values = values(view, &keys::tokens())?;
    values.iter().map(|v| rec::decode("token", "of the cluster", v)).collect()
}

/// A session of another node is about to hold locks.
pub fn put_lock_session(tx: &mut Tx<'_>, node: NodeId, number: u64) -> Result<()> {
    Ok(tx.w.put(&keys::lock_session(node, number), &[])?)
}

/// A session holds no locks any more.
pub fn forget_lock_session(tx: &mut Tx<'_>, node: NodeId, number: u64) -> Result<()> {
    tx.w.delete(&keys::lock_session(node, number))?;
    Ok(())
}

/// Sessions of other nodes that may hold locks.
pub fn lock_sessions(view: View<'_>) -> Result<Vec<(NodeId, u64)>> {
    let prefix = keys::lock_sessions();
    let mut found = Vec::new();
    view.r.scan(&prefix, &keys::end(&prefix), &mut |key, _| {
        if let Some((node, number)) = key[prefix.len()..].split_first_chunk::<4>()
            && let Ok(number) = number.try_into()
        {
            found.push((NodeId(u32::from_be_bytes(*node)), u64::from_be_bytes(number)));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A member.
pub fn member(view: View<'_>, id: MemberId) -> Result<Option<Member>> {
    let value = view.r.get(&keys::member(id))?;
    value.map(|v| rec::decode("member", id.to_string(), &v)).transpose()
}

/// All members: nodes, then clients, each in order of number.
pub fn members(view: View<'_>) -> Result<Vec<Member>> {
    let values = values(view, &keys::members())?;
    values.iter().map(|v| rec::decode("member", "list", v)).collect()
}

fn values(view: View<'_>, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut values = Vec::new();
    view.r.scan(prefix, &keys::end(prefix), &mut |_, v| {
        values.push(v.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(values)
}
