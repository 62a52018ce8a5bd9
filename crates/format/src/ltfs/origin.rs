//! What the index of a volume says beyond its files, so that the catalogue can be rebuilt from tapes alone: whose volume
//! it is and under which rules it was written (attributes of the root), and the owner and mode of the directories of the
//! namespace (attributes of the directories that mirror them). The keys are listed in `docs/formats/ltfs.md`.

use super::file::{self, CLASS, MODE, OWNER};
use super::index::{Content, DirMeta, EntryTimes, IndexFile, Xattr};
use crate::tar::pax::Record;
use serde::{Deserialize, Serialize};
use types::{Class, ClassName, FileKind, Pool, PoolName, TapeFile};

/// Uuid of the namespace to which the files belong: inode numbers mean something only within it.
pub const SITE: &str = "thermo.site";
/// Pool of the volume.
pub const POOL: &str = "thermo.pool";
/// In a pool that keeps files together: whose or which it holds.
pub const FAMILY: &str = "thermo.family";
/// Classes of service and pools of the namespace, JSON of [`Rules`].
pub const RULES: &str = "thermo.rules";

/// Longest [`RULES`] that are read (bytes).
const MAX_RULES: usize = 1 << 20;

/// Classes of service and pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Classes.
    pub classes: Vec<Class>,
    /// Pools.
    pub pools: Vec<Pool>,
}

/// Attributes of the root of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// See [`SITE`].
    pub site: String,
    /// See [`POOL`].
    pub pool: Option<PoolName>,
    /// See [`FAMILY`].
    pub family: Option<String>,
    /// See [`RULES`].
    pub rules: Rules,
}

impl Origin {
    /// As attributes of the root.
    pub fn attributes(&self) -> Vec<Xattr> {
        let mut out = vec![attribute(SITE, self.site.as_bytes())];
        if let Some(pool) = &self.pool {
            out.push(attribute(POOL, pool.as_str().as_bytes()));
        }
        if let Some(family) = &self.family {
            out.push(attribute(FAMILY, family.as_bytes()));
        }
        // Serialising plain structs with text keys cannot fail.
        out.push(attribute(RULES, &serde_json::to_vec(&self.rules).unwrap_or_default()));
        out
    }

    /// From the root of an index; None if it carries no [`SITE`] that can be understood. Rules that cannot be understood
    /// count as none: the files do not depend on them.
    pub fn of(root: &DirMeta) -> Option<Self> {
        let site = text(root, SITE)?.to_owned();
        let pool = text(root, POOL).filter(|pool| !pool.is_empty()).map(PoolName::from);
        let family = text(root, FAMILY).filter(|family| !family.is_empty()).map(str::to_owned);
        let rules = text(root, RULES).filter(|json| json.len() <= MAX_RULES);
        let rules = rules.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        super::is_uuid(&site).then_some(Self { site, pool, family, rules })
    }
}

/// The same in the list of a section (`docs/formats/ansi-tar.md`): keys without their prefix.
impl Origin {
    /// As attributes of a section.
    pub fn records(&self) -> Vec<Record> {
        let plain = |x: Xattr| (x.key.trim_start_matches("thermo.").to_owned(), x.value);
        self.attributes().into_iter().map(plain).collect()
    }

    /// From the attributes of a section; None without a site.
    pub fn of_records(records: &[Record]) -> Option<Self> {
        let xattrs = records.iter().map(|(key, value)| attribute(&format!("thermo.{key}"), value)).collect();
        Self::of(&DirMeta { xattrs, ..DirMeta::default() })
    }
}

/// A directory of the namespace when the index was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirFacts {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Class that new files in it get.
    pub class: ClassName,
    /// All of it, as of a node without data: copy 0 where the index only tells of it, else it is that copy. None in what
    /// earlier releases wrote.
    pub node: Option<Box<TapeFile>>,
}

impl DirFacts {
    /// As attributes of the directory on the volume.
    pub fn attributes(&self) -> Vec<Xattr> {
        if let Some(node) = &self.node {
            let mut out = file::attributes(node);
            if node.copy.0 > 0 {
                out.push(attribute(file::UID, node.uid.to_string().as_bytes()));
            }
            return out;
        }
        vec![
            attribute(MODE, format!("{:o}", 0o040_000 | self.mode & 0o7777).as_bytes()),
            attribute(OWNER, format!("{}:{}", self.uid, self.gid).as_bytes()),
            attribute(CLASS, self.class.as_str().as_bytes()),
        ]
    }

