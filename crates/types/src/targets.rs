//! Disk targets of a cluster, as its engine keeps them.

use crate::*;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A disk target that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Which; never given again.
    pub id: TargetId,
    /// What the disk says of itself (its marker): it stays the same target on another host.
    pub uuid: String,
    /// Node that serves it.
    pub node: NodeId,
    /// Where its bytes are moved (`host:port`).
    pub data: Vec<String>,
    /// What fails together with it: host, shelf, room, as the configuration of its node says.
    pub domain: String,
    /// It gets no new files: an operator wants it empty.
    pub draining: bool,
    /// It will not come back: nothing is waited for there any more.
    pub lost: bool,
    /// Size of its file system (bytes).
    pub capacity: u64,
    /// What can still be written there (bytes).
    pub free: u64,
    /// When its node said so last.
    pub seen: Time,
}

/// How a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetState {
    /// Its node serves it.
    Up,
    /// Its node has not been heard of lately.
    Down,
    /// It is served, and gets no new files.
    Draining,
    /// An operator says that it will not come back.
    Lost,
    /// Its node reports it, but it takes nothing of who serves the namespace now: it has not taken note of the turn.
    Behind,
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Behind => "behind",
        })
    }
}

/// What is to become of what lies on targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetAct {
    /// It gets no new files, and what it has moves to others.
    Drain(TargetId),
    /// It is lost: what it had is rebuilt on others, or comes from tape.
    Replace(TargetId),
    /// It gets new files again.
    Return(TargetId),
    /// What lies on the fuller ones moves to the emptier ones until they are about equally full.
    Balance,
    /// What lies there is compared with its sums, and repaired where it is not what was written.
    Scrub(TargetId),
    /// It is empty, or lost, and is taken out of the list.
    Remove(TargetId),
}

/// Most bytes of the name of a pool of targets.
pub const MAX_TARGET_POOL: usize = 64;

/// Targets that layouts name together: the fast ones, or those that a project has paid for. A target may belong to several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPool {
    /// What layouts call it.
    pub name: String,
    /// Its targets, in order of their numbers. It is there without any, too, until somebody removes it: layouts may name it.
    pub targets: Vec<TargetId>,
}

impl TargetPool {
    /// Whether a pool may be called so: it is written on command lines, and in requests.
    pub fn is_name(text: &str) -> bool {
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        (1..=MAX_TARGET_POOL).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-')
    }

    /// Why no file that is to lie in it can be made now, and what to do; None: a target of it takes files.
    pub fn trouble(&self, all: &[TargetView]) -> Option<String> {
        let Self { name, targets } = self;
        let refused = "files whose layout names it are not made (no space)";
        if targets.is_empty() {
            return Some(format!(
                "target pool {name} has no target: {refused}. Give it one (`thermo target pool {name} --add TARGET`), or, if no layout names it any more, \
                 take it away (`thermo target pool {name} --delete`)"
            ));
        }
        let members: Vec<&TargetView> = all.iter().filter(|view| targets.contains(&view.target.id)).collect();
        if members.iter().any(|view| view.takes_files()) {
            return None;
        }
        let how = members.iter().map(|view| format!("{} is {}", view.target.id, view.state));
        Some(format!(
            "target pool {name} has no target that takes files ({}): {refused}. Have one up, let one that was drained have files again \
             (`thermo target return`), or give it another one (`thermo target pool {name} --add TARGET`)",
            how.collect::<Vec<_>>().join(", ")
        ))
    }
}

/// A target as `thermo target ls` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetView {
    /// The target.
    pub target: Target,
    /// How it is now.
    pub state: TargetState,
    /// Pools that it belongs to.
    pub pools: Vec<String>,
}

impl TargetView {
    /// Whether files that are to lie in a pool (none: anywhere) may lie there.
    pub fn is_in(&self, pool: Option<&str>) -> bool {
        pool.is_none_or(|pool| self.pools.iter().any(|one| one == pool))
    }

    /// Whether new files may come to lie there now.
    pub fn takes_files(&self) -> bool {
        self.state == TargetState::Up && !self.target.draining && !self.target.lost
    }

