//! Identifiers as newtypes, so that an inode number can never be passed where an object id is meant.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);
        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

number_id! {
    /// Inode number: a file, directory or other node of the namespace. 1 is the root.
    Ino(u64)
}
number_id! {
    /// One object (plain file) of a disk target. Never reused.
    ObjectId(u64)
}
number_id! {
    /// Version of a file's data, counted from 1 per inode; grows whenever content that has been sealed changes.
    Version(u32)
}
number_id! {
    /// Which of the copies that a class of service asks for, counted from 1.
    CopyNo(u8)
}
number_id! {
    /// A user-visible request (stage, migrate, purge ...).
    RequestId(u64)
}
number_id! {
    /// A directory of the tree written on one tape volume. 0 is that volume's root.
    TapeDir(u64)
}
number_id! {
    /// An open file handle, unique within one run of the node.
    Handle(u64)
}
number_id! {
    /// A drive of the configuration, counted from 0 in order of its changer element address.
    DriveNo(u16)
}
number_id! {
    /// A disk target of the cluster: one directory of objects on one host. Never used twice.
    TargetId(u32)
}
number_id! {
    /// A node of the cluster. Never used twice.
    NodeId(u32)
}
number_id! {
    /// A client of the cluster that has a certificate. Never used twice.
    ClientId(u32)
}
number_id! {
    /// A library of the configuration, counted from 0 in its order.
    LibraryNo(u16)
}
number_id! {
    /// A data path: what the bytes of several drives go through together (a host, a host adapter, a link).
    PathNo(u16)
}
text_id! {
    /// A tape pool by name.
    PoolName
}
text_id! {
    /// A class of service by name.
    ClassName
}

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);

    /// Set in the number of a word; no inode of the namespace has it.
    const WORD: u64 = 1 << 63;

    /// The word on this file: what tapes tell of it beside its data. It has versions and copies of its own.
    pub fn word(self) -> Ino {
        Ino(self.0 | Self::WORD)
    }

    /// Whether it is a word on a file, and no inode of the namespace.
    pub fn is_word(self) -> bool {
        self.0 & Self::WORD != 0
    }

    /// The file that a word is on; of anything else itself.
    pub fn told_of(self) -> Ino {
        Ino(self.0 & !Self::WORD)
    }
}

/// SHA-256 of a file version's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