    /// From a directory of an index; None where it does not carry all of them.
    pub fn of(dir: &DirMeta) -> Option<Self> {
        let mode = u32::from_str_radix(text(dir, MODE)?, 8).ok()? & 0o7777;
        let (uid, gid) = file::pair(text(dir, OWNER)?, ':')?;
        Some(Self { mode, uid, gid, class: ClassName(text(dir, CLASS)?.to_owned()), node: node_of(dir) })
    }

    /// Times of the directory in an index; None: nothing is known of them.
    pub fn times(&self) -> Option<EntryTimes> {
        let node = self.node.as_ref()?;
        let [access, modify, change, creation] = node.times;
        Some(EntryTimes { creation, change, modify, access, backup: node.written })
    }
}

/// A directory as a node without data, if it carries all that makes one.
fn node_of(dir: &DirMeta) -> Option<Box<TapeFile>> {
    let uid = text(dir, file::UID).and_then(|uid| uid.parse().ok()).unwrap_or(0);
    let told = IndexFile {
        name: dir.name.clone(),
        uid,
        length: 0,
        readonly: dir.readonly,
        times: dir.times,
        xattrs: dir.xattrs.clone(),
        content: Content::Extents(Vec::new()),
        unknown: Vec::new(),
    };
    let node =
        file::from_index(&told).ok().flatten().filter(|node| node.kind() == Some(FileKind::Directory))?;
    // What is a copy has a uid; what has none is only told of.
    (node.copy.0 == 0 || uid > 0).then(|| Box::new(node))
}

fn attribute(key: &str, value: &[u8]) -> Xattr {
    Xattr { key: key.to_owned(), value: value.to_vec() }
}

fn text<'d>(dir: &'d DirMeta, key: &str) -> Option<&'d str> {
    let found = dir.xattrs.iter().find(|x| x.key == key)?;
    std::str::from_utf8(&found.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        let class = Class {
            name: "raw data".into(),
            copies: vec!["a".into(), "b".into()],
            migrate_after_s: 60,
            migrate_bytes: 7,
            keep_on_disk: true,
        };
        Origin {
            site: "0f4cbd65-3e1d-4a55-9f43-2f9d0e6c1b11".into(),
            pool: Some("a".into()),
            family: Some("uid 1000".into()),
            rules: Rules {
                classes: vec![class],
                pools: vec![Pool { max_volumes: 3, ..Pool::new("a".into()) }],
            },
        }
    }

    #[test]
    fn origin_and_directories_return_unchanged() {
        for origin in [origin(), Origin { pool: None, family: None, rules: Rules::default(), ..origin() }] {
            let root = DirMeta { xattrs: origin.attributes(), ..DirMeta::default() };
            assert_eq!(Origin::of_records(&origin.records()), Some(origin.clone()));
            assert_eq!(Origin::of(&root), Some(origin));
        }
        let facts = DirFacts { mode: 0o2770, uid: 7, gid: u32::MAX, class: "x".into(), node: None };
        let dir = DirMeta { xattrs: facts.attributes(), ..DirMeta::default() };
        assert_eq!(DirFacts::of(&dir), Some(facts));
    }

    #[test]
    fn what_is_missing_or_broken_is_not_taken() {
        assert_eq!(Origin::of(&DirMeta::default()), None);
        assert_eq!(DirFacts::of(&DirMeta::default()), None);
        let broken = |key: &str, value: &[u8]| {
            let mut root = DirMeta { xattrs: origin().attributes(), ..DirMeta::default() };
            root.xattrs.iter_mut().filter(|x| x.key == key).for_each(|x| x.value = value.to_vec());
            Origin::of(&root)
        };
        assert_eq!(broken(SITE, b"somewhere"), None);
        assert_eq!(broken(SITE, b"\xff"), None);
        assert_eq!(broken(RULES, b"{").map(|o| o.rules), Some(Rules::default()));
    }
}
