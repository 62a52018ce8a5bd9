//! Where tests write: a file system of their own in memory, if there can be one. They make and remove many thousands of files, and on a file
//! system without a journal (as machines for tests often have) ext4 looks for each new one through all that were removed in the last seconds; half of
//! the time of all tests went there. It is ext4 all the same, since tests compare with it what the mount does.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where files are memory.
const MEMORY: &str = "/dev/shm";
/// What the file system has (bytes); tests take half of it.
const BYTES: u64 = 8 << 30;
/// Memory that must be free besides (bytes): the tests' programs need it.
const BESIDES: u64 = 4 << 30;

/// Names of directories where one is mounted, in the directory for temporary files: paths of sockets must be short.
const NAME: &str = "thermo-tests-";

/// A mounted file system, gone when this is dropped.
#[derive(Debug)]
pub struct Room {
    at: PathBuf,
    /// Locked as long as this program runs.
    _lock: File,
}

impl Room {
    /// Mounts one; what interrupted runs have left is unmounted.
    ///
    /// # Errors
    /// Little memory, no rights to mount, no loop devices. Nothing is left then.
    pub fn new() -> Result<Self> {
        let place = std::env::temp_dir();
        tidy(&place)?;
        let (free, allowed) = (available(&fs::read_to_string("/proc/meminfo")?), allowed());
        let free = free.context("/proc/meminfo")?.min(allowed.unwrap_or(u64::MAX));
        ensure!(
            free >= BYTES + BESIDES,
            "{free} bytes of memory are free, and {} are wanted",
            BYTES + BESIDES
        );
        let room = run("df", &["--output=avail", "-B1", MEMORY])?;
        let room: u64 = room.lines().nth(1).and_then(|n| n.trim().parse().ok()).context("df")?;
        ensure!(room >= BYTES, "{MEMORY} has room for {room} bytes, and {BYTES} are wanted");
        let at = place.join(format!("{NAME}{}", std::process::id()));
        let lock = File::create_new(lock_of(&at)).with_context(|| at.display().to_string())?;
        lock.try_lock().with_context(|| at.display().to_string())?;
        let room = Self { at, _lock: lock };
        let image = image_of(&room.at);
        let made = Self::make(&image, &room.at);
        // The device keeps it as long as it is mounted.
        let _ = fs::remove_file(&image);
        made.map(|()| room)
    }

    fn make(image: &Path, at: &Path) -> Result<()> {
        // Nobody else has made it, or a link, before.
        fs::create_dir(at).with_context(|| at.display().to_string())?;
        File::create_new(image)
            .and_then(|file| file.set_len(BYTES))
            .with_context(|| image.display().to_string())?;
        // What it has on disk need not last, and what is removed is to be free memory again.
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=1,nodiscard", text(image)?])?;
        let device = run("losetup", &["--find", "--show", text(image)?])?;
        // Not twice in memory, where the kernel can do without.
        let _ = run("losetup", &["--direct-io=on", device.trim()]);
        let options = "nobarrier,noauto_da_alloc,discard";
        let mounted = run("mount", &["-t", "ext4", "-o", options, device.trim(), text(at)?]);
        // The device goes with its last user.
        run("losetup", &["--detach", device.trim()])?;
        mounted?;
        run("chmod", &["1777", text(at)?])?;
        Ok(())
    }

    /// Its directory, which everybody may write.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        remove(&self.at);
    }
}

/// Removes what runs have left whose program is gone.
fn tidy(place: &Path) -> Result<()> {
    for entry in fs::read_dir(place).with_context(|| place.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(NAME) || !name.ends_with(".lock") {
            continue;
        }
        // Nobody else's, and no link to anywhere.
        let own = |path: &Path| {
            let found = fs::symlink_metadata(path);
            found.is_ok_and(|found| {
                !found.is_symlink() && found.uid() == fs::metadata("/proc/self").map_or(0, |own| own.uid())
            })
        };
        let at = path.with_extension("");
        if !own(&path) || fs::symlink_metadata(&at).is_ok() && !own(&at) {
            continue;
        }
        let lock = File::open(&path);
        if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove(&at);
        }
    }
    Ok(())
}

fn lock_of(at: &Path) -> PathBuf {
    at.with_extension("lock")
}

fn image_of(at: &Path) -> PathBuf {
    Path::new(MEMORY).join(at.file_name().unwrap_or_default())
}

/// Unmounts it, though a test may have left something behind that has a file open.
fn remove(at: &Path) {
    let _ = run("umount", &["--lazy", &at.to_string_lossy()]);
    let _ = fs::remove_dir(at);
    let _ = fs::remove_file(image_of(at));
    let _ = fs::remove_file(lock_of(at));
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn run(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("{program} could not be started"))?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} {}: {}", words.join(" "), why.trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Memory that a container may take (bytes); None: it has no bound, or tells none.
fn allowed() -> Option<u64> {
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

/// Memory that programs can have (bytes), as proc(5) has it in `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_ext4_and_leaves_nothing_behind() {
        let room = match Room::new() {
            Ok(room) => room,
            Err(why) => return println!("LEFT OUT: {why:#}"),
        };
        let at = room.path().to_owned();
        let mounted = || run("findmnt", &["-n", "-o", "FSTYPE", text(&at).unwrap()]);
        assert_eq!(mounted().unwrap().trim(), "ext4");
        fs::write(at.join("file"), b"here").unwrap();
        tidy(at.parent().unwrap()).unwrap();
        assert_eq!(fs::read(at.join("file")).unwrap(), b"here", "it is in use");
        // A run that was killed: nobody holds the lock.
        let lock = lock_of(&at);
        room._lock.unlock().unwrap();
        tidy(at.parent().unwrap()).unwrap();
        assert!(mounted().is_err() && !at.exists() && !lock.exists());
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:   24117248 kB\n"), Some(24_117_248 << 10));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
        assert_eq!(available("MemAvailable: much\n"), None);
    }
}
