//! Where the namespace is to be had: at the node that holds it, and at its standby, or who takes turns with it, which may come to hold it.

use super::{directory, told};
use crate::Node;
use crate::error::failure;
use ident::Credentials;
use types::ErrorClass;
use wire::{Call, Failure, Reply};

/// Addresses that a member remembers.
const MOST: usize = 8;

impl Node {
    /// What a member is told who asks; the likeliest first.
    pub(crate) fn namespace_addresses(&self) -> Vec<String> {
        match self.membership() {
            Ok(Some(own)) if own.credentials.authority_key.is_none() => own.credentials.addresses.clone(),
            _ => [self.config.cluster.control(), self.config.standby.to.clone(), self.turns.addresses()]
                .concat(),
        }
    }

    /// Hears from the node that holds the namespace where else it may be had, and keeps that.
    ///
    /// # Errors
    /// It cannot be asked, or what it says cannot be kept.
    pub fn hear_of_places(&self) -> Result<(), Failure> {
        let Some(own) = self.membership()?.filter(|own| own.credentials.authority_key.is_none()) else {
            return Ok(());
        };
        let known = &own.credentials.addresses;
        let Reply::Addresses(told_now) = own.ask_any(known, Call::ClusterAddresses)? else {
            return Err(failure(ErrorClass::Bug, "addresses were asked for, and something else came"));
        };
        let all = places(&told_now, known);
        if told_now.is_empty() || all == *known {
            return Ok(());
        }
        {
            let _one_at_a_time = self.membership.changes.lock();
            Credentials::keep_addresses(&directory(&self.config.state_dir), &all).map_err(told)?;
        }
        self.membership.forget();
        tracing::info!("the namespace of the cluster is to be had at {}", all.join(", "));
        Ok(())
    }
}

/// What was told, and behind it what was known before: a node that has just taken over has no standby yet, and who knows only that one finds nobody when
/// the next takes over from it.
fn places(told_now: &[String], known: &[String]) -> Vec<String> {
    let before = known.iter().filter(|address| !told_now.contains(address));
    told_now.iter().chain(before).take(MOST).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_of_one_node_still_knows_the_other() {
        let all = |addresses: &[&str]| addresses.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        assert_eq!(places(&all(&["b"]), &all(&["a", "b"])), ["b", "a"]);
        assert_eq!(places(&all(&["a", "b"]), &all(&["b", "a"])), ["a", "b"]);
        let many: Vec<String> = (0..2 * MOST).map(|n| n.to_string()).collect();
        assert_eq!(places(&all(&["a"]), &many).len(), MOST);
    }
}
