//! What a subsystem knows of the members of its cluster, whose records the node has that admits them.

use super::Own;
use super::listen::user_of;
use crate::Node;
use crate::error::failure;
use ident::Digest;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{BoundUser, ErrorClass, Member, MemberId};
use wire::{Call, Failure, Reply};

/// What was told is asked for again after so long: whoever was removed meanwhile is on the list of those, which is brought at once.
const GOOD: Duration = Duration::from_secs(60);
/// Somebody whom it does not name has them asked for so often at most.
const AGAIN: Duration = Duration::from_secs(1);
/// Before they are asked for again when that has failed.
const FAILED: Duration = Duration::from_secs(10);

/// The members, as they were told last.
#[derive(Default)]
pub(super) struct Told {
    known: Mutex<Known>,
    /// One asks for all.
    asks: Mutex<()>,
}

#[derive(Default)]
struct Known {
    members: Option<(Instant, Vec<Member>)>,
    /// Why they could not be asked for, since that was last possible.
    failed: Option<(Instant, Failure)>,
}

/// What is known of a member now.
enum Found {
    /// That is the answer.
    Answer(Result<BoundUser, Failure>),
    /// It was the answer a while ago; None: nothing is known of him.
    Old(Option<BoundUser>),
}

impl Known {
    fn find(&self, id: MemberId, certificate: Digest) -> Found {
        let named = self.members.as_ref().map(|(at, members)| {
            let member = members.iter().find(|member| member.id == id).cloned();
            let user = user_of(id, member, certificate).and_then(|user| user.ok_or_else(|| nobody(id)));
            (at.elapsed(), user)
        });
        let failed = self.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILED);
        match (named, failed) {
            (Some((age, Ok(user))), None) if age >= GOOD => Found::Old(Some(user)),
            (Some((_, Ok(user))), _) => Found::Answer(Ok(user)),
            (Some((age, Err(why))), _) if age < AGAIN => Found::Answer(Err(why)),
            (_, Some((_, why))) => Found::Answer(Err(why.clone())),
            _ => Found::Old(None),
        }
    }
}

impl Told {
    /// For whom a member speaks who shows that certificate, by what was told; `ask` has it told anew. He who was known waits for nobody: what was known is believed,
    /// and `later` is called, if it is time to ask again.
    fn user(
        &self,
        id: MemberId,
        certificate: Digest,
        ask: impl FnOnce() -> Result<Vec<Member>, Failure>,
        later: impl FnOnce(),
    ) -> Result<BoundUser, Failure> {
        let find = || self.known.lock().find(id, certificate);
        match find() {
            Found::Answer(answer) => return answer,
            Found::Old(Some(user)) => {
                later();
                return Ok(user);
            }
            Found::Old(None) => {}
        }
        let _one_asks = self.asks.lock();
        if let Found::Answer(answer) = find() {
            return answer; // another one has asked meanwhile
        }
        self.note(ask());
        match find() {
            Found::Answer(answer) => answer,
            Found::Old(user) => user.ok_or_else(|| nobody(id)),
        }
    }

    fn note(&self, asked: Result<Vec<Member>, Failure>) {
        let mut known = self.known.lock();
        match asked {
            Ok(members) => *known = Known { members: Some((Instant::now(), members)), failed: None },
            Err(why) => known.failed = Some((Instant::now(), why)),
        }
    }

    /// Has the members told anew beside whoever is served, if nobody does.
    fn refresh(self: &Arc<Self>, own: &Arc<Own>) {
        let (told, own) = (self.clone(), own.clone());
        let spawned = crate::startup::spawn(None, "members", move || {
            if let Some(_one_asks) = told.asks.try_lock() {
                told.note(ask_members(&own));
            }
        });
        if let Err(e) = spawned {
            tracing::warn!("the members of the cluster are not asked for: {e}");
        }
    }
}

fn ask_members(own: &Own) -> Result<Vec<Member>, Failure> {
    match own.ask(&own.credentials.addresses, None, &Call::Cluster) {
        Ok(Reply::Cluster(view)) => Ok(view.members),
        Ok(_) => Err(failure(ErrorClass::Bug, "the members were asked for, and something else came")),
        Err(e) => {
            let message =
                format!("for whom somebody speaks cannot be asked at the first node of the cluster now: {e}");
            Err(failure(ErrorClass::Busy, message))
        }
    }
}

