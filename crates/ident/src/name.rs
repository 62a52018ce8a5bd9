//! Names in certificates: `thermo://CLUSTER/node/7`, `thermo://CLUSTER/client/12`.

use std::fmt;
use std::str::FromStr;
use types::{ClientId, NodeId};
use uuid::Uuid;

/// What somebody is in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs services.
    Node(NodeId),
    /// Only asks.
    Client(ClientId),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Client(id) => write!(f, "client {id}"),
        }
    }
}

/// Who somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cluster.
    pub cluster: Uuid,
    /// Who there.
    pub role: Role,
}

impl Identity {
    /// Whether it is a node.
    pub fn is_node(&self) -> bool {
        matches!(self.role, Role::Node(_))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, id) = match self.role {
            Role::Node(NodeId(id)) => ("node", id),
            Role::Client(ClientId(id)) => ("client", id),
        };
        write!(f, "thermo://{}/{kind}/{id}", self.cluster)
    }
}

impl FromStr for Identity {
    type Err = &'static str;

    /// Only the text that `Display` writes is read: one identity has one name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.strip_prefix("thermo://").ok_or("not a thermo:// name")?.split('/');
        let (Some(cluster), Some(kind), Some(id), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("not of the form thermo://CLUSTER/KIND/NUMBER");
        };
        let cluster = Uuid::try_parse(cluster).map_err(|_| "its cluster is no uuid")?;
        let number: u32 = id.parse().map_err(|_| "its number is none")?;
        let role = match kind {
            "node" => Role::Node(NodeId(number)),
            "client" => Role::Client(ClientId(number)),
            _ => return Err("neither a node nor a client"),
        };
        let identity = Self { cluster, role };
        if identity.to_string() == text { Ok(identity) } else { Err("written in an unusual way") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_text() {
        let cluster = Uuid::new_v4();
        for role in [Role::Node(NodeId(7)), Role::Client(ClientId(u32::MAX))] {
            let identity = Identity { cluster, role };
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
        for bad in [
            format!("thermo://{cluster}/node/07"),
            format!("thermo://{cluster}/node/+7"),
            format!("thermo://{cluster}/node/7/"),
            format!("thermo://{cluster}/mover/7"),
            format!("thermo://{}/node/7", cluster.simple()),
            format!("https://{cluster}/node/7"),
        ] {
            assert!(bad.parse::<Identity>().is_err(), "{bad}");
        }
    }
}
