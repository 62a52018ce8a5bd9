//! What is open goes on when the node that holds the names was started anew, and what may be lost then is not taken for synced.

use client::ClientError;
use client::native::{File, OpenOptions, Options, Session};
use e2e::cluster::{columns, lies_on, serves, up, wait_for_mending, words};
use e2e::hosts::Hosts;
use e2e::{Bed, Starter, can_mount, noise};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::FsError;

/// A session of a program that waits for the node.
fn patient(bed: &Bed) -> Session {
    let options =
        Options { patience: Duration::from_secs(60), read_ahead: 0, write_behind: 0, ..Options::default() };
    Session::connect_with(&bed.state().join("control.sock"), options).unwrap()
}

/// Where a path below the first mount is in the namespace.
fn named(hosts: &Hosts, name: &str) -> String {
    format!("/{}/{name}", hosts.here.strip_prefix(hosts.first().mount()).unwrap().display())
}

fn open(session: &Session, path: &str) -> File {
    session.open(path, OpenOptions::new().read(true).write(true).create(0o644)).unwrap()
}

fn reason(error: &ClientError) -> Option<FsError> {
    match error {
        ClientError::Refused(why) => why.fs,
        _ => None,
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut found = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), found.len());
    found
}

/// The first node is killed and started again.
fn restart(hosts: &Hosts) {
    let start = Starter::of(hosts.first());
    hosts.first().kill();
    start.now();
    hosts.first().wait("the targets", || up(hosts.first()).len() == 3);
}

