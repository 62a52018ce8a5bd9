//! Which members answer now, and what they say of themselves.

use super::ask::{exchange, open};
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

/// What has come of asking members in time.
type Answers = BTreeMap<MemberId, Result<MemberReport, Failure>>;

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
        let answers = ask_all(own, members);
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
                Some(Ok(report)) => (MemberState::Answers, Some(report)),
                Some(Err(why)) => (MemberState::Away(why.message), None),
                None => (MemberState::Away("it was not asked".to_owned()), None),
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

/// Asks members, some at once. Each has an answer, if only that there is none.
fn ask_all(own: &Arc<Own>, members: VecDeque<Member>) -> Answers {
    let late = || failure(ErrorClass::Busy, format!("no answer within {} s", PATIENCE.as_secs()));
    let mut answers: Answers = members.iter().map(|member| (member.id, Err(late()))).collect();
    let (mut left, askers) = (members.len(), members.len().min(AT_ONCE));
    let (waiting, end) = (Arc::new(Mutex::new(members)), Instant::now() + PATIENCE);
    let (tell, told) = mpsc::channel();
    for _ in 0..askers {
        let (own, waiting, tell) = (own.clone(), waiting.clone(), tell.clone());
        let asker = crate::startup::spawn(None, "ask", move || {
            let next = || waiting.lock().pop_front();
            while let Some(member) = next() {
                if tell.send((member.id, ask(&own, &member))).is_err() {
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
        answers.insert(id, answer);
    }
    waiting.lock().clear();
    answers
}

/// Asks a member how it is, at the first of its addresses where it answers.
fn ask(own: &Own, member: &Member) -> Result<MemberReport, Failure> {
    let mut last = failure(ErrorClass::Invalid, "no address of it is known");
    for address in &member.control {
        let asked = open(&own.connector, address, Some(member.id)).and_then(|mut channel| {
            let report = match exchange(&mut channel, 1, &Call::Status)? {
                Ok(Reply::Status(status)) => report(*status),
                Ok(_) => {
                    return Err(failure(
                        ErrorClass::Bug,
                        "its status was asked for, and something else came",
                    ));
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
        });
        match asked {
            Ok(report) => return Ok(report),
            Err(e) => last = failure(e.class, format!("{address}: {}", e.message)),
        }
    }
    Err(last)
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
