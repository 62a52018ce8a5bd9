//! The first node's part: it knows the targets, and gives their movers what they need.

use super::keys::MasterKey;
use super::{BEHIND_AFTER, DOWN_AFTER, NAMES};
use crate::Node;
use crate::error::{failure, refused};
use catalog::Reported;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{ErrorClass, MemberId, NodeId, Target, TargetId, TargetState, TargetView, Time};
use wire::{Call, Failure, JoinSecret, Reply, TargetGrant, TargetOrder};

/// Most targets of one node.
const MOST: usize = 1024;

impl Node {
    /// Takes note of what a node serves, and gives it the secrets of its targets.
    pub(crate) fn report_targets(
        &self,
        who: NodeId,
        order: &TargetOrder,
    ) -> Result<Vec<TargetGrant>, Failure> {
        self.holding()?;
        check(order)?;
        let now = crate::now();
        let master = MasterKey::open(&self.config.state_dir)?;
        let here = self.reported_to()?;
        // Nothing that others have heard of counts here.
        let (own, mut grants) = self.strangers_among(who, &order.targets, &here);
        self.catch_up(own.iter().map(|said| said.turn).max().unwrap_or_default())?;
        let (turn, epoch) = self.movers.epoch(now);
        let lately = before(now);
        for said in own {
            let its_own = format!("node {who}");
            let reported = Reported {
                uuid: &said.uuid,
                node: who,
                data: &order.data,
                domain: if said.domain.is_empty() { &its_own } else { &said.domain },
                capacity: said.capacity,
                free: said.free,
            };
            let target = self.catalog.report_target(&reported, now, lately);
            let id = target.map_err(|e| refused("the target", &e))?.id;
            self.movers.short.reported(id);
            self.movers.note_address(id, &order.data);
            self.movers.note_heard(id, said.turn, now);
            let keys = master.secrets(id, epoch).into_iter();
            let keys = keys.map(|(epoch, secret)| (epoch, JoinSecret(secret))).collect();
            grants.push(TargetGrant { turn, keys, ..here.grant(said, id) });
        }
        Ok(grants)
    }

    /// A target has heard of a later turn than this one: either another node serves, or this catalogue is one from a backup. Then the turn is raised, by what
    /// nobody can do whose turn is over: a durable change.
    fn catch_up(&self, heard: u64) -> Result<(), Failure> {
        if heard <= self.movers.turn() {
            return Ok(());
        }
        if self.standby_view().is_ok_and(|standby| !standby.promised) {
            let message = format!(
                "a target has heard of turn {heard}, and this node serves in turn {}: its standby may have taken over, and changes here prove nothing as \
                 they do not wait for it. If it has not (this catalogue is from a backup), start this node once without [standby]",
                self.movers.turn()
            );
            return Err(failure(ErrorClass::Retry, message));
        }
        // Whoever asks finds the other one then.
        let later = |e| Failure { class: ErrorClass::Retry, ..refused("the targets", &e) };
        let turn = self.catalog.turn_above(heard).map_err(later)?;
        tracing::warn!("a target has heard of turn {heard}: this node goes on with {turn}");
        self.movers.begin_turn(turn);
        Ok(())
    }

    /// All targets, as this node knows them: without the records it asks the node that admitted it.
    pub(crate) fn target_views(&self) -> Result<Vec<TargetView>, Failure> {
        if let Some(own) = self.membership()?
            && !own.holds_names()
        {
            return match self.ask_of_names(&own, Call::Targets)? {
                Reply::Targets(targets) => Ok(targets),
                _ => Err(failure(ErrorClass::Bug, "the targets were asked for, and something else came")),
            };
        }
        let now = crate::now();
        let fail = |e| refused("the targets", &e);
        let targets = self.catalog.targets().map_err(fail)?;
        let pools = self.catalog.target_pools().map_err(fail)?;
        let of = |id: TargetId| pools.iter().filter(move |pool| pool.targets.contains(&id));
        let view = |target: Target| {
            let pools = of(target.id).map(|pool| pool.name.clone()).collect();
            Ok(TargetView { state: self.state_of(&target, now)?, target, pools })
        };
        targets.into_iter().map(view).collect()
    }

