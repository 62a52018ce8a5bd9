//! The native library against a real node: files do what a plain list of bytes does, whichever way the bytes go.

use client::ClientError;
use client::native::{File, OpenOptions, Options, Session, Stride};
use e2e::{Bed, noise};
use std::io::{IoSlice, IoSliceMut};
use std::process::Command;
use types::{FsError, RenameMode, Residency};

const MB: usize = 1 << 20;
const CONFIG: &str = "[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";

fn session(bed: &Bed, options: Options) -> Session {
    Session::connect_with(&bed.state().join("control.sock"), options).unwrap()
}

fn ways() -> [(&'static str, Options); 4] {
    let served = || Options { descriptors: false, ..Options::default() };
    [
        ("descriptors", Options::default()),
        ("connections", served()),
        ("nothing ahead or behind", Options { read_ahead: 0, write_behind: 0, ..served() }),
        ("little ahead and behind", Options { read_ahead: 2 * MB, write_behind: MB, streams: 2, ..served() }),
    ]
}

/// The next of a sequence that the seed determines.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 29)) as usize % limit
    }
}

fn put(model: &mut Vec<u8>, data: &[u8], offset: usize) {
    model.resize(model.len().max(offset + data.len()), 0);
    model[offset..offset + data.len()].copy_from_slice(data);
}

fn part(model: &[u8], offset: usize, len: usize) -> &[u8] {
    &model[offset.min(model.len())..(offset + len).min(model.len())]
}

/// Writes, and reads four pieces at once.
fn asynchronously(file: &File, model: &[u8], data: &[u8], at: usize) -> Result<(), ClientError> {
    file.write_async(data.to_vec(), at as u64)?.wait()?;
    let offsets = [at, at + 700, at + 1400, at + 2100];
    let asked: Vec<_> = offsets.map(|offset| file.read_async(offset as u64, 1000)).into();
    for (offset, pending) in offsets.into_iter().zip(asked) {
        assert!(pending?.wait()? == part(model, offset, 1000), "asynchronous read at {offset}");
    }
    Ok(())
}

/// A few hundred calls of every kind, mostly small, some longer than what travels at once, some one after the other.
fn trial(session: &Session, name: &str, seed: u64) {
    let mut dice = Dice(seed);
    let both = OpenOptions::new().read(true).write(true);
    let mut file = session.open(name, both.create(0o640)).unwrap();
    let mut model = Vec::new();
    let mut next = 0;
    for call in 0..300 {
        let at = |dice: &mut Dice| if dice.below(3) == 0 { next } else { dice.below(4 * MB) };
        let len = |dice: &mut Dice| if dice.below(8) == 0 { dice.below(3 * MB) } else { dice.below(9000) };
        let told = format!("{name}, seed {seed}, call {call}");
        match dice.below(12) {
            0..4 => {
                let (at, data) = (at(&mut dice), noise(seed + call, len(&mut dice)));
                file.write_at(&data, at as u64).expect(&told);
                put(&mut model, &data, at);
                next = at + data.len();
            }
            4..8 => {
                let (at, mut buffer) = (at(&mut dice), vec![1; len(&mut dice)]);
                let n = file.read_at(&mut buffer, at as u64).expect(&told);
                assert!(buffer[..n] == *part(&model, at, buffer.len()), "{told}: read {n} at {at}");
                next = at + n;
            }
            8 => {
                let stride = Stride {
                    offset: at(&mut dice) as u64,
                    block: 1 + dice.below(5000),
                    step: 5003,
                    count: 20,
                };
                let data = noise(seed ^ call, 20 * stride.block);
                file.write_strided(stride, &data).expect(&told);
                for (offset, block) in stride.offsets().zip(data.chunks(stride.block)) {
                    put(&mut model, block, offset as usize);
                }
                let mut back = vec![0; data.len()];
                assert_eq!(file.read_strided(stride, &mut back).expect(&told), data.len());
                assert!(back == data, "{told}: strided");
            }
            9 => {
                let (at, data) = (at(&mut dice), noise(seed + call, len(&mut dice)));
                put(&mut model, &data, at);
                asynchronously(&file, &model, &data, at).expect(&told);
            }
            10 => {
                let len = dice.below(4 * MB);
                file.set_len(len as u64).expect(&told);
                model.resize(len, 0);
                assert_eq!(file.len().expect(&told), len as u64, "{told}");
            }
            _ => {
                file.close().expect(&told);
                assert_eq!(session.stat(name).expect(&told).size, model.len() as u64, "{told}");
                file = session.open(name, both).expect(&told);
            }
        }
    }
    file.sync().unwrap();
    file.close().unwrap();
    let file = session.read(name).unwrap();
    let (mut first, mut rest) = (vec![0; 1000], vec![0; model.len() + 5]);
    let n = file.read_vectored_at(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)], 0).unwrap();
    first.extend(rest);
    assert!(first[..n] == model, "{name}, seed {seed}: at the end");
}

