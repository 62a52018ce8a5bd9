//! Making a cluster, giving out tokens, admitting who bears them, and saying who is there.

use super::{Own, directory, member_id, role, seconds, time, told};
use crate::Node;
use crate::error::{failure, refused};
use ident::{Authority, Credentials, Key, Secret, Token, Uuid};
use types::{
    ClientId, Cluster, ClusterView, Digest, ErrorClass, Grant, Member, MemberId, NodeId, TokenRecord,
};
use wire::{Call, Failure, JoinOrder, Reply, SubsystemView};

/// Longest life of a token (seconds).
const LONGEST_LIFE: u32 = 7 * 24 * 3600;
/// Longest name of a member (bytes).
const LONGEST_NAME: usize = 255;

impl Node {
    /// Makes a cluster of which this node is the first. Keys are durable before the record that makes them valid, and get their
    /// place after it.
    pub(crate) fn cluster_init(&self, name: &str) -> Result<ClusterView, Failure> {
        check_name(name)?;
        if self.membership()?.is_some() {
            let message = "this node belongs to a cluster already; see `thermo cluster status`";
            return Err(failure(ErrorClass::Exists, message));
        }
        if let Some(subsystem) = &self.config.cluster.subsystem {
            let message = format!(
                "this node is to be the subsystem {subsystem} of a cluster (cluster.subsystem): make that with another node, and let this one join it"
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        let now = crate::now();
        let (id, first) = (Uuid::new_v4(), MemberId::Node(NodeId(1)));
        let authority_key = Key::generate().map_err(told)?;
        let kept_key = Key::from_der(&authority_key.to_der()).map_err(told)?;
        let authority = Authority::create(id, authority_key, seconds(now)).map_err(told)?;
        let (key, validity) = (Key::generate().map_err(told)?, self.validity());
        let request = key.request().map_err(told)?;
        let certificate = authority.sign(&request, role(first), validity).map_err(told)?.to_vec();
        let member = Member {
            id: first,
            name: name.to_owned(),
            certificate: Digest(ident::digest(&certificate)),
            joined: now,
            expires: time(validity.until),
            user: None,
            control: self.config.cluster.control(),
            data: self.config.cluster.data(),
            next: None,
            removed: None,
        };
        let mut own = Credentials::new(certificate, key, authority.certificate().to_vec()).map_err(told)?;
        own.authority_key = Some(kept_key);
        own.addresses = self.config.cluster.control();
        let dir = directory(&self.config.state_dir);
        own.prepare(&dir).map_err(told)?;
        let cluster = Cluster {
            id: id.to_string(),
            authority: own.authority.clone(),
            made: now,
            next_node: NodeId(2),
            next_client: ClientId(1),
        };
        self.catalog.found_cluster(&cluster, &member).map_err(|e| refused("cluster init", &e))?;
        Credentials::commit(&dir).map_err(told)?;
        self.keep_roster(&*self.admitting()?)?;
        tracing::info!("cluster {id} is made; this is its node 1");
        self.cluster_view()
    }

    /// A token, as text; its secret is kept nowhere here.
    pub(crate) fn cluster_token(&self, grant: Grant, lifetime_s: u32) -> Result<String, Failure> {
        let own = self.admitting()?;
        if lifetime_s == 0 || lifetime_s > LONGEST_LIFE {
            let message = format!("a token lives for 1 second to 7 days, not {lifetime_s} seconds");
            return Err(failure(ErrorClass::Invalid, message));
        }
        let addresses = self.config.cluster.control();
        if addresses.is_empty() {
            let message =
                "nobody could join: this node does not listen; set `listen` in [cluster] and start it again";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let now = crate::now();
        let (cluster, authority) =
            (own.credentials.identity.cluster, ident::digest(&own.credentials.authority));
        let expires = seconds(now) + u64::from(lifetime_s);
        let token = Token::create(cluster, authority, expires, addresses).map_err(told)?;
        let record = TokenRecord {
            id: *token.id.as_bytes(),
            secret: Digest(token.secret.digest().0),
            expires: time(expires),
            grant,
            used: None,
        };
        self.catalog.put_token(&record, now).map_err(|e| refused("the token", &e))?;
        Ok(token.reveal())
    }

    /// Admits the bearer of a token. Of tokens with the right secret it is said what is wrong with them; of all others nothing.
    pub(crate) fn cluster_join(&self, order: &JoinOrder) -> Result<Reply, Failure> {
        let own = self.admitting()?;
        check_name(&order.name)?;
        let now = crate::now();
        let token = self.good_token(order)?;
        let authority = own.credentials.signer().map_err(told)?.ok_or_else(not_here)?;
        // The request is checked before a number is spent on it.
        let validity = self.validity();
        authority.sign(&order.request, role(MemberId::Node(NodeId(0))), validity).map_err(told)?;
        let id = self.catalog.number_member(&token.grant).map_err(|e| refused("the cluster", &e))?;
        let certificate = authority.sign(&order.request, role(id), validity).map_err(told)?.to_vec();
        let (user, reached) = match token.grant {
            Grant::Node => (None, true),
            Grant::Client(user) => (Some(user), false),
        };
        let member = Member {
            id,
            name: order.name.clone(),
            certificate: Digest(ident::digest(&certificate)),
            joined: now,
            expires: time(validity.until),
            user,
            control: if reached { order.control.clone() } else { Vec::new() },
            data: if reached { order.data.clone() } else { Vec::new() },
            next: None,
            removed: None,
        };
        let admitted = self.catalog.admit_member(&order.token, &member, now);
        if !admitted.map_err(|e| refused("the cluster", &e))? {
            // Somebody else was faster with the same token, or its life has just ended.
            self.good_token(order)?;
            return Err(no_token());
        }
        self.keep_roster_or_say(&own);
        tracing::info!("{id} ({}) has joined the cluster", order.name);
        Ok(Reply::Joined { certificate, authority: own.credentials.authority.clone() })
    }

    fn good_token(&self, order: &JoinOrder) -> Result<TokenRecord, Failure> {
        let found =
            self.catalog.token(&order.token).map_err(|e| refused("the token", &e))?.ok_or_else(no_token)?;
        if !ident::SecretDigest(found.secret.0).is_of(&Secret::from_bytes(order.secret.0)) {
            return Err(no_token());
        }
        let ask = "ask for another (`thermo cluster token`)";
        if let Some(who) = found.used {
            let message = format!(
                "that token was used already, by {who} (tell the administrator if that was not you); {ask}"
            );
            return Err(failure(ErrorClass::Denied, message));
        }
        if found.expires < crate::now() {
            return Err(failure(ErrorClass::Denied, format!("that token is past its end; {ask}")));
        }
        Ok(found)
    }

    /// This node, if it belongs to a cluster.
    pub(crate) fn in_cluster(&self) -> Result<std::sync::Arc<Own>, Failure> {
        let none = "this node belongs to no cluster; make one with `thermo cluster init`";
        self.membership()?.ok_or_else(|| failure(ErrorClass::NotFound, none))
    }

    /// Who belongs to the cluster, as this node knows it.
    pub(crate) fn cluster_view(&self) -> Result<ClusterView, Failure> {
        let own = self.in_cluster()?;
        if !own.admits() {
            return self.relayed_view(&own);
        }
        let fail = |e| refused("the cluster", &e);
        let now = crate::now();
        let since_start = self.membership.refused.lock().clone();
        let open = |token: &&TokenRecord| token.used.is_none() && token.expires >= now;
        Ok(ClusterView {
            id: own.credentials.identity.cluster.to_string(),
            answers: member_id(own.credentials.identity.role),
            admits: own.admits(),
            members: self.catalog.members().map_err(fail)?,
            tokens: self.catalog.tokens().map_err(fail)?.iter().filter(open).count() as u32,
            refused: since_start.count,
            last_refused: since_start.last,
        })
    }

    /// A node without the records asks the one that admitted it.
    fn relayed_view(&self, own: &Own) -> Result<ClusterView, Failure> {
        match own.ask(&own.credentials.addresses, None, &Call::Cluster) {
            Ok(Reply::Cluster(view)) => Ok(*view),
            Ok(_) => Err(failure(ErrorClass::Bug, "the members were asked for, and something else came")),
            Err(e) => {
                let id = &own.credentials.identity;
                let message = format!(
                    "this is {} of cluster {}; who else belongs to it cannot be asked: {e}",
                    id.role, id.cluster
                );
                Err(failure(e.class, message))
            }
        }
    }

    /// This node, if it holds a namespace of a cluster.
    pub(crate) fn holding(&self) -> Result<std::sync::Arc<Own>, Failure> {
        self.membership()?.filter(|own| own.holds_names()).ok_or_else(no_names)
    }

    /// Whose names are held here.
    pub(crate) fn held_names(&self) -> Result<SubsystemView, Failure> {
        let name = self.holding()?.subsystem.clone();
        Ok(SubsystemView { name, site: self.site()?, addresses: self.namespace_addresses() })
    }

    /// This node, if it can admit others.
    pub(crate) fn admitting(&self) -> Result<std::sync::Arc<Own>, Failure> {
        let own = self.membership()?.filter(|own| own.admits());
        own.ok_or_else(not_here)
    }
}

/// No namespace is held here.
fn no_names() -> Failure {
    let message = "this node holds no namespace; ask the first node of its cluster, or that of a subsystem (`thermo cluster status`, `thermo junction ls`)";
    failure(ErrorClass::Invalid, message)
}

pub(super) fn not_here() -> Failure {
    let message = "this node has no authority to admit others; ask the one that made the cluster (`thermo cluster status`), or make a \
                   cluster with `thermo cluster init`";
    failure(ErrorClass::Invalid, message)
}

fn no_token() -> Failure {
    failure(
        ErrorClass::Denied,
        "there is no such token in this cluster; ask for one (`thermo cluster token`)",
    )
}

fn check_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(failure(
            ErrorClass::Invalid,
            "a name of 1 to 255 bytes without control characters is due",
        ));
    }
    Ok(())
}
