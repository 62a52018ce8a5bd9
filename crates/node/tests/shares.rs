//! Limits count for what is written, too.

mod support;

use node::{Config, Size};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::{Bed, cx, pattern};
use types::api::FileApi;
use types::*;
use wire::Call;

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

/// Waits for a request; the most drives that were seen to write at once.
fn most_writers(bed: &Bed, request: RequestId) -> usize {
    let mut most = 0;
    loop {
        let writes = |d: &DriveView| d.status == DriveStatus::Migrating;
        most = most.max(bed.drives().iter().filter(|d| writes(d)).count());
        match bed.request(request).request.state {
            RequestState::Done => return most,
            RequestState::Queued | RequestState::Active => std::thread::sleep(Duration::from_millis(5)),
            state => panic!("{state:?}"),
        }
    }
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