#[test]
fn files_do_what_a_list_of_bytes_does_whichever_way_they_go() {
    let bed = Bed::new(CONFIG);
    bed.up();
    for (way, options) in ways() {
        let session = session(&bed, options);
        for seed in 1..4 {
            trial(&session, &format!("/{way} {seed}"), seed);
        }
    }
    bed.check();
}

/// What one session has flushed the other sees, and both see what the mountless commands do.
#[test]
fn flushed_bytes_are_seen_by_others_and_appends_do_not_meet() {
    let bed = Bed::new(CONFIG);
    bed.up();
    let (here, there) = (session(&bed, Options::default()), session(&bed, ways()[1].1.clone()));
    let create = OpenOptions::new().write(true).create(0o644);
    let writer = there.open("/shared", create).unwrap();
    writer.write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")], 3).unwrap();
    writer.flush().unwrap();
    let reader = here.read("/shared").unwrap();
    let mut buffer = [9; 10];
    assert_eq!(reader.read_at(&mut buffer, 0).unwrap(), 7);
    assert_eq!(buffer[..7], *b"\0\0\0abcd");
    let ends: Vec<_> = [&here, &there].map(|s| s.open("/log", create.append(true)).unwrap()).into();
    std::thread::scope(|scope| {
        for (n, end) in ends.iter().enumerate() {
            scope.spawn(move || (0..200).for_each(|_| end.write_at(&[b'0' + n as u8; 100], 0).unwrap()));
        }
    });
    drop(ends);
    let (log, mut all) = (here.read("/log").unwrap(), vec![0; 50_000]);
    assert_eq!(log.read_at(&mut all, 0).unwrap(), 40_000);
    assert!(all[..40_000].chunks(100).all(|line| line.iter().all(|b| *b == line[0])));
}

#[test]
fn names_and_attributes() {
    let bed = Bed::new(CONFIG);
    bed.up();
    let s = session(&bed, Options::default());
    s.mkdir("/d", 0o751).unwrap();
    s.mkdir("/d/e", 0o700).unwrap();
    s.symlink("e", "/d/link").unwrap();
    assert_eq!(s.readlink("/d/link").unwrap(), b"e");
    s.open("/d/link/f", OpenOptions::new().write(true).create_new(0o604)).unwrap().close().unwrap();
    assert_eq!((s.stat("/d/e/f").unwrap().mode, s.lstat("/d/link").unwrap().size), (0o604, 1));
    let reason = |e: client::ClientError| match e {
        client::ClientError::Refused(failure) => (failure.fs.unwrap(), failure.message),
        other => panic!("{other}"),
    };
    let (why, text) = reason(s.open("/d/e/f", OpenOptions::new().write(true).create_new(0o600)).unwrap_err());
    assert!(why == FsError::Exists && text.starts_with("/d/e/f: "), "{why:?} {text}");
    assert_eq!(reason(s.read("/d/none").unwrap_err()).0, FsError::NotFound);
    assert_eq!(reason(s.rmdir("/d").unwrap_err()).0, FsError::NotEmpty);
    assert_eq!(reason(s.read("/d").unwrap_err()).0, FsError::IsADirectory);
    let file = s.read("/d/e/f").unwrap();
    assert_eq!(reason(file.write_at(b"x", 0).unwrap_err()).0, FsError::BadHandle);
    s.link("/d/e/f", "/g").unwrap();
    assert_eq!(reason(s.rename("/g", "/d/link", RenameMode::NoReplace).unwrap_err()).0, FsError::Exists);
    s.rename("/g", "/d/h", RenameMode::Replace).unwrap();
    s.set_xattr("/d/h", b"user.colour", b"blue").unwrap();
    assert!(s.xattrs("/d/e/f").unwrap().contains(&(b"user.colour".to_vec(), b"blue".to_vec())));
    s.remove_xattr("/d/h", b"user.colour").unwrap();
    s.unlink("/d/h").unwrap();
    for n in 0..2500 {
        s.symlink("nowhere", format!("/d/e/{n}")).unwrap();
    }
    let (mut after, mut names) = (0, Vec::new());
    loop {
        let page = s.read_dir("/d/e", after).unwrap();
        let Some((last, _)) = page.last() else { break };
        after = last.cookie;
        names.extend(page.into_iter().map(|(entry, _)| entry.name));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2501);
    s.sync().unwrap();
}

/// Reading what is only on tape waits for it, and names stay free for others meanwhile.
#[test]
fn files_on_tape_come_back_by_being_read() {
    let bed = Bed::new(CONFIG);
    bed.up();
    let s = session(&bed, Options::default());
    let data = noise(7, 20 * MB);
    let file = s.open("/tape", OpenOptions::new().write(true).create(0o644)).unwrap();
    assert!(file.is_direct());
    file.write_at(&data, 0).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    bed.ok(["migrate", "--wait", "tc:/tape"]);
    bed.ok(["purge", "--wait", "tc:/tape"]);
    assert_eq!(s.state("/tape").unwrap().residency, Some(Residency::Offline));
    let nonblock = s.open("/tape", OpenOptions::new().read(true).nonblock(true)).unwrap();
    assert!(!nonblock.is_direct());
    let again = s.read("/tape").unwrap();
    let (mut got, mut buffer) = (Vec::new(), vec![0; 300_000]);
    loop {
        let n = again.read_at(&mut buffer, got.len() as u64).unwrap();
        assert!(s.stat("/tape").is_ok());
        if n == 0 {
            break;
        }
        got.extend_from_slice(&buffer[..n]);
    }
    assert!(got == data);
    bed.wait("the file to be on disk", || s.state("/tape").unwrap().residency == Some(Residency::Dual));
    drop((nonblock, again));
    bed.check();
}

