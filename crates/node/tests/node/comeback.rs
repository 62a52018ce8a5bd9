//! What failed comes back: drives by themselves and by command; what cannot be done is refused before it costs anything,
//! and stops nothing else.

use crate::support::{Bed, Running, pattern};
use kv::{Durability, LmdbEngine, LmdbOptions};
use node::{Node, Size};
use types::*;
use vtl::Fault;
use wire::Call;

fn kill_drives(bed: &Bed) {
    for drive in 0..2 {
        bed.node.virtual_library().inject(Fault::DriveDead { drive, answers: true });
    }
}

fn set(bed: &Bed, drive: u16, up: bool) -> Result<(), wire::Failure> {
    bed.try_call(Call::SetDrive { drive: DriveNo(drive), up }).map(drop)
}

fn warned(bed: &Bed, text: &str) -> bool {
    bed.status().warnings.iter().any(|w| w.contains(text))
}

#[test]
fn drives_that_work_again_come_back_by_themselves() {
    let bed = Bed::with(|c| c.tape.drive_retry_s = 1);
    kill_drives(&bed);
    let data = pattern(200_000, 1);
    let ino = bed.write("f", &data);
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request;
    bed.until("both are named", |b| {
        warned(b, "no drive is in use: nothing is read from tape and 1 file waits")
    });
    assert!(warned(&bed, "drive 0 is out of use") && warned(&bed, "drive 1 is out of use"));
    bed.node.virtual_library().clear_faults();
    assert_eq!(bed.wait(request.id).state, RequestState::Done);
    bed.purge("/f");
    assert!(bed.read(ino) == data);
    bed.until("both are in use", |b| !warned(b, "out of use"));
}

#[test]
fn a_drive_comes_back_by_command_once_it_works() {
    let bed = Bed::with(|c| c.tape.drive_retry_s = 0);
    kill_drives(&bed);
    let data = pattern(1000, 1);
    bed.write("f", &data);
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request;
    bed.until("both are named", |b| warned(b, "no drive is in use"));
    let error = set(&bed, 0, true).unwrap_err();
    assert!(error.class == ErrorClass::Drive && error.message.contains("drive 0 still fails"), "{error}");
    bed.node.virtual_library().clear_faults();
    assert!(set(&bed, 7, true).unwrap_err().message.contains("no drive 7"));
    set(&bed, 0, true).unwrap();
    assert_eq!(bed.wait(request.id).state, RequestState::Done);
    assert!(matches!(bed.drives()[1].status, DriveStatus::Suspect(_)), "nobody asked for the other");
    set(&bed, 1, true).unwrap();
    assert_eq!(bed.drives()[1].status, DriveStatus::Free);
}

