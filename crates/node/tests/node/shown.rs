//! What users and operators are shown: drives with all about them, and names that are no text.

use crate::support::{Bed, WRITE, cx, pattern};
use node::Size;
use types::api::FileApi;
use types::*;
use wire::{Call, Reply, Selection};

fn details(bed: &Bed, drive: u16) -> DriveDetails {
    match bed.call(Call::DriveDetails(DriveNo(drive))) {
        Reply::DriveDetails(details) => *details,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_about_a_drive_is_told_with_requests_times_and_who_took_it_out() {
    let bed = Bed::with(|c| {
        c.tape.idle_unmount_s = 3600;
        c.library.drive_rate = Size(4 << 20);
    });
    let gone = bed.try_call(Call::DriveDetails(DriveNo(9))).unwrap_err();
    assert!(gone.class == ErrorClass::NotFound && gone.message.contains("thermo drive ls"), "{gone}");
    let idle = details(&bed, 1);
    assert_eq!((idle.drive.drive, &idle.drive.status), (DriveNo(1), &DriveStatus::Free));
    assert!(idle.learnt.is_empty() && idle.requests.is_empty() && idle.key.is_none(), "{idle:?}");
    assert_eq!((idle.mounted, idle.begun, &idle.taken_out), (None, None, &None));
    assert_eq!((idle.device.as_str(), idle.generation.as_deref()), ("this process", Some("LTO-9")));
    // It takes some seconds.
    let ino = bed.write("f", &pattern(16 << 20, 1));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    bed.until("a drive works for it", |b| (0..2).any(|drive| details(b, drive).requests == [request]));
    bed.wait(request);
    bed.purge("/f");
    let volumes = bed.volumes_of("/f");
    let holder =
        |b: &Bed| (0..2).map(|n| details(b, n)).find(|d| d.drive.volume.as_ref() == Some(&volumes[0]));
    let d = holder(&bed).expect("it stays in the drive");
    assert!(
        d.mounted.is_some()
            && d.key.as_deref() == Some("")
            && d.learnt.iter().any(|l| l.what == LearntKind::Load),
        "{d:?}"
    );
    bed.read(ino);
    // By order, with a reason to look at.
    let drive = d.drive.drive;
    bed.call(Call::SetDrive { drive, up: false });
    bed.until("it is out of use", |b| details(b, drive.0).drive.status == DriveStatus::Down);
    let down = details(&bed, drive.0);
    let by = down.taken_out.as_ref().and_then(|out| out.by);
    assert_eq!((by, down.leaving, down.mounted), (Some(cx().uid), false, None));
    assert!(down.since >= d.since, "{down:?}");
    bed.call(Call::SetDrive { drive, up: true });
    assert_eq!(details(&bed, drive.0).taken_out, None);
}

#[test]
fn a_drive_that_was_taken_out_of_use_stays_so_over_restarts_with_the_reason() {
    let bed = Bed::with(|c| c.tape.drive_retry_s = 1);
    let drive = DriveNo(1);
    bed.call(Call::TakeDriveOut { drive, reason: "its fan is loud".into() });
    bed.until("it is out of use", |b| details(b, 1).drive.status == DriveStatus::Down);
    let before = details(&bed, 1).taken_out.unwrap();
    assert_eq!((before.by, before.reason.as_str()), (Some(cx().uid), "its fan is loud"));
    let bed = bed.restart();
    bed.until("it is out of use again", |b| details(b, 1).drive.status == DriveStatus::Down);
    let after = details(&bed, 1);
    assert_eq!((after.taken_out, after.drive.activity.as_str()), (Some(before), "its fan is loud"));
    assert_eq!(details(&bed, 0).taken_out, None, "the other is in use");
    // One drive does all the work.
    bed.write("f", &pattern(100_000, 1));
    bed.migrate_and_purge();
    assert_eq!(details(&bed, 1).drive.mounts, 0);
    bed.call(Call::SetDrive { drive, up: true });
    let bed = bed.restart();
    assert_eq!((details(&bed, 1).taken_out, bed.drives()[1].status.clone()), (None, DriveStatus::Free));
}

#[test]
fn names_that_are_not_utf8_are_told_byte_by_byte() {
    let bed = Bed::new();
    let (name, path) = (b"odd \xff\n", b"/odd \xff\n");
    let opened = bed.node.create(&cx(), Ino::ROOT, name, 0o644, WRITE).unwrap();
    let (ino, fd) = (opened.attr.ino, opened.backing.unwrap());
    rustix::io::pwrite(&fd, b"content", 0).unwrap();
    bed.node.release(opened.handle);
    let link = bed.node.symlink(&cx(), Ino::ROOT, b"link", b"to \xfe").unwrap();
    let request = bed.act(Call::Migrate(Selection { paths: vec![path.to_vec()], recursive: false }));
    assert_eq!(request.subject, r"'/odd '$'\377\n'");
    match bed.call(Call::RequestItems { id: request.id, after: Ino(0), limit: 10 }) {
        Reply::RequestItems(items) => assert_eq!(items[0].path.as_bytes(), path),
        other => panic!("{other:?}"),
    }
    let stat = |path: &[u8]| match bed.call(Call::Stat { path: path.to_vec() }) {
        Reply::File(view) => *view,
        other => panic!("{other:?}"),
    };
    assert_eq!(stat(path).path.as_bytes(), path);
    assert_eq!(stat(b"/link").link_target.unwrap().as_bytes(), b"to \xfe");
    assert_eq!(stat(b"/link").attr.ino, link.ino);
    let Reply::Files { entries, .. } = bed.call(Call::List { path: b"/".to_vec(), after: 0, limit: 10 })
    else {
        panic!("no list")
    };
    let shown: Vec<&[u8]> = entries.iter().map(|(_, view)| view.path.as_bytes()).collect();
    assert!(shown.contains(&&path[..]) && shown.contains(&&b"/link"[..]), "{entries:?}");
    // Gone, and what could be restored.
    bed.node.unlink(&cx(), Ino::ROOT, name).unwrap();
    match bed.call(Call::Ended { path: b"/".to_vec(), below: true, after: None }) {
        Reply::Ended { found, .. } => assert_eq!((found[0].ino, found[0].path.as_bytes()), (ino, &path[..])),
        other => panic!("{other:?}"),
    }
    let missing = bed.try_call(Call::Stat { path: path.to_vec() }).unwrap_err();
    assert!(missing.message.starts_with(r"'/odd '$'\377\n': no such file"), "{missing}");
}
