//! Files that change while they are copied, and requests about them.

use crate::support::{Bed, WRITE, pattern};
use node::Size;
use std::os::fd::AsFd;
use types::api::FileApi;
use types::*;
use wire::Call;

const MB: usize = 1 << 20;

fn slow() -> Bed {
    Bed::with(|c| {
        c.library.drive_rate = Size(4 << 20);
        c.tape.block_size = Size(64 << 10);
    })
}

#[test]
fn a_file_that_keeps_changing_is_copied_in_its_last_state() {
    let bed = Bed::new();
    let ino = bed.write("f", &pattern(2 * MB, 1));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request;
    let mut data = Vec::new();
    for round in 2..60 {
        data = pattern(2 * MB, round);
        let opened = bed.open(ino, WRITE);
        let fd = opened.backing.as_ref().expect("direct");
        rustix::io::pwrite(fd.as_fd(), &data, 0).unwrap();
        bed.node.release(opened.handle);
        std::thread::sleep(std::time::Duration::from_millis(round));
    }
    let ended = bed.wait(request.id);
    assert_eq!(ended.state, RequestState::Done, "{ended:?}");
    bed.act(Call::Migrate(bed.one("/f")));
    bed.purge("/f");
    assert!(bed.read(ino) == data);
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_file_open_for_writing_is_not_copied_until_it_is_closed() {
    let bed = Bed::new();
    let ino = bed.write("f", &pattern(1000, 1));
    let opened = bed.open(ino, WRITE);
    let request = bed.begin(Call::Migrate(bed.all())).request;
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert_eq!(bed.stat("/f").file.unwrap().copies, []);
    bed.node.release(opened.handle);
    assert_eq!(bed.wait(request.id).state, RequestState::Done);
    assert_eq!(bed.stat("/f").residency, Some(Residency::Dual));
}

#[test]
fn a_request_shows_what_it_does_and_two_of_them_share_a_recall() {
    let bed = slow();
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(2 * MB, i));
    }
    bed.migrate_and_purge();
    let first = bed.begin(Call::Stage(bed.all())).request;
    let second = bed.begin(Call::Stage(bed.one("/f3"))).request;
    assert_eq!((first.files_total, first.bytes_total), (4, 8 * MB as u64));
    let mut shown = Vec::new();
    bed.until("it is under way", |b| {
        let view = b.request(first.id);
        shown.push((view.percent, view.eta_s, view.doing.clone()));
        view.percent >= 50
    });
    assert!(shown.iter().any(|(_, eta, _)| eta.is_some()), "{shown:?}");
    assert!(shown.iter().any(|(.., doing)| doing.contains("volume") || doing.contains("read")), "{shown:?}");
    assert!(shown.windows(2).all(|w| w[0].0 <= w[1].0), "{shown:?}");
    let view = bed.request(first.id);
    assert!(view.request.state == RequestState::Active && view.percent < 100, "{view:?}");
    for id in [first.id, second.id] {
        let ended = bed.wait(id);
        assert_eq!((ended.state, ended.files_failed), (RequestState::Done, 0));
        assert!(ended.started.is_some() && ended.finished.is_some());
    }
}

#[test]
fn what_has_nothing_to_do_is_done_at_once() {
    let bed = Bed::new();
    bed.write("f", b"data");
    for call in [Call::Stage(bed.all()), Call::Purge(bed.one("/f"))] {
        let stage = matches!(call, Call::Stage(_));
        let request = bed.begin(call).request;
        let ended = if stage { RequestState::Done } else { RequestState::Failed };
        assert_eq!(request.state, ended, "{request:?}");
    }
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    assert_eq!(bed.begin(Call::Migrate(bed.all())).request.state, RequestState::Done);
}

#[test]
fn virtual_attributes_tell_where_a_file_is() {
    let bed = slow();
    let ino = bed.write("f", &pattern(2 * MB, 1));
    let get = |name: &str| {
        let value = bed.node.getxattr(&crate::support::cx(), ino, format!("user.thermo.{name}").as_bytes());
        value.map(|v| String::from_utf8(v).unwrap())
    };
    assert_eq!((get("residency"), get("copies")), (Ok("resident".into()), Ok("0/2".into())));
    assert_eq!(get("percent"), Err(FsError::NoAttribute));
    assert_eq!(get("nonsense"), Err(FsError::NoAttribute));
    bed.migrate_and_purge();
    assert_eq!((get("residency"), get("copies")), (Ok("offline".into()), Ok("2/2".into())));
    assert!(get("digest").unwrap().starts_with("sha256:"));
    assert_eq!(get("volumes").unwrap().split(',').count(), 2);
    let request = bed.begin(Call::Stage(bed.all())).request;
    assert_eq!(get("residency"), Ok("staging".into()));
    assert_eq!(get("request"), Ok(request.id.to_string()));
    assert!(get("percent").unwrap().parse::<u8>().unwrap() <= 100);
    bed.wait(request.id);
    assert_eq!(get("residency"), Ok("dual".into()));
    let set = bed.node.setxattr(
        &crate::support::cx(),
        ino,
        b"user.thermo.copies",
        b"9",
        types::api::XattrMode::Any,
    );
    assert_eq!(set, Err(FsError::NotPermitted));
}

