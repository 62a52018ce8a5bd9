//! What a request says of itself: estimates that rest on what drives really took, why it waits, and what it would cost.

mod support;

use support::{Bed, pattern};
use types::*;
use wire::Call;

const MB: usize = 1 << 20;

#[test]
fn every_job_of_a_drive_teaches_how_long_it_takes_and_that_outlives_a_restart() {
    let bed = Bed::new();
    for i in 0..5 {
        bed.write(&format!("f{i}"), &pattern(MB, i));
    }
    bed.migrate_and_purge();
    bed.act(Call::Stage(bed.all()));
    bed.until_dismounted();
    let all = bed.node.learnt().all;
    let counts =
        [all.moves, all.load, all.unload, all.locate, all.read, all.write].map(|learnt| learnt.count);
    assert!(
        counts.iter().all(|count| *count > 0),
        "moves, loads, unloads, locates, reads, writes: {counts:?}"
    );
    // A virtual robot without mechanics is far quicker than the model, which is that of LTO-9.
    assert!(all.moves.mean < 0.5 && all.load.mean < 0.5, "{all:?}");
    let bed = bed.restart();
    assert_eq!(bed.node.learnt().all, all);
}

#[test]
fn a_request_that_waits_says_for_what_and_when_it_begins_and_ends() {
    let bed = Bed::with(|c| c.library.drives = 1);
    for i in 0..3 {
        bed.write(&format!("f{i}"), &pattern(MB, i));
    }
    bed.migrate_and_purge();
    bed.until_dismounted();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    let waits = bed.begin(Call::Stage(bed.all()));
    let mut seen = None;
    bed.until("it says why it waits", |b| {
        let view = b.request(waits.request.id);
        let told = view.why.iter().any(|line| line.starts_with("volume TC"));
        seen = Some(view);
        told && seen.as_ref().is_some_and(|view| view.estimate.is_some())
    });
    let view = seen.unwrap();
    let e = view.estimate.unwrap();
    assert!(view.queue_position >= 1 && view.percent == 0, "{view:?}");
    assert!(e.start_p50_s > 0 && e.start_p50_s <= e.start_p90_s && e.finish_p50_s <= e.finish_p90_s, "{e:?}");
    assert_eq!(view.eta_s, Some(e.finish_p50_s));
    assert!(view.why[0].contains("3 files"), "{:?}", view.why);
    bed.node.virtual_library().clear_faults();
    assert_eq!(bed.wait(view.request.id).state, RequestState::Done);
    let over = bed.request(view.request.id);
    assert_eq!((over.estimate, over.why), (None, vec![]));
}
