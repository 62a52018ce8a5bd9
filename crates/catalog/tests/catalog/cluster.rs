//! Records of a cluster: tokens admit once, members that were removed stay so, and a roster brings back what a catalogue has lost.

use crate::common::*;
use catalog::{Catalog, CatalogError, New, Renewed};
use std::sync::Arc;
use types::*;

const TOKEN: [u8; 16] = [7; 16];
const YEAR: i64 = 365 * 24 * 3600;

fn cluster() -> Cluster {
    let (next_node, next_client) = (NodeId(2), ClientId(1));
    Cluster { id: "c".into(), authority: vec![1], made: t(1), next_node, next_client }
}

fn member(id: MemberId, certificate: u8) -> Member {
    Member {
        id,
        name: "m".into(),
        certificate: Digest([certificate; 32]),
        joined: t(1),
        expires: t(YEAR),
        user: None,
        control: vec!["old:1".into()],
        data: Vec::new(),
        next: None,
        removed: None,
    }
}

fn node(number: u32, certificate: u8) -> Member {
    member(MemberId::Node(NodeId(number)), certificate)
}

fn token(f: &Fixture, id: [u8; 16], expires: i64) {
    let secret = Digest([0; 32]);
    let record = TokenRecord { id, secret, expires: t(expires), grant: Grant::Node, used: None };
    f.catalog.put_token(&record, t(2)).expect("entered");
}

fn founded() -> Fixture {
    let f = lmdb();
    f.catalog.found_cluster(&cluster(), &node(1, 1)).expect("made");
    f
}

fn removal() -> Removal {
    Removal { at: t(9), reason: "stolen".into() }
}

#[test]
fn a_token_admits_one_in_its_time() {
    let f = founded();
    assert!(f.catalog.found_cluster(&cluster(), &node(1, 1)).is_err(), "there is one already");
    token(&f, TOKEN, 10);
    token(&f, [8; 16], 4);
    let admit = |token, number, now| f.catalog.admit_member(&token, &node(number, 2), t(now)).expect("read");
    assert!(!admit([8; 16], 2, 5), "past its end");
    assert!(!admit([9; 16], 2, 5), "never made");
    assert!(admit(TOKEN, 2, 5));
    assert!(!admit(TOKEN, 3, 5), "used");
    assert_eq!(f.catalog.members().expect("read").len(), 2);
    assert_eq!(f.catalog.token(&TOKEN).expect("read").expect("kept").used, Some(MemberId::Node(NodeId(2))));
    token(&f, [10; 16], 10);
    assert_eq!(f.catalog.revoke_tokens(t(5)).expect("withdrawn"), 1);
    assert!(!admit([10; 16], 3, 5), "withdrawn");
    // Numbers are given once, whatever becomes of them.
    let number = |grant: &Grant| f.catalog.number_member(grant).expect("a number");
    assert_eq!([number(&Grant::Node), number(&Grant::Node)], [2, 3].map(|n| MemberId::Node(NodeId(n))));
    let user = Grant::Client(BoundUser { uid: 1, gid: 1, groups: Vec::new() });
    assert_eq!(number(&user), MemberId::Client(ClientId(1)));
}

#[test]
fn a_certificate_follows_another_when_it_is_used_and_not_for_removed_ones() {
    let f = founded();
    let id = MemberId::Node(NodeId(1));
    let renewed = |certificate: u8| Renewed {
        certificate: Digest([certificate; 32]),
        expires: t(2 * YEAR),
        control: vec!["new:1".into()],
        data: vec!["new:2".into()],
    };
    let seen = || f.catalog.member(id).expect("read").expect("is there");
    assert!(f.catalog.renew_member(id, &renewed(2)).expect("may"));
    assert!(f.catalog.renew_member(id, &renewed(3)).expect("may"), "the answer to the first was lost");
    assert_eq!((seen().certificate, seen().next), (Digest([1; 32]), Some(Digest([3; 32]))));
    f.catalog.member_renewed(id, Digest([2; 32])).expect("read");
    assert_eq!(seen().certificate, Digest([1; 32]), "that one is not to follow any more");
    f.catalog.member_renewed(id, Digest([3; 32])).expect("read");
    assert_eq!((seen().certificate, seen().next, seen().expires), (Digest([3; 32]), None, t(2 * YEAR)));
    assert_eq!(seen().control, ["new:1"]);

    f.catalog.renew_member(id, &renewed(4)).expect("may");
    assert!(f.catalog.remove_member(id, &removal()).expect("may"));
    assert!(!f.catalog.remove_member(id, &removal()).expect("may"), "it was already");
    assert_eq!((seen().next, seen().removed), (None, Some(removal())));
    assert!(!f.catalog.renew_member(id, &renewed(5)).expect("read"));
    f.catalog.member_renewed(id, Digest([4; 32])).expect("read");
    assert_eq!(seen().certificate, Digest([3; 32]));
    let nobody = f.catalog.remove_member(MemberId::Client(ClientId(5)), &removal());
    assert!(matches!(nobody, Err(CatalogError::Missing { .. })), "{nobody:?}");
}