#[test]
fn a_migrate_request_ends_when_its_open_file_is_closed_deleted_or_was_truncated() {
    let bed = Bed::new();
    bed.write("cut", &pattern(1000, 1));
    bed.migrate_and_purge();
    let cut = bed.stat("/cut").attr.ino;
    bed.node.setattr(&crate::support::cx(), cut, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    let cut = bed.begin(Call::Migrate(bed.one("/cut"))).request;
    let flags = types::api::OpenFlags { truncate: true, ..WRITE };
    let [closed, deleted] = ["closed", "deleted"].map(|name| {
        let opened =
            bed.node.create(&crate::support::cx(), Ino::ROOT, name.as_bytes(), 0o644, flags).unwrap();
        rustix::io::pwrite(opened.backing.as_ref().expect("direct").as_fd(), b"data", 0).unwrap();
        let path = format!("/{name}");
        (opened.handle, bed.begin(Call::Migrate(bed.one(&path))).request)
    });
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(matches!(bed.request(closed.1.id).request.state, RequestState::Queued | RequestState::Active));
    bed.node.release(closed.0);
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"deleted").unwrap();
    bed.node.release(deleted.0);
    assert_eq!(bed.wait(cut.id).state, RequestState::Done);
    assert_eq!(bed.wait(closed.1.id).state, RequestState::Done);
    assert_eq!(bed.wait(deleted.1.id).state, RequestState::Failed);
    assert_eq!(bed.stat("/closed").residency, Some(Residency::Dual));
}

#[test]
fn a_migrate_request_shows_its_place_and_when_it_ends() {
    let bed = slow();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(2 * MB, i));
    }
    let first = bed.begin(Call::Migrate(bed.one("/f0")));
    let second = bed.begin(Call::Migrate(bed.all()));
    assert_eq!((first.queue_position, second.queue_position), (1, 2));
    assert!(second.eta_s.is_some_and(|s| s > 20), "with the mount of a volume: {second:?}");
    bed.node.virtual_library().clear_faults();
    bed.until("it writes", |b| {
        let view = b.request(second.request.id);
        view.queue_position == 0 && view.eta_s.is_some_and(|s| s < 20) && view.doing.contains("drive")
    });
    assert_eq!(bed.wait(second.request.id).state, RequestState::Done);
    let over = bed.request(second.request.id);
    assert_eq!((over.queue_position, over.eta_s), (0, None));
}

/// What `cp -p`, `tar -x` and `rsync` do: write, set the times, close.
#[test]
fn times_set_while_a_file_is_being_written_stay() {
    let bed = Bed::new();
    let opened = bed.node.create(&crate::support::cx(), Ino::ROOT, b"f", 0o644, WRITE).unwrap();
    let ino = opened.attr.ino;
    let fd = opened.backing.clone().expect("direct");
    let mtime = || bed.node.getattr(&crate::support::cx(), ino).unwrap().mtime;
    assert_eq!(mtime(), opened.attr.mtime, "its object was made earlier, which is nobody's business");
    rustix::io::pwrite(fd.as_fd(), b"content", 0).unwrap();
    let before = Time::new(12, 34);
    let set = SetAttr { mtime: Some(before), ..SetAttr::default() };
    assert_eq!(bed.node.setattr(&crate::support::cx(), ino, &set).unwrap().mtime, before);
    assert_eq!(mtime(), before);
    rustix::io::pwrite(fd.as_fd(), b"more", 0).unwrap();
    assert!(mtime() > before, "a write after that counts again");
    bed.node.setattr(&crate::support::cx(), ino, &set).unwrap();
    bed.node.release(opened.handle);
    assert_eq!(mtime(), before);
    bed.act(Call::Migrate(bed.one("/f")));
    assert_eq!(bed.stat("/f").attr.mtime, before);
}

/// The kernel writes pages of a mapping through whatever handle it finds: one that appends must not append them.
#[test]
fn pages_of_a_mapping_go_where_they_belong_also_through_a_handle_that_appends() {
    let bed = Bed::new();
    let ino = bed.write("f", b"0123456789");
    bed.act(Call::Migrate(bed.one("/f")));
    bed.purge("/f");
    let opened = bed.open(ino, api::OpenFlags { append: true, ..WRITE });
    assert!(opened.backing.is_none(), "served by the node");
    assert_eq!(bed.node.write(opened.handle, 0, b"end").unwrap(), 3);
    assert_eq!(bed.node.write_back(opened.handle, 2, b"xx").unwrap(), 2);
    bed.node.release(opened.handle);
    assert_eq!(bed.read(ino), b"01xx456789end");
}