#[test]
fn open_files_of_programs_go_on_when_the_first_node_is_started_anew() {
    if !can_mount("programs of two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let data = noise(1, 300_000);
    fs::write(hosts.here.join("read"), &data).unwrap();
    let sessions = [0, 1].map(|host| patient(&hosts.beds[host]));
    let mut files = Vec::new();
    for (n, session) in sessions.iter().enumerate() {
        let written = open(session, &named(&hosts, &format!("written{n}")));
        // The name is durable.
        written.sync().unwrap();
        written.write_at(&data, 0).unwrap();
        let gone = open(session, &named(&hosts, &format!("gone{n}")));
        gone.write_at(&data, 0).unwrap();
        session.unlink(named(&hosts, &format!("gone{n}"))).unwrap();
        files.push((written, session.read(named(&hosts, "read")).unwrap(), gone));
    }
    // The bytes of these pass through the node: only one is known to be durable, and of another one some may be in the node's memory.
    let parity = hosts.here.with_file_name("parity");
    fs::create_dir(&parity).unwrap();
    hosts.first().ok(words("layout set", &parity, "--code 2+1 --stripe-size 64KiB"));
    let [synced, unsynced] = ["/synced", "/unsynced"].map(|path| open(&sessions[1], path));
    let in_memory = open(&sessions[0], "/parity/in-memory");
    for file in [&synced, &unsynced, &in_memory] {
        assert!(!file.is_direct());
        file.write_at(&data, 0).unwrap();
    }
    synced.sync().unwrap();
    restart(&hosts);
    for (written, read, gone) in &files {
        written.write_at(&data, 300_000).unwrap();
        written.write_at(&data[..1000], 10).unwrap();
        written.sync().unwrap();
        let whole = [&data[..10], &data[..1000], &data[1010..], &data[..]].concat();
        assert!(content(written) == whole && content(read) == data);
        let stale = gone.write_at(&data, 600_000).and_then(|()| gone.sync()).unwrap_err();
        assert_eq!(reason(&stale), Some(FsError::Stale), "{stale}");
    }
    for file in [&synced, &unsynced] {
        file.write_at(&data, 300_000).unwrap();
        file.sync().unwrap();
        assert!(content(file) == [&data[..], &data[..]].concat());
    }
    for _ in 0..2 {
        let lost = in_memory.write_at(&data, 300_000).and_then(|()| in_memory.sync()).unwrap_err();
        assert_eq!(reason(&lost), Some(FsError::Stale), "{lost}");
    }
    for (written, read, gone) in files {
        written.close().unwrap();
        read.close().unwrap();
        drop(gone);
    }
    drop((synced, unsynced, in_memory, sessions));
    for n in 0..2 {
        assert_eq!(fs::read(hosts.there.join(format!("written{n}"))).unwrap().len(), 600_000);
    }
    hosts.first().check();
}

/// Of several connections some do not notice, and what is written by one is synced by another.
#[test]
fn files_with_several_connections_go_on_when_the_first_node_is_started_anew() {
    if !can_mount("programs of two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let session = Session::connect_with(&hosts.beds[1].state().join("control.sock"), options).unwrap();
    let large = noise(7, 12 << 20);
    // The bytes of the first pass through the node.
    let busy = [open(&session, "/busy"), open(&session, &named(&hosts, "busy"))];
    for file in &busy {
        file.write_at(&large, 0).unwrap();
        file.sync().unwrap();
    }
    restart(&hosts);
    for file in &busy {
        assert_eq!(file.len().unwrap(), 12 << 20);
        file.set_len(13 << 20).unwrap();
        file.sync().unwrap();
        file.write_at(&large, 1 << 20).unwrap();
        file.write_at(&large[..1000], 5).unwrap();
        file.sync().unwrap();
        assert!(content(file) == [&large[..5], &large[..1000], &large[1005..1 << 20], &large[..]].concat());
    }
    for file in busy {
        file.close().unwrap();
    }
    drop(session);
    hosts.first().check();
}

/// Whether something of a file lies on the target of a node.
fn lies_there(hosts: &Hosts, there: &Bed, name: &str) -> bool {
    let targets = lies_on(hosts.first(), Path::new(&format!("tc:{}", named(hosts, name))));
    targets.iter().any(|target| serves(hosts.first(), there, *target))
}

/// A file that was written at the second host's mount, and not synced.
fn mounted_there(hosts: &Hosts, there: &Bed, first: usize) -> (PathBuf, fs::File) {
    let found = (first..first + 30).find_map(|n| {
        let name = format!("mounted{n}");
        let file = fs::File::create(hosts.there.join(&name)).unwrap();
        lies_there(hosts, there, &name).then(|| (hosts.there.join(&name), file))
    });
    let (path, mut file) = found.expect("a file that lies there");
    file.write_all(&noise(1, 300_000)).unwrap();
    (path, file)
}

/// The same by a program.
fn program_there(hosts: &Hosts, there: &Bed, session: &Session, first: usize) -> File {
    let found = (first..first + 30).find_map(|n| {
        let name = format!("program{n}");
        let file = open(session, &named(hosts, &name));
        lies_there(hosts, there, &name).then_some(file)
    });
    let file = found.expect("a file that lies there");
    file.write_at(&noise(2, 300_000), 0).unwrap();
    file.flush().unwrap();
    file
}

fn is_lost(synced: std::io::Result<()>) {
    assert_eq!(synced.unwrap_err().raw_os_error(), Some(5), "EIO");
}

/// A machine with a target loses power while the first node is dead, which knew what was written to it: who wrote it knows too.
#[test]
fn what_a_machine_may_have_lost_while_the_first_node_was_dead_is_not_taken_for_synced() {
    if !can_mount("files on two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, joined) = (hosts.first(), &hosts.beds[1]);
    // A machine that all can tell from the others.
    let lost = &hosts.beds[3];
    let machine = Starter::of_a_machine(lost, 1);
    lost.kill();
    machine.now();
    first.wait("the targets", || up(first).len() == 3);
    let session = patient(joined);
    let impatient = Session::connect(&joined.state().join("control.sock")).unwrap();
    let ((_, mut by_one), (path, by_another)) =
        (mounted_there(&hosts, lost, 0), mounted_there(&hosts, lost, 30));
    let program = program_there(&hosts, lost, &session, 0);
    let hasty = program_there(&hosts, lost, &impatient, 30);
    let synced = hosts.there.join("synced");
    let mut synced = fs::File::create(&synced).unwrap();
    synced.write_all(&noise(3, 300_000)).unwrap();
    synced.sync_all().unwrap();
    let (start, machine) = (Starter::of(first), Starter::of_a_machine(lost, 2));
    first.kill();
    lost.kill();
    // Who asks now is told that nobody is there, which is no answer.
    let away = hasty.sync().unwrap_err();
    assert!(reason(&away).is_none(), "{away}");
    machine.now();
    start.now();
    first.wait("the targets", || up(first).len() == 3);
    is_lost(by_one.sync_all());
    is_lost(fs::OpenOptions::new().write(true).open(path).unwrap().sync_all());
    assert_eq!(reason(&program.sync().unwrap_err()), Some(FsError::Io));
    let pause = || std::thread::sleep(Duration::from_millis(200));
    let said = (0..50)
        .map(|_| hasty.sync())
        .inspect(|_| pause())
        .find(|said| !said.as_ref().is_err_and(ClientError::is_away));
    assert_eq!(said.and_then(|said| reason(&said.unwrap_err())), Some(FsError::Io));
    synced.sync_all().unwrap();
    // It was said, and what is written from now on counts.
    by_one.write_all(&noise(4, 300_000)).unwrap();
    by_one.sync_all().unwrap();
    program.write_at(&noise(5, 300_000), 0).unwrap();
    program.sync().unwrap();
    program.close().unwrap();
    drop((by_another, hasty, synced, session));
    first.check();
}

/// What was written through the first node at the second host's mount, and not synced.
fn served(file: fs::File) -> fs::File {
    (&file).write_all(&noise(6, 30_000)).unwrap();
    file
}

/// A file in stripes to which something was appended, which only the node can do.
fn appended(path: &Path) -> fs::File {
    served(fs::OpenOptions::new().append(true).create(true).open(path).unwrap())
}

/// A file with copies or parity, the first of them on another machine than that node's.
fn with_others(hosts: &Hosts, node: &Bed, layout: &str) -> fs::File {
    let [here, there] = [&hosts.here, &hosts.there].map(|dir| dir.with_file_name(layout.replace(' ', "")));
    fs::create_dir(&here).unwrap();
    hosts.first().ok(words("layout set", &here, layout));
    let found = (0..30).find_map(|n| {
        let file = fs::File::create(there.join(format!("{n}"))).unwrap();
        let columns = columns(hosts.first(), &here.join(format!("{n}")));
        let at = columns.iter().position(|(target, _)| serves(hosts.first(), node, *target));
        at.is_some_and(|at| at > 0).then_some(file)
    });
    served(found.expect("a file that lies there, too"))
}

/// Here the node has written, and knew where.
#[test]
fn what_a_machine_may_have_lost_of_what_the_first_node_wrote_before_it_died_is_not_taken_for_synced() {
    if !can_mount("files on two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, lost) = (hosts.first(), &hosts.beds[3]);
    let machine = Starter::of_a_machine(lost, 1);
    lost.kill();
    machine.now();
    first.wait("the targets", || up(first).len() == 3);
    let session = patient(&hosts.beds[1]);
    let [plain, synced, by_program] = [0, 30, 60].map(|n| {
        let (path, file) = mounted_there(&hosts, lost, n);
        file.sync_all().unwrap();
        path
    });
    let (mut plain, synced) = (appended(&plain), appended(&synced));
    synced.sync_all().unwrap();
    let by_program = named(&hosts, by_program.file_name().unwrap().to_str().unwrap());
    let program = session.open(by_program, OpenOptions::new().append(true)).unwrap();
    program.write_at(&noise(8, 30_000), 0).unwrap();
    program.flush().unwrap();
    let copies = with_others(&hosts, lost, "--copies 2 --stripe-size 64KiB");
    let parity = with_others(&hosts, lost, "--code 2+1 --stripe-size 64KiB");
    let own = appended(&hosts.there.with_file_name("own"));
    let (start, machine) = (Starter::of(first), Starter::of_a_machine(lost, 2));
    first.kill();
    lost.kill();
    start.now();
    // Of copies one counts that is there then.
    first.wait("the other targets", || up(first).len() == 2);
    machine.now();
    first.wait("the targets", || up(first).len() == 3);
    // A program that was just started still closes what is open here, and so tells the node of it: behind an fsync that would be told once more.
    std::thread::sleep(Duration::from_millis(500));
    is_lost(plain.sync_all());
    assert_eq!(reason(&program.sync().unwrap_err()), Some(FsError::Io));
    for file in [&synced, &copies, &parity, &own] {
        file.sync_all().unwrap();
    }
    // It was said, and what is written from now on counts.
    plain.write_all(&noise(7, 30_000)).unwrap();
    plain.sync_all().unwrap();
    program.write_at(&noise(9, 30_000), 0).unwrap();
    program.sync().unwrap();
    program.close().unwrap();
    drop((plain, synced, copies, parity, own, session));
    first.check();
}

/// The same of its own disk tier, whose machine is started anew with it.
#[test]
fn what_the_machine_of_the_first_node_may_have_lost_is_not_taken_for_synced() {
    if !can_mount("files on two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let session = patient(&hosts.beds[1]);
    let program = open(&session, "/program");
    program.write_at(&noise(8, 30_000), 0).unwrap();
    program.flush().unwrap();
    let own = |name: &str| appended(&hosts.there.with_file_name(name));
    let (mut lost, other, synced) = (own("lost"), own("lost"), own("synced"));
    synced.sync_all().unwrap();
    let on_targets = appended(&hosts.there.join("on-targets"));
    let start = Starter::of_a_machine(first, 3);
    first.kill();
    start.now();
    first.wait("the targets", || up(first).len() == 3);
    is_lost(lost.sync_all());
    assert_eq!(reason(&program.sync().unwrap_err()), Some(FsError::Io));
    for file in [&synced, &on_targets] {
        file.sync_all().unwrap();
    }
    lost.write_all(&noise(7, 30_000)).unwrap();
    lost.sync_all().unwrap();
    program.write_at(&noise(9, 30_000), 0).unwrap();
    program.sync().unwrap();
    program.close().unwrap();
    drop((lost, other, synced, on_targets, session));
    first.check();
}

/// The first node dies together with the host of a target: what was being written is opened without that one, once it counts as down, and its copy is not the one that counts.
#[test]
fn what_was_being_written_when_a_target_died_with_the_first_node_is_opened_without_it() {
    if !can_mount("files on two hosts") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let open: Vec<(PathBuf, fs::File)> = ["--copies 2", "--code 2+1 --stripe-size 64KiB"]
        .into_iter()
        .map(|layout| {
            let dir = hosts.here.with_file_name(layout.replace(' ', ""));
            fs::create_dir(&dir).unwrap();
            first.ok(words("layout set", &dir, layout));
            let path = dir.join("file");
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(&noise(1, 1_000_000)).unwrap();
            file.sync_all().unwrap();
            (path, file)
        })
        .collect();
    // Where a copy counts before the other one.
    let gone = hosts.of(columns(first, &open[0].0)[0].0);
    assert!(columns(first, &open[1].0).iter().any(|(target, _)| serves(first, gone, *target)));
    let start = Starter::of(gone);
    first.kill();
    gone.kill();
    let paths: Vec<PathBuf> = open.into_iter().map(|(path, _)| path).collect();
    first.up_mounted();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(move || {
                let mut options = fs::OpenOptions::new();
                let file = options.read(true).write(true).open(path).expect("it is opened");
                assert!(fs::read(path).unwrap() == noise(1, 1_000_000), "what was synced");
                file.write_all_at(&noise(2, 100_000), 1000).unwrap();
                file.sync_all().unwrap();
            });
        }
    });
    start.now();
    for path in &paths {
        wait_for_mending(first, path);
        let bytes = fs::read(path).unwrap();
        assert!(bytes[1000..101_000] == noise(2, 100_000) && bytes.len() == 1_000_000);
    }
    first.check();
}
