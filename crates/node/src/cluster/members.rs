//! What a subsystem knows of the members of its cluster, whose records the node has that admits them.

use super::Own;
use super::listen::user_of;
use crate::Node;
use crate::error::failure;
use ident::Digest;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use types::{BoundUser, ErrorClass, Member, MemberId};
use wire::{Call, Failure, Reply};

/// What was told is asked for again after so long: whoever was removed meanwhile is on the list of those, which is brought at once.
const GOOD: Duration = Duration::from_secs(60);
/// Somebody whom it does not name has them asked for so often at most.
const AGAIN: Duration = Duration::from_secs(1);

/// The members, as they were told last.
#[derive(Default)]
pub(super) struct Told(Mutex<Option<(Instant, Vec<Member>)>>);

impl Told {
    /// For whom a member speaks who shows that certificate, by what was told; `ask` has it told anew.
    fn user(
        &self,
        id: MemberId,
        certificate: Digest,
        ask: impl FnOnce() -> Result<Vec<Member>, Failure>,
    ) -> Result<BoundUser, Failure> {
        // One asks for all.
        let mut told = self.0.lock();
        let find = |members: &[Member]| {
            let member = members.iter().find(|member| member.id == id).cloned();
            user_of(id, member, certificate)?.ok_or_else(|| nobody(id))
        };
        let (age, found) = match &*told {
            Some((at, members)) => (Some(at.elapsed()), Some(find(members))),
            None => (None, None),
        };
        let due = match (&found, age) {
            (Some(Ok(_)), Some(age)) => age >= GOOD,
            (Some(Err(_)), Some(age)) => age >= AGAIN,
            _ => true,
        };
        if let (false, Some(found)) = (due, found) {
            return found;
        }
        let members = ask()?;
        let found = find(&members);
        *told = Some((Instant::now(), members));
        found
    }
}

impl Node {
    /// The user for whom a client speaks, as the node that admitted it has that on record.
    pub(super) fn told_user(
        &self,
        own: &Own,
        id: MemberId,
        certificate: Digest,
    ) -> Result<BoundUser, Failure> {
        self.membership.told.user(id, certificate, || {
            match own.ask(&own.credentials.addresses, None, &Call::Cluster) {
                Ok(Reply::Cluster(view)) => Ok(view.members),
                Ok(_) => Err(failure(ErrorClass::Bug, "the members were asked for, and something else came")),
                Err(e) => Err(failure(
                    ErrorClass::Busy,
                    format!("for whom {id} speaks cannot be asked at the first node of the cluster now: {e}"),
                )),
            }
        })
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

    #[test]
    fn what_was_told_serves_for_a_while_and_who_is_not_in_it_has_it_asked_again() {
        let told = Told::default();
        let asked = std::cell::Cell::new(0);
        let ask = |members: Vec<Member>| {
            told.user(CLIENT, [1; 32], || {
                asked.set(asked.get() + 1);
                Ok(members)
            })
        };
        assert_eq!(ask(vec![member(1)]).unwrap().uid, 1000);
        assert_eq!(ask(Vec::new()).unwrap().uid, 1000, "nobody is asked");
        assert_eq!(asked.get(), 1);
        // Another certificate than the one on record: not at once again and again.
        let other = |members: Vec<Member>| {
            told.user(CLIENT, [2; 32], || {
                asked.set(asked.get() + 1);
                Ok(members)
            })
        };
        assert_eq!(other(vec![member(2)]).unwrap_err().class, ErrorClass::Denied);
        assert_eq!(asked.get(), 1);
        told.0.lock().as_mut().unwrap().0 -= AGAIN;
        assert_eq!(other(vec![member(2)]).unwrap().uid, 1000);
        assert_eq!(asked.get(), 2);
        let gone = Member {
            removed: Some(types::Removal { at: Time::new(3, 0), reason: "stolen".into() }),
            ..member(2)
        };
        told.0.lock().as_mut().unwrap().0 -= GOOD;
        assert!(other(vec![gone]).unwrap_err().message.contains("stolen"));
    }

    #[test]
    fn nobody_is_believed_while_the_members_cannot_be_asked() {
        let told = Told::default();
        let refused = told.user(CLIENT, [1; 32], || Err(failure(ErrorClass::Busy, "away")));
        assert_eq!(refused.unwrap_err().class, ErrorClass::Busy);
    }
}
