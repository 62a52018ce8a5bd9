//! What a request says of itself: estimates that rest on what drives really took, why it waits, and what it would cost.

use crate::support::{Bed, Running, pattern};
use types::api::FileApi;
use types::*;
use wire::Call;

const MB: usize = 1 << 20;

#[test]
fn every_job_of_a_drive_teaches_how_long_it_takes_and_that_outlives_a_restart() {
    let bed = Bed::new();
    bed.write("f0", &pattern(6 * MB, 0));
    for i in 1..5 {
        bed.write(&format!("f{i}"), &pattern(MB, i));
    }
    bed.migrate_and_purge();
    bed.act(Call::Stage(bed.one("/f4")));
    bed.act(Call::Stage(bed.all()));
    bed.until_dismounted();
    let all = bed.node.learnt().all;
    let counts = [all.moves, all.load, all.unload, all.locate, all.read, all.write, all.file, all.written]
        .map(|learnt| learnt.count);
    assert!(
        counts.iter().all(|count| *count > 0),
        "moves, loads, unloads, locates, reads, writes, files read and written: {counts:?}"
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
    let again = quote(&bed, bed.all());
    assert_eq!((again.coming, again.wanted.0), ((3, 3 * MB as u64), 0), "{again:?}");
    assert!(again.estimate.unwrap().finish_p50_s > 0, "what others wait for is not there at once: {again:?}");
    bed.node.virtual_library().clear_faults();
    assert_eq!(bed.wait(view.request.id).state, RequestState::Done);
    let over = bed.request(view.request.id);
    assert_eq!((over.estimate, over.why), (None, vec![]));
}

#[test]
fn a_migrate_to_a_pool_that_may_hold_no_more_says_so_and_goes_on_when_it_may() {
    let bed = Bed::with(|c| c.classes[0].copies = vec!["primary".into()]);
    bed.write("first", &pattern(MB, 1));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let limit = |max_bytes| Call::SetPool {
        name: "primary".into(),
        create: false,
        change: wire::PoolChange { max_bytes: Some(max_bytes), ..Default::default() },
    };
    bed.call(limit(1));
    bed.write("second", &pattern(MB, 2));
    let id = bed.begin(Call::Migrate(bed.one("/second"))).request.id;
    bed.until("it says why it waits", |b| {
        let view = b.request(id);
        let told = view.why.iter().any(|line| line.contains("primary") && line.contains("--max-bytes"));
        told && view.estimate.is_none() && !view.doing.is_empty()
    });
    bed.call(limit(0));
    assert_eq!(bed.wait(id).state, RequestState::Done);
}

const USER: u32 = 12345;

fn as_user(bed: &Bed, call: Call) -> Result<wire::Reply, wire::Failure> {
    let user = Cx { uid: USER, gid: USER, checked: false, ..crate::support::cx() };
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
        let named = |line: &String| line.contains("limit `one at a time` allows 1 drive at once");
        told |= views.iter().any(|view| view.why.iter().any(named));
        views.iter().all(|view| view.request.state == RequestState::Done)
    });
    assert!(told, "nobody was told of the limit");
}

