//! A file system on a recording disk, and what a power failure leaves of it.

use super::device::{Entry, Record, Recorder};
use super::dice::Dice;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What a disk writes as a whole or not at all (bytes).
const SECTOR: usize = 512;
/// Size of the disk (bytes); what is not written takes no space.
const SIZE: u64 = 1 << 30;

/// A file system to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 as `mkfs.ext4` makes it.
    Ext4,
    /// XFS as `mkfs.xfs` makes it.
    Xfs,
}

impl FileSystem {
    fn make(self, image: &Path) -> io::Result<()> {
        match self {
            Self::Ext4 => run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()]),
            Self::Xfs => run("mkfs.xfs", ["-q".as_ref(), "-f".as_ref(), image.as_os_str()]),
        }
    }

    /// Whether this machine can make it on a loop device; if not, says so.
    pub fn is_there(self) -> bool {
        let made = run(&format!("mkfs.{}", self.kind()), ["-V"]).is_ok();
        let there = made && Path::new("/dev/loop-control").exists();
        if !there {
            eprintln!("LEFT OUT: it needs mkfs.{} and loop devices", self.kind());
        }
        there
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Options of its mounts. A program that was started meanwhile in a mount namespace of its own may hold an earlier mount of the same UUID a moment longer.
    fn options(self) -> &'static str {
        match self {
            Self::Ext4 => "rw",
            Self::Xfs => "rw,nouuid",
        }
    }
}

/// Runs a system tool; its message becomes the error.
fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> io::Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output =
        Command::new(program).args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{program}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )))
}

/// A mounted file system; unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn loop_mount(image: &Path, at: &Path, kind: FileSystem, direct: bool) -> io::Result<Self> {
        let setup = |direct: &str| {
            let mut command = Command::new("losetup");
            command.args([direct, "--show", "-f"]).arg(image);
            command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
            command.output()
        };
        let output = setup(if direct { "--direct-io=on" } else { "--direct-io=off" })?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || device.is_empty() {
            return Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let how = ["-t", kind.kind(), "-o", kind.options(), &device].map(OsStr::new);
        let mounted = run("mount", how.into_iter().chain([at.as_os_str()]));
        // The device goes with the last user: with the mount, or now.
        run("losetup", ["-d", &device])?;
        mounted.map(|()| Self(at.to_path_buf()))
    }

    fn unmount(self) -> io::Result<()> {
        let at = self.0.clone();
        std::mem::forget(self);
        // A process that was just killed may still be letting go.
        patiently(|| run("umount", [at.as_os_str()]))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", ["-l".as_ref(), self.0.as_os_str()]);
    }
}

/// A file system in use on a recording disk, mounted at `<dir>/disk`.
pub struct RecordedDisk {
    // In the order of dropping.
    mounted: Mounted,
    recorder: Recorder,
    file_system: FileSystem,
    dir: PathBuf,
}

impl RecordedDisk {
    /// Makes it, with everything it needs, in the existing directory `dir`.
    pub fn start(dir: &Path, file_system: FileSystem) -> io::Result<Self> {
        let (disk, device, at) = (dir.join("disk.img"), dir.join("device"), dir.join("disk"));
        File::create(&disk)?.set_len(SIZE)?;
        file_system.make(&disk)?;
        copy_sparse(&disk, &dir.join("base.img"))?;
        fs::create_dir(&device)?;
        fs::create_dir(&at)?;
        let recorder = Recorder::start(&disk, &dir.join("record"), &device)?;
        let mounted = Mounted::loop_mount(&recorder.image(), &at, file_system, true)?;
        Ok(Self { mounted, recorder, file_system, dir: dir.into() })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// Length of the record, as it grows.
    pub fn position(&self) -> Arc<AtomicU64> {
        self.recorder.position()
    }

    /// Ends the recording. Nothing may use the file system any more.
    pub fn finish(self) -> io::Result<Failures> {
        let Self { mounted, recorder, file_system, dir } = self;
        mounted.unmount()?;
        let image = recorder.image();
        // The loop device is given up a moment after the unmount.
        wait_until_free(&image)?;
        let record = recorder.finish()?;
        fs::remove_file(dir.join("disk.img"))?;
        let base = File::options().read(true).write(true).open(dir.join("base.img"))?;
        Ok(Failures { dir, base, applied: 0, record, file_system })
    }
}

fn wait_until_free(image: &Path) -> io::Result<()> {
    patiently(|| {
        let used = fs::read_dir("/sys/block")?.filter_map(Result::ok).any(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            backing.is_ok_and(|file| Path::new(file.trim_end()) == image)
        });
        let stays = || io::Error::other(format!("{}: its loop device stays in use", image.display()));
        if used { Err(stays()) } else { Ok(()) }
    })
}

