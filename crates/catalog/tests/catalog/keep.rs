//! Lost copies, moves between volumes, requests for volumes.

use crate::common::*;
use catalog::{Catalog, Lost, LostCopy, NewSegment, RecordOutcome};
use kv::{Durability, Engine, MemoryEngine};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use types::*;

const A: &str = "VA0001L9";
const B: &str = "VB0001L9";
/// Of the same pool as `A`.
const A2: &str = "VA0002L9";

/// A file of so many bytes with a copy on `A` and one on `B`.
fn archived(f: &Fixture, name: &str, object: u64, size: u64) -> Ino {
    let fresh = catalog::New::file(0o644, ObjectId(object));
    let ino = f.catalog.create(&root(5), Ino::ROOT, name.as_bytes(), &fresh).expect("create").attr.ino;
    f.catalog
        .observe(&root(6), ino, ObjectId(object), &stamp(size, 6), true, Durability::Relaxed)
        .expect("closed");
    for (copy, barcode) in [(1, A), (2, B)] {
        assert_eq!(put(f, barcode, ino, copy, (0, size), size), RecordOutcome::Counted);
    }
    ino
}

fn put(f: &Fixture, barcode: &str, ino: Ino, copy: u8, part: (u64, u64), size: u64) -> RecordOutcome {
    let one: NewSegment = segment(ino, Version(1), copy, size, part, 0);
    record(&f.catalog, barcode, 20, vec![one]).remove(0)
}

fn purge(f: &Fixture, ino: Ino, object: u64, size: u64) {
    f.catalog.release_object(ino, Version(1), ObjectId(object), &stamp(size, 6)).expect("released");
}

fn lose(f: &Fixture, ino: Ino, copy: u8, volume: &str) -> Lost {
    let lost = LostCopy { ino, version: Version(1), copy: CopyNo(copy), volume: volume.into() };
    f.catalog.lose_copies(&[lost], t(30)).expect("recorded").remove(0)
}

fn copies(f: &Fixture, ino: Ino) -> Vec<u8> {
    f.catalog.inode(ino).expect("inode").file.expect("a file").copies.iter().map(|c| c.0).collect()
}

fn live(f: &Fixture, barcode: &str) -> u64 {
    f.catalog.volume(&barcode.into()).expect("read").expect("is there").live_files
}

fn state(f: &Fixture, barcode: &str, state: VolumeState) {
    f.catalog.update_volume(&barcode.into(), &mut |v| v.state = state).expect("set");
}

#[test]
fn the_disk_is_not_released_while_a_copy_lies_on_a_volume_that_was_declared_broken() {
    for f in [memory(), lmdb()] {
        let ino = archived(&f, "a", 1, 100);
        state(&f, A, VolumeState::Broken);
        let release = || f.catalog.release_object(ino, Version(1), ObjectId(1), &stamp(100, 6));
        let refused = release().expect_err("the other copy is the only one").to_string();
        assert!(refused.contains("broken"), "{refused}");
        state(&f, A, VolumeState::Full);
        release().expect("both copies are good");
        f.check();
    }
}

