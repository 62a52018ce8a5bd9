//! States of volumes that an operator sets.

use crate::common::*;
use catalog::{CatalogError, New, RecordOutcome, StateOrder};
use kv::Durability;
use types::VolumeState as S;
use types::*;

fn order(state: S) -> StateOrder {
    StateOrder { state, reason: "box 12".into(), by: 1000, now: t(50), leave: false }
}

fn set(f: &Fixture, barcodes: &[&str], state: S) -> Result<(), CatalogError> {
    let volumes: Vec<Barcode> = barcodes.iter().map(|b| Barcode::from(*b)).collect();
    f.catalog.set_volume_state(&volumes, &order(state))
}

fn state(f: &Fixture, barcode: &str) -> S {
    f.catalog.volume(&barcode.into()).expect("read").expect("is there").state
}

fn file(f: &Fixture) -> Ino {
    let made = f.catalog.create(&root(5), Ino::ROOT, b"x", &New::file(0o644, ObjectId(1))).expect("create");
    let ino = made.attr.ino;
    f.catalog.observe(&root(6), ino, ObjectId(1), &stamp(10, 6), true, Durability::Relaxed).expect("closed");
    ino
}

#[test]
fn who_when_and_why_are_kept_until_the_node_finds_otherwise() {
    let f = lmdb();
    set(&f, &["VA0001L9", "VB0001L9"], S::Exported).expect("may be");
    for barcode in ["VA0001L9", "VB0001L9"] {
        let v = f.catalog.volume(&barcode.into()).expect("read").expect("is there");
        let kept = (v.state, v.by, v.since, v.reason.as_str());
        assert_eq!(kept, (S::Exported, Some(1000), t(50), "box 12"));
    }
    let found = f.catalog.update_volume(&"VA0001L9".into(), &mut |v| v.becomes(S::Suspect, "a spot", t(60)));
    let v = found.expect("changed");
    assert_eq!((v.state, v.by, v.since, v.reason.as_str()), (S::Suspect, None, t(60), "a spot"));
    f.check();
}

#[test]
fn what_would_lose_data_or_is_not_for_an_operator_to_say_is_refused() {
    let f = memory();
    let ino = file(&f);
    let outcome = record(&f.catalog, "VA0001L9", 10, vec![segment(ino, Version(1), 1, 10, (0, 10), 0)]);
    assert_eq!(outcome, [RecordOutcome::Counted]);
    let blank = Volume::new("BLANK0L9".into(), t(1));
    f.catalog.put_volume(&blank).expect("entered");
    f.catalog.put_volume(&Volume { state: S::Foreign, ..volume("FORGN1L9", "pool-a") }).expect("entered");
    f.catalog.put_volume(&Volume { state: S::Unverified, ..volume("UNVER1L9", "pool-a") }).expect("entered");
    f.catalog.put_volume(&Volume { pool: None, ..volume("NOPOOLL9", "pool-a") }).expect("entered");
    let cases = [
        ("VA0001L9", S::Scratch, "needed by current files"),
        ("VA0001L9", S::Blank, "needed by current files"),
        ("VA0001L9", S::Retired, "needed by current files"),
        ("VB0001L9", S::Scratch, "volume label"),
        ("VB0001L9", S::Foreign, "by itself"),
        ("VB0001L9", S::Unknown, "by itself"),
        ("VB0001L9", S::Unverified, "by itself"),
        ("BLANK0L9", S::Filling, "no label of ours"),
        ("BLANK0L9", S::ReadOnly, "no label of ours"),
        ("NOPOOLL9", S::Filling, "no pool"),
        ("FORGN1L9", S::Filling, "--force"),
        ("FORGN1L9", S::Retired, "--force"),
        ("UNVER1L9", S::Filling, "catalog rebuild"),
        ("UNVER1L9", S::Exported, "catalog rebuild"),
    ];
    for (barcode, to, says) in cases {
        let before = state(&f, barcode);
        let error = set(&f, &[barcode], to).expect_err("must be refused").to_string();
        assert!(error.contains(barcode) && error.contains(says), "{barcode} {to:?}: {error}");
        assert_eq!(state(&f, barcode), before);
    }
    set(&f, &["VA0002L9", "BLANK0L9"], S::ReadOnly).expect_err("one of them may not");
    assert_eq!(state(&f, "VA0002L9"), S::Filling, "all or none");
    let long = StateOrder { reason: "x".repeat(1001), ..order(S::Full) };
    f.catalog.set_volume_state(&["VA0002L9".into()], &long).expect_err("too long");
    for to in [S::Full, S::ReadOnly, S::Suspect, S::Broken, S::Exported, S::Filling] {
        set(&f, &["VA0001L9"], to).expect("may be");
        assert_eq!(state(&f, "VA0001L9"), to);
    }
    set(&f, &["BLANK0L9", "VB0001L9"], S::Retired).expect("nothing needs them");
    f.check();
}

#[test]
fn nothing_counts_on_a_volume_that_was_retired_while_it_was_written() {
    let f = lmdb();
    let ino = file(&f);
    set(&f, &["VA0001L9"], S::Retired).expect("empty");
    let one = |copy| vec![segment(ino, Version(1), copy, 10, (0, 10), 0)];
    let outcome = record(&f.catalog, "VA0001L9", 10, one(1));
    assert!(matches!(&outcome[..], [RecordOutcome::Stale { why }] if why.contains("retired")), "{outcome:?}");
    assert_eq!(f.catalog.inode(ino).expect("inode").file.expect("a file").copies, []);
    assert_eq!(f.catalog.volume(&"VA0001L9".into()).expect("read").expect("there").live_files, 0);
    assert_eq!(record(&f.catalog, "VA0002L9", 11, one(1)), [RecordOutcome::Counted]);
    f.check();
}

