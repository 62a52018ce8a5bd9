//! How the whole cluster is, as `thermo status` shows it: what other calls tell of its parts, gathered at the node that holds the names.

use crate::Node;
use crate::cluster::{Own, member_id, report};
use crate::error::{failure, refused};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use types::*;
use wire::{
    Call, ClusterStatus, Failure, MemberReport, MemberState, MemberStatus, Reply, TurnState, TurnsView,
};

/// How long is waited for a node that holds names to say that it is there.
const ANSWERS: Duration = Duration::from_secs(2);
/// Most requests that are told.
const MOVES: usize = 100;

impl Node {
    /// How the cluster is. Without the names, the node that holds them is asked.
    pub(super) fn cluster_status(&self) -> Result<ClusterStatus, Failure> {
        let own = self.in_cluster()?;
        if !own.holds_names() {
            self.names_answer(&own)?;
            return match self.ask_of_names(&own, Call::ClusterStatus)? {
                Reply::ClusterStatus(status) => Ok(*status),
                _ => Err(failure(ErrorClass::Bug, "the cluster was asked for, and something else came")),
            };
        }
        let mut warnings = Vec::new();
        let mut listed = self.listed_members(&own).unwrap_or_else(|e| {
            warnings.push(format!("who belongs to the cluster cannot be asked now: {e}"));
            Vec::new()
        });
        listed.retain(|member| member.removed.is_none());
        let this = MemberReport { names: self.held_names().ok(), ..report(self.status()?) };
        let told = this.warnings.clone();
        let mut members = self.ask_members(&own, listed, this);
        let (targets, turns) = (self.target_views()?, self.turns_view().ok());
        with_targets(&mut members, &targets);
        turns.iter().for_each(|turns| with_turns(&mut members, turns));
        warnings.extend(members.iter().filter_map(away));
        warnings.extend(told);
        let (out_of_date, more_out_of_date) = self.out_of_date().unwrap_or_else(|e| {
            warnings.push(format!("what targets lack is not known: {e}"));
            Default::default()
        });
        Ok(ClusterStatus {
            id: own.credentials.identity.cluster.to_string(),
            answers: member_id(own.credentials.identity.role),
            members,
            targets,
            out_of_date,
            more_out_of_date,
            moves: self.open_moves()?,
            turns,
            standby: self.standby_view().ok(),
            subsystems: self.junction_views()?,
            warnings,
        })
    }

    /// Whether the node that holds the names answers at all: what it has to ask others may take longer than anybody would wait for one that does not.
    fn names_answer(&self, own: &Arc<Own>) -> Result<(), Failure> {
        let (Some(node), own) = (self.movers.node(), own.clone()) else { return Ok(()) };
        let (tell, told) = mpsc::channel();
        let ask = move || _ = tell.send(node.ask_of_names(&own, Call::Subsystem));
        crate::startup::spawn(None, "ask", ask)?;
        told.recv_timeout(ANSWERS).map_or_else(
            |_| {
                let why =
                    format!("the node that holds the names has not answered for {ANSWERS:?}; see its host");
                Err(failure(ErrorClass::Retry, why))
            },
            |answer| answer.map(drop),
        )
    }

    /// Open requests that concern what lies on targets.
    fn open_moves(&self) -> Result<Vec<RequestView>, Failure> {
        use RequestKind as K;
        let open = self.catalog.open_requests().map_err(|e| refused("requests", &e))?;
        let moves =
            open.into_iter().filter(|r| matches!(r.kind, K::Drain | K::Balance | K::Scrub | K::Protect));
        Ok(moves.take(MOVES).map(|request| self.request_view(request)).collect())
    }
}

/// A node that serves targets was heard of when it reported them.
fn with_targets(members: &mut [MemberStatus], targets: &[TargetView]) {
    let mut seen = BTreeMap::new();
    for TargetView { target, .. } in targets {
        let last = seen.entry(MemberId::Node(target.node)).or_insert(target.seen);
        *last = target.seen.max(*last);
    }
    for member in members {
        member.heard = member.heard.max(seen.get(&member.member.id).copied());
    }
}

/// One that waits for its turn takes no calls of other nodes.
fn with_turns(members: &mut [MemberStatus], turns: &TurnsView) {
    let waits = |id| {
        turns
            .nodes
            .iter()
            .any(|node| node.state == TurnState::Waits && node.node.map(MemberId::Node) == Some(id))
    };
    for member in members.iter_mut().filter(|m| m.state != MemberState::Answers && waits(m.member.id)) {
        let silent = Some("it waits for its turn".to_owned());
        member.state = MemberState::Answers;
        member.report = Some(MemberReport { silent, ..Default::default() });
    }
}

/// What an operator is to be told of a member that does not answer.
fn away(status: &MemberStatus) -> Option<String> {
    let MemberState::Away(why) = &status.state else { return None };
    let Member { id, name, .. } = &status.member;
    Some(format!(
        "{id} ({name}) does not answer: {why}; look whether its host is up, and start its node there (`thermo up`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::TurnNode;

    fn member(id: u32, state: MemberState, heard: Option<i64>) -> MemberStatus {
        let member = Member {
            id: MemberId::Node(NodeId(id)),
            name: format!("n{id}"),
            certificate: Digest([0; 32]),
            joined: Time::new(1, 0),
            expires: Time::new(2, 0),
            user: None,
            control: vec![format!("h{id}:1")],
            data: Vec::new(),
            next: None,
            removed: None,
        };
        MemberStatus { member, state, heard: heard.map(|secs| Time::new(secs, 0)), report: None }
    }

    #[test]
    fn who_reports_targets_was_heard_of_and_who_waits_for_its_turn_is_there() {
        let gone = || MemberState::Away("refused".into());
        let mut members = [
            member(1, MemberState::Answers, Some(9)),
            member(2, gone(), None),
            member(3, gone(), Some(50)),
            member(4, gone(), None),
        ];
        let target = |id, node, seen| Target {
            id: TargetId(id),
            uuid: String::new(),
            node: NodeId(node),
            data: Vec::new(),
            domain: String::new(),
            draining: false,
            lost: false,
            capacity: 1,
            free: 1,
            seen: Time::new(seen, 0),
        };
        let targets = [(1, 2, 30), (2, 2, 20), (3, 3, 40)].map(|(id, node, seen)| TargetView {
            target: target(id, node, seen),
            state: TargetState::Up,
            pools: Vec::new(),
        });
        with_targets(&mut members, &targets);
        let heard: Vec<Option<i64>> = members.iter().map(|m| m.heard.map(|t| t.secs)).collect();
        assert_eq!(heard, [Some(9), Some(30), Some(50), None]);
        let node = |id, state| TurnNode {
            host: "h".into(),
            node: Some(NodeId(id)),
            addresses: Vec::new(),
            state,
            since: Time::new(1, 0),
            heard_s: 1,
            lacks: None,
        };
        let nodes = vec![node(1, TurnState::Serves), node(3, TurnState::Away), node(4, TurnState::Waits)];
        with_turns(&mut members, &TurnsView { nodes, ..Default::default() });
        let told: Vec<String> = members.iter().filter_map(away).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("node 2 (n2) does not answer: refused; look whether"), "{told:?}");
        assert!(told[1].starts_with("node 3 (n3)"), "{told:?}");
    }
}
