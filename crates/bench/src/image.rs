//! A new file system in an image file, mounted over a loop device: ext4 and XFS on the same disk, with the same history
//! (none), so that nothing deleted earlier slows one of them down.

use crate::Base;
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How often, and how long apart, unmounting is tried: a thread that has just ended may still be letting go.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// A mounted image; unmounted when dropped.
pub struct Image {
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// Puts this thread, and those it will start, into a mount name space of its own: what is mounted here vanishes with
/// the program, however it ends.
///
/// # Errors
/// Not privileged.
#[allow(unsafe_code)]
pub fn own_mounts() -> Result<()> {
    // SAFETY: only the mount name space is left, file descriptors stay shared with all threads
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.context("leaving the mount name space of this machine")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).context("keeping mounts to ourselves")
}

/// Whether an image of this kind can be made here.
pub fn possible(base: Base) -> bool {
    let has = |program: &str| run(program, &["-V"]).is_ok();
    maker(base).is_some_and(|(program, _)| has(program)) && run("losetup", &["--version"]).is_ok()
}

fn maker(base: Base) -> Option<(&'static str, &'static [&'static str])> {
    match base {
        Base::Directory => None,
        // Everything is written now rather than later in the background, and there is an inode per block.
        Base::Ext4 => Some((
            "mkfs.ext4",
            &[
                "-q",
                "-F",
                "-b",
                "4096",
                "-i",
                "4096",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            ],
        )),
        Base::Xfs => Some(("mkfs.xfs", &["-q", "-f", "-K"])),
    }
}

/// Name of the file system, as mount(8) wants it.
pub fn file_system(base: Base) -> &'static str {
    if base == Base::Xfs { "xfs" } else { "ext4" }
}

impl Image {
    /// Makes an image of `bytes` bytes in `place` and mounts it there.
    ///
    /// # Errors
    /// What mkfs, losetup or mount say.
    pub fn make(place: &Path, base: Base, bytes: u64) -> Result<Self> {
        let (program, options) = maker(base).context("the directory needs no image")?;
        let kind = file_system(base);
        let (file, dir) = (place.join(format!("image-{kind}")), place.join(kind));
        fill(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
        fs::create_dir(&dir)?;
        let mut args: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        args.push(file.as_os_str());
        run(program, &args)?;
        // Past the page cache of the disk's own file system: bytes are cached once, and dropping caches drops them.
        let attach = ["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), file.as_os_str()];
        let device = run("losetup", &attach)?;
        let mounted = mount(device.as_str(), &dir, kind, MountFlags::empty(), None);
        // From now on the device goes with its last user.
        run("losetup", &["--detach", &device])?;
        mounted.with_context(|| format!("mounting {} on {}", file.display(), dir.display()))?;
        Ok(Self { dir })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let mut tries = 0;
        while let Err(error) = unmount(&self.dir, UnmountFlags::empty()) {
            tries += 1;
            if error != Errno::BUSY || tries == BUSY_TRIES {
                return eprintln!("{} stays mounted until this program ends: {error}", self.dir.display());
            }
            std::thread::sleep(BUSY_PAUSE);
        }
    }
}

/// Every block exists before measuring begins, so that the disk's own file system has nothing to allocate.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

/// Runs a program and gives what it printed.
fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program).args(args).env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.with_context(|| format!("{program} could not be started"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