#[test]
fn a_lost_copy_counts_no_more_and_the_file_is_migrated_or_brought_back() {
    for f in [memory(), lmdb()] {
        let (disk, tape) = (archived(&f, "disk", 1, 100), archived(&f, "tape", 2, 200));
        purge(&f, tape, 2, 200);
        assert_eq!([lose(&f, disk, 1, A), lose(&f, tape, 1, A)], [Lost::Dropped; 2]);
        assert_eq!(
            (copies(&f, disk), copies(&f, tape), live(&f, A)),
            (vec![2], vec![2], 2),
            "on record still"
        );
        assert_eq!([lose(&f, disk, 1, A), lose(&f, tape, 1, A)], [Lost::Gone; 2], "once");
        let due = f.catalog.candidates(t(31), None, 10).expect("list").found;
        assert_eq!(due.iter().map(|c| c.ino).collect::<Vec<_>>(), [disk], "at once");
        assert_eq!(f.catalog.to_mend(Ino(0), 10).expect("list"), [tape]);
        f.check();
        // It is back, and at once a candidate: whoever releases it now is refused.
        assert!(f.catalog.set_resident(tape, Version(1), ObjectId(9), &stamp(200, 6), t(40)).expect("set"));
        assert_eq!(f.catalog.to_mend(Ino(0), 10).expect("list"), []);
        assert_eq!(f.catalog.candidates(t(41), None, 10).expect("list").found.len(), 2);
        f.catalog.release_object(tape, Version(1), ObjectId(9), &stamp(200, 6)).expect_err("refused");
        assert_eq!(put(&f, A2, tape, 1, (0, 200), 200), RecordOutcome::Counted);
        assert_eq!(live(&f, A), 1, "another took its place");
        f.catalog.release_object(tape, Version(1), ObjectId(9), &stamp(200, 6)).expect("complete");
        assert_eq!(f.catalog.to_mend(Ino(0), 10).expect("list"), []);
        f.check();
    }
}

#[test]
fn a_lost_copy_that_the_class_does_not_ask_for_is_given_up() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    purge(&f, ino, 1, 100);
    f.catalog.set_class(ino, &"single".into(), t(10)).expect("set");
    assert_eq!(copies(&f, ino), [1, 2], "that of the other pool is left over");
    assert_eq!(lose(&f, ino, 2, A), Lost::Dropped);
    assert_eq!((copies(&f, ino), live(&f, A), live(&f, B)), (vec![1], 0, 1));
    assert_eq!(f.catalog.to_mend(Ino(0), 9).expect("list"), []);
    f.check();
}

#[test]
fn a_lost_part_of_a_copy_that_is_not_whole_is_no_part_of_what_follows() {
    let f = lmdb();
    let fresh = catalog::New::file(0o644, ObjectId(1));
    let ino = f.catalog.create(&root(5), Ino::ROOT, b"f", &fresh).expect("create").attr.ino;
    f.catalog.observe(&root(6), ino, ObjectId(1), &stamp(100, 6), true, Durability::Relaxed).expect("closed");
    assert_eq!(put(&f, A, ino, 1, (0, 60), 100), RecordOutcome::Partial);
    assert_eq!(lose(&f, ino, 1, A), Lost::Dropped);
    assert_eq!((f.catalog.version_copies(ino, Version(1)).expect("list"), live(&f, A)), (vec![], 0));
    f.check();
}

#[test]
fn the_last_copy_of_a_file_stays_on_record_whatever_is_said_of_it() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    purge(&f, ino, 1, 100);
    assert_eq!(lose(&f, ino, 2, B), Lost::Dropped);
    assert_eq!(lose(&f, ino, 1, A), Lost::Last);
    assert_eq!((copies(&f, ino), live(&f, A)), (vec![1], 1));
    assert_eq!(lose(&f, ino, 2, B), Lost::Gone, "it is gone already");
    assert_eq!(lose(&f, ino, 1, A2), Lost::Gone, "the copy does not lie there");
    f.check();
}

#[test]
fn a_copy_of_several_parts_is_lost_with_any_of_them() {
    let f = lmdb();
    let fresh = catalog::New::file(0o644, ObjectId(1));
    let ino = f.catalog.create(&root(5), Ino::ROOT, b"f", &fresh).expect("create").attr.ino;
    f.catalog.observe(&root(6), ino, ObjectId(1), &stamp(100, 6), true, Durability::Relaxed).expect("closed");
    assert_eq!(put(&f, A, ino, 1, (0, 60), 100), RecordOutcome::Partial);
    assert_eq!(put(&f, A2, ino, 1, (60, 40), 100), RecordOutcome::Counted);
    assert_eq!(lose(&f, ino, 1, A2), Lost::Dropped);
    assert_eq!((copies(&f, ino), live(&f, A), live(&f, A2)), (vec![], 1, 1));
    f.check();
    // Nothing of it is part of the copy that takes its place.
    assert_eq!(put(&f, A2, ino, 1, (0, 50), 100), RecordOutcome::Partial);
    assert_eq!((copies(&f, ino), live(&f, A), live(&f, A2)), (vec![], 0, 1));
    f.check();
    assert_eq!(put(&f, A, ino, 1, (50, 50), 100), RecordOutcome::Counted);
    assert_eq!((copies(&f, ino), live(&f, A), live(&f, A2)), (vec![1], 1, 1));
    f.check();
}