    /// Why a target is down, as far as the list of all of them tells it, and what to do.
    pub fn trouble(&self, all: &[Self]) -> Option<(String, String)> {
        let Target { id, node, .. } = &self.target;
        let up = |other: &Self| matches!(other.state, TargetState::Up | TargetState::Draining);
        let others = all.iter().any(|other| other.target.node == *node && up(other));
        let (why, look) = match others {
            true => (
                "serves other disks and not this one",
                "mount its disk at that host, where the log says more",
            ),
            false => ("does not report it", "start that node, and look into its log for the disk"),
        };
        let (why, look) = match self.state {
            TargetState::Down => (why, look),
            TargetState::Behind => (
                "reports it, but it has not taken note of who serves the namespace now, and takes nothing",
                "look there whether its disk can be written (file `turn` in its directory), and whether something hangs on it: the log says more",
            ),
            _ => return None,
        };
        let remedy = format!("{look}; if the disk is lost: `thermo target replace {id}`");
        Some((format!("is down: node {node} {why}"), remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_another_disk_is_told_from_one_that_is_down() {
        let view = |id, node, state| {
            let (data, domain) = (Vec::new(), String::new());
            let target = Target {
                id: TargetId(id),
                uuid: id.to_string(),
                node: NodeId(node),
                data,
                domain,
                draining: false,
                lost: false,
                capacity: 0,
                free: 0,
                seen: Time::new(1, 0),
            };
            TargetView { target, state, pools: Vec::new() }
        };
        let [down, new, other] =
            [(1, 4, TargetState::Down), (2, 4, TargetState::Up), (3, 5, TargetState::Down)]
                .map(|(a, b, c)| view(a, b, c));
        let all = [down.clone(), new.clone(), other.clone()];
        let (why, remedy) = down.trouble(&all).unwrap();
        assert_eq!(why, "is down: node 4 serves other disks and not this one");
        assert!(
            remedy.starts_with("mount its disk") && remedy.ends_with("`thermo target replace 1`"),
            "{remedy}"
        );
        assert_eq!(new.trouble(&all), None);
        assert_eq!(other.trouble(&all).unwrap().0, "is down: node 5 does not report it");
        let behind = TargetView { state: TargetState::Behind, ..new };
        let (why, remedy) = behind.trouble(&all).unwrap();
        assert!(why.contains("takes nothing") && remedy.contains("file `turn`"), "{why}: {remedy}");
    }

    #[test]
    fn a_pool_without_a_target_that_takes_files_says_so_and_why() {
        let view = |id, state| {
            let target = Target {
                id: TargetId(id),
                uuid: id.to_string(),
                node: NodeId(1),
                data: Vec::new(),
                domain: String::new(),
                draining: state == TargetState::Draining,
                lost: false,
                capacity: 0,
                free: 0,
                seen: Time::new(1, 0),
            };
            TargetView { target, state, pools: vec!["fast".to_owned()] }
        };
        let all = [view(1, TargetState::Up), view(2, TargetState::Draining), view(3, TargetState::Down)];
        assert!(all[0].is_in(Some("fast")) && all[0].is_in(None) && !all[0].is_in(Some("slow")));
        let pool = |targets: &[u32]| TargetPool {
            name: "fast".to_owned(),
            targets: targets.iter().copied().map(TargetId).collect(),
        };
        assert_eq!(pool(&[1, 2]).trouble(&all), None);
        let told = pool(&[2, 3]).trouble(&all).unwrap();
        assert!(told.contains("takes files (2 is draining, 3 is down)"), "{told}");
        let told = pool(&[]).trouble(&all).unwrap();
        assert!(told.starts_with("target pool fast has no target:") && told.contains("--delete"), "{told}");
    }

    #[test]
    fn names_of_pools_fit_on_command_lines() {
        assert!(["fast", "ssd-2", "a.b_c", "7"].into_iter().all(TargetPool::is_name));
        let long = "x".repeat(MAX_TARGET_POOL + 1);
        assert!(!["", "a b", "-x", "a/b", "ä", "a\n", &long].into_iter().any(TargetPool::is_name));
        assert!(TargetPool::is_name(&long[1..]));
    }
}