    /// What operators are to be told of targets: which are refused, here or where this node reports them, and, where it keeps the records of them,
    /// which are down, which are nearly full, and which pools take no files.
    pub(crate) fn target_warnings(&self) -> Result<Vec<String>, Failure> {
        let mut told = self.refused_targets();
        if self.membership()?.is_some_and(|own| own.holds_names()) {
            let all = troubles(&self.target_views()?).into_iter();
            told.extend(all.map(|(target, (why, remedy))| format!("target {target} {why}: {remedy}")));
            told.extend(self.pressed_targets());
            told.extend(self.pool_warnings()?);
        }
        Ok(told)
    }

    /// The same without those that are down, as far as this node knows it by itself.
    pub(crate) fn own_target_warnings(&self) -> Result<Vec<String>, Failure> {
        Ok([self.refused_targets(), self.pressed_targets(), self.pool_warnings()?].concat())
    }

    /// The same, and on a host that holds no names what the node tells that does: it keeps the records of targets and their pools.
    pub(crate) fn all_target_warnings(&self) -> Result<Vec<String>, Failure> {
        let mut told = self.own_target_warnings()?;
        let Some(own) = self.membership()?.filter(|own| !own.holds_names()) else { return Ok(told) };
        match self.ask_of_names(&own, Call::RefusedTargets) {
            Ok(Reply::RefusedTargets(theirs)) => {
                let new: Vec<String> = theirs.into_iter().filter(|one| !told.contains(one)).collect();
                told.extend(new);
            }
            Ok(_) => {
                let message = "warnings of targets were asked for, and something else came";
                return Err(failure(ErrorClass::Bug, message));
            }
            // The targets themselves may have been told a moment ago.
            Err(e) => told.push(format!("what the node that holds the names warns of is not known: {e}")),
        }
        Ok(told)
    }

    /// When a target was heard of last. Of nodes that take turns none was heard before its turn began, however long nobody served.
    fn heard(&self, target: &Target, now: Time) -> Time {
        let begun = now.as_nanos().saturating_sub(self.started.elapsed().as_nanos() as i64);
        if self.config.takes_turns() { target.seen.max(Time::from_nanos(begun)) } else { target.seen }
    }

    /// Whether a node is a member of the cluster, as far as this one knows: a subsystem knows who is not any more.
    fn belongs(&self, node: NodeId) -> Result<bool, Failure> {
        let id = MemberId::Node(node);
        if self.config.cluster.subsystem.is_some() {
            return Ok(!self.membership.is_removed(id));
        }
        let member = self.catalog.member(id).map_err(|e| refused("the cluster", &e))?;
        Ok(member.is_some_and(|member| member.removed.is_none()))
    }

    fn state_of(&self, target: &Target, now: Time) -> Result<TargetState, Failure> {
        let belongs = self.belongs(target.node)?;
        let unheard = self.movers.unheard_since(target.id);
        let behind = unheard.is_some_and(|since| since < earlier(now, BEHIND_AFTER));
        Ok(match state(target, belongs, self.heard(target, now), now) {
            TargetState::Up | TargetState::Draining if behind => TargetState::Behind,
            state => state,
        })
    }
}

/// Those that will not answer.
pub(crate) fn down(views: &[TargetView]) -> BTreeSet<TargetId> {
    let down = |view: &&TargetView| {
        matches!(view.state, TargetState::Down | TargetState::Lost | TargetState::Behind)
    };
    views.iter().filter(down).map(|view| view.target.id).collect()
}

/// Why each one that is down is so, and what to do.
pub(crate) fn troubles(views: &[TargetView]) -> BTreeMap<TargetId, (String, String)> {
    views.iter().filter_map(|view| Some((view.target.id, view.trouble(views)?))).collect()
}

fn state(target: &Target, belongs: bool, heard: Time, now: Time) -> TargetState {
    match target.draining {
        _ if target.lost => TargetState::Lost,
        _ if !belongs || heard < before(now) => TargetState::Down,
        true => TargetState::Draining,
        false => TargetState::Up,
    }
}

/// Whoever was heard of last before that is down at `now`.
fn before(now: Time) -> Time {
    earlier(now, DOWN_AFTER)
}

fn earlier(now: Time, by: Duration) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(by.as_nanos() as i64))
}

