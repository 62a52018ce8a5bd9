//! New certificates in the place of those that end: the first node signs them, for itself too; nodes and standbys ask it. One that has ended still shows who it was
//! given to, and is good for that and nothing else.

use super::changes::signer;
use super::{ask, directory, member_id, role, roster, seconds, time, told};
use crate::error::{failure, refused};
use crate::{Config, Node};
use catalog::Renewed;
use ident::{Connector, Credentials, Key, Validity};
use std::path::Path;
use std::time::Duration;
use types::{Digest, ErrorClass, MemberId, NodeId, Time};
use wire::{Call, Failure, RenewOrder, Reply};

/// Longest pause between two attempts at a new certificate that is due.
const LONGEST: Duration = Duration::from_secs(3600);
/// Longest pause between two attempts while the present one has ended, or there is none: the node may join while it runs.
const SOON: Duration = Duration::from_secs(60);

impl Node {
    /// How long certificates of members are good that are signed now (seconds).
    pub(super) fn validity(&self) -> Validity {
        Validity::of_member(seconds(crate::now()), self.config.cluster.certificate_s.into())
    }

    /// Another certificate for a member; the one before is believed until this one is used.
    pub(crate) fn cluster_renew(&self, id: MemberId, order: &RenewOrder) -> Result<Reply, Failure> {
        let own = self.admitting()?;
        let validity = self.validity();
        let certificate = signer(&own)?.sign(&order.request, role(id), validity).map_err(told)?.to_vec();
        let renewed = Renewed {
            certificate: Digest(ident::digest(&certificate)),
            expires: time(validity.until),
            control: order.control.clone(),
            data: order.data.clone(),
        };
        if !self.catalog.renew_member(id, &renewed).map_err(|e| refused("the cluster", &e))? {
            return Err(failure(ErrorClass::Denied, format!("{id} was removed from this cluster")));
        }
        self.keep_roster_or_say(&own);
        tracing::info!("{id} gets a new certificate");
        Ok(Reply::Joined { certificate, authority: own.credentials.authority.clone() })
    }

    /// Gets a new certificate for this node when two thirds of the time of the present one have gone; whether it did.
    ///
    /// # Errors
    /// No node that can sign answers, or the files cannot be written. The present certificate stays.
    pub fn renew_if_due(&self, now: Time) -> Result<bool, Failure> {
        let Some(own) = self.membership()? else { return Ok(false) };
        if !own.credentials.valid.is_ending(seconds(now)) {
            return Ok(false);
        }
        let id = member_id(own.credentials.identity.role);
        let signs = own.admits();
        let (certificate, key) = another(&own.credentials, &self.config, |order| match signs {
            true => self.cluster_renew(id, &order),
            false => asked(&own.credentials, &own.credentials.addresses, order),
        })?;
        {
            let _one_at_a_time = self.membership.changes.lock();
            Credentials::replace(&directory(&self.config.state_dir), &certificate, &key).map_err(told)?;
        }
        self.membership.forget();
        if signs {
            let digest = Digest(ident::digest(&certificate));
            self.catalog.member_renewed(id, digest).map_err(|e| refused("the cluster", &e))?;
        }
        tracing::info!("{id} has a new certificate");
        Ok(true)
    }

    /// Until the next attempt at a new certificate.
    pub(super) fn renewal_pause(&self) -> Duration {
        match self.membership() {
            Ok(Some(own)) => pause(own.credentials.valid),
            _ => SOON,
        }
    }
}