#[test]
fn a_copy_moves_from_a_volume_that_is_repacked_and_never_counts_less() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    purge(&f, ino, 1, 100);
    assert!(matches!(put(&f, A2, ino, 1, (0, 100), 100), RecordOutcome::Stale { .. }), "it has its copy");
    state(&f, A, VolumeState::Repacking);
    assert!(matches!(put(&f, A2, ino, 1, (0, 60), 100), RecordOutcome::Stale { .. }), "a part is no whole");
    assert_eq!(put(&f, A2, ino, 1, (0, 100), 100), RecordOutcome::Counted);
    assert_eq!((copies(&f, ino), live(&f, A), live(&f, A2)), (vec![1, 2], 0, 1));
    assert!(matches!(put(&f, A2, ino, 1, (0, 100), 100), RecordOutcome::Stale { .. }), "it has moved");
    assert!(matches!(put(&f, A2, ino, 2, (0, 100), 100), RecordOutcome::Stale { .. }), "another pool");
    f.check();
}

#[test]
fn live_segments_come_in_tape_order_page_by_page() {
    let f = memory();
    let files: Vec<Ino> = (1..=5).map(|n| archived(&f, &format!("f{}", 9 - n), n, 10 * n)).collect();
    f.catalog.unlink(&root(8), Ino::ROOT, b"f6", &|_| false).expect("unlinked");
    let (mut seen, mut from) = (Vec::new(), (0, 0, 0));
    loop {
        let page = f.catalog.live_segments(&A.into(), from, 2).expect("list");
        let Some(last) = page.last() else { break };
        let (block, byte, uid) = catalog::place_of(last);
        from = (block, byte, uid + 1);
        seen.extend(page.iter().map(|file| file.ino));
    }
    assert_eq!(seen, [files[0], files[1], files[3], files[4]]);
}

#[test]
fn a_request_for_volumes_ends_with_the_last_of_them() {
    let f = lmdb();
    let volumes = [(Barcode::from(A), 70), (Barcode::from(B), 30)];
    let wanted = Request::new(RequestKind::Repack, 0, "2 volumes".into(), t(5));
    let was = Some(Before { state: VolumeState::ReadOnly, reason: "so".into(), by: Some(3) });
    let read_only = &mut |v: &mut Volume| {
        (v.state, v.reason, v.by) = (VolumeState::ReadOnly, "so".into(), Some(3));
    };
    f.catalog.update_volume(&A.into(), read_only).expect("set");
    let made =
        f.catalog.create_volume_request(&wanted, &volumes, Some(VolumeState::Repacking)).expect("made");
    assert_eq!((made.files_total, made.bytes_total), (2, 100));
    let v = f.catalog.volume(&A.into()).expect("read").expect("is there");
    assert_eq!((v.state, v.reason), (VolumeState::Repacking, format!("request {}", made.id)));
    assert_eq!(f.catalog.before_export(&A.into()).expect("read"), was, "it may be that again");
    let done = |barcode: &str, state| {
        f.catalog.finish_volume(made.id, &barcode.into(), &state, "", t(9)).expect("told")
    };
    let r = done(A, ItemState::Done);
    assert_eq!((r.state, r.files_done, r.bytes_done), (RequestState::Active, 1, 70));
    assert_eq!(done(A, ItemState::Done).files_done, 1, "once");
    let r = done(B, ItemState::Failed("no".into()));
    assert_eq!(
        (r.state, r.files_failed, r.message.as_str()),
        (RequestState::Failed, 1, "volume VB0001L9: no")
    );
    assert_eq!(f.catalog.request_volumes(made.id).expect("list").len(), 2);
    f.check();
    assert_eq!(f.catalog.prune_requests(t(99), 10).expect("pruned"), 1);
    assert_eq!(f.catalog.request_volumes(made.id).expect("list"), []);
}