fn check(order: &TargetOrder) -> Result<(), Failure> {
    let refuse = |why: &str| Err(failure(ErrorClass::Invalid, format!("targets are refused: {why}")));
    if order.targets.len() > MOST {
        return refuse("one node serves 1,024 at most");
    }
    let fits = |text: &String| text.len() <= NAMES && !text.chars().any(char::is_control);
    if order.data.is_empty() || order.data.len() > 16 || !order.data.iter().all(fits) {
        return refuse("from 1 to 16 addresses for bytes are due");
    }
    if !order
        .targets
        .iter()
        .all(|said| [&said.uuid, &said.domain, &said.site].into_iter().all(fits) && !said.uuid.is_empty())
    {
        return refuse("uuid, domain and site have at most 255 bytes, without control characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_up_while_its_node_reports_and_belongs_to_the_cluster() {
        let at = |secs| Time::new(1_000 + secs, 0);
        let target = Target {
            id: types::TargetId(1),
            uuid: "u".into(),
            node: NodeId(2),
            data: vec!["a:1".into()],
            domain: "d".into(),
            draining: false,
            lost: false,
            capacity: 2,
            free: 1,
            seen: at(0),
        };
        let of = |target: &Target, belongs, now| state(target, belongs, target.seen, now);
        let patience = DOWN_AFTER.as_secs() as i64;
        assert_eq!(of(&target, true, at(patience)), TargetState::Up);
        assert_eq!(of(&target, true, at(patience + 1)), TargetState::Down);
        assert_eq!(of(&target, false, at(0)), TargetState::Down);
        let draining = Target { draining: true, ..target };
        assert_eq!(of(&draining, true, at(0)), TargetState::Draining);
        assert_eq!(of(&draining, true, at(patience + 1)), TargetState::Down);
        assert_eq!(of(&Target { lost: true, ..draining }, true, at(0)), TargetState::Lost);
    }

    /// Its disk cannot be written: it reports, and will never hear of the turn.
    #[test]
    fn a_target_that_takes_no_note_of_the_turn_is_as_good_as_down() {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::Config { state_dir: dir.path().to_owned(), ..crate::Config::default() };
        let node = Node::start(config).unwrap();
        node.cluster_init("first").unwrap();
        let turn = node.catalog.turn_above(4).unwrap();
        node.movers.begin_turn(turn);
        let report = |turn| {
            let (uuid, domain) = ("u".to_owned(), String::new());
            let (site, unclaimed) = (String::new(), false);
            let said = wire::TargetReport { uuid, domain, capacity: 2, free: 1, turn, site, unclaimed };
            let order = TargetOrder { data: vec!["a:1".into()], targets: vec![said] };
            assert_eq!(node.report_targets(NodeId(1), &order).unwrap()[0].turn, node.movers.turn());
        };
        let state = |later: Duration| {
            let (target, now) = (&node.catalog.targets().unwrap()[0], crate::now().plus(later));
            node.state_of(target, now).unwrap()
        };
        for _ in 0..2 {
            report(turn - 1);
            assert_eq!(state(Duration::ZERO), TargetState::Up, "it is told now");
        }
        assert_eq!(state(BEHIND_AFTER + Duration::from_secs(1)), TargetState::Behind);
        report(turn);
        assert_eq!(state(BEHIND_AFTER + Duration::from_secs(1)), TargetState::Up);
        node.stop(true);
    }

    #[test]
    fn reports_that_are_too_long_are_refused() {
        let report = |uuid: &str| wire::TargetReport {
            uuid: uuid.into(),
            domain: String::new(),
            capacity: 1,
            free: 1,
            turn: 0,
            site: String::new(),
            unclaimed: false,
        };
        let order = |data: Vec<String>, targets| check(&TargetOrder { data, targets });
        assert!(order(vec!["a:1".into()], vec![report("u")]).is_ok());
        assert!(order(Vec::new(), vec![report("u")]).is_err());
        assert!(order(vec!["a:1".into()], vec![report("")]).is_err());
        assert!(order(vec!["a:1".into()], vec![report(&"u".repeat(256))]).is_err());
        assert!(order(vec!["a:1".into()], vec![report("u"); MOST + 1]).is_err());
    }
}
