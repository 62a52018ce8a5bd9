//! Sections read by programs that are not ours: GNU tar, bsdtar (libarchive) and sha256sum.

mod common;

use common::section::{PLACE, head, write};
use format::tar::plan::Plan;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use types::{ClassName, CopyNo, Extent, Ino, TapeFile, Time, Version};

fn file(number: u64, path: &[u8], length: u64) -> TapeFile {
    let time = |offset: i64| Time::new(1_600_000_000 + offset, 123_456_789);
    TapeFile {
        uid: number,
        ino: Ino(number),
        version: Version(1),
        copy: CopyNo(1),
        file_size: length,
        segment_offset: 0,
        segment_length: length,
        extents: vec![Extent { file_offset: 0, start_block: 0, byte_offset: 0, byte_count: length }],
        path: path.to_vec(),
        mode: 0o100_640,
        uid_owner: 1234,
        gid_owner: 5678,
        times: [time(1), time(2), time(3), time(4)],
        digest: None,
        xattrs: Vec::new(),
        class: ClassName("default".to_owned()),
        written: time(5),
        live: true,
        node: Default::default(),
    }
}

fn content(file: &TapeFile) -> Vec<u8> {
    let mut out = vec![0; file.file_size as usize];
    for extent in &file.extents {
        let from = extent.file_offset as usize;
        for (at, slot) in out[from..from + extent.byte_count as usize].iter_mut().enumerate() {
            *slot = (at as u64 * 31 + file.uid) as u8 | 1;
        }
    }
    out
}

/// Files whose names, times, modes, owners, attributes and holes programs trip over.
fn odd_files() -> Vec<TapeFile> {
    let long = [b"/long/".as_slice(), &[b'x'; 120], b"/", &[b'y'; 200], b"/end"].concat();
    let names: [&[u8]; 9] = [
        b"/plain",
        b"/dir/new\nline and space",
        b"/dir/back\\slash",
        b"/dir/\xff\xfe\x80",
        "/dir/e\u{301}\u{1f600}".as_bytes(),
        &long,
        b"/dir/-dash",
        b"/dir/%41=x",
        b"/.hidden",
    ];
    let mut files: Vec<_> = (1..).zip(names).map(|(n, name)| file(n, name, n * 1000 % 4096)).collect();
    files[0].xattrs = vec![
        (b"user.text".to_vec(), b"value".to_vec()),
        (b"user.bytes".to_vec(), (0..=255).collect()),
        (b"user.odd=100%".to_vec(), b"not for tar".to_vec()),
    ];
    files[1].times[1] = Time::new(-2, 500_000_000);
    files[2].mode = 0o104_755;
    (files[3].uid_owner, files[3].gid_owner) = (3_000_000_000, 2_999_999_999);
    let piece = |at, count| Extent { file_offset: at, start_block: 0, byte_offset: 0, byte_count: count };
    let mut sparse = file(20, b"/dir/sparse", 3_000_001);
    sparse.extents = vec![piece(0, 10), piece(1_000_000, 5000), piece(3_000_000, 1)];
    let mut ends_in_a_hole = file(21, b"/dir/\xffhole", 1_000_000);
    ends_in_a_hole.extents = vec![piece(4096, 4096)];
    let mut only_a_hole = file(22, b"/only-a-hole", 12_345);
    only_a_hole.extents.clear();
    files.extend([sparse, ends_in_a_hole, only_a_hole, file(23, b"/dir/empty", 0)]);
    files
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Extracts with each program into a directory of its own, in the locale of programs and in UTF-8.
fn extracted(dir: &Path, archive: &Path) -> Vec<(String, PathBuf)> {
    let judges: [(&str, &[&str]); 2] =
        [("tar", &["--xattrs", "--xattrs-include=*", "--warning=no-unknown-keyword"]), ("bsdtar", &[])];
    let mut out = Vec::new();
    for (program, flags) in judges {
        for locale in ["C", "C.UTF-8"] {
            let to = dir.join(format!("{program}-{locale}"));
            std::fs::create_dir(&to).unwrap();
            let mut command = Command::new(program);
            command
                .env("LC_ALL", locale)
                .args(flags)
                .args(["--numeric-owner", "-xpf"])
                .arg(archive)
                .arg("-C")
                .arg(&to);
            run(&mut command);
            out.push((format!("{program} in {locale}"), to));
        }
    }
    out
}

fn compare(judge: &str, at: &Path, file: &TapeFile) {
    let path = at.join(OsStr::from_bytes(&file.path[1..]));
    let meta = std::fs::metadata(&path).unwrap_or_else(|e| panic!("{judge}: {}: {e}", path.display()));
    let what = format!("{judge}: {}", path.display());
    assert!(std::fs::read(&path).unwrap() == content(file), "{what}: content");
    assert_eq!(meta.mode(), file.mode, "{what}");
    let mtime = file.times[1];
    // libarchive 3.6 adds the fraction of a time before 1970 instead of taking it off.
    if mtime.secs >= 0 || mtime.nanos == 0 || !judge.starts_with("bsdtar") {
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (mtime.secs, mtime.nanos.into()), "{what}");
    }
    if rustix::process::geteuid().is_root() {
        assert_eq!((meta.uid(), meta.gid()), (file.uid_owner, file.gid_owner), "{what}");
    }
    for (name, value) in file.xattrs.iter().filter(|(name, _)| !name.contains(&b'=')) {
        let mut buffer = vec![0; 1000];
        let length = rustix::fs::getxattr(&path, OsStr::from_bytes(name), &mut buffer);
        let length = length.unwrap_or_else(|e| panic!("{what}: {}: {e}", name.escape_ascii()));
        assert_eq!(&buffer[..length], value, "{what}: {}", name.escape_ascii());
    }
}

