//! Programs with the native library on a host whose node holds no names: the socket of that node leads to the namespace of the cluster.

use client::native::{File, LockKind, OpenOptions, Options, Region, Session};
use e2e::cluster::up;
use e2e::hosts::Hosts;
use e2e::locker::Locker;
use e2e::{Bed, Starter, can_mount, noise};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use types::RenameMode;

/// Makes a file, if it may, and looks into another one.
const STRANGER: &str = r#"
import sys, thermocline
session = thermocline.connect(sys.argv[1])
with session.open(sys.argv[2] + '/strange', 'x+', buffering=0) as file:
    file.pwrite(b'x' * 300000, 0)
try:
    session.open(sys.argv[2] + '/secret', 'r+')
    print('open')
except PermissionError:
    print('denied')
"#;

fn library() -> std::path::PathBuf {
    std::env::current_exe().unwrap().with_file_name("libthermo.so")
}

/// A directory of the namespace, as programs call it.
fn named(hosts: &Hosts) -> String {
    format!("/{}", hosts.here.strip_prefix(hosts.first().mount()).unwrap().display())
}

fn session(bed: &Bed) -> Session {
    let nothing_held = Options { read_ahead: 0, write_behind: 0, ..Options::default() };
    Session::connect_with(&bed.state().join("control.sock"), nothing_held).unwrap()
}

fn open(session: &Session, path: &str) -> File {
    session.open(path, OpenOptions::new().read(true).write(true).create(0o644)).unwrap()
}

#[test]
fn what_programs_of_a_joined_host_do_is_seen_everywhere_and_their_bytes_do_not_pass_through_its_node() {
    if !can_mount("programs of a joined host") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, joined, dir) = (hosts.first(), &hosts.beds[1], named(&hosts));
    let (there, here) = (session(joined), session(first));
    let [file, other] = [&there, &here].map(|session| open(session, &format!("{dir}/file")));
    assert!(file.is_direct());
    for n in 0..6 {
        let (bytes, at) = (noise(n, 300_000), n * 300_000);
        let (writer, reader) = if n % 2 == 0 { (&file, &other) } else { (&other, &file) };
        writer.write_at(&bytes, at).unwrap();
        let mut found = vec![0; bytes.len()];
        assert_eq!(reader.read_at(&mut found, at).unwrap(), found.len());
        assert!(found == bytes, "{n}");
        let whole = fs::read(hosts.there.join("file")).unwrap();
        assert!(whole.len() as u64 == at + 300_000 && whole[at as usize..] == bytes, "{n}: at its mount");
    }
    there.mkdir(format!("{dir}/made"), 0o755).unwrap();
    there.rename(format!("{dir}/file"), format!("{dir}/made/file"), RenameMode::default()).unwrap();
    assert_eq!(fs::metadata(hosts.here.join("made/file")).unwrap().len(), 1_800_000);
    assert!(there.stat(format!("{dir}/file")).is_err());
    for file in [file, other] {
        file.sync().unwrap();
        file.close().unwrap();
    }
    the_rights_are_those_of_the_user(&hosts, &dir);
    commands_are_answered_there(&hosts);
    first.check();
}

/// Commands about files and requests, also of the library.
fn commands_are_answered_there(hosts: &Hosts) {
    let joined = &hosts.beds[1];
    let file = hosts.there.join("made/file");
    let view = &joined.json([OsStr::new("stat"), file.as_os_str()])[0];
    assert_eq!(
        (view["attr"]["size"].as_u64(), view["residency"].as_str()),
        (Some(1_800_000), Some("resident"))
    );
    assert!(joined.ok([OsStr::new("ls"), hosts.there.as_os_str()]).contains("secret"));
    joined.ok([OsStr::new("stage"), file.as_os_str()]);
    joined.ok([OsStr::new("pin"), file.as_os_str()]);
    let here = hosts.here.join("made/file");
    assert_eq!(
        hosts.first().json([OsStr::new("stat"), here.as_os_str()])[0]["file"]["pinned"].as_bool(),
        Some(true)
    );
    let request = session(joined).stage(vec![format!("{}/made", named(hosts)).into_bytes()], true).unwrap();
    assert_eq!(hosts.first().json(["request", "ls", "--all"]), joined.json(["request", "ls", "--all"]));
    assert_eq!(session(joined).request(request.request.id).unwrap().request.id, request.request.id);
    // Whose files they are is checked there.
    let secret = hosts.there.join("secret");
    let stranger = Command::new(e2e::thermo())
        .args([OsStr::new("pin"), secret.as_os_str(), OsStr::new("--state-dir"), joined.state().as_os_str()])
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && said.contains("secret"), "{said}");
}