fn gone(f: &Fixture, below: &[u8]) -> Vec<catalog::EndedVersion> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = f.catalog.ended_versions(below, after, 1).expect("list");
        all.extend(page.found);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

#[test]
fn deleted_and_overwritten_versions_are_files_again() {
    for f in [memory(), lmdb()] {
        let dir = catalog::New::node(FileKind::Directory, 0o755);
        let dir = f.catalog.create(&root(4), Ino::ROOT, b"dir", &dir).expect("made").attr.ino;
        let (deleted, changed) = (archived(&f, "deleted", 1, 100), archived(&f, "changed", 2, 200));
        let never = |_: Ino| false;
        let renamed =
            f.catalog.rename(&root(7), (Ino::ROOT, b"deleted"), (dir, b"last"), RenameMode::Replace, &never);
        renamed.expect("renamed");
        f.catalog.unlink(&root(8), dir, b"last", &never).expect("unlinked");
        let cx = root(9);
        f.catalog
            .observe(&cx, changed, ObjectId(2), &stamp(50, 9), true, Durability::Relaxed)
            .expect("changed");
        assert_eq!((live(&f, A), live(&f, B)), (0, 0));
        f.check();
        let all = gone(&f, b"/");
        let paths: Vec<_> = all.iter().map(|v| (v.path.as_slice(), v.overwritten, v.ended)).collect();
        assert_eq!(
            paths,
            [(b"/dir/last".as_slice(), false, Some(t(8))), (b"/changed".as_slice(), true, Some(t(9)))]
        );
        assert_eq!(gone(&f, b"/dir").len(), 1, "by its last name");
        assert_eq!(gone(&f, b"/di"), []);
        let undelete = |ino, name: &[u8]| f.catalog.undelete(&root(20), (ino, Version(1)), (dir, name));
        let back = undelete(deleted, b"back").expect("restored");
        let file = back.file.expect("a file");
        assert_eq!((back.attr.size, file.object, file.copies), (100, None, vec![CopyNo(1), CopyNo(2)]));
        assert_eq!(f.catalog.path_of(back.attr.ino).expect("named"), b"/dir/back");
        let old = undelete(changed, b"old").expect("restored");
        assert_eq!((old.attr.size, f.catalog.inode(changed).expect("there").attr.size), (200, 50));
        assert_eq!((live(&f, A), live(&f, B)), (2, 2));
        assert_eq!(gone(&f, b"/"), []);
        undelete(deleted, b"again").expect_err("it is a file");
        f.check();
        // It is a file like all others: it can be deleted again.
        f.catalog.unlink(&root(21), dir, b"back", &never).expect("unlinked");
        assert_eq!(gone(&f, b"/dir/back").len(), 1);
        f.check();
    }
}

#[test]
fn what_was_overwritten_is_called_so_after_its_file_was_deleted_too() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    let change = |object, size, at| {
        let changed = f.catalog.observe(&root(at), ino, object, &stamp(size, at), true, Durability::Relaxed);
        changed.expect("changed");
    };
    change(ObjectId(1), 50, 8);
    // The content that is deleted in the end never went to tape.
    f.catalog.unlink(&root(9), Ino::ROOT, b"f", &|_| false).expect("unlinked");
    let ended = |all: Vec<catalog::EndedVersion>| -> Vec<_> {
        all.iter().map(|v| (v.version, v.overwritten, v.ended)).collect()
    };
    assert_eq!(ended(gone(&f, b"/f")), [(Version(1), true, Some(t(8)))]);
    f.check();
}