fn quote(bed: &Bed, files: wire::Selection) -> QuoteView {
    match bed.call(Call::Quote { files, after: 0 }) {
        wire::Reply::Quote(view) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_quote_says_what_a_recall_would_take_and_what_cannot_come_and_changes_nothing() {
    let bed = Bed::with(|c| c.classes[0].copies = vec!["primary".into()]);
    for i in 0..3 {
        bed.write(&format!("f{i}"), &pattern(MB, i));
    }
    bed.migrate_and_purge();
    bed.write("here", b"resident");
    bed.until_dismounted();
    let before = bed.status().requests_open;
    let view = quote(&bed, bed.all());
    let mb = MB as u64;
    assert_eq!((view.files, view.bytes, view.resident), (4, 3 * mb + 8, (1, 8)), "{view:?}");
    assert_eq!((view.wanted, view.volumes, view.mounts, view.lost), ((3, 3 * mb), 1, 1, 0), "{view:?}");
    let e = view.estimate.unwrap();
    assert!(
        e.finish_p50_s > 0 && e.finish_p50_s <= e.finish_p90_s && view.drive_s.0 <= view.drive_s.1,
        "{view:?}"
    );
    assert_eq!((bed.status().requests_open, bed.stat("/f0").residency), (before, Some(Residency::Offline)));
    // A second part of the list adds to the first; after another connection it is refused.
    let mut session = node::Session::default();
    let mut ask = |path: &str, after| {
        let call = Call::Quote { files: bed.one(path), after };
        bed.node.call(&crate::support::cx(), &mut session, call).map(|answer| answer.reply)
    };
    assert!(matches!(ask("/f0", 0), Ok(wire::Reply::Quote(q)) if q.wanted.0 == 1));
    assert!(matches!(ask("/f1", 1), Ok(wire::Reply::Quote(q)) if q.wanted.0 == 2 && q.mounts == 1));
    assert!(ask("/f2", 1).unwrap_err().message.contains("ask again"));
    let volume = bed.volumes_of("/f0")[0].clone();
    let (volumes, state) = (vec![volume.clone()], VolumeState::Exported);
    bed.call(Call::SetVolume { volumes, state, reason: "vault".into() });
    let view = quote(&bed, bed.all());
    assert_eq!((view.lost, view.volumes), (3, 0));
    let LostFile { path, why } = &view.lost_files[0];
    assert!(path == "/f0" && why.contains(volume.as_str()), "{path}: {why}");
}

/// What was learnt, as a node keeps it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Times {
    drives: Vec<(String, sched::Factors)>,
    all: sched::Factors,
}

format::records! { Times = 3 }

#[test]
fn a_quote_knows_what_goes_by_from_file_to_file_and_limits_of_drives_and_drives_out_of_use() {
    const FILES: u64 = 20;
    let bed = Bed::with(|c| {
        c.classes[0].copies = vec!["primary".into()];
        let other = node::config::ClassConfig { name: "other".into(), ..c.classes[0].clone() };
        c.classes.push(node::config::ClassConfig { copies: vec!["second".into()], ..other });
        c.limits = vec![node::limits::LimitConfig { owner: Some(USER), drives: Some(1), ..limit("one") }];
    });
    for i in 0..FILES {
        bed.write(&format!("f{i}"), &pattern(100, i));
    }
    let (path, class) = (b"/f0".to_vec(), ClassName("other".into()));
    bed.call(Call::AssignClass { path, class });
    bed.migrate_and_purge();
    // As if the virtual library took the times of the model, and each file three seconds besides.
    let learnt = |file_s| {
        let file = sched::Learnt { mean: file_s, variance: 0.0, count: 9, weight_s: 9.0 };
        Times { drives: Vec::new(), all: sched::Factors { file, ..Default::default() } }
    };
    let restart = |bed: Bed, file_s| {
        let (config, Bed { dir, node }) = (bed.node.config().clone(), bed);
        node.stop(true);
        drop(node);
        std::fs::write(config.state_dir.join("times"), format::record::encode(&learnt(file_s))).unwrap();
        Bed { dir, node: Running::start(config) }
    };
    let bed = restart(bed, 0.0);
    let before = quote(&bed, bed.all());
    assert_eq!((before.wanted.0, before.volumes, before.mounts), (FILES, 2, 2), "{before:?}");
    let bed = restart(bed, 3.0);
    let after = quote(&bed, bed.all());
    let more = after.drive_s.0 - before.drive_s.0;
    assert!((3 * FILES - 2..=3 * FILES + 2).contains(&more), "{more} s more: {after:?}");
    // Two drives at once for one, one for the other.
    let end = |view: &QuoteView| view.estimate.unwrap().finish_p50_s;
    let limited = match as_user(&bed, Call::Quote { files: bed.all(), after: 0 }) {
        Ok(wire::Reply::Quote(view)) => *view,
        other => panic!("{other:?}"),
    };
    assert_eq!(limited.drive_s, after.drive_s);
    assert!(end(&after) < after.drive_s.0 - 20 && end(&limited) >= after.drive_s.0 - 1, "{limited:?}");
    for drive in 0..2 {
        bed.call(Call::SetDrive { drive: DriveNo(drive), up: false });
    }
    bed.until("both drives are out of use", |b| b.drives().iter().all(|d| d.status == DriveStatus::Down));
    let none = quote(&bed, bed.all());
    assert_eq!((none.lost, none.volumes, none.estimate), (FILES, 0, None), "{none:?}");
    assert!(none.lost_files[0].why.contains("thermo drive up"), "{none:?}");
}

#[test]
fn open_requests_are_summed_up_by_owner_class_and_pool() {
    let bed = Bed::new();
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(MB, i));
    }
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    bed.begin(Call::Migrate(bed.one("/f0")));
    bed.begin(Call::Migrate(bed.one("/f1")));
    let sums = |by| match bed.call(Call::RequestSums(by)) {
        wire::Reply::RequestSums(sums) => sums,
        other => panic!("{other:?}"),
    };
    let told = |by| {
        let sums: Vec<RequestSum> = sums(by);
        sums.into_iter()
            .map(|s| (s.of, s.requests, s.files_total, s.bytes_total, s.percent))
            .collect::<Vec<_>>()
    };
    let both = 2 * MB as u64;
    let of = |name: &str| (name.to_owned(), 2, 2, both, 0);
    assert_eq!(told(SumBy::Owner), [of(&crate::support::cx().uid.to_string())]);
    assert_eq!(told(SumBy::Class), [of("default")]);
    assert_eq!(told(SumBy::Pool), [of("primary"), of("second")]);
    bed.node.virtual_library().clear_faults();
    bed.until("they are done", |b| b.status().requests_open == 0);
    assert_eq!(told(SumBy::Class), []);
}

