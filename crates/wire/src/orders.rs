//! What some calls carry: changes of settings, and orders of several parts.

use crate::{Call, Speaks, WireError, frame};
use serde::{Deserialize, Serialize};
use types::*;

/// Which files an act concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Absolute paths in the namespace (`/` is its root), as bytes.
    pub paths: Vec<Vec<u8>>,
    /// Directories with all below them; otherwise a directory is refused.
    pub recursive: bool,
}

/// Changes of a class of service; None leaves a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassChange {
    /// Pool of each copy.
    pub copies: Option<Vec<PoolName>>,
    /// Seconds unchanged before migration.
    pub migrate_after_s: Option<u32>,
    /// Waiting bytes that start migration at once.
    pub migrate_bytes: Option<u64>,
    /// Never purge.
    pub keep_on_disk: Option<bool>,
}

/// Volumes to be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOrder {
    /// Volumes.
    pub volumes: Vec<Barcode>,
    /// Directory of the namespace, made if missing; None: only volumes of this namespace are taken back.
    pub into: Option<Vec<u8>>,
    /// Pool that they join, made if missing; None: none.
    pub pool: Option<PoolName>,
    /// Owners: number there, number here; others keep theirs.
    pub uids: Vec<(u32, u32)>,
    /// Groups.
    pub gids: Vec<(u32, u32)>,
}

/// Changes of a pool; None leaves a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChange {
    /// Most volumes that it may hold; 0: no limit.
    pub max_volumes: Option<u32>,
    /// Most bytes that current versions may need of it; 0: no limit.
    pub max_bytes: Option<u64>,
    /// Format of its new volumes.
    pub format: Option<FormatRule>,
    /// What is kept together on volumes of its own.
    pub collocate: Option<Collocate>,
    /// It takes media that can be written once, and no others.
    pub worm: Option<bool>,
    /// Name of the key of its new volumes; empty: as the configuration says.
    pub key: Option<String>,
    /// Name of the library whose volumes alone are written; empty: any.
    pub library: Option<String>,
}

/// Changes of a quota; None leaves a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChange {
    /// Most files, directories and other nodes; 0: no limit.
    pub files: Option<u64>,
    /// Most bytes of regular files; 0: no limit.
    pub bytes: Option<u64>,
    /// Most bytes of copies on tape; 0: no limit.
    pub tape_bytes: Option<u64>,
    /// Most volumes of his own in each pool that keeps owners apart; 0: no limit.
    pub volumes: Option<u32>,
    /// Most bytes on disk, the node's own and targets together; 0: no limit.
    pub disk_bytes: Option<u64>,
}

/// Secret of a token, on its way. It is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSecret(pub [u8; 32]);

impl std::fmt::Debug for JoinSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinSecret(not shown)")
    }
}

/// How a member asks for another certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewOrder {
    /// Signing request (PKCS #10, DER).
    pub request: Vec<u8>,
    /// Where a node takes calls from now on (`host:port`).
    pub control: Vec<String>,
    /// Where a node moves bytes from now on (`host:port`).
    pub data: Vec<String>,
}

/// What a node serves, said again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetOrder {
    /// Where it moves bytes (`host:port`).
    pub data: Vec<String>,
    /// Its targets.
    pub targets: Vec<TargetReport>,
}

/// A target, as its node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// What the disk says of itself.
    pub uuid: String,
    /// What fails together with it; empty: all of its node.
    pub domain: String,
    /// Size of its file system (bytes).
    pub capacity: u64,
    /// What can still be written there (bytes).
    pub free: u64,
    /// The last turn that it has heard of.
    pub turn: u64,
    /// The namespace that has it, as its disk says; empty: none yet.
    pub site: String,
    /// It does not say whose it is, and has objects.
    pub unclaimed: bool,
}

/// Changes of a pool of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPoolOrder {
    /// What layouts call it.
    pub name: String,
    /// These belong to it from now on; the first ones make it.
    pub add: Vec<TargetId>,
    /// These do not any more; what lies there stays.
    pub remove: Vec<TargetId>,
    /// It has no targets then, and is taken away.
    pub delete: bool,
}

/// What a node needs to serve one of its targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGrant {
    /// What the disk says of itself.
    pub uuid: String,
    /// Its number in the cluster.
    pub id: TargetId,
    /// Turn of who gives this: a target takes nothing of an earlier one than it has heard of.
    pub turn: u64,
    /// Secrets by epoch: capabilities of other epochs are refused.
    pub keys: Vec<(u32, JoinSecret)>,
    /// The namespace of who gives this, which has the target from now on; empty: one that may still become another one, and notes nothing there.
    pub site: String,
    /// Why it is not served to that one: it is of another. Nothing of the others counts then.
    pub refused: Option<String>,
}

/// How somebody asks to be admitted to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinOrder {
    /// Id of his token.
    pub token: [u8; 16],
    /// Its secret.
    pub secret: JoinSecret,
    /// Signing request (PKCS #10, DER).
    pub request: Vec<u8>,
    /// What he calls himself (his host), for people.
    pub name: String,
    /// Where a node takes calls (`host:port`).
    pub control: Vec<String>,
    /// Where a node moves bytes (`host:port`).
    pub data: Vec<String>,
}

/// Which volumes an act concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeChoice {
    /// These; one that the act cannot take is refused, and then all are.
    These(Vec<Barcode>),
    /// Those of a pool that the act can take.
    Pool(PoolName),
    /// All that the act can take.
    All,
}

/// Part of the list of a volume's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesOrder {
    /// Volume.
    pub volume: Barcode,
    /// Where to begin, as the answer before said; empty: from the beginning.
    #[serde(with = "serde_bytes")]
    pub from: Vec<u8>,
    /// Most rows.
    pub limit: u32,
}

/// A call for a user of another host, whose rights the node checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrder {
    /// For whom.
    pub who: Speaks,
    /// The call, encoded by itself: what contains another one of its kind could be nested without an end.
    #[serde(with = "serde_bytes")]
    call: Vec<u8>,
}

impl CallOrder {
    /// Of a call.
    ///
    /// # Errors
    /// [`WireError::Encode`].
    pub fn new(who: Speaks, call: &Call) -> Result<Self, WireError> {
        Ok(Self { who, call: frame::encode(call)? })
    }

    /// The call.
    ///
    /// # Errors
    /// It is none.
    pub fn call(&self) -> Result<Call, WireError> {
        frame::decode(frame::Kind::Call, &self.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_for_a_user_is_decoded_by_itself() {
        let who = Speaks { uid: 1, gid: 2, groups: vec![3], checked: false };
        let mut call = Call::Status;
        for _ in 0..3 {
            call = Call::For(Box::new(CallOrder::new(who.clone(), &call).unwrap()));
        }
        let Call::For(outer) = frame::decode(frame::Kind::Call, &frame::encode(&call).unwrap()).unwrap()
        else {
            panic!()
        };
        assert!(matches!(outer.call().unwrap(), Call::For(_)));
        assert!(CallOrder { who, call: vec![255; 9] }.call().is_err());
    }
}
