//! Which members answer now, and what they say of themselves.

use super::ask::{exchange, first_answer, open};
use super::{Membership, Own};
use crate::Node;
use crate::error::failure;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use types::{ErrorClass, Member, MemberId, StatusView, Time};
use wire::{Call, Failure, MemberReport, MemberState, MemberStatus, Reply};

/// Members that are asked at the same time.
const AT_ONCE: usize = 32;
/// Longest wait for all of them: whoever asks another node waits for ten seconds, and perhaps for somebody before him.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for the list of the members, where another node has it.
const LISTED: Duration = Duration::from_secs(2);
/// What was told serves whoever asks within this time: many who ask at once have each member asked once.
const FRESH: Duration = Duration::from_secs(1);

/// Who was asked later than so long before the end was not asked in time.
const LEAST: Duration = Duration::from_secs(1);

/// What has come of asking members; none: one could not be asked in time.
type Answers = BTreeMap<MemberId, Option<Result<MemberReport, Failure>>>;

/// What was told last, and when.
#[derive(Default)]
pub(super) struct Present(Mutex<Option<(Instant, Answers)>>);

impl Present {
    /// What these say of themselves. One asks for all.
    fn of(&self, own: &Arc<Own>, members: VecDeque<Member>) -> Answers {
        let mut last = self.0.lock();
        if let Some((at, answers)) = &*last
            && at.elapsed() < FRESH
            && members.iter().all(|member| answers.contains_key(&member.id))
        {
            return answers.clone();
        }
        let asks = own.clone();
        let answers = ask_all(members, PATIENCE, move |member| ask(&asks, member));
        *last = Some((Instant::now(), answers.clone()));
        answers
    }
}

impl Membership {
    /// A member was heard of now.
    pub(super) fn note_heard(&self, id: MemberId) {
        self.heard.lock().insert(id, crate::now());
    }

    /// When it was, since the node was started.
    fn heard(&self, id: MemberId) -> Option<Time> {
        self.heard.lock().get(&id).copied()
    }
}

impl Node {
    /// All members, or why they are not known; the node that has their records is not waited for without end.
    pub(crate) fn listed_members(&self, own: &Arc<Own>) -> Result<Vec<Member>, Failure> {
        if own.admits() {
            return Ok(self.cluster_view()?.members);
        }
        let (tell, told) = mpsc::channel();
        let asking = own.clone();
        crate::startup::spawn(None, "ask", move || {
            let _ = tell.send(asking.ask(&asking.credentials.addresses, None, &Call::Cluster)); // he may wait no more
        })?;
        match told.recv_timeout(LISTED) {
            Ok(Ok(Reply::Cluster(view))) => Ok(view.members),
            Ok(Ok(_)) => Err(failure(ErrorClass::Bug, "the members were asked for, and something else came")),
            Ok(Err(e)) => Err(e),
            Err(_) => {
                Err(failure(ErrorClass::Busy, "the first node of the cluster has not answered in time"))
            }
        }
    }

    /// Asks all members at once how they are, each but this one itself.
    pub(crate) fn ask_members(
        &self,
        own: &Arc<Own>,
        members: Vec<Member>,
        this: MemberReport,
    ) -> Vec<MemberStatus> {
        let asked = members.iter().filter(|member| !member.control.is_empty() && !self.is(member.id));
        let mut answers = self.membership.present.of(own, asked.cloned().collect());
        let mut status = |member: Member| {
            let takes_calls = !member.control.is_empty();
            let (state, report) = match answers.remove(&member.id) {
                _ if self.is(member.id) => (MemberState::Answers, Some(this.clone())),
                _ if !takes_calls => (MemberState::TakesNoCalls, None),
                Some(Some(Ok(report))) => (MemberState::Answers, Some(report)),
                Some(Some(Err(why))) => (MemberState::Away(why.message), None),
                Some(None) | None => (MemberState::NotAsked, None),
            };
            if state == MemberState::Answers {
                self.membership.note_heard(member.id);
            }
            let heard = self.membership.heard(member.id);
            MemberStatus { member, state, heard, report }
        };
        members.into_iter().map(&mut status).collect()
    }
}

/// Members that are to be asked, and since when the others are.
type Asking = (VecDeque<Member>, BTreeMap<MemberId, Instant>);

