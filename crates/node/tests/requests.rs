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

const USER: u32 = 12345;

fn as_user(bed: &Bed, call: Call) -> Result<wire::Reply, wire::Failure> {
    let user = Cx { uid: USER, gid: USER, checked: false, ..support::cx() };
    bed.node.call(&user, &mut node::Session::default(), call).map(|answer| answer.reply)
}

fn limit(name: &str) -> node::limits::LimitConfig {
    node::limits::LimitConfig { name: name.into(), ..Default::default() }
}

#[test]
fn nobody_gets_a_higher_priority_than_the_limits_allow_and_it_outlives_a_restart() {
    let bed = Bed::with(|c| {
        c.limits = vec![node::limits::LimitConfig { owner: Some(USER), priority: Some(3), ..limit("slow") }];
    });
    bed.write("f", &pattern(MB, 1));
    bed.migrate_and_purge();
    bed.until_dismounted();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    let by = Time::new(4_000_000_000, 0);
    let stage = |priority, by| Call::StageAs { files: bed.all(), priority, by };
    let refused = as_user(&bed, stage(Some(4), None)).unwrap_err();
    assert!(refused.message.contains("allow 3"), "{refused}");
    let request = |reply| match reply {
        wire::Reply::Request(view) => view.request,
        other => panic!("{other:?}"),
    };
    let usual = request(as_user(&bed, stage(None, None)).unwrap());
    let modest = request(as_user(&bed, stage(Some(1), Some(by))).unwrap());
    let admin = request(bed.call(stage(Some(9), None)));
    assert_eq!([usual.priority, modest.priority, admin.priority], [3, 1, 9]);
    let bed = bed.restart();
    let again = bed.request(modest.id).request;
    assert_eq!((again.priority, again.deadline), (1, Some(by)));
    assert_eq!(bed.wait(modest.id).state, RequestState::Done);
}

#[test]
fn a_limit_of_drives_holds_and_is_named_to_who_waits() {
    let bed = Bed::with(|c| {
        c.library.drive_rate = node::Size(4 << 20);
        c.tape.block_size = node::Size(64 << 10);
        c.tape.idle_unmount_s = 60;
        c.classes[0].copies = vec!["primary".into()];
        c.classes.push(node::config::ClassConfig {
            name: "other".into(),
            copies: vec!["second".into()],
            ..c.classes[0].clone()
        });
        c.limits = vec![node::limits::LimitConfig { drives: Some(1), ..limit("one at a time") }];
    });
    let files = [("a", "default"), ("b", "other")].map(|(name, class)| {
        bed.write(name, &pattern(6 * MB, 1));
        let path = format!("/{name}").into_bytes();
        bed.call(Call::AssignClass { path, class: ClassName(class.into()) });
        format!("/{name}")
    });
    bed.migrate_and_purge();
    let volumes = files.each_ref().map(|path| bed.volumes_of(path));
    assert_ne!(volumes[0], volumes[1]);
    let requests = files.each_ref().map(|path| bed.begin(Call::Stage(bed.one(path))).request.id);
    let mut told = false;
    bed.until("both are back", |b| {
        let reading = |d: &DriveView| matches!(d.status, DriveStatus::Recalling | DriveStatus::Mounting);
        assert!(b.drives().iter().filter(|d| reading(d)).count() <= 1, "{:?}", b.drives());
        let views = requests.map(|id| b.request(id));
        let named = |line: &String| line.contains("limit `one at a time` allows 1 drives");
        told |= views.iter().any(|view| view.why.iter().any(named));
        views.iter().all(|view| view.request.state == RequestState::Done)
    });
    assert!(told, "nobody was told of the limit");
}
