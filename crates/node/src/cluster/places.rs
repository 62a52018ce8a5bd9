//! Where the namespace is to be had: at the node that holds it, and at its standby, which may come to hold it.

use super::{directory, told};
use crate::Node;
use crate::error::failure;
use ident::Credentials;
use types::ErrorClass;
use wire::{Call, Failure, Reply};

impl Node {
    /// What a member is told who asks; the likeliest first.
    pub(crate) fn namespace_addresses(&self) -> Vec<String> {
        match self.membership() {
            Ok(Some(own)) if own.credentials.authority_key.is_none() => own.credentials.addresses.clone(),
            _ => [self.config.cluster.control(), self.config.standby.to.clone()].concat(),
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
        let Reply::Addresses(told_now) = own.ask(known, None, &Call::ClusterAddresses)? else {
            return Err(failure(ErrorClass::Bug, "addresses were asked for, and something else came"));
        };
        if told_now.is_empty() || told_now == *known {
            return Ok(());
        }
        {
            let _one_at_a_time = self.membership.changes.lock();
            Credentials::keep_addresses(&directory(&self.config.state_dir), &told_now).map_err(told)?;
        }
        self.membership.forget();
        tracing::info!("the namespace of the cluster is to be had at {}", told_now.join(", "));
        Ok(())
    }
}
