//! Which of a cluster's namespaces a mount shows: the addresses of a node may be those of another one by now.

use crate::ClientError;
use std::sync::OnceLock;
use types::ErrorClass;
use wire::{Failure, SubsystemView};

/// Whose names are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those of the cluster's first node.
    First,
    /// Those of the subsystem of this name; None: of the one that is there at first.
    Subsystem(Option<String>),
}

/// The same, with what was seen of it.
pub(super) struct Whose {
    names: Names,
    /// What tells the namespace of a subsystem from every other one, once it was seen.
    site: OnceLock<String>,
}

impl Whose {
    pub(super) fn new(names: Names) -> Self {
        Self { names, site: OnceLock::new() }
    }

    /// Whether whoever answers is asked: the releases before had one namespace.
    pub(super) fn is_asked(&self) -> bool {
        self.names != Names::First
    }

    /// Whether it is the one that is wanted, and was seen before.
    pub(super) fn check(&self, found: &SubsystemView) -> Result<(), ClientError> {
        let Names::Subsystem(name) = &self.names else { return Ok(()) };
        let same = found.name.is_some() && name.as_ref().is_none_or(|name| found.name.as_ref() == Some(name));
        if same && self.site.get_or_init(|| found.site.clone()) == &found.site {
            return Ok(());
        }
        let what = found.name.as_ref().map_or("the first node of the cluster".into(), |name| {
            format!("subsystem {name}, namespace {}", found.site)
        });
        let wanted = name.as_deref().unwrap_or("that was mounted");
        let message = format!("another namespace is there than that of subsystem {wanted}: {what}");
        Err(Failure { class: ErrorClass::Retry, fs: None, message }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_another_namespace_are_not_taken_for_those_of_this_one() {
        let found = |name: Option<&str>, site: &str| SubsystemView {
            name: name.map(String::from),
            site: site.into(),
            addresses: Vec::new(),
        };
        let named = Whose::new(Names::Subsystem(Some("a".into())));
        assert!(named.check(&found(None, "1")).is_err());
        assert!(named.check(&found(Some("b"), "1")).is_err());
        assert!(named.check(&found(Some("a"), "1")).is_ok());
        assert_eq!(named.check(&found(Some("a"), "2")).unwrap_err().class(), ErrorClass::Retry);
        assert!(named.check(&found(Some("a"), "1")).is_ok());
        let any = Whose::new(Names::Subsystem(None));
        assert!(any.check(&found(None, "1")).is_err(), "those of the first node are no subsystem's");
        assert!(any.check(&found(Some("b"), "1")).is_ok());
        assert!(any.check(&found(Some("b"), "2")).is_err());
    }
}