#[test]
fn what_a_volume_was_before_its_export_is_known_until_it_is_back_or_something_else_is_decided() {
    let f = memory();
    let name = Barcode::from("VA0001L9");
    let one = std::slice::from_ref(&name);
    let leave = StateOrder { leave: true, ..order(S::ReadOnly) };
    let was = |state: S| {
        f.catalog.update_volume(&name, &mut |v| v.becomes(state, "why", t(40))).unwrap();
        f.catalog.set_volume_state(one, &leave).unwrap();
        f.catalog.before_export(&name).unwrap()
    };
    assert_eq!(was(S::Filling), None);
    let suspect = Before { state: S::Suspect, reason: "why".into(), by: None };
    assert_eq!(was(S::Suspect), Some(suspect.clone()));
    // Asked for again, it was made read-only by the export itself.
    assert_eq!(was(S::ReadOnly), Some(suspect.clone()));
    let mut told = None;
    let mut back = |state| {
        let change =
            &mut |v: &mut Volume, before: Option<&Before>| (v.state, told) = (state, before.cloned());
        f.catalog.volume_comes_back(&name, change).unwrap();
        (told.clone(), f.catalog.before_export(&name).unwrap())
    };
    assert_eq!(back(S::ReadOnly), (Some(suspect.clone()), Some(suspect.clone())), "it is not back yet");
    assert_eq!(back(S::Suspect), (Some(suspect), None));
    assert!(was(S::Full).is_some());
    f.catalog.set_volume_state(one, &order(S::Exported)).unwrap();
    assert_eq!(f.catalog.before_export(&name).unwrap(), None);
    f.check();
}

#[test]
fn a_label_that_was_not_begun_is_forgotten_if_the_one_on_record_is_there() {
    let f = memory();
    let name = Barcode::from("VA0001L9");
    let uuid = f.catalog.volume(&name).unwrap().unwrap().uuid;
    let forgotten = |carries: &str| {
        let done = f.catalog.forget_intended_label(&name, carries).unwrap();
        (done, f.catalog.intended_label(&name).unwrap().is_none())
    };
    assert_eq!(forgotten(&uuid), (false, true), "none was to be written");
    f.catalog.intend_label(&name, "fresh").unwrap();
    assert_eq!([forgotten("fresh"), forgotten(""), forgotten("other")], [(false, false); 3]);
    assert_eq!(forgotten(&uuid), (true, true));
}

/// Files may lie behind it by now, and be needed.
#[test]
fn a_label_that_was_intended_before_a_backup_is_that_of_no_cartridge() {
    let f = lmdb();
    let [known, fresh] = ["VA0001L9", "VA0002L9"].map(Barcode::from);
    f.catalog.label_volume(&known, &volume("VA0001L9", "pool-a")).expect("labelled");
    for barcode in [&known, &fresh] {
        f.catalog.update_volume(barcode, &mut |v| v.state = VolumeState::Repacking).expect("updated");
        f.catalog.intend_label(barcode, "new").expect("noted");
    }
    f.catalog.update_volume(&fresh, &mut |v| v.uuid.clear()).expect("updated");
    f.catalog.mark_restored(t(50)).expect("marked");
    let intended = |barcode: &Barcode| f.catalog.intended_label(barcode).expect("read");
    assert!(intended(&known).is_some_and(|label| label != "new"));
    assert_eq!(intended(&fresh), None);
    f.check();
}

#[test]
fn that_a_tape_may_hold_more_is_forgotten_with_its_label_and_when_an_operator_has_it_written_again() {
    let f = memory();
    let name = Barcode::from("VA0001L9");
    let holds_more = || f.catalog.volume(&name).unwrap().unwrap().holds_more;
    let found = || {
        let found = &mut |v: &mut Volume| {
            v.becomes(S::ReadOnly, "2 records are listed nowhere", t(40));
            v.holds_more = true;
        };
        f.catalog.update_volume(&name, found).unwrap();
    };
    found();
    for state in [S::Suspect, S::Full, S::ReadOnly, S::Broken, S::Exported] {
        set(&f, &["VA0001L9"], state).expect("may be");
        assert!(holds_more(), "{state}");
    }
    f.catalog.update_volume(&name, &mut |v| v.becomes(S::Suspect, "a spot", t(60))).unwrap();
    assert!(holds_more(), "the node has found something else");
    let silent = StateOrder { reason: String::new(), ..order(S::Filling) };
    let refused = f.catalog.set_volume_state(std::slice::from_ref(&name), &silent);
    let refused = refused.expect_err("he may not know").to_string();
    assert!(refused.contains("--reason") && holds_more(), "{refused}");
    set(&f, &["VA0001L9"], S::Filling).expect("it is his decision");
    assert!(!holds_more());
    // Not while its files are being entered.
    found();
    f.catalog.update_volume(&name, &mut |v| v.append_block = 0).unwrap();
    let refused = set(&f, &["VA0001L9"], S::Filling).expect_err("nobody knows its end").to_string();
    assert!(refused.contains("catalog rebuild") && holds_more(), "{refused}");
    let fresh = Volume { uuid: "fresh".into(), ..volume("VA0001L9", "pool-a") };
    f.catalog.label_volume(&name, &fresh).unwrap();
    assert!(!holds_more());
    f.check();
}