#[test]
fn what_would_leave_the_disk_next_is_listed_in_its_order_with_what_stays() {
    let bed = Bed::new();
    bed.write("pinned", &pattern(MB, 1));
    bed.write("old", &pattern(MB, 2));
    bed.act(Call::Migrate(bed.all()));
    bed.call(Call::Pin { files: bed.one("/pinned"), pin: true });
    bed.write("new", &pattern(MB, 3));
    let list = |all| match bed.call(Call::PurgeList { all, limit: 10 }) {
        wire::Reply::PurgeList(files) => files,
        other => panic!("{other:?}"),
    };
    let files: Vec<PurgeCandidateView> = list(false);
    assert_eq!(files.iter().map(|f| f.path.as_bytes()).collect::<Vec<_>>(), [b"/old"]);
    assert!(files[0].bytes >= MB as u64);
    let old = bed.stat("/old").attr.ino;
    let opened = bed.open(old, types::api::OpenFlags { read: true, ..Default::default() });
    assert_eq!(list(false), []);
    let held: Vec<_> = list(true).into_iter().map(|f| (f.path, f.held)).collect();
    assert_eq!(held, [("/old".into(), Some("open".to_owned()))]);
    bed.node.release(opened.handle);
    assert!(as_user(&bed, Call::PurgeList { all: false, limit: 1 }).is_err(), "names of all users");
}

#[test]
fn both_copies_are_written_at_once_on_two_drives_and_drives_kept_for_reading_are_not() {
    let bed = |kept| {
        Bed::with(|c| {
            c.library.drive_rate = node::Size(2 << 20);
            c.tape.block_size = node::Size(64 << 10);
            c.tape.drives_for_recall = kept;
        })
    };
    let most_at_once = |bed: Bed| {
        bed.write("f", &pattern(6 * MB, 1));
        let request = bed.begin(Call::Migrate(bed.all())).request;
        let mut most = 0;
        bed.until("both copies are on tape", |b| {
            let writes = |d: &DriveView| d.status == DriveStatus::Migrating;
            most = most.max(b.drives().iter().filter(|d| writes(d)).count());
            b.request(request.id).request.state == RequestState::Done
        });
        most
    };
    assert_eq!([most_at_once(bed(0)), most_at_once(bed(1))], [2, 1]);
}

/// Acts on a list in parts, in one session.
fn act(bed: &Bed, session: &mut node::Session, order: wire::ActOrder) -> Result<wire::Acted, wire::Failure> {
    match bed.node.call(&crate::support::cx(), session, Call::Act(order))?.reply {
        wire::Reply::Acted(acted) => Ok(*acted),
        other => panic!("{other:?}"),
    }
}

fn part(act: wire::Act, paths: &[&str], after: u64, last: bool) -> wire::ActOrder {
    let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    wire::ActOrder { act, files: wire::Selection { paths, recursive: false }, after, last }
}

#[test]
fn a_list_in_parts_is_one_request_for_what_can_be_chosen_and_names_the_rest() {
    let bed = Bed::new();
    for i in 0..3 {
        bed.write(&format!("f{i}"), &pattern(1000, i));
    }
    bed.migrate_and_purge();
    let stage = || wire::Act::Stage { priority: None, by: None };
    let mut session = node::Session::default();
    let first = act(&bed, &mut session, part(stage(), &["/f0", "/nowhere", "/"], 0, false)).unwrap();
    assert_eq!(first.outcome, wire::Outcome::Gathered);
    let left: Vec<_> = first.left.iter().map(|left| (left.of, left.class)).collect();
    assert_eq!(left, [(1, ErrorClass::NotFound), (2, ErrorClass::Namespace)]);
    assert!(first.left[1].why.contains("add -r"), "{first:?}");
    let last = act(&bed, &mut session, part(stage(), &["/f1", "/f2", "/f1"], 3, true)).unwrap();
    let wire::Outcome::Request(view) = last.outcome else { panic!("{last:?}") };
    assert_eq!((view.request.files_total, view.request.subject.as_str()), (3, "/f0 and 5 more"));
    assert_eq!(bed.wait(view.request.id).state, RequestState::Done);

    let before = bed.call(Call::Requests { all: true, limit: 100 });
    let none = act(&bed, &mut session, part(wire::Act::Purge, &["/nowhere"], 0, true)).unwrap();
    assert_eq!((none.outcome, none.left.len()), (wire::Outcome::Nothing, 1));
    // A part that does not follow what this connection has said means that another connection was lost.
    let lost = act(&bed, &mut session, part(stage(), &["/f0"], 3, true)).unwrap_err();
    assert!(lost.class == ErrorClass::Retry && lost.message.contains("nothing was done"), "{lost}");
    let many = vec!["/f0"; wire::MAX_PATHS + 1];
    let refused = act(&bed, &mut session, part(stage(), &many, 0, true)).unwrap_err();
    assert_eq!(refused.class, ErrorClass::Invalid);
    assert_eq!(bed.call(Call::Requests { all: true, limit: 100 }), before, "no request was made");
}
