//! Junctions as a host sees them that mounts the namespace: where they are, and where they lead.

use super::{Own, directory};
use crate::Node;
use crate::error::failure;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use types::{ErrorClass, Junction, JunctionState, JunctionView};
use wire::{Call, Failure, Reply};

impl Node {
    /// Where this member keeps its credentials.
    pub fn credentials_dir(&self) -> PathBuf {
        directory(&self.config.state_dir)
    }

    /// Junctions of the namespace that is mounted on this host, whoever holds it. Where they say that subsystems are is noted for who uses these already.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn junctions_here(&self) -> Result<Vec<JunctionView>, Failure> {
        let elsewhere = self.membership()?.filter(|own| !own.holds_names());
        let all = match elsewhere {
            None => self.junction_views()?,
            // Junctions are in the first node's namespace.
            Some(_) if !self.config.cluster.namespace.is_empty() => Vec::new(),
            Some(own) => match own.ask_any(&self.names_at(&own), Call::Junctions)? {
                Reply::Junctions(all) => all,
                _ => {
                    return Err(failure(
                        ErrorClass::Bug,
                        "junctions were asked for, and something else came",
                    ));
                }
            },
        };
        let places = &self.membership.places;
        all.iter().for_each(|view| places.note(&view.junction.subsystem, &view.junction.addresses));
        Ok(all)
    }

    /// Asks where else a subsystem may be had, and that it is the one to which the junction leads.
    ///
    /// # Errors
    /// It cannot be reached, or another one is there.
    pub fn find_subsystem(&self, junction: &JunctionView) -> Result<(), Failure> {
        self.find(&self.own_membership()?, &junction.junction)
    }

    fn find(&self, own: &Arc<Own>, junction: &Junction) -> Result<(), Failure> {
        self.ask_names(own, &junction.subsystem, &junction.addresses)
    }

    /// Whether a junction may lead there: it does from the first node's namespace only. A subsystem that does not answer may be started later.
    pub(crate) fn may_lead(&self, junction: &Junction) -> Result<(), Failure> {
        if let Some(subsystem) = &self.config.cluster.subsystem {
            let message = format!(
                "these are the names of subsystem {subsystem}: junctions are made in those of the cluster's first node"
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        let Some(own) = self.membership()? else { return Ok(()) };
        match self.ask_names(&own, &junction.subsystem, &junction.addresses) {
            Err(e) if e.class != ErrorClass::Invalid => {
                tracing::warn!("subsystem {} does not answer yet: {e}", junction.subsystem);
                Ok(())
            }
            asked => asked,
        }
    }

    /// Looks whether the subsystems answer to which this first node's junctions lead.
    pub(super) fn look_at_subsystems(&self) -> Result<(), Failure> {
        let Some(own) = self.membership()?.filter(|own| own.admits()) else { return Ok(()) };
        let views = self.junction_views()?;
        let look = |view: &JunctionView| match self.find(&own, &view.junction) {
            Ok(()) => JunctionState::Answers,
            Err(e) => JunctionState::Silent(e.message),
        };
        let seen: BTreeMap<_, _> =
            views.iter().map(|view| (view.junction.subsystem.clone(), look(view))).collect();
        let before = std::mem::replace(&mut *self.membership.led.lock(), seen.clone());
        for (subsystem, state) in &seen {
            let silent = matches!(before.get(subsystem), Some(JunctionState::Silent(_)));
            match state {
                JunctionState::Silent(why) if !silent => {
                    tracing::warn!("subsystem {subsystem} does not answer: {why}");
                }
                JunctionState::Answers if silent => tracing::info!("subsystem {subsystem} answers again"),
                _ => {}
            }
        }
        Ok(())
    }

    /// What was last seen of a subsystem.
    pub(crate) fn seen_of(&self, subsystem: &str) -> JunctionState {
        self.membership.led.lock().get(subsystem).cloned().unwrap_or_default()
    }

    /// What operators are to be told of subsystems that do not answer.
    pub(crate) fn subsystem_warnings(&self) -> Vec<String> {
        let seen = self.membership.led.lock();
        let told = |(subsystem, state): (&String, &JunctionState)| match state {
            JunctionState::Silent(why) => Some(format!("subsystem {subsystem} does not answer: {why}")),
            JunctionState::Unasked | JunctionState::Answers => None,
        };
        seen.iter().filter_map(told).collect()
    }

    /// Where a subsystem is to be had, as it was told last; the likeliest first.
    pub fn subsystem_places(&self, junction: &JunctionView) -> Vec<String> {
        let Junction { subsystem, addresses, .. } = &junction.junction;
        self.membership.places.known(subsystem).unwrap_or_else(|| addresses.clone())
    }

    /// Where the namespace of this host is to be had, which holds none.
    pub fn namespace_places(&self) -> Vec<String> {
        self.membership().ok().flatten().map_or(Vec::new(), |own| self.names_at(&own))
    }

    fn own_membership(&self) -> Result<Arc<Own>, Failure> {
        self.membership()?.ok_or_else(|| {
            failure(ErrorClass::Invalid, "this node belongs to no cluster; see `thermo cluster`")
        })
    }
}