#[test]
fn a_version_is_restored_from_the_copies_that_can_be_read_and_gets_the_others_anew() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    f.catalog.unlink(&root(8), Ino::ROOT, b"f", &|_| false).expect("unlinked");
    let undelete = |name: &[u8]| f.catalog.undelete(&root(9), (ino, Version(1)), (Ino::ROOT, name));
    state(&f, A, VolumeState::Broken);
    state(&f, B, VolumeState::Retired);
    assert!(!gone(&f, b"/f")[0].restorable);
    let refused = undelete(b"f").expect_err("no copy can be read").to_string();
    assert!(
        refused.contains(&format!("copy 1 is on volume {A}, which is broken: `thermo volume state {A}")),
        "{refused}"
    );
    assert!(refused.contains(&format!("copy 2 is on volume {B}, which is retired")), "{refused}");
    state(&f, B, VolumeState::Full);
    let sections = &mut |v: &mut Volume| {
        (v.format, v.indexed_to) = (VolumeFormat::AnsiTar, v.append_block);
    };
    f.catalog.update_volume(&B.into(), sections).expect("set");
    let back = undelete(b"f").expect("restored");
    let v = f.catalog.volume(&B.into()).expect("read").expect("there");
    assert!(v.indexed_to < v.append_block, "its next index is to tell: {v:?}");
    assert_eq!(copies(&f, back.attr.ino), [2]);
    assert_eq!(f.catalog.to_mend(Ino(0), 9).expect("list"), [back.attr.ino]);
    f.check();
}

#[test]
fn a_file_that_is_deleted_while_open_has_not_ended() {
    let f = memory();
    let ino = archived(&f, "f", 1, 100);
    f.catalog.unlink(&root(8), Ino::ROOT, b"f", &|_| true).expect("unlinked");
    assert_eq!(gone(&f, b"/"), []);
    assert_eq!(f.catalog.versions(ino).expect("list").len(), 1);
    f.catalog.reap(ino).expect("closed");
    let ended = gone(&f, b"/f");
    assert_eq!((ended.len(), ended[0].ended, ended[0].restorable), (1, Some(t(8)), true));
    f.check();
    f.catalog.label_volume(&A.into(), &volume(A, POOLS[0])).expect("labelled anew");
    let left = gone(&f, b"/f");
    assert_eq!((left.len(), left[0].copies.len(), left[0].restorable), (1, 1, true));
    f.catalog.label_volume(&B.into(), &volume(B, POOLS[1])).expect("labelled anew");
    assert_eq!(gone(&f, b"/f"), [], "nothing of it is left");
    f.check();
}

#[test]
fn nothing_is_restored_from_a_volume_that_is_about_to_be_labelled_and_what_is_needed_is_not_labelled() {
    for f in [memory(), lmdb()] {
        let ino = archived(&f, "f", 1, 100);
        let label = |barcode: &str| f.catalog.intend_label(&barcode.into(), "new");
        let refused = label(A).expect_err("a file needs it").to_string();
        assert!(refused.contains("1 file segments on it are needed"), "{refused}");
        f.catalog.unlink(&root(8), Ino::ROOT, b"f", &|_| false).expect("unlinked");
        label(A).expect("nothing is needed");
        let undelete = || f.catalog.undelete(&root(9), (ino, Version(1)), (Ino::ROOT, b"f"));
        let back = undelete().expect("the other copy can be read");
        assert_eq!((copies(&f, back.attr.ino), live(&f, A)), (vec![2], 0));
        f.catalog.label_volume(&A.into(), &volume(A, POOLS[0])).expect("labelled anew");
        f.catalog.unlink(&root(10), Ino::ROOT, b"f", &|_| false).expect("unlinked");
        label(B).expect("nothing is needed");
        assert!(!gone(&f, b"/f")[0].restorable);
        f.catalog
            .undelete(&root(11), (back.attr.ino, Version(1)), (Ino::ROOT, b"f"))
            .expect_err("its bytes go");
        f.check();
    }
}

