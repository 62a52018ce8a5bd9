//! What a caller of a node can meet.

use crate::escape;
use std::io;
use std::path::PathBuf;
use types::ErrorClass;
use wire::{Failure, WireError};

/// Why a call, or the copy of one entry, failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no node listens on {} ({source}); start it with `thermo up`, or name its socket with --socket", socket.display())]
    Unreachable {
        /// Control socket.
        socket: PathBuf,
        /// What connect(2) said.
        source: io::Error,
    },
    /// The connection broke, and it is unknown whether the node did what was asked.
    #[error("the node on {} went away while {doing}: {source}; see `thermo status`, then repeat the command", socket.display())]
    Lost {
        /// Control socket.
        socket: PathBuf,
        /// The call.
        doing: &'static str,
        /// What the connection said.
        source: WireError,
    },
    /// The other end speaks differently.
    #[error("cannot talk to the node on {}: {source}", socket.display())]
    Wire {
        /// Control socket.
        socket: PathBuf,
        /// How it differs.
        source: WireError,
    },
    /// A node of a cluster is not who it should be, or does not believe us.
    #[error("{node}: {source}")]
    Ident {
        /// Whom we asked (`host:port`).
        node: String,
        /// Why not.
        source: ident::IdentError,
    },
    /// The node said no.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// An answer that does not belong to the question: a defect.
    #[error("the node answered a {asked} call with something else; this is a defect, please report it")]
    WrongAnswer {
        /// Expected reply.
        asked: &'static str,
    },
    /// A local file.
    #[error("{doing} {path}: {source}")]
    Local {
        /// What was tried ("cannot open").
        doing: &'static str,
        /// On which file, escaped for people.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The tree to be copied is not as it should be.
    #[error("{path}: {problem}")]
    Tree {
        /// Which entry, escaped for people.
        path: String,
        /// What is wrong and what to do.
        problem: String,
        /// Class.
        class: ErrorClass,
    },
}

impl ClientError {
    /// What a caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => ErrorClass::Retry,
            Self::Wire { source, .. } => source.class(),
            Self::Ident { source, .. } => source.class(),
            Self::Refused(failure) => failure.class,
            Self::WrongAnswer { .. } => ErrorClass::Bug,
            Self::Local { source, .. } => io_class(source),
            Self::Tree { class, .. } => *class,
        }
    }

    /// No node, no answer: distinct from a node that refuses.
    pub fn no_node(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. } | Self::Wire { .. })
    }

    /// Nobody who has the names answers now: no node is here, or the one that it asks is not there.
    pub fn is_away(&self) -> bool {
        let other = matches!(self, Self::Refused(why) if why.fs.is_none() && why.class == ErrorClass::Retry);
        other || matches!(self, Self::Unreachable { .. } | Self::Lost { .. })
    }

    pub(crate) fn local(doing: &'static str, path: &std::path::Path, source: impl Into<io::Error>) -> Self {
        Self::Local { doing, path: escape(path.as_os_str().as_encoded_bytes()), source: source.into() }
    }

    pub(crate) fn tree(path: &[u8], class: ErrorClass, problem: impl Into<String>) -> Self {
        Self::Tree { path: escape(path), problem: problem.into(), class }
    }
}

fn io_class(error: &io::Error) -> ErrorClass {
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound => ErrorClass::NotFound,
        K::AlreadyExists => ErrorClass::Exists,
        K::PermissionDenied | K::ReadOnlyFilesystem => ErrorClass::Denied,
        K::StorageFull | K::QuotaExceeded => ErrorClass::NoSpace,
        K::ResourceBusy => ErrorClass::Busy,
        K::NotADirectory | K::IsADirectory | K::DirectoryNotEmpty => ErrorClass::Namespace,
        K::Interrupted | K::WouldBlock | K::TimedOut => ErrorClass::Retry,
        K::InvalidInput | K::InvalidFilename | K::FileTooLarge | K::Unsupported => ErrorClass::Invalid,
        _ => ErrorClass::Corrupt,
    }
}
