//! What a configuration says that is read again counts for what waits and for what is there.

use crate::support::{Bed, pattern};
use node::limits::LimitConfig;
use node::{Config, Size};
use types::*;
use wire::{Call, Reloaded, Reply};

const MB: usize = 1 << 20;

/// Writes the configuration as it was at the start, with changes, to where the node reads it, and has it do so.
pub fn reload(bed: &Bed, change: impl FnOnce(&mut Config)) -> Reloaded {
    let mut config = bed.node.config().clone();
    change(&mut config);
    std::fs::write(bed.dir.path().join("config.toml"), toml::to_string(&config).unwrap()).unwrap();
    match bed.call(Call::Reload) {
        Reply::Reloaded(reloaded) => *reloaded,
        other => panic!("{other:?}"),
    }
}

fn limit(name: &str, drives: u32) -> LimitConfig {
    LimitConfig { name: name.into(), drives: Some(drives), ..LimitConfig::default() }
}

/// Drives that bring files back or are about to.
fn reading(bed: &Bed) -> usize {
    let is = |d: &DriveView| matches!(d.status, DriveStatus::Recalling | DriveStatus::Mounting);
    bed.drives().iter().filter(|d| is(d)).count()
}

#[test]
fn a_limit_that_allows_more_lets_those_go_on_who_wait_and_a_new_one_holds() {
    let bed = Bed::with(|c| {
        c.library.drive_rate = Size(4 << 20);
        c.tape.block_size = Size(64 << 10);
        c.tape.idle_unmount_s = 60;
        c.classes[0].copies = vec!["primary".into()];
        let copies = vec!["second".into()];
        c.classes.push(node::config::ClassConfig { name: "other".into(), copies, ..c.classes[0].clone() });
        c.limits = vec![limit("all", 1)];
    });
    let files = [("a", "default"), ("b", "other")].map(|(name, class)| {
        bed.write(name, &pattern(24 * MB, 1));
        let path = format!("/{name}").into_bytes();
        bed.call(Call::AssignClass { path, class: ClassName(class.into()) });
        format!("/{name}")
    });
    bed.migrate_and_purge();
    let stage = || files.each_ref().map(|path| bed.begin(Call::Stage(bed.one(path))).request.id);
    let waits = |requests: &[RequestId], name: &str| {
        let line = format!("limit `{name}` allows 1 drive at once");
        requests.iter().any(|id| bed.request(*id).why.iter().any(|why| why.contains(&line)))
    };
    let requests = stage();
    bed.until("one waits", |_| waits(&requests, "all"));
    let reloaded = reload(&bed, |c| c.limits[0].drives = Some(2));
    assert_eq!((reloaded.taken, reloaded.later), (vec!["limits".to_owned()], vec![]));
    bed.until("both drives read", |b| reading(b) == 2);
    requests.iter().for_each(|id| assert_eq!(bed.wait(*id).state, RequestState::Done));
    bed.act(Call::Purge(bed.all()));
    reload(&bed, |c| c.limits = vec![limit("new", 1)]);
    let requests = stage();
    let mut told = false;
    bed.until("both are back", |b| {
        assert!(reading(b) <= 1, "{:?}", b.drives());
        told |= waits(&requests, "new");
        requests.iter().all(|id| b.request(*id).request.state == RequestState::Done)
    });
    assert!(told, "nobody was told of the new limit");
    bed.node.stop(true);
}

#[test]
fn marks_of_the_disk_tier_count_from_the_next_look_on() {
    let bed = Bed::with(|c| {
        c.disk.capacity = Some(Size::mib(100));
        c.classes[0].copies = vec!["primary".into()];
    });
    for n in 0..6 {
        bed.write(&format!("f{n}"), &pattern(5 * MB, n));
    }
    bed.act(Call::Migrate(bed.all()));
    let disk = || bed.status().disk.clone();
    let used = disk().used;
    assert!(used >= 30 << 20, "all are on disk: {used}");
    let marks = |c: &mut Config| (c.disk.high_watermark, c.disk.low_watermark) = (20, 10);
    let another = reload(&bed, |c| {
        marks(c);
        c.disk.path = Some("/elsewhere".into());
    });
    assert_eq!(another.taken, [""; 0], "they are of another disk");
    assert_eq!(another.later, ["disk.high_watermark", "disk.low_watermark", "disk.path"]);
    let reloaded = reload(&bed, marks);
    assert_eq!((reloaded.taken, reloaded.later), (another.later[..2].to_vec(), vec![]));
    bed.until("files are released", |_| disk().used <= 10 << 20);
    assert_eq!((disk().high_watermark, disk().low_watermark), (20 << 20, 10 << 20));
    // A tier that is smaller than what it holds gets rid of it, and refuses what is larger than it.
    reload(&bed, |c| c.disk.capacity = Some(Size::mib(4)));
    bed.until("the tier is small", |_| disk().capacity == 4 << 20 && disk().used <= 4 << 20);
    let refused = bed.act(Call::Stage(bed.one("/f0")));
    assert_eq!(refused.state, RequestState::Failed);
    reload(&bed, |_| {});
    bed.until("it is as it was", |_| disk().capacity == 100 << 20);
    assert_eq!(bed.act(Call::Stage(bed.one("/f0"))).state, RequestState::Done);
    bed.node.stop(true);
}

#[test]
fn blank_cartridges_are_labelled_as_soon_as_that_is_allowed() {
    let bed = Bed::with(|c| {
        c.tape.auto_label = false;
        c.classes[0].copies = vec!["primary".into()];
    });
    bed.write("f", &pattern(MB, 1));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Failed, "there is no volume");
    assert_eq!(reload(&bed, |c| c.tape.auto_label = true).taken, ["tape.auto_label"]);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    bed.node.stop(true);
}

/// Formats of volumes have ways of their own to write.
#[test]
fn volumes_of_either_format_take_no_more_files_than_is_configured_now() {
    for format in [FormatRule::Ltfs, FormatRule::AnsiTar] {
        let bed = Bed::with(|c| {
            c.tape.format = format;
            c.classes[0].copies = vec!["primary".into()];
        });
        assert_eq!(reload(&bed, |c| c.tape.max_files_per_volume = 2).taken, ["tape.max_files_per_volume"]);
        for n in 0..4 {
            bed.write(&format!("f{n}"), &pattern(1000, n));
        }
        assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
        let Reply::Volumes(volumes) = bed.call(Call::Volumes) else { panic!("no volumes") };
        let files: Vec<u64> = volumes.iter().map(|v| v.volume.files).filter(|files| *files > 0).collect();
        assert_eq!(files, [2, 2], "{format:?}");
        bed.node.stop(true);
    }
}