#[test]
fn a_copy_on_a_broken_volume_is_no_reason_to_give_up_another() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    purge(&f, ino, 1, 100);
    state(&f, A, VolumeState::Broken);
    state(&f, B, VolumeState::Broken);
    assert_eq!([lose(&f, ino, 1, A), lose(&f, ino, 2, B)], [Lost::Last; 2], "one of them may be readable");
    assert_eq!(copies(&f, ino), [1, 2]);
    state(&f, B, VolumeState::Full);
    assert_eq!(lose(&f, ino, 1, A), Lost::Dropped);
    f.check();
}

#[test]
fn what_a_drive_wrote_to_a_volume_that_was_declared_broken_meanwhile_does_not_count() {
    let f = lmdb();
    let ino = archived(&f, "f", 1, 100);
    assert_eq!(lose(&f, ino, 1, A), Lost::Dropped);
    state(&f, A2, VolumeState::Broken);
    let RecordOutcome::Stale { why } = put(&f, A2, ino, 1, (0, 100), 100) else { panic!("it counts") };
    assert!(why.contains("broken"), "{why}");
    assert_eq!((copies(&f, ino), live(&f, A2)), (vec![2], 0));
    f.check();
}

#[test]
fn a_repack_takes_no_volume_that_an_operator_took_out_of_use() {
    let f = lmdb();
    for out in [VolumeState::Exported, VolumeState::Broken, VolumeState::Retired, VolumeState::Repacking] {
        state(&f, A, VolumeState::Full);
        state(&f, B, out);
        let wanted = Request::new(RequestKind::Repack, 0, "2 volumes".into(), t(5));
        let volumes = [(Barcode::from(A), 70), (Barcode::from(B), 30)];
        let made = f.catalog.create_volume_request(&wanted, &volumes, Some(VolumeState::Repacking));
        made.expect_err("refused as a whole");
        let is = |barcode: &str| f.catalog.volume(&barcode.into()).expect("read").expect("there").state;
        assert_eq!((is(A), is(B)), (VolumeState::Full, out));
        assert_eq!(f.catalog.open_requests().expect("list"), []);
    }
}

/// Looks at the catalogue as soon as a transaction can be seen, before who made it is told.
struct Peeping {
    inner: MemoryEngine,
    catalog: OnceLock<Weak<Catalog>>,
    seen: Mutex<Vec<Vec<RequestId>>>,
}

impl Engine for Peeping {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn kv::Reader) -> kv::Result<()>) -> kv::Result<()> {
        self.inner.read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn kv::Writer) -> kv::Result<()>,
    ) -> kv::Result<()> {
        self.inner.write_dyn(durability, f)?;
        if let Some(catalog) = self.catalog.get().and_then(Weak::upgrade) {
            let open = catalog.open_requests_of(RequestKind::Repack).expect("list");
            self.seen.lock().expect("whole").push(open.into_iter().map(|r| r.id).collect());
        }
        Ok(())
    }

    fn sync(&self) -> kv::Result<()> {
        self.inner.sync()
    }

    fn verify(&self) -> kv::Result<()> {
        self.inner.verify()
    }

    fn backup(&self, to: &Path) -> kv::Result<()> {
        self.inner.backup(to)
    }

    fn stats(&self) -> kv::Stats {
        self.inner.stats()
    }
}