#[test]
fn a_roster_brings_back_what_is_lost_and_undoes_nothing() {
    let f = lmdb();
    let late = Cluster { next_node: NodeId(5), ..cluster() };
    let gone = Member { removed: Some(removal()), ..node(2, 2) };
    let members = [node(1, 1), gone.clone(), node(3, 3)];
    let recall = |cluster: &Cluster, members: &[Member]| f.catalog.recall_cluster(cluster, members);
    assert_eq!(recall(&late, &members).expect("entered"), 3);
    assert_eq!(recall(&late, &members).expect("nothing is new"), 0);
    assert_eq!(f.catalog.members().expect("read"), members);

    // What the catalogue knows better stays: numbers that were given since, removed ones, newer certificates.
    let newer = Member { expires: t(2 * YEAR), ..node(3, 4) };
    assert_eq!(recall(&late, std::slice::from_ref(&newer)).expect("entered"), 1);
    assert_eq!(recall(&cluster(), &[node(1, 1), node(2, 2), node(3, 3)]).expect("known"), 0);
    assert_eq!(f.catalog.members().expect("read"), [node(1, 1), gone, newer]);
    assert_eq!(f.catalog.number_member(&Grant::Node).expect("a number"), MemberId::Node(NodeId(5)));
    let other = Cluster { id: "d".into(), ..cluster() };
    assert!(recall(&other, &[]).is_err(), "the roster of another cluster");
}

#[test]
fn sessions_that_hold_locks_are_remembered_until_they_do_not() {
    let f = founded();
    for (node, number) in [(2, u64::MAX), (2, 1), (256, 1)] {
        f.catalog.put_lock_session(NodeId(node), number).expect("entered");
    }
    f.catalog.put_lock_session(NodeId(2), 1).expect("entered again");
    f.catalog.forget_lock_session(NodeId(256), 1).expect("forgotten");
    f.catalog.forget_lock_session(NodeId(3), 1).expect("was never there");
    assert_eq!(f.catalog.lock_sessions().expect("read"), [(NodeId(2), 1), (NodeId(2), u64::MAX)]);
}

#[test]
fn what_was_answered_is_forgotten_also_of_calls_from_before_a_restart() {
    let engine: Arc<dyn kv::Engine> = Arc::new(kv::MemoryEngine::new());
    let call = |number, answered| CallId { node: NodeId(7), session: 5, number, answered };
    let make = |catalog: &Catalog, number: u64, answered: u64, name: &str| {
        let cx = Cx { call: Some(call(number, answered)), ..root(2) };
        catalog.create(&cx, Ino::ROOT, name.as_bytes(), &New::node(FileKind::Directory, 0o755)).map(drop)
    };
    let on_record = |catalog: &Catalog| -> Vec<u64> {
        (1..20).filter(|number| catalog.done_call(&call(*number, 0)).unwrap().is_some()).collect()
    };
    let open = || Catalog::open(engine.clone(), t(1)).expect("opens");
    let first = open();
    for number in 1..=4 {
        make(&first, number, 1, &format!("first-{number}")).unwrap();
    }
    assert_eq!(on_record(&first), [1, 2, 3, 4]);
    drop(first);
    let next = open();
    make(&next, 5, 3, "next-5").unwrap();
    assert_eq!(on_record(&next), [3, 4, 5], "those below 3 are answered");
    assert!(make(&next, 6, 6, "next-5").is_err(), "it is there");
    assert_eq!(on_record(&next), [3, 4, 5], "what was not done changes nothing");
    make(&next, 7, 5, "next-7").unwrap();
    assert_eq!(on_record(&next), [5, 7], "also what an earlier run had recorded");
    make(&next, 6, 5, "next-6").unwrap();
    make(&next, 8, 7, "next-8").unwrap();
    assert_eq!(on_record(&next), [7, 8], "calls come in any order");
}
