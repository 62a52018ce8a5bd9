//! How far requests are: begun when the first byte moves, further with each file, done no sooner than what is left can be done.

use crate::support::{Bed, Running, pattern};
use node::{Config, Size};
use types::*;
use wire::Call;

const MB: usize = 1 << 20;
/// Of the drives here (bytes per second).
const RATE: u64 = 2 << 20;

fn slowly(c: &mut Config) {
    c.library.drive_rate = Size(RATE);
    c.tape.block_size = Size(64 << 10);
    c.classes[0].copies.truncate(1);
}

fn slow() -> Bed {
    Bed::with(slowly)
}

/// What was learnt, as a node keeps it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Times {
    drives: Vec<(String, sched::Factors)>,
    all: sched::Factors,
}

format::records! { Times = 3 }

fn known(mean: f64) -> sched::Learnt {
    sched::Learnt { mean, variance: 0.0, count: 1000, weight_s: 1000.0 }
}

/// As if drives read at this rate, and what else they do took no time.
fn reading_at(rate: u64) -> sched::Factors {
    let read = known(sched::Mechanics::default().rate / rate as f64);
    let [moves, load, unload, locate, file] = [known(0.0); 5];
    sched::Factors { read, moves, load, unload, locate, file, ..Default::default() }
}

/// A node that has learnt this.
fn expecting(bed: Bed, all: sched::Factors) -> Bed {
    let (config, Bed { dir, node }) = (bed.node.config().clone(), bed);
    node.stop(true);
    drop(node);
    let learnt = format::record::encode(&Times { drives: Vec::new(), all });
    std::fs::write(config.state_dir.join("times"), learnt).unwrap();
    Bed { dir, node: Running::start(config) }
}

#[test]
fn a_recall_has_begun_with_its_first_byte_and_ends_no_sooner_than_its_last_can_be_read() {
    let bed = slow();
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(4 * MB, i));
    }
    bed.migrate_and_purge();
    let bed = expecting(bed, reading_at(2 * RATE));
    bed.until_dismounted();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    let id = bed.begin(Call::Stage(bed.all())).request.id;
    bed.until("it waits for the robot", |b| !b.request(id).why.is_empty());
    let waits = bed.request(id);
    assert_eq!((waits.request.state, waits.request.started, waits.percent), (RequestState::Queued, None, 0));
    let cleared: Time = std::time::SystemTime::now().into();
    bed.node.virtual_library().clear_faults();
    bed.until("its first file is read", |b| b.request(id).request.started.is_some());
    let begun = bed.request(id);
    let started = begun.request.started.unwrap();
    assert!(started > cleared && started <= crate::support::cx().now, "{begun:?}");
    assert!(begun.request.state == RequestState::Active && begun.request.files_done == 0, "{begun:?}");
    assert!(begun.percent < 25 && begun.queue_position == 0, "{begun:?}");
    // Whoever joins now has begun too.
    let joined = bed.begin(Call::Stage(bed.one("/f0"))).request;
    assert!(joined.state == RequestState::Active && joined.started >= Some(joined.created), "{joined:?}");
    let mut seen = 0;
    bed.until("it is back", |b| {
        let view = b.request(id);
        if view.request.finished.is_some() {
            return true;
        }
        // None while the last file is entered as resident.
        let Some(e) = view.estimate else { return false };
        // No drive has been seen or said to be faster than twice what it is; what it has read may be in a buffer still.
        let left = view.request.bytes_total - view.bytes_moved;
        assert!(e.finish_p50_s * 2 * RATE + MB as u64 >= left, "{left} bytes in {e:?}: {view:?}");
        assert!(left > 2 * MB as u64 || e.finish_p50_s <= 3, "{left} bytes in {e:?}: {view:?}");
        assert!((e.start_p50_s, e.start_p90_s) == (0, 0) && e.finish_p50_s <= e.finish_p90_s, "{e:?}");
        assert_eq!(view.request.started, Some(started));
        seen += u32::from(e.finish_p50_s >= 2);
        false
    });
    assert!(seen > 10);
    let over = bed.request(id).request;
    assert_eq!((over.state, over.started), (RequestState::Done, Some(started)));
}

#[test]
fn a_recall_that_has_begun_has_so_after_a_restart() {
    let bed = slow();
    (0..3).for_each(|i| _ = bed.write(&format!("f{i}"), &pattern(3 * MB, i)));
    bed.migrate_and_purge();
    let id = bed.begin(Call::Stage(bed.all())).request.id;
    bed.until("it has begun", |b| b.request(id).percent >= 10);
    let before = bed.request(id).request;
    assert_eq!((before.state, before.files_done), (RequestState::Active, 0));
    let bed = bed.restart();
    let after = bed.request(id);
    assert_eq!((after.request.state, after.request.started), (RequestState::Active, before.started));
    bed.until("it is on its way again", |b| {
        b.request(id).estimate.is_some_and(|e| (e.start_p90_s, e.finish_p50_s > 0) == (0, true))
    });
    assert_eq!(bed.wait(id).state, RequestState::Done);
}

