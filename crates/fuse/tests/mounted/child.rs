//! What must run in another process than the one that serves the mount: mappings (a fault holds the address space),
//! other users, record locks. The test binary calls itself.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts this binary to do `task` on `path`.
pub fn start(task: &str, path: &Path, uid: u32) -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::child", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("FUSE_TEST_TASK", task).env("FUSE_TEST_PATH", path);
    command.stdout(Stdio::null());
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    command.spawn().unwrap()
}

/// Does `task` on `path` as `uid` and says whether it did what it should.
pub fn run(task: &str, path: &Path, uid: u32) -> bool {
    start(task, path, uid).wait().unwrap().success()
}

#[test]
#[ignore = "runs only as a child of other tests"]
fn child() {
    let Ok(task) = std::env::var("FUSE_TEST_TASK") else { return };
    let path = std::env::var_os("FUSE_TEST_PATH").unwrap();
    let path = Path::new(&path);
    match task.as_str() {
        "map-read" => map_read(path, b"mapped content"),
        "map-write" => map_write(path),
        "lock-busy" => assert!(!lock(path, libc::F_SETLK), "the range must be locked by the parent"),
        "lock-free" => assert!(lock(path, libc::F_SETLK), "the range must be free"),
        "flock-busy" => assert!(!flock(path)),
        "flock-free" => assert!(flock(path)),
        "append-as-user" => {
            use std::io::Write;
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        }
        "append-until-set-id" => {
            use std::io::Write;
            use std::os::unix::fs::MetadataExt;
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"x").unwrap();
            while file.metadata().unwrap().mode() & 0o6000 == 0 {
                std::thread::yield_now();
            }
            file.write_all(b"y").unwrap();
        }
        "denied" => assert_eq!(crate::errno(File::open(path)), libc::EACCES),
        "read-as-user" => assert!(File::open(path).unwrap().read(&mut [0; 4]).unwrap() > 0),
        other => panic!("no task {other}"),
    }
}

fn map(file: &File, len: usize, protection: i32, flags: i32) -> *mut u8 {
    // SAFETY: a fresh mapping of `len` bytes
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at.cast()
}

fn map_read(path: &Path, expected: &[u8]) {
    let file = File::open(path).unwrap();
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let at = map(&file, 4096, libc::PROT_READ, flags);
        // SAFETY: the mapping is 4096 bytes long and stays
        assert_eq!(unsafe { std::slice::from_raw_parts(at, expected.len()) }, expected);
    }
}

fn map_write(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let at = map(&file, 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: the mapping is 4096 bytes long and stays
    unsafe {
        at.add(1).write_volatile(b'M');
        assert_eq!(libc::msync(at.cast(), 4096, libc::MS_SYNC), 0);
    }
}

/// Tries to lock bytes 10 to 19 for writing.
pub fn lock_file(file: &File, command: i32) -> bool {
    // SAFETY: all zeros is a valid flock
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    (range.l_type, range.l_start, range.l_len) = (libc::F_WRLCK as i16, 10, 10);
    // SAFETY: a valid descriptor and a valid flock
    unsafe { libc::fcntl(file.as_raw_fd(), command, &range) == 0 }
}

fn lock(path: &Path, command: i32) -> bool {
    lock_file(&OpenOptions::new().read(true).write(true).open(path).unwrap(), command)
}

fn flock(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}
