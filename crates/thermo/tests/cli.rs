//! The program against a node in miniature: paths, output, exit codes, waiting, interruption.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use types::*;
use wire::{Act, ActOrder, Acted, Call, Failure, LeftOut, Outcome, Reply, Selection, serve_connection};

struct Fake {
    dir: tempfile::TempDir,
    calls: Arc<Mutex<Vec<Call>>>,
    /// Per cent that requests are done, one step per question; above 100: never.
    progress: Arc<AtomicU64>,
}

fn time(secs: i64) -> Time {
    Time::new(secs, 0)
}

fn status(mount: &Path) -> StatusView {
    StatusView {
        version: "0.1.0".into(),
        pid: 1,
        uptime_s: 61,
        state_dir: "/state".into(),
        mounts: vec![mount.display().to_string()],
        inodes: 3,
        bytes: 4096,
        disk: DiskView::default(),
        drives: Vec::new(),
        pools: Vec::new(),
        requests_open: 0,
        migrate_backlog_files: 0,
        migrate_backlog_bytes: 0,
        warnings: vec!["volume TC0003L9 is suspect; copy it".into()],
    }
}

fn request(id: u64, percent: u64, failed: u64) -> RequestView {
    let done = percent >= 100;
    let state = match (done, failed) {
        (false, _) => RequestState::Active,
        (true, 0) => RequestState::Done,
        _ => RequestState::Failed,
    };
    let request = Request {
        priority: 5,
        deadline: None,
        id: RequestId(id),
        state,
        started: Some(time(1)),
        finished: done.then(|| time(2)),
        files_total: 2,
        files_done: if done { 2 } else { 0 },
        files_failed: failed,
        bytes_total: 1 << 20,
        ..Request::new(RequestKind::Stage, 0, "/a".into(), time(0))
    };
    let bytes_moved = percent.min(100) * (1 << 20) / 100;
    let (queue_position, doing) = (0, "reading TC0001L9".into());
    RequestView {
        request,
        queue_position,
        percent: percent.min(100) as u8,
        bytes_moved,
        eta_s: Some(5),
        estimate: None,
        why: Vec::new(),
        doing,
    }
}

fn file(name: &[u8], percent: Option<u8>) -> (Vec<u8>, FileView) {
    let (ino, kind, mtime) = (Ino(7), FileKind::File, time(1_700_000_000));
    let attr = Attr {
        ino,
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 5,
        gid: 6,
        rdev: 0,
        size: 1536,
        disk_bytes: 0,
        atime: mtime,
        mtime,
        ctime: mtime,
        btime: mtime,
    };
    let state = FileState {
        version: Version(1),
        object: None,
        stamp: None,
        digest: Some(Digest([0xab; 32])),
        class: "default".into(),
        copies: vec![CopyNo(1), CopyNo(2)],
        pinned: false,
        far: false,
    };
    let view = FileView {
        path: name.into(),
        attr,
        link_target: None,
        residency: Some(if percent.is_some() { Residency::Staging } else { Residency::Offline }),
        file: Some(state),
        copies_required: 2,
        versions: Vec::new(),
        request: None,
        percent,
        eta_s: None,
        directory_class: None,
    };
    (name.to_vec(), view)
}

