//! Exit codes, chosen from error classes.

use client::ClientError;
use std::io;
use types::ErrorClass;
use wire::Failure;

/// Table for `thermo --help`.
pub const HELP: &str = "\
Exit codes:
  0  all done
  1  some files failed, or another error
  2  wrong usage or input
  3  the node cannot be reached
  4  permission denied
  5  not found
  6  busy, or no space left; try again later
  7  a medium, drive or library is suspect, or stored data is damaged
  130 interrupted; requests made with --wait go on";

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// All done.
    pub const OK: Exit = Exit(0);
    /// Some files failed.
    pub const SOME_FAILED: Exit = Exit(1);
    /// Wrong usage.
    pub const USAGE: Exit = Exit(2);
    /// No node.
    pub const NO_NODE: Exit = Exit(3);
    /// Data at risk.
    pub const SUSPECT: Exit = Exit(7);
    /// SIGINT.
    pub const INTERRUPTED: Exit = Exit(130);
}

/// Exit code for an error class.
pub fn of_class(class: ErrorClass) -> Exit {
    use ErrorClass as C;
    Exit(match class {
        C::Invalid => 2,
        C::Denied => 4,
        C::NotFound => 5,
        C::Retry | C::Busy | C::NoSpace => 6,
        C::Corrupt | C::Medium | C::Drive | C::Library => 7,
        C::Exists | C::Namespace | C::Bug => 1,
    })
}

/// Exit code for an error of this program; None if the reader of our output went away, which is no error.
pub fn of_error(error: &anyhow::Error) -> Option<Exit> {
    for cause in error.chain() {
        if let Some(e) = cause.downcast_ref::<ClientError>() {
            return Some(if e.no_node() { Exit::NO_NODE } else { of_class(e.class()) });
        }
        if let Some(e) = cause.downcast_ref::<ident::IdentError>() {
            return Some(of_class(e.class()));
        }
        if let Some(e) = cause.downcast_ref::<Failure>() {
            return Some(of_class(e.class));
        }
        if cause.downcast_ref::<Usage>().is_some() {
            return Some(Exit::USAGE);
        }
        if let Some(e) = cause.downcast_ref::<io::Error>() {
            return match e.kind() {
                io::ErrorKind::BrokenPipe => None,
                io::ErrorKind::NotFound => Some(Exit(5)),
                io::ErrorKind::PermissionDenied => Some(Exit(4)),
                _ => Some(Exit::SOME_FAILED),
            };
        }
    }
    Some(Exit::SOME_FAILED)
}

/// An error with its causes; a cause that the text before already told is left out.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

/// Something in the arguments cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A usage error.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(text.into()))
}

/// What was asked for is not there.
pub fn not_found(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Failure { class: ErrorClass::NotFound, fs: None, message: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_leaves_is_no_error() {
        let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert_eq!(of_error(&error), None);
    }

    #[test]
    fn nothing_is_told_twice() {
        let gone = ClientError::Unreachable { socket: "s".into(), source: io::ErrorKind::NotFound.into() };
        let text = told(&anyhow::Error::new(gone).context("asking"));
        assert_eq!(text.matches(&io::Error::from(io::ErrorKind::NotFound).to_string()).count(), 1, "{text}");
        assert!(text.starts_with("asking: no node listens on s"), "{text}");
    }

    #[test]
    fn classes_have_their_codes() {
        let failure = |class| anyhow::Error::new(Failure { class, fs: None, message: "x".into() });
        assert_eq!(of_error(&failure(ErrorClass::Denied)), Some(Exit(4)));
        assert_eq!(of_error(&failure(ErrorClass::Medium)), Some(Exit::SUSPECT));
        assert_eq!(of_error(&usage("no")), Some(Exit::USAGE));
        assert_eq!(of_error(&not_found("no")), Some(Exit(5)));
        let gone = ClientError::Unreachable { socket: "s".into(), source: io::ErrorKind::NotFound.into() };
        assert_eq!(of_error(&anyhow::Error::new(gone)), Some(Exit::NO_NODE));
    }
}