#[test]
fn a_request_is_open_for_everybody_who_can_see_what_was_committed_with_it() {
    let (catalog, seen) = (OnceLock::new(), Mutex::default());
    let engine = Arc::new(Peeping { inner: MemoryEngine::new(), catalog, seen });
    let catalog = Arc::new(Catalog::open(engine.clone(), t(1)).expect("opens"));
    let full = Volume { state: VolumeState::Full, ..volume(A, "pool-a") };
    catalog.put_volume(&full).expect("volume");
    assert!(engine.catalog.set(Arc::downgrade(&catalog)).is_ok());
    let last = || engine.seen.lock().expect("whole").last().cloned().expect("a look");
    let wanted = |kind| Request::new(kind, 0, "v".into(), t(3));
    let of_files = catalog.create_request(&wanted(RequestKind::Repack), &[(Ino(7), 1)]).expect("made").id;
    assert_eq!(last(), [of_files]);
    let other = catalog.create_request(&wanted(RequestKind::Stage), &[(Ino(7), 1)]).expect("made").id;
    assert_eq!(last(), [of_files], "of another kind");
    let state = Some(VolumeState::Repacking);
    let volumes = [(Barcode::from(A), 1)];
    let repack =
        catalog.create_volume_request(&wanted(RequestKind::Repack), &volumes, state).expect("made").id;
    assert_eq!(last(), [of_files, repack]);
    let refused = catalog.create_volume_request(&wanted(RequestKind::Repack), &volumes, state);
    refused.expect_err("it is asked for already");
    for id in [of_files, other, repack] {
        catalog.update_request(id, &mut |r| r.state = RequestState::Cancelled).expect("told");
    }
    assert_eq!(last(), []);
    assert_eq!(catalog.open_requests_of(RequestKind::Stage).expect("list"), []);
}

#[test]
fn open_requests_of_a_kind_are_those_that_are_open() {
    for f in [memory(), lmdb()] {
        let make = |kind| {
            let items = [(Ino(40), 5), (Ino(41), 5)];
            f.catalog.create_request(&Request::new(kind, 0, "x".into(), t(1)), &items).expect("made").id
        };
        let stage = make(RequestKind::Stage);
        let first = make(RequestKind::Migrate);
        let of = |kind| -> Vec<RequestId> {
            f.catalog.open_requests_of(kind).expect("list").into_iter().map(|r| r.id).collect()
        };
        assert_eq!(of(RequestKind::Migrate), [first], "made before anybody asked");
        let second = make(RequestKind::Migrate);
        assert_eq!(of(RequestKind::Migrate), [first, second]);
        let before = |id| f.catalog.open_before(RequestKind::Migrate, id).expect("count");
        assert_eq!((before(first), before(second)), (0, 1));
        for ino in [40, 41] {
            f.catalog.finish_item(first, Ino(ino), ItemState::Done, 5, (t(2), t(2))).expect("told");
        }
        f.catalog.update_request(stage, &mut |r| r.state = RequestState::Cancelled).expect("told");
        assert_eq!((of(RequestKind::Migrate), of(RequestKind::Stage)), (vec![second], vec![]));
        assert_eq!(before(second), 0);
        let wanted = Request::new(RequestKind::Repack, 0, "v".into(), t(3));
        let volume = Barcode::from("VA0001L9");
        let repack = f.catalog.create_volume_request(&wanted, &[(volume.clone(), 1)], None).expect("made").id;
        assert_eq!(of(RequestKind::Repack), [repack]);
        f.catalog.finish_volume(repack, &volume, &ItemState::Done, "", t(4)).expect("told");
        assert_eq!(of(RequestKind::Repack), []);
    }
}

/// Writes what waits to the volume of its copy.
fn write_what_waits(f: &Fixture, now: i64) -> usize {
    let waits = f.catalog.candidates(t(1 << 40), None, 99).expect("list").found;
    for (copy, barcode) in [(1, A), (2, B)] {
        let lacks = waits.iter().filter(|w| w.missing.iter().any(|(n, _)| n.0 == copy));
        let one = |w: &catalog::Candidate| segment(w.ino, w.version, copy, w.size, (0, w.size), 0);
        let made: Vec<_> = lacks.map(|w| NewSegment { digest: None, ..one(w) }).collect();
        if !made.is_empty() {
            let done = record(&f.catalog, barcode, now, made);
            assert!(done.iter().all(|d| *d == RecordOutcome::Counted), "{done:?}");
        }
    }
    waits.len()
}