#[test]
fn tar_and_bsdtar_extract_names_modes_owners_times_attributes_and_holes() {
    let dir = tempfile::tempdir().unwrap();
    let files = odd_files();
    let plan = Plan::new(head(), files.clone(), PLACE).unwrap();
    let contents: Vec<_> = files.iter().map(content).collect();
    let archive = dir.path().join("section.tar");
    std::fs::write(&archive, write(&plan, &contents)).unwrap();
    for (judge, at) in extracted(dir.path(), &archive) {
        for file in &files {
            compare(&judge, &at, file);
        }
        let holey = std::fs::metadata(at.join("dir/sparse")).unwrap();
        assert!(holey.blocks() * 512 < 1_000_000, "{judge}: a hole was written");
        let sums = ".thermocline/section-0000000001.sha256";
        run(Command::new("sha256sum").current_dir(&at).args(["--check", "--strict", "--quiet", sums]));
    }
}

#[test]
fn ten_thousand_small_files() {
    let memory = Path::new("/dev/shm"); // where there is one, small files cost little
    let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(at).unwrap();
    let path = |n: u64| format!("/data/{:02}/file-{n:05}", n % 100).into_bytes();
    let files: Vec<_> = (0..10_000).map(|n| file(n, &path(n), n % 700)).collect();
    let plan = Plan::new(head(), files.clone(), PLACE).unwrap();
    let contents: Vec<_> = files.iter().map(content).collect();
    let archive = dir.path().join("section.tar");
    std::fs::write(&archive, write(&plan, &contents)).unwrap();
    for (program, flags) in [("tar", &["--warning=no-unknown-keyword"][..]), ("bsdtar", &[])] {
        let to = dir.path().join(program);
        std::fs::create_dir(&to).unwrap();
        run(Command::new(program).args(flags).arg("-xf").arg(&archive).arg("-C").arg(&to));
        for (file, content) in files.iter().zip(&contents) {
            assert!(std::fs::read(to.join(OsStr::from_bytes(&file.path[1..]))).unwrap() == *content);
        }
    }
}

#[test]
fn members_beyond_eight_gibibytes_are_listed_with_their_size() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("section.tar");
    let plan = Plan::new(head(), vec![file(1, b"/huge", 9 << 30), file(2, b"/behind", 77)], PLACE).unwrap();
    let out = std::fs::File::create(&archive).unwrap();
    let put = |bytes: &[u8], at: u64| std::os::unix::fs::FileExt::write_all_at(&out, bytes, at).unwrap();
    put(plan.front(), 0);
    for entry in plan.entries() {
        put(&plan.head(entry), entry.offset);
    }
    let back = plan.back(&[]);
    put(&back, plan.length() - back.len() as u64);
    for (program, flags) in [("tar", &["--warning=no-unknown-keyword"][..]), ("bsdtar", &[])] {
        let output = Command::new(program)
            .args(flags)
            .args(["--numeric-owner", "-tvf"])
            .arg(&archive)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains(" 9663676416 ") && text.contains("behind"),
            "{program}: {text}"
        );
    }
}