impl Node {
    /// The user for whom a client speaks, as the node that admitted it has that on record.
    pub(super) fn told_user(
        &self,
        own: &Arc<Own>,
        id: MemberId,
        certificate: Digest,
    ) -> Result<BoundUser, Failure> {
        let told = &self.membership.told;
        told.user(id, certificate, || ask_members(own), || told.refresh(own))
    }
}

fn nobody(id: MemberId) -> Failure {
    failure(ErrorClass::Denied, format!("{id} speaks for no user"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ClientId, Time};

    const CLIENT: MemberId = MemberId::Client(ClientId(7));

    fn member(certificate: u8) -> Member {
        Member {
            id: CLIENT,
            name: "c".into(),
            certificate: types::Digest([certificate; 32]),
            joined: Time::new(1, 0),
            expires: Time::new(2, 0),
            user: Some(BoundUser { uid: 1000, gid: 100, groups: Vec::new() }),
            control: Vec::new(),
            data: Vec::new(),
            next: None,
            removed: None,
        }
    }

    /// Makes what was told older.
    fn age(told: &Told, by: Duration) {
        let mut known = told.known.lock();
        known.members.as_mut().unwrap().0 -= by;
    }

    fn away() -> Result<Vec<Member>, Failure> {
        Err(failure(ErrorClass::Busy, "away"))
    }

    fn not_asked() -> Result<Vec<Member>, Failure> {
        panic!("asked")
    }

    #[test]
    fn what_was_told_serves_for_a_while_and_who_is_not_in_it_has_it_asked_again() {
        let told = Told::default();
        let nobody_later = || panic!("it is not old");
        assert_eq!(told.user(CLIENT, [1; 32], || Ok(vec![member(1)]), nobody_later).unwrap().uid, 1000);
        assert_eq!(told.user(CLIENT, [1; 32], not_asked, nobody_later).unwrap().uid, 1000);
        // Another certificate than the one on record: not at once again and again.
        let other = |ask: fn() -> Result<Vec<Member>, Failure>| told.user(CLIENT, [2; 32], ask, nobody_later);
        assert_eq!(other(not_asked).unwrap_err().class, ErrorClass::Denied);
        age(&told, AGAIN);
        assert_eq!(other(|| Ok(vec![member(2)])).unwrap().uid, 1000);
        let gone = Member {
            removed: Some(types::Removal { at: Time::new(3, 0), reason: "stolen".into() }),
            ..member(2)
        };
        told.note(Ok(vec![gone]));
        assert!(other(not_asked).unwrap_err().message.contains("stolen"));
    }

    #[test]
    fn nobody_is_believed_while_the_members_cannot_be_asked_for_and_that_is_not_tried_for_each() {
        let told = Told::default();
        let user = |ask: fn() -> Result<Vec<Member>, Failure>| told.user(CLIENT, [1; 32], ask, || ());
        assert_eq!(user(away).unwrap_err().class, ErrorClass::Busy);
        assert_eq!(user(not_asked).unwrap_err().class, ErrorClass::Busy);
        told.known.lock().failed.as_mut().unwrap().0 -= FAILED;
        assert_eq!(user(|| Ok(vec![member(1)])).unwrap().uid, 1000);
    }

    #[test]
    fn who_was_known_is_believed_and_does_not_wait_until_the_members_are_asked_for_again() {
        let told = Told::default();
        told.note(Ok(vec![member(1)]));
        age(&told, GOOD);
        let due = std::cell::Cell::new(0);
        let _somebody_asks = told.asks.lock();
        let known = || told.user(CLIENT, [1; 32], not_asked, || due.set(due.get() + 1)).unwrap().uid;
        assert_eq!((known(), due.get()), (1000, 1));
        drop(_somebody_asks);
        told.note(away());
        assert_eq!((known(), due.get()), (1000, 1), "that has just failed");
        // Another one is not, whatever is known of the first.
        assert_eq!(told.user(CLIENT, [2; 32], not_asked, || ()).unwrap_err().class, ErrorClass::Busy);
    }
}