fn the_rights_are_those_of_the_user(hosts: &Hosts, dir: &str) {
    fs::write(hosts.here.join("secret"), "for root").unwrap();
    fs::set_permissions(hosts.here.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&hosts.here, fs::Permissions::from_mode(0o777)).unwrap();
    // Where somebody else can read it.
    let place = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let lent = place.path().join("libthermo.so");
    fs::copy(library(), &lent).unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/python/thermocline/__init__.py");
    fs::create_dir(place.path().join("thermocline")).unwrap();
    fs::copy(module, place.path().join("thermocline/__init__.py")).unwrap();
    let joined = &hosts.beds[1];
    for dir in [joined.dir.path().to_owned(), joined.state()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let said = Command::new("python3")
        .args([OsStr::new("-c"), STRANGER.as_ref(), joined.state().join("control.sock").as_os_str()])
        .arg(dir)
        .env("PYTHONPATH", place.path())
        .env("LIBTHERMO", &lent)
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "denied\n",
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let made = fs::metadata(hosts.here.join("strange")).unwrap();
    assert_eq!((made.uid(), made.len()), (65_534, 300_000));
}

#[test]
fn locks_of_programs_of_a_joined_host_end_with_them_and_a_restart_of_the_first_node_ends_their_sessions() {
    if !can_mount("locks of programs of a joined host") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, joined, dir) = (hosts.first(), &hosts.beds[1], named(&hosts));
    let mut program = Locker::with_library(joined, &library(), &format!("{dir}/locked"), true);
    let mut mount = Locker::new(&hosts.here.join("locked"));
    assert_eq!(program.ask("ofd ex 10 10"), "ok");
    assert_eq!((mount.ask("ofd sh 19 1"), mount.ask("ofd ex 20 0")), ("EAGAIN".into(), "ok".into()));
    // Waiting is told, also when it is given up.
    program.waits("ofdw ex 20 5");
    assert_eq!((mount.ask("ofd un 20 0"), program.hear()), ("ok".into(), "ok".into()));
    assert_eq!(mount.ask("ofd ex 100 1"), "ok");
    assert_eq!(program.ask("alarm 1"), "ok");
    assert_eq!(program.ask("ofdw ex 100 1"), "EINTR");
    mount.waits("ofdw ex 0 50");
    let killed = Instant::now();
    program.kill();
    assert_eq!(mount.hear(), "ok");
    assert!(killed.elapsed() < Duration::from_secs(20), "a session is kept for half a minute");
    drop(mount);
    // To the program, its node was started anew.
    let before = session(joined);
    let file = open(&before, &format!("{dir}/kept"));
    file.write_at(&noise(1, 100_000), 0).unwrap();
    file.sync().unwrap();
    file.lock(Region::File, LockKind::Exclusive, None).unwrap();
    let start = Starter::of(first);
    first.kill();
    start.now();
    first.wait("the targets", || up(first).len() == 3);
    assert!(file.unlock(Region::File).is_err(), "a lock outlives its session");
    let after = session(joined);
    let mut found = vec![0; 100_000];
    assert_eq!(open(&after, &format!("{dir}/kept")).read_at(&mut found, 0).unwrap(), found.len());
    assert!(found == noise(1, 100_000));
    drop((before, after));
    first.check();
}