/// Asks members, some at once, and waits so long for all of them.
fn ask_all(
    members: VecDeque<Member>,
    patience: Duration,
    ask: impl Fn(&Member) -> Result<MemberReport, Failure> + Send + Sync + 'static,
) -> Answers {
    let late = || failure(ErrorClass::Busy, format!("no answer within {} s", patience.as_secs()));
    let mut answers: Answers = members.iter().map(|member| (member.id, None)).collect();
    let (mut left, askers) = (members.len(), members.len().min(AT_ONCE));
    let asking: Arc<Mutex<Asking>> = Arc::new(Mutex::new((members, BTreeMap::new())));
    let (ask, end) = (Arc::new(ask), Instant::now() + patience);
    let (tell, told) = mpsc::channel();
    for _ in 0..askers {
        let (ask, asking, tell) = (ask.clone(), asking.clone(), tell.clone());
        let asker = crate::startup::spawn(None, "ask", move || {
            let next = || next(&mut asking.lock()); // nobody else waits while a member is asked
            while let Some(member) = next() {
                if tell.send((member.id, ask(&member))).is_err() {
                    return; // nobody waits any more
                }
            }
        });
        if let Err(e) = asker {
            tracing::warn!("fewer members are asked at once: {e}");
        }
    }
    drop(tell);
    while left > 0
        && let Ok((id, answer)) = told.recv_timeout(end.saturating_duration_since(Instant::now()))
    {
        left -= 1;
        answers.insert(id, Some(answer));
    }
    let (waiting, since) = &mut *asking.lock();
    waiting.clear();
    for (id, at) in since.iter() {
        if *at + LEAST <= end && answers.get(id).is_none_or(Option::is_none) {
            answers.insert(*id, Some(Err(late())));
        }
    }
    answers
}

fn next((waiting, since): &mut Asking) -> Option<Member> {
    let member = waiting.pop_front()?;
    since.insert(member.id, Instant::now());
    Some(member)
}

/// Asks a member how it is, at the first of its addresses that answers: one that stands still keeps nobody from the next.
fn ask(own: &Arc<Own>, member: &Member) -> Result<MemberReport, Failure> {
    let (own, id) = (own.clone(), member.id);
    first_answer(&member.control, move |address| match ask_at(&own, id, address) {
        Ok(report) => Ok(Ok(report)),
        Err(e) => Err(failure(e.class, format!("{address}: {}", e.message))),
    })
}

fn ask_at(own: &Own, id: MemberId, address: &str) -> Result<MemberReport, Failure> {
    let mut channel = open(&own.connector, address, Some(id))?;
    let report = match exchange(&mut channel, 1, &Call::Status)? {
        Ok(Reply::Status(status)) => report(*status),
        Ok(_) => {
            return Err(failure(ErrorClass::Bug, "its status was asked for, and something else came"));
        }
        // It is there: a standby, or one that may have been replaced.
        Err(why) => return Ok(MemberReport { silent: Some(why.message), ..Default::default() }),
    };
    let devices = match exchange(&mut channel, 2, &Call::Devices)? {
        Ok(Reply::Devices(names)) => names,
        _ => Vec::new(),
    };
    let names = match exchange(&mut channel, 3, &Call::Subsystem)? {
        Ok(Reply::Subsystem(names)) => Some(*names),
        _ => None, // it holds none
    };
    Ok(MemberReport { devices, names, ..report })
}

/// What of its status a node tells of itself.
pub(crate) fn report(status: StatusView) -> MemberReport {
    MemberReport {
        version: status.version,
        mounts: status.mounts,
        drives: status.drives,
        requests_open: status.requests_open,
        warnings: status.warnings,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Digest, NodeId};

    fn member(id: u32) -> Member {
        Member {
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
        }
    }

    #[test]
    fn who_was_not_asked_because_others_stand_still_is_told_from_who_does_not_answer() {
        let silent = AT_ONCE as u32;
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Mutex::new(stuck);
        let members = (1..=silent + 2).map(member).collect();
        let answers = ask_all(members, LEAST + Duration::from_secs(5), move |asked| {
            if asked.id != MemberId::Node(NodeId(silent + 2)) {
                let _ended = stuck.lock().recv(); // when the test is over
            }
            Ok(MemberReport::default())
        });
        let of = |id| &answers[&MemberId::Node(NodeId(id))];
        assert!((1..=silent).all(|id| matches!(of(id), Some(Err(_)))), "{answers:?}");
        assert!((silent + 1..=silent + 2).all(|id| of(id).is_none()), "{answers:?}");
        drop(release);
        let all = ask_all((1..=silent + 2).map(member).collect(), Duration::from_secs(600), |_| {
            Ok(MemberReport::default())
        });
        assert!(all.len() as u32 == silent + 2 && all.values().all(|one| matches!(one, Some(Ok(_)))));
    }
}
