//! How many drives work at once: on what is written, emptied and labelled.

use crate::support::{Bed, cx, pattern};
use node::{Config, Size};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use types::api::FileApi;
use types::*;
use wire::{Call, PoolChange, VolumeChoice};

const MB: usize = 1 << 20;
/// Whom a limit counts for.
const BULK: u32 = 1000;

/// Sixteen new files of somebody, to be migrated.
fn begin(bed: &Bed, owner: u32, first: u64) -> RequestId {
    for i in first..first + 16 {
        let ino = bed.write(&format!("f{i}"), &pattern(MB, i));
        let owner = SetAttr { uid: Some(owner), ..SetAttr::default() };
        bed.node.setattr(&cx(), ino, &owner).unwrap();
    }
    bed.begin(Call::Migrate(bed.all())).request.id
}

/// Waits for a request; the most drives of a kind that were seen at once.
fn most_at_once(bed: &Bed, request: RequestId, kind: impl Fn(&DriveView) -> bool) -> usize {
    let mut most = 0;
    loop {
        most = most.max(bed.drives().iter().filter(|d| kind(d)).count());
        match bed.request(request).request.state {
            RequestState::Done => return most,
            RequestState::Queued | RequestState::Active => std::thread::sleep(Duration::from_millis(5)),
            state => panic!("{state:?}"),
        }
    }
}

fn most_writers(bed: &Bed, request: RequestId) -> usize {
    most_at_once(bed, request, |d| d.status == DriveStatus::Migrating)
}

#[test]
fn one_drive_at_a_time_writes_to_a_pool_for_whom_a_limit_allows_no_more() {
    let limits = format!("[[limits]]\nname = \"bulk\"\nowner = {BULK}\ndrives = 1\n");
    let bed = Bed::with(|c| {
        c.classes[0].copies.truncate(1);
        c.limits = Config::parse(&limits).unwrap().limits;
        c.library.drives = 3;
        c.library.drive_rate = Size(8_000_000);
        c.library.cartridge_capacity = Size::mib(2048);
        c.tape.bytes_per_drive = Size::mib(1);
        c.tape.buffers = Size(0);
        c.tape.idle_unmount_s = 3600;
    });
    // For others as many drives write as there are. The second may come too late for the first files, but stays.
    let (mut next, begun) = (0, Instant::now());
    loop {
        let most = most_writers(&bed, begin(&bed, 0, next));
        next += 16;
        let volumes: BTreeSet<Barcode> = (0..next).flat_map(|i| bed.volumes_of(&format!("/f{i}"))).collect();
        if most > 1 && volumes.len() > 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no second drive writes: {:?}", bed.drives());
    }
    assert_eq!(most_writers(&bed, begin(&bed, BULK, next)), 1);
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn as_many_volumes_are_emptied_at_once_as_may_be() {
    for parallel in [1, 2] {
        let bed = Bed::in_memory(|c| {
            c.classes[0].copies.truncate(1);
            c.reclaim.parallel = parallel;
            c.library.drives = 4;
            c.library.drive_rate = Size(4_000_000);
            c.tape.idle_unmount_s = 3600;
        });
        let by_owner = PoolChange { collocate: Some(Collocate::Owner), ..PoolChange::default() };
        bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change: by_owner });
        for n in 0..24 {
            let ino = bed.write(&format!("f{n}"), &pattern(MB / 4, n));
            let owner = SetAttr { uid: Some(BULK + (n % 2) as u32), ..SetAttr::default() };
            bed.node.setattr(&cx(), ino, &owner).unwrap();
        }
        bed.migrate_and_purge();
        let full = [bed.volumes_of("/f0"), bed.volumes_of("/f1")].concat();
        assert_ne!(full[0], full[1]);
        let volumes = VolumeChoice::These(full.clone());
        let id = bed.begin(Call::Repack { volumes, dead_percent: None, generation: None }).request.id;
        let of_these = |d: &DriveView| d.volume.as_ref().is_some_and(|v| full.contains(v));
        let most = most_at_once(&bed, id, |d| d.status == DriveStatus::Recalling && of_these(d));
        assert_eq!(most, usize::from(parallel));
        assert_eq!(bed.check(true).findings, []);
        bed.node.stop(true);
    }
}

#[test]
fn all_free_drives_label_at_once() {
    let bed = Bed::in_memory(|c| {
        c.library.drives = 3;
        c.library.cartridges = 6;
        // A label takes more than a second.
        c.library.drive_rate = Size(4_000);
    });
    let id = bed.begin(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None }).request.id;
    assert_eq!(most_at_once(&bed, id, |d| d.status == DriveStatus::Maintaining), 3);
    assert!(bed.volumes().iter().filter(|v| v.labelled.is_some()).count() == 6);
}
