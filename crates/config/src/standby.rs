//! `[standby]`: who follows whom, and what that promises.

use kv::standby::{Away, Mode};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a change counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StandbyMode {
    /// When it is on stable storage here.
    #[default]
    Follow,
    /// When the standby has it, too.
    Wait,
}

/// What `mode = "wait"` does while the standby cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenAway {
    /// Changes are refused.
    #[default]
    Refuse,
    /// It goes on alone.
    GoOn,
}

/// Who follows whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandbyConfig {
    /// Where the standby of this node listens (`"mds2.example:7430"`).
    pub to: Vec<String>,
    /// This node is the standby of the member with that number.
    pub of: Option<u32>,
    /// When a change counts as durable.
    pub mode: StandbyMode,
    /// What `mode = "wait"` does while the standby cannot be reached.
    pub when_away: WhenAway,
    /// How long changes wait for it (seconds).
    pub patience_s: u32,
    /// How long after its last answer the standby does not take over (seconds).
    pub lease_s: u32,
    /// After how long a silence of the node that it follows this standby takes over by itself (seconds), if nothing is acknowledged without it; None: a
    /// person orders it.
    pub take_over_after_s: Option<u32>,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        Self {
            to: Vec::new(),
            of: None,
            mode: StandbyMode::Follow,
            when_away: WhenAway::Refuse,
            patience_s: 10,
            lease_s: 10,
            take_over_after_s: None,
        }
    }
}

impl StandbyConfig {
    /// What the engine is told of that.
    pub fn mode(&self) -> Mode {
        match (self.mode, self.when_away) {
            (StandbyMode::Follow, _) => Mode::Follow,
            (StandbyMode::Wait, WhenAway::Refuse) => Mode::Wait(Away::Refuse),
            (StandbyMode::Wait, WhenAway::GoOn) => Mode::Wait(Away::GoOn),
        }
    }

    /// How long changes wait for the standby.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s.into())
    }

    /// How long after its last answer the standby does not take over.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s.into())
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub(crate) fn validate(&self, in_database: bool, listens: bool) -> Result<(), String> {
        if in_database && (!self.to.is_empty() || self.of.is_some()) {
            return Err("standby: the catalogue is in a database (catalog.engine), which has standbys of its own; take [standby] out".into());
        }
        if self.of.is_some() && !self.to.is_empty() {
            return Err(
                "standby: a node is followed (to) or follows (of), not both; one that has taken over gets `to` in the place of `of`".into(),
            );
        }
        if self.of.is_some() && !listens {
            return Err(
                "standby.of: a standby is called by the node that it follows: say where it listens (cluster.listen)".into(),
            );
        }
        if self.take_over_after_s.is_some() && self.of.is_none() {
            return Err(
                "standby.take_over_after_s is for the node that follows (of): that one takes over".into()
            );
        }
        if self.take_over_after_s.is_some_and(|after| !(2..=86_400).contains(&after)) {
            return Err("standby.take_over_after_s is 2 to 86400 seconds".into());
        }
        if !(1..=3600).contains(&self.patience_s) || !(2..=3600).contains(&self.lease_s) {
            return Err("standby: patience_s is 1 to 3600 and lease_s 2 to 3600 seconds".into());
        }
        Ok(())
    }
}