/// The C library, as a stranger builds a program with it, and the Python module with the test that comes with it.
/// A session that waits for a node that is started anew: what it had open belongs to the node before, whose numbers are given to other files.
#[test]
fn handles_from_before_a_restart_of_the_node_are_stale_and_mean_no_other_file() {
    let bed = Bed::new(CONFIG);
    bed.up();
    let session =
        session(&bed, Options { patience: std::time::Duration::from_secs(30), ..Options::default() });
    let both = OpenOptions::new().read(true).write(true);
    let open = |name: &str| session.open(name, both.create(0o644)).unwrap();
    let before: Vec<File> = (0..8).map(|n| open(&format!("/before-{n}"))).collect();
    bed.kill();
    bed.up();
    session.stat("/").unwrap();
    let after: Vec<File> = (0..8).map(|n| open(&format!("/after-{n}"))).collect();
    for file in &before {
        let refused = file.sync().unwrap_err();
        assert!(matches!(&refused, ClientError::Refused(f) if f.fs == Some(FsError::Stale)), "{refused}");
    }
    drop(before);
    for file in after {
        file.write_at(b"here", 0).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
    }
    bed.check();
}

#[test]
fn a_c_program_and_python_use_the_installed_library() {
    let bed = Bed::new(&format!("locks = true\n{CONFIG}"));
    bed.up();
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libthermo.so");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi");
    let prefix = bed.path("prefix");
    let run = |command: &mut Command| {
        let out = command.output().expect("it starts");
        let (said, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{command:?}: {said}{why}");
        said.into_owned()
    };
    run(Command::new(source.join("install")).arg(&prefix).env("LIBTHERMO", &library));
    assert!(prefix.join("lib/libthermo_preload.so").exists());
    let pkgconfig = prefix.join("lib/pkgconfig");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "libthermo"])
        .env("PKG_CONFIG_PATH", &pkgconfig));
    let [fetch, count] = ["fetch", "count"].map(|name| {
        let program = bed.path(name);
        run(Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE"])
            .arg(source.join(format!("examples/{name}.c")))
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&program));
        program
    });
    // The header is C++ too.
    let header = bed.path("header.cc");
    std::fs::write(&header, "#include <thermo.h>\nint main() { return thermo_error() == nullptr; }\n")
        .unwrap();
    run(Command::new("c++")
        .args(["-Wall", "-Werror"])
        .arg(&header)
        .args(flags.split_whitespace())
        .args(["-o".as_ref(), bed.path("header").as_os_str()]));

    let data = noise(3, 5 * MB + 17);
    std::fs::write(bed.path("data"), &data).unwrap();
    bed.ok(["put".as_ref(), bed.path("data").as_os_str(), "tc:/data".as_ref()]);
    bed.ok(["migrate", "--wait", "tc:/data"]);
    bed.ok(["purge", "--wait", "tc:/data"]);
    let (socket, lib) = (bed.state().join("control.sock"), prefix.join("lib"));
    run(Command::new(&fetch).arg(&socket).arg("/data").arg(bed.path("back")).env("LD_LIBRARY_PATH", &lib));
    assert!(std::fs::read(bed.path("back")).unwrap() == data);
    let missing =
        Command::new(&fetch).arg(&socket).args(["/none", "x"]).env("LD_LIBRARY_PATH", &lib).output().unwrap();
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && said.contains("/none: no such file"), "{said}");

    let counting = || {
        let words = [socket.as_os_str(), "/count".as_ref(), "50".as_ref()];
        Command::new(&count).args(words).env("LD_LIBRARY_PATH", &lib).spawn().unwrap()
    };
    let counts = [(); 4].map(|()| counting());
    counts.into_iter().for_each(|mut count| assert!(count.wait().unwrap().success()));
    bed.ok(["get".as_ref(), "tc:/count".as_ref(), bed.path("count.txt").as_os_str()]);
    assert_eq!(std::fs::read(bed.path("count.txt")).unwrap(), b"200");

    bed.ok(["purge", "--wait", "tc:/data"]);
    run(Command::new("python3")
        .arg(source.join("python/test_thermocline.py"))
        .env("PYTHONPATH", prefix.join("share/thermo/python"))
        .env("LIBTHERMO", lib.join("libthermo.so.0"))
        .env("THERMO_SOCKET", &socket));
    bed.check();
}