#[test]
fn each_file_of_a_run_is_resident_soon_after_it_was_read() {
    const FILES: u64 = 8;
    let bed = slow();
    (0..FILES).for_each(|i| _ = bed.write(&format!("f{i}"), &pattern(MB, i)));
    bed.migrate_and_purge();
    let id = bed.begin(Call::Stage(bed.all())).request.id;
    let mut done = std::collections::BTreeSet::new();
    bed.until("it is back", |b| {
        let view = b.request(id);
        done.insert(view.request.files_done);
        // What has arrived and what is resident is the same, but for the file that is read and what is synced now.
        let behind = view.bytes_moved - view.request.bytes_done;
        assert!(behind <= 3 * MB as u64, "{behind} bytes are not resident yet: {view:?}");
        let reads = |d: &DriveView| d.status == DriveStatus::Recalling;
        if view.request.files_done == 3 && b.drives().iter().any(reads) {
            let resident =
                (0..FILES).filter(|i| b.stat(&format!("/f{i}")).residency == Some(Residency::Dual));
            assert!(resident.count() >= 3);
        }
        view.request.finished.is_some()
    });
    assert!(done.len() >= FILES as usize / 2, "files done grew with {done:?}");
    assert_eq!(bed.check(false).findings, []);
}

#[test]
fn a_migrate_has_begun_with_its_first_byte_and_gets_on_as_the_drive_writes_before_anything_counts() {
    // What is read ahead of the drive when the node stops is written all the same: with few buffers that is not all.
    let bed = Bed::with(|c| {
        slowly(c);
        c.tape.buffers = Size(0);
        // The drive's own buffer, too, is small: nothing is taken faster than the tape goes.
        c.library.drive_buffer = Size(256 << 10);
    });
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    (0..2).for_each(|i| _ = bed.write(&format!("f{i}"), &pattern(8 * MB, i)));
    let id = bed.begin(Call::Migrate(bed.all())).request.id;
    bed.until("it waits for the robot", |b| !b.request(id).why.is_empty());
    let waits = bed.request(id);
    assert_eq!(
        (waits.request.state, waits.request.started, waits.bytes_moved),
        (RequestState::Queued, None, 0)
    );
    bed.node.virtual_library().clear_faults();
    let mut shown = Vec::new();
    bed.until("much of it is written", |b| {
        let view = b.request(id);
        if let Some(started) = view.request.started {
            assert_eq!(view.request.state, RequestState::Active);
            shown.push((started, view.percent));
        }
        // Both are written in one batch: until it is flushed nothing counts.
        assert_eq!((view.request.bytes_done, view.request.files_done), (0, 0), "{view:?}");
        assert!(view.bytes_moved == 0 || view.doing.contains("written and do not count yet"), "{view:?}");
        view.percent >= 40
    });
    let started = shown[0].0;
    assert!(shown.iter().all(|(at, _)| *at == started), "{shown:?}");
    assert!(shown.windows(2).all(|w| w[0].1 <= w[1].1), "{shown:?}");
    let steps: std::collections::BTreeSet<u8> = shown.iter().map(|(_, percent)| *percent).collect();
    assert!(steps.len() > 2, "{steps:?}");
    assert!(bed.stat("/f0").file.unwrap().copies.is_empty(), "none of it is safe");
    // What was not flushed is written again, and the request has begun all the same.
    let bed = bed.restart();
    let after = bed.request(id).request;
    assert_eq!((after.state, after.started), (RequestState::Active, Some(started)));
    let over = bed.wait(id);
    assert_eq!(
        (over.state, over.started, over.bytes_done),
        (RequestState::Done, Some(started), 16 * MB as u64)
    );
    assert_eq!(bed.request(id).percent, 100);
}

#[test]
fn before_a_migrate_begins_its_estimate_knows_what_goes_by_with_each_file() {
    const FILES: u64 = 20;
    let quick = Bed::with(|c| c.classes[0].copies.truncate(1));
    let of = |written_s| {
        let [moves, load, write] = [known(0.0); 3];
        sched::Factors { moves, load, write, written: known(written_s), ..Default::default() }
    };
    (0..FILES).for_each(|i| _ = quick.write(&format!("f{i}"), &pattern(100, i)));
    let bed = expecting(quick, of(3.0));
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    let e = bed.begin(Call::Migrate(bed.all())).estimate.expect("nothing is in the way of an estimate");
    assert!((3 * FILES..3 * FILES + 3).contains(&e.finish_p50_s) && e.start_p50_s <= 1, "{e:?}");
}