#[test]
fn what_says_that_a_file_is_gone_keeps_no_volume() {
    for f in [memory(), lmdb()] {
        let ino = archived(&f, "f", 1, 100);
        f.catalog.unlink(&root(40), Ino::ROOT, b"f", &|_| false).expect("removed");
        assert_eq!(write_what_waits(&f, 50), 1, "a word on it");
        f.check();
        assert_eq!((live(&f, A), live(&f, B)), (0, 0));
        let label = |barcode: &str, uuid: &str| {
            let pool = f.catalog.volume(&barcode.into()).expect("read").expect("there").pool.expect("one");
            let fresh = Volume { uuid: uuid.into(), ..volume(barcode, pool.as_str()) };
            f.catalog.label_volume(&barcode.into(), &fresh).expect("labelled anew");
            f.check();
        };
        label(A, "second");
        let word = f.catalog.archived(ino.word()).expect("read").expect("the other volume tells of the file");
        assert_eq!(word.copies, [CopyNo(2)]);
        assert_eq!(write_what_waits(&f, 60), 1, "the copy that was lost");
        f.check();
        label(B, "second");
        assert_eq!(f.catalog.archived(ino.word()).expect("read"), None, "nothing tells of the file any more");
        assert_eq!((live(&f, A), write_what_waits(&f, 70)), (0, 0));
    }
}

#[test]
fn what_is_left_of_a_directory_goes_with_the_last_volume_that_tells_of_it() {
    let f = lmdb();
    let dir = catalog::New::node(FileKind::Directory, 0o755);
    let dir = f.catalog.create(&root(5), Ino::ROOT, b"d", &dir).expect("made").attr.ino;
    write_what_waits(&f, 10);
    f.catalog.rmdir(&root(40), Ino::ROOT, b"d").expect("removed");
    f.catalog.put_volume(&volume("VB0002L9", POOLS[1])).expect("put");
    let waits = f.catalog.candidates(t(1 << 40), None, 9).expect("list").found;
    let gone = waits.iter().find(|w| w.ino == dir).expect("its removal is to be told");
    for (copy, other) in [(1, A2), (2, "VB0002L9")] {
        let one = segment(dir, gone.version, copy, 0, (0, 0), 0);
        record(&f.catalog, other, 50, vec![NewSegment { digest: None, ..one }]);
    }
    for barcode in [A, B] {
        assert!(f.catalog.archived(dir).expect("read").is_some(), "{barcode} tells of it");
        let pool = f.catalog.volume(&barcode.into()).expect("read").expect("there").pool.expect("one");
        let fresh = Volume { uuid: "second".into(), ..volume(barcode, pool.as_str()) };
        f.catalog.label_volume(&barcode.into(), &fresh).expect("labelled anew");
        f.check();
    }
    assert_eq!(f.catalog.archived(dir).expect("read"), None);
}

#[test]
fn what_changed_between_telling_tape_and_recording_it_is_told() {
    let f = lmdb();
    let fresh = catalog::New::file(0o644, ObjectId(1));
    let ino = f.catalog.create(&root(5), Ino::ROOT, b"f", &fresh).expect("create").attr.ino;
    f.catalog.observe(&root(6), ino, ObjectId(1), &stamp(100, 6), true, Durability::Relaxed).expect("closed");
    let tell = |copy| {
        let one = segment(ino, Version(1), copy, 100, (0, 100), 0);
        let told = f.catalog.tape_file(&one, t(7)).expect("described");
        NewSegment { told: Some(Box::new(told)), ..one }
    };
    let (first, second) = (tell(1), tell(2));
    record(&f.catalog, A, 20, vec![first]);
    assert_eq!(f.catalog.archived(ino.word()).expect("read"), None, "nothing changed");
    f.catalog.setattr(&root(21), ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("set");
    let version = |f: &Fixture| f.catalog.archived(ino.word()).expect("read").map(|w| w.version);
    let before = version(&f);
    record(&f.catalog, B, 22, vec![second]);
    assert!(before.is_some() && version(&f) > before, "what was told is not so any more");
    f.check();
}