#[test]
fn a_drive_taken_out_of_use_gives_up_its_cartridge_and_stays_out() {
    let bed = Bed::with(|c| (c.tape.idle_unmount_s, c.tape.drive_retry_s) = (3600, 1));
    let data = pattern(1000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    for drive in 0..2 {
        set(&bed, drive, false).unwrap();
    }
    let out = |d: &DriveView| d.status == DriveStatus::Down && d.volume.is_none();
    bed.until("both are empty", |b| b.drives().iter().all(out));
    assert!(warned(&bed, "no drive is in use"));
    assert_eq!(bed.probe(ino), Err(FsError::Io));
    set(&bed, 1, true).unwrap();
    assert!(bed.read(ino) == data);
    assert_eq!(bed.drives()[0].status, DriveStatus::Down);
}

/// The request waits, and says for what.
fn waits(bed: &Bed, request: RequestId, text: &str) -> bool {
    let view = bed.request(request);
    assert!(view.request.finished.is_none(), "{:?} {:?}", view.request, bed.items(request));
    view.estimate.is_none() && view.why.iter().any(|line| line.contains(text))
}

fn quoted(bed: &Bed, path: &str) -> (QuoteView, QuoteWaits) {
    let order = wire::ActOrder { act: wire::Act::Quote, files: bed.one(path), after: 0, last: true };
    match bed.call(Call::Act(order)) {
        wire::Reply::Acted(acted) => match acted.outcome {
            wire::Outcome::Quote(view, waits) => (*view, *waits),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_waits_for_a_drive_and_an_open_does_not() {
    let bed = Bed::with(|c| c.tape.drive_retry_s = 0);
    let data = pattern(1000, 1);
    let [f, g] = ["f", "g"].map(|name| bed.write(name, &data));
    bed.migrate_and_purge();
    bed.until_dismounted();
    (0..2).for_each(|drive| set(&bed, drive, false).unwrap());
    bed.until("both are out", |b| b.drives().iter().all(|d| d.status == DriveStatus::Down));
    let (view, waiting) = quoted(&bed, "/f");
    assert_eq!((view.lost, view.estimate, waiting.files), (0, None, 1), "{view:?}");
    let LostFile { path, why } = &waiting.named[0];
    assert!(
        *path == "/f" && why.contains("waits for drive 0 or 1, out of use; `thermo drive ls`"),
        "{waiting:?}"
    );
    let request = bed.begin(Call::Stage(bed.one("/f"))).request.id;
    bed.until("it says what it waits for", |b| {
        waits(b, request, "every drive is out of use; `thermo drive ls` says why, `thermo drive up N`")
    });
    assert_eq!(bed.probe(g), Err(FsError::Io), "nobody has asked for this one to wait");
    assert!(waits(&bed, request, "every drive is out of use"));
    set(&bed, 1, true).unwrap();
    assert_eq!(bed.wait(request).state, RequestState::Done);
    assert!(bed.read(f) == data && bed.read(g) == data);
    bed.migrate_and_purge();
    assert_eq!(quoted(&bed, "/f").1, QuoteWaits::default());
}

#[test]
fn what_is_stuck_in_drives_that_died_is_waited_for_and_comes_when_one_works_again() {
    let bed = Bed::with(|c| (c.tape.idle_unmount_s, c.tape.drive_retry_s) = (3600, 1));
    let data = pattern(1000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    kill_drives(&bed);
    assert_eq!(bed.probe(ino), Err(FsError::Io));
    let request = bed.begin(Call::Stage(bed.one("/f"))).request.id;
    bed.until("it says what it waits for", |b| waits(b, request, "out of use"));
    // Somebody who opens it now waits with the request.
    let opened = bed.open(ino, crate::support::READ);
    let (_, got) = bed.begin_read(opened.handle, 0, 1000);
    bed.node.virtual_library().clear_faults();
    assert_eq!(bed.wait(request).state, RequestState::Done);
    assert!(got.recv_timeout(crate::support::PATIENCE).unwrap().unwrap() == data);
    types::api::FileApi::release(&**bed.node, opened.handle);
}

#[test]
fn a_node_starts_with_a_dead_drive_and_the_other_serves() {
    let bed = Bed::with(|c| c.tape.drive_retry_s = 1);
    let data = pattern(1000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    let library = Node::open_library(&config).unwrap();
    library.inject(Fault::DriveDead { drive: 0, answers: false });
    let node = Node::start_with(config, library).unwrap();
    let bed = Bed { dir: bed.dir, node: node.into() };
    assert!(bed.read(ino) == data);
    assert!(matches!(&bed.drives()[0].status, DriveStatus::Suspect(why) if why.contains("does not answer")));
    bed.node.virtual_library().clear_faults();
    bed.until("it is back, and known", |b| {
        let drive = b.drives().remove(0);
        drive.status == DriveStatus::Free && !drive.serial.is_empty()
    });
}

#[test]
fn a_file_too_large_for_its_pool_is_refused_before_anything_is_written() {
    let bed = Bed::with(|c| {
        c.library.cartridge_capacity = Size::mib(16);
        c.pools.iter_mut().for_each(|p| p.max_volumes = 2);
    });
    let small = bed.write("small", &pattern(1000, 1));
    bed.migrate_and_purge();
    bed.write("large", &pattern(40 << 20, 2));
    let sparse = bed.write("sparse", b"x");
    let opened = bed.open(sparse, crate::support::WRITE);
    rustix::fs::ftruncate(opened.backing.as_ref().unwrap(), 256 << 20).unwrap();
    types::api::FileApi::release(&**bed.node, opened.handle);
    let before = bed.volumes();
    let request = bed.act(Call::Migrate(bed.one("/large")));
    assert_eq!(request.state, RequestState::Failed);
    let [ItemState::Failed(why)] = &bed.items(request.id)[..] else { panic!("no reason") };
    assert!(why.contains("needs 41943040 more bytes") && why.contains("import cartridges"), "{why}");
    assert!(warned(&bed, "(/large) is not copied to tape: copy"));
    let states = |volumes: &[Volume]| {
        volumes.iter().map(|v| (v.barcode.clone(), v.state, v.written)).collect::<Vec<_>>()
    };
    assert_eq!(states(&bed.volumes()), states(&before), "nothing was written, no volume closed");
    assert_eq!(bed.act(Call::Migrate(bed.one("/sparse"))).state, RequestState::Done);
    assert!(bed.read(small) == pattern(1000, 1));
    let ino = bed.stat("/large").attr.ino;
    types::api::FileApi::unlink(&**bed.node, &crate::support::cx(), Ino::ROOT, b"large").unwrap();
    bed.until("nobody waits for it", |b| !warned(b, &format!("inode {ino}")));
}

/// The record of a directory is damaged: files below it have no path, which recording a copy needs.
#[test]
fn a_damaged_record_keeps_its_own_files_from_tape_and_nobody_elses() {
    use types::api::FileApi;
    let bed = Bed::new();
    let dir = bed.node.mkdir(&crate::support::cx(), Ino::ROOT, b"d", 0o755).unwrap().ino;
    let bad = bed.write("x", &pattern(3000, 1));
    bed.node.rename(&crate::support::cx(), (Ino::ROOT, b"x"), (dir, b"bad"), RenameMode::Replace).unwrap();
    let good: Vec<Ino> = (0..5).map(|n| bed.write(&format!("good{n}"), &pattern(3000, n))).collect();
    kill_drives(&bed);
    let request = bed.begin(Call::Migrate(bed.all())).request.id;
    let config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    {
        let engine = LmdbEngine::open(&config.state_dir.join("catalog"), LmdbOptions::default()).unwrap();
        let mut key = vec![0x10];
        key.extend_from_slice(&dir.0.to_be_bytes());
        key.push(0);
        let damage = |w: &mut dyn kv::Writer| w.put(&key, &[1, 0]);
        kv::Engine::write_dyn(&engine, Durability::Durable, &mut { damage }).unwrap();
    }
    let bed = Bed { dir: bed.dir, node: Running::start(config) };
    assert_eq!(bed.wait(request).state, RequestState::Failed);
    for n in 0..good.len() {
        assert_eq!(bed.stat(&format!("/good{n}")).file.unwrap().copies.len(), 2);
    }
    let failed: Vec<ItemState> =
        bed.items(request).into_iter().filter(|state| *state != ItemState::Done).collect();
    // The directory itself, and the file in it.
    let named = |state: &ItemState| matches!(state, ItemState::Failed(why) if why.contains("inode"));
    assert!(failed.len() == 2 && failed.iter().all(named), "{failed:?}");
    bed.until("it is named", |b| warned(b, &format!("inode {bad}")));
    let written: u64 = bed.volumes().iter().map(|v| v.written).sum();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let later: u64 = bed.volumes().iter().map(|v| v.written).sum();
    assert_eq!(written, later, "it is not written again and again");
}