impl Fake {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let progress = Arc::new(AtomicU64::new(0));
        let mount = dir.path().canonicalize().unwrap().join("mnt");
        let (seen, percent) = (calls.clone(), progress.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, percent, mount) = (seen.clone(), percent.clone(), mount.clone());
                std::thread::spawn(move || {
                    let _ = serve_connection(stream.unwrap(), "fake", &mut |call| {
                        seen.lock().unwrap().push(call.clone());
                        Self::answer(call, &percent, &mount).map(Into::into)
                    });
                });
            }
        });
        Self { dir, calls, progress }
    }

    fn answer(call: Call, percent: &AtomicU64, mount: &Path) -> Result<Reply, Failure> {
        let refuse = |class| Err(Failure { class, fs: None, message: "refused for a reason".into() });
        Ok(match call {
            Call::Status => Reply::Status(Box::new(status(mount))),
            Call::List { path, after: 0, .. } if path == b"/" => {
                let entries = vec![file(b"zz \xff\n", None), file(b"aa", Some(45))];
                Reply::Files { entries, next: Some(9) }
            }
            Call::List { path, after: 9, .. } if path == b"/" => {
                Reply::Files { entries: vec![file(b"mm", None)], next: None }
            }
            Call::List { path, .. } if path == b"/many" => {
                let entries = (0..5000).map(|i| file(format!("{i:0>40}").as_bytes(), None)).collect();
                Reply::Files { entries, next: None }
            }
            Call::List { .. } => return refuse(ErrorClass::NotFound),
            Call::Act(order) if order.files.paths == [b"/secret"] => {
                let (class, why) = (ErrorClass::Denied, "refused for a reason".into());
                let left = vec![LeftOut { of: 0, below: None, class, why }];
                Reply::Acted(Box::new(Acted { left, unnamed: 0, outcome: Outcome::Nothing }))
            }
            Call::Act(order) => {
                let id = if order.act == Act::Migrate { 13 } else { 12 };
                let outcome = match order.last {
                    true => Outcome::Request(Box::new(request(id, 0, 0))),
                    false => Outcome::Gathered,
                };
                Reply::Acted(Box::new(Acted { left: Vec::new(), unnamed: 0, outcome }))
            }
            Call::Request(id) => {
                let step = percent.load(Ordering::SeqCst);
                let now = if step > 100 { 50 } else { percent.fetch_add(50, Ordering::SeqCst) + 50 };
                Reply::Request(Box::new(request(id.0, now, u64::from(id.0 == 13))))
            }
            Call::RequestItems { id, after: Ino(0), .. } => Reply::RequestItems(vec![RequestItemView {
                ino: Ino(1),
                path: "/a/bad".into(),
                state: ItemState::Failed(format!("no pool has room (request {id})")),
            }]),
            Call::RequestItems { .. } => Reply::RequestItems(Vec::new()),
            Call::Volumes => return refuse(ErrorClass::Library),
            Call::ClusterStatus => return refuse(ErrorClass::NotFound),
            _ => return refuse(ErrorClass::Busy),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
        command.arg("--state-dir").arg(self.dir.path()).arg("--utc").env("NO_COLOR", "1");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn selections(&self) -> Vec<Selection> {
        self.orders().into_iter().map(|order| order.files).collect()
    }

    fn orders(&self) -> Vec<ActOrder> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter_map(|c| if let Call::Act(order) = c { Some(order.clone()) } else { None })
            .collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn ls_shows_residency_and_copies_sorted_and_escaped() {
    let out = Fake::start().run(&["ls", "tc:/"]);
    assert_eq!(
        text(&out.stdout),
        "WHERE  COPIES      SIZE  MODIFIED              NAME\n\
         45%    2/2     1.50 KiB  2023-11-14 22:13:20Z  aa\n\
         tape   2/2     1.50 KiB  2023-11-14 22:13:20Z  mm\n\
         tape   2/2     1.50 KiB  2023-11-14 22:13:20Z  'zz '$'\\377\\n'\n"
    );
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn json_is_one_document_with_readable_digests() {
    let out = Fake::start().run(&["--json", "ls"]);
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value[2]["name"], "zz \u{fffd}\n");
    assert_eq!((&value[2]["name_bytes"], value[1].get("name_bytes")), (&"7a7a20ff0a".into(), None));
    assert_eq!(value[0]["file"]["digest"], "ab".repeat(32));
    assert_eq!(value[0]["percent"], 45);
}

#[test]
fn paths_below_a_mount_and_lists_from_standard_input_reach_the_node() {
    let fake = Fake::start();
    let mut child = fake
        .command()
        .args(["stage", "--from-stdin", "-r"])
        .arg(fake.mount().join("x/y"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"tc:/one\0tc:/two\nlines\0").unwrap();
    assert!(child.wait().unwrap().success());
    let paths = [b"/x/y".to_vec(), b"/one".to_vec(), b"/two\nlines".to_vec()];
    assert_eq!(fake.selections(), [Selection { paths: paths.to_vec(), recursive: true }]);
    let outside = fake.run(&["stage", "/etc/passwd"]);
    assert_eq!(outside.status.code(), Some(2));
    assert!(text(&outside.stderr).contains("not below a mount"), "{}", text(&outside.stderr));
}

#[test]
fn a_long_list_is_sent_in_parts_that_fit_and_is_one_request() {
    let fake = Fake::start();
    let mut child =
        fake.command().args(["stage", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let paths: Vec<String> = (0..25_000).map(|i| format!("/{i:0>100}")).collect();
    let list: String = paths.iter().map(|path| format!("tc:{path}\n")).collect();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let orders = fake.orders();
    let (last, before) = orders.split_last().unwrap();
    assert!(last.last && before.len() > 1 && before.iter().all(|part| !part.last));
    let mut after = 0;
    for order in &orders {
        assert_eq!(order.after, after);
        after += order.files.paths.len() as u64;
        assert!(wire::frame::encode(&Call::Act(order.clone())).unwrap().len() < wire::frame::MAX_PAYLOAD / 2);
    }
    let sent: Vec<Vec<u8>> = orders.into_iter().flat_map(|order| order.files.paths).collect();
    assert!(sent.iter().map(Vec::as_slice).eq(paths.iter().map(String::as_bytes)));
}

#[test]
fn waiting_follows_a_request_to_its_end() {
    let out = Fake::start().run(&["stage", "--wait", "tc:/a"]);
    assert_eq!(text(&out.stdout), "request 12: stage done, 2 of 2 files, 1.00 MiB of 1.00 MiB\n");
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn a_request_with_failures_names_them_and_ends_with_1() {
    let out = Fake::start().run(&["migrate", "--wait", "tc:/a"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("/a/bad: no pool has room"), "{}", text(&out.stderr));
}

#[test]
fn interrupting_the_wait_leaves_the_request_and_says_how_to_go_on() {
    let fake = Fake::start();
    fake.progress.store(1000, Ordering::SeqCst);
    let mut child = fake.command().args(["stage", "--wait", "tc:/a"]).stderr(Stdio::piped()).spawn().unwrap();
    let asked = || fake.calls.lock().unwrap().iter().any(|c| matches!(c, Call::Request(_)));
    while !asked() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(said.contains("request watch 12") && said.contains("request cancel 12"), "{said}");
    assert!(!fake.calls.lock().unwrap().iter().any(|c| matches!(c, Call::Cancel(_))));
}

#[test]
fn exit_codes_follow_the_class_of_the_error() {
    let fake = Fake::start();
    for (args, code) in [
        (&["ls", "tc:/none"][..], 5),
        (&["stage", "tc:/secret"], 4),
        (&["volume", "ls"], 7),
        (&["pool", "ls"], 6),
        (&["stage"], 2),
        (&["ls", "tc:relative"], 2),
        (&["--socket", "/nonexistent/sock", "status"], 3),
    ] {
        let out = fake.run(args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out.stderr));
        assert!(!out.stderr.is_empty(), "{args:?} says nothing");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let fake = Fake::start();
    let mut command = fake.command();
    let mut child =
        command.args(["ls", "tc:/many"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("WHERE"));
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
}

#[test]
fn status_shows_warnings_and_up_reports_a_node_that_runs() {
    let fake = Fake::start();
    let out = text(&fake.run(&["status"]).stdout);
    assert!(out.contains("up 1m01s") && out.contains("warning: volume TC0003L9"), "{out}");
    assert!(!out.contains("cluster"), "it belongs to none: {out}");
    let out = text(&fake.run(&["up"]).stdout);
    assert!(out.starts_with("the node is already up\n"), "{out}");
}

#[test]
fn a_wrong_configuration_key_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.toml"), "[disk]\nhigh_watermrk = 3\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    let out = command.arg("--state-dir").arg(dir.path()).arg("up").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("config.toml") && said.contains("did you mean `high_watermark`?"), "{said}");
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let out = Fake::start().run(&["completions", shell]);
        assert!(text(&out.stdout).contains("migrate"), "{shell}");
    }
}

#[test]
fn volume_state_takes_volumes_and_a_state() {
    let fake = Fake::start();
    let sent = Call::SetVolume {
        volumes: vec!["TC0001L9".into(), "TC0002L9".into()],
        state: VolumeState::ReadOnly,
        reason: "box 12".into(),
    };
    fake.run(&["volume", "state", "TC0001L9", "TC0002L9", "read-only", "--reason", "box 12"]);
    assert!(fake.calls.lock().unwrap().contains(&sent), "{:?}", fake.calls.lock().unwrap());
    for args in [&["volume", "state", "TC0001L9"][..], &["volume", "state", "TC0001L9", "melted"]] {
        assert_eq!(fake.run(args).status.code(), Some(2), "{args:?}");
    }
}

/// No node is asked: there is none.
fn plan(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    command.current_dir(dir).arg("--state-dir").arg(dir.join("none")).arg("plan").args(args).output().unwrap()
}

#[test]
fn a_plan_is_made_of_a_trace_alone_and_of_a_system_and_compares_variants() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "trace.jsonl",
        "# what happened\n{\"t\": 0, \"op\": \"write\", \"set\": \"a\", \"bytes\": 2000000000000}\n\
         {\"t\": 90000, \"op\": \"read\", \"set\": \"old\", \"bytes\": 1000000000}\n",
    );
    write("system.toml", "days = 2\n[library]\ndrives = 2\n");
    let out = plan(dir.path(), &["trace.jsonl", "--html", "plan.html"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(said.starts_with("trace.jsonl: 3 days, seed 1\n"), "until its last day, and one more: {said}");
    assert!(said.contains("2.0 TB") && said.contains("4.0 TB, 1.0 GB"), "both copies, and the read: {said}");
    assert!(std::fs::read_to_string(dir.path().join("plan.html")).unwrap().contains("<svg"));

    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    let json = ["--json", "plan", "system.toml", "--trace", "trace.jsonl", "--vary", "libraries=1,2"];
    let out = command.current_dir(dir.path()).args(json).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&value[0]["variant"], &value[1]["variant"]), (&"libraries=1".into(), &"libraries=2".into()));
    assert_eq!(value[1]["days"], 2.0);

    for (args, says) in [
        (&["trace.jsonl", "--trace", "trace.jsonl"][..], "a trace already"),
        (&["system.toml"], "nobody writes or reads"),
        (&["trace.jsonl", "--vary", "libraries=5"], "library.count"),
        (&["trace.jsonl", "--vary", "load=2"], "a trace is done as it is"),
        (&["trace.jsonl", "--vary", "colour=2"], "migrate_after, migrate_bytes"),
    ] {
        let out = plan(dir.path(), args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains(says), "{args:?}: {}", text(&out.stderr));
    }
}