/// Tries until it succeeds, at most two minutes; then the last error.
fn patiently(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match attempt() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            last => return last,
        }
    }
}

fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    run("cp", ["--sparse=always".as_ref(), "--".as_ref(), from.as_os_str(), to.as_os_str()])
}

/// Power failures at any moment of a recording, to be asked for in the order of time.
pub struct Failures {
    dir: PathBuf,
    base: File,
    /// Entries that are in `base`.
    applied: usize,
    record: Record,
    file_system: FileSystem,
}

/// The file system after a power failure, mounted at `<dir>/disk`, with its journal replayed.
pub struct Survivor {
    mounted: Option<Mounted>,
    image: PathBuf,
}

impl Failures {
    /// Number of moments: a failure may come after so many entries of the record.
    pub fn moments(&self) -> u64 {
        self.record.entries.len() as u64
    }

    /// Number of flushes.
    pub fn flushes(&self) -> u64 {
        self.record.entries.iter().filter(|e| **e == Entry::Flush).count() as u64
    }

    /// Random moments in the order of time; half of them as late before a flush as can be, when most is at stake.
    pub fn choose(&self, count: u64, dice: &mut Dice) -> Vec<u64> {
        let flushes: Vec<u64> =
            (0..self.moments()).filter(|n| self.record.entries[*n as usize] == Entry::Flush).collect();
        let mut moments: Vec<u64> = (0..count)
            .map(|_| {
                let any = dice.below(self.moments() + 1);
                if dice.chance(50) { *dice.pick(&flushes).unwrap_or(&any) } else { any }
            })
            .collect();
        moments.sort_unstable();
        moments
    }

    /// The power fails after `moment` entries; the moments of one recording must ascend. What was written since the last
    /// flush is there or not, sector by sector.
    pub fn at(&mut self, moment: u64, dice: &mut Dice) -> io::Result<Survivor> {
        let entries = &self.record.entries[..moment as usize];
        let flushed = entries.iter().rposition(|e| *e == Entry::Flush).map_or(0, |n| n + 1);
        for entry in &self.record.entries[self.applied..flushed.max(self.applied)] {
            self.write(entry, &self.base, |_| true)?;
        }
        self.applied = self.applied.max(flushed);
        let image = self.dir.join("after.img");
        copy_sparse(&self.dir.join("base.img"), &image)?;
        let after = File::options().write(true).open(&image)?;
        let kept = [0, 10, 50, 90, 100][dice.below(5) as usize];
        let torn = dice.chance(50);
        for entry in &entries[flushed..] {
            let whole = dice.chance(kept);
            self.write(entry, &after, |_| if torn { dice.chance(kept) } else { whole })?;
        }
        drop(after);
        let at = self.dir.join("disk");
        let mounted = Mounted::loop_mount(&image, &at, self.file_system, false)?;
        Ok(Survivor { mounted: Some(mounted), image })
    }

    fn write(&self, entry: &Entry, to: &File, mut keep: impl FnMut(usize) -> bool) -> io::Result<()> {
        let Entry::Write { offset, at, length } = *entry else { return Ok(()) };
        let mut data = vec![0; length as usize];
        self.record.bytes.read_exact_at(&mut data, at)?;
        // Runs of sectors that are kept are written together.
        let sectors: Vec<bool> = (0..data.len().div_ceil(SECTOR)).map(&mut keep).collect();
        let mut done = 0;
        for run in sectors.chunk_by(|a, b| a == b) {
            let bytes = (run.len() * SECTOR).min(data.len() - done);
            if run[0] {
                to.write_all_at(&data[done..done + bytes], offset + done as u64)?;
            }
            done += bytes;
        }
        Ok(())
    }
}

impl Survivor {
    /// Unmounts it and throws it away.
    pub fn finish(mut self) -> io::Result<()> {
        let unmounted = self.mounted.take().map_or(Ok(()), Mounted::unmount);
        unmounted.and_then(|()| fs::remove_file(&self.image))
    }
}