/// A process that is a member of the cluster and no node yet.
pub(crate) trait Member {
    /// What it is called.
    const WHAT: &str;
    fn config(&self) -> &Config;
    /// Where the node that signs may be, besides where this one was admitted.
    fn signers(&self) -> Vec<String>;
    /// Puts a new certificate in its place, if this process goes on: a node that has begun in its place sees to its certificate itself.
    ///
    /// # Errors
    /// Those of `put`.
    fn keeps(&self, put: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure>;
}

/// Gets a new certificate for it, as [`Node::renew_if_due`] for a node; how long until it is to be called again.
pub(crate) fn renew_member<M: Member>(member: &M) -> Duration {
    let (config, what) = (member.config(), M::WHAT);
    let state = &config.state_dir;
    let look = || -> Result<Duration, Failure> {
        let Some(own) = load(state)? else { return Ok(SOON) };
        if own.valid.is_ending(seconds(crate::now())) {
            let addresses: Vec<String> = member.signers().into_iter().chain(own.addresses.clone()).collect();
            let (certificate, key) = another(&own, config, |order| asked(&own, &addresses, order))?;
            member.keeps(&mut || {
                Credentials::replace(&directory(state), &certificate, &key).map_err(told)?;
                tracing::info!("{what} has a new certificate");
                Ok(())
            })?;
        }
        Ok(pause(load(state)?.map_or(own.valid, |own| own.valid)))
    };
    look().unwrap_or_else(|e| {
        tracing::warn!("the certificate of {what} ends soon or has ended, and there is no new one: {e}");
        load(state).ok().flatten().map_or(SOON, |own| pause(own.valid))
    })
}

/// The credentials of a node or standby as they are on disk. One that has the authority's key and whose own certificate has ended, because it was off, signs itself
/// another one for the moment: it must be believed by its standby before it may begin.
pub(crate) fn credentials(state: &Path) -> Result<Option<Credentials>, Failure> {
    let Some(mut own) = load(state)? else { return Ok(None) };
    let now = seconds(crate::now());
    if own.valid.has_ended(now)
        && let Some(authority) = own.signer().map_err(told)?
    {
        let request = own.key.request().map_err(told)?;
        let valid = Validity::of_member(now, own.valid.life());
        own.certificate = authority.sign(&request, own.identity.role, valid).map_err(told)?.to_vec();
        own.valid = valid;
    }
    Ok(Some(own))
}

/// The certificates by which a node of the cluster was known last, as the roster of the host that has the authority's key says.
pub(crate) fn certificates_of(state: &Path, node: u32) -> Result<Vec<ident::Digest>, Failure> {
    let kept = Credentials::kept_roster(&directory(state)).map_err(told)?;
    let (_, members) = roster::decode(&kept).unzip();
    let id = MemberId::Node(NodeId(node));
    let known = members.iter().flatten().filter(|member| member.id == id && member.removed.is_none());
    Ok(known.flat_map(|member| [Some(member.certificate), member.next]).flatten().map(|d| d.0).collect())
}

/// By a connection of its own kind: the present certificate may have ended, and is believed for nothing else then.
fn asked(own: &Credentials, addresses: &[String], order: RenewOrder) -> Result<Reply, Failure> {
    let connector = Connector::renewing(own).map_err(told)?;
    ask::ask(&connector, addresses, None, &Call::ClusterRenew(order))
}

fn load(state: &Path) -> Result<Option<Credentials>, Failure> {
    Credentials::load(&directory(state)).map_err(told)
}

/// So often that several attempts fit into what is left of a certificate when the next one is due.
fn pause(valid: Validity) -> Duration {
    let some = Duration::from_secs((valid.life() / 36).max(1)).min(LONGEST);
    if valid.has_ended(seconds(crate::now())) { some.min(SOON) } else { some }
}

/// Another certificate of the same member, with its key.
fn another(
    own: &Credentials,
    config: &Config,
    ask: impl FnOnce(RenewOrder) -> Result<Reply, Failure>,
) -> Result<(Vec<u8>, Key), Failure> {
    let key = Key::generate().map_err(told)?;
    let order = RenewOrder {
        request: key.request().map_err(told)?,
        control: config.cluster.control(),
        data: config.cluster.data(),
    };
    let Reply::Joined { certificate, authority } = ask(order)? else {
        return Err(failure(ErrorClass::Bug, "a certificate was asked for, and something else came"));
    };
    let new = Credentials::new(certificate, key, authority).map_err(told)?;
    if new.identity != own.identity || new.authority != own.authority {
        return Err(failure(ErrorClass::Denied, "the new certificate is for somebody else"));
    }
    Ok((new.certificate, new.key))
}
