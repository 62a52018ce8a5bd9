//! Junctions: directories that lead to a subsystem, a namespace of the same cluster that another node holds.

use crate::{Ino, PathText, Time};
use serde::{Deserialize, Serialize};

/// Longest name of a subsystem (bytes).
pub const MAX_SUBSYSTEM: usize = 64;
/// Most addresses of one junction.
pub const MAX_ADDRESSES: usize = 16;

/// Where a directory leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Junction {
    /// Name of the subsystem whose root is shown there.
    pub subsystem: String,
    /// Where that is asked (`host:port`), the likeliest first.
    pub addresses: Vec<String>,
    /// When it was made.
    pub made: Time,
}

/// What `thermo junction ls` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JunctionView {
    /// Path of the directory at present.
    pub path: PathText,
    /// Its inode.
    pub ino: Ino,
    /// Where it leads.
    pub junction: Junction,
    /// Whether the subsystem answers.
    pub state: JunctionState,
}

/// What was last seen of a subsystem, by the node that holds the junction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JunctionState {
    /// It was not asked yet.
    #[default]
    Unasked,
    /// It answers.
    Answers,
    /// It does not, or another one is there: why.
    Silent(String),
}

impl Junction {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn validate(&self) -> Result<(), String> {
        check_subsystem(&self.subsystem)?;
        if self.addresses.is_empty() || self.addresses.len() > MAX_ADDRESSES {
            return Err(format!(
                "a junction has one to {MAX_ADDRESSES} addresses (host:port) at which subsystem {} is asked",
                self.subsystem
            ));
        }
        self.addresses.iter().try_for_each(|address| check_address(address))
    }
}

/// Whether a subsystem may have this name.
///
/// # Errors
/// Which names there are.
pub fn check_subsystem(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=MAX_SUBSYSTEM).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name of a subsystem: one has 1 to {MAX_SUBSYSTEM} letters, digits, `-`, `_` and `.`"
    ))
}

/// Whether that is an address at which a node can be asked: `host:port`.
///
/// # Errors
/// That it is none.
pub fn check_address(address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if address.len() <= 255 && port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        return Ok(());
    }
    Err(format!("`{address}` is not of the form host:port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn junction(subsystem: &str, addresses: &[&str]) -> Junction {
        let addresses = addresses.iter().map(|a| (*a).to_owned()).collect();
        Junction { subsystem: subsystem.into(), addresses, made: Time::new(1, 0) }
    }

    #[test]
    fn names_of_subsystems_and_addresses_are_checked() {
        for name in ["scratch", "a", "Scratch-2_x.y", &"x".repeat(64)] {
            assert_eq!(junction(name, &["a:1", "[::1]:7430"]).validate(), Ok(()), "{name}");
        }
        for name in ["", "a b", "a/b", "\u{e4}", "a:1", &"x".repeat(65)] {
            assert!(junction(name, &["a:1"]).validate().is_err(), "{name}");
        }
        for bad in ["", "a", ":1", "a:", "a:99999", &format!("{}:1", "a".repeat(254))] {
            assert!(junction("s", &["a:1", bad]).validate().is_err(), "{bad}");
        }
        assert!(junction("s", &[]).validate().is_err());
        assert!(junction("s", &["a:1"; 17]).validate().is_err());
    }
}
