//! Mounting, unmounting, and what an earlier daemon may have left behind.
//!
//! mount(2) is called here: the protocol crate (0.18.0) does not escape options, and may unmount a path that is no longer
//! its own.

use crate::config::MountOptions;
use crate::error::MountError;
use crate::gateway::{Core, Gateway};
use crate::place::{self, Place};
use crate::tree;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno as Sys;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use types::api::FileApi;

/// Read-ahead of the mount, for files that the daemon serves (passthrough files have that of the disk below).
const READ_AHEAD_KIB: u32 = 1024;
/// How often, and how long apart, a busy unmount is tried again: programs that just ended may still be letting go.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// A mounted file system. Dropping it detaches it: nothing new can be opened, what is open goes on until closed.
pub struct Mount {
    mountpoint: PathBuf,
    /// Device number of our mount, to tell it from another that somebody put over it.
    device: (u32, u32),
    /// Number of the mount in the kernel's list, if it was mounted by the descriptor of its place.
    id: Option<u64>,
    core: Arc<Core>,
    running: Mutex<Option<Running>>,
    parting: Arc<Parting>,
}

struct Running {
    session: BackgroundSession,
    helpers: Vec<JoinHandle<()>>,
    /// The directory on which it is mounted: whatever becomes of the way there, it is unmounted by this.
    place: Option<OwnedFd>,
}

/// How far the end of a mount has come.
#[derive(Default)]
struct Parting {
    /// Nobody uses it any more.
    unused: AtomicBool,
    /// Every handle has been released.
    ended: AtomicBool,
}

/// Mounts `api` at `mountpoint`, an existing empty directory. A dead mount that a crashed daemon left there is removed
/// first.
///
/// # Errors
/// [`MountError`] says what is in the way and what to do.
pub fn mount(api: Arc<dyn FileApi>, mountpoint: &Path, options: MountOptions) -> Result<Mount, MountError> {
    remove_stale(mountpoint)?;
    let mountpoint = check(mountpoint)?;
    let device = open_device(&mountpoint)?;
    attach(&mountpoint, &device, &options)?;
    let seen = device_at(&mountpoint).ok_or_else(|| MountError::Failed {
        mountpoint: mountpoint.clone(),
        doing: "looking at the new mount",
        source: io::Error::other("nothing can be seen there"),
    });
    seen.and_then(|seen| start(api, mountpoint.clone(), device, &options, seen)).inspect_err(|_| {
        let _ = unmount(&mountpoint, UnmountFlags::DETACH);
    })
}

/// Mounts `api` on a directory that was found, and nowhere else, whatever became of the path to it meanwhile. What lies in the directory is hidden.
///
/// # Errors
/// [`MountError`] says what is in the way and what to do.
pub fn mount_at(api: Arc<dyn FileApi>, place: Place, options: MountOptions) -> Result<Mount, MountError> {
    let at = place.path.clone();
    let device = open_device(&at)?;
    let failed = |doing| {
        let mountpoint = at.clone();
        move |source: Sys| match source {
            Sys::PERM | Sys::ACCESS => MountError::NotPrivileged { mountpoint },
            source => MountError::Failed { mountpoint, doing, source: source.into() },
        }
    };
    let detached = detached(&device, &options).map_err(failed("making a mount"))?;
    let seen = place::look(&detached).map_err(failed("looking at the new mount"))?;
    let mut made = start(api, at.clone(), device, &options, seen.device)?;
    made.id = Some(seen.mount);
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&detached, "", &place.dir, "", flags).map_err(failed("move_mount(2)"))?;
    if let Some(running) = &mut *made.running.lock() {
        running.place = Some(place.dir);
    }
    Ok(made)
}

/// A mount that is nowhere yet.
fn detached(device: &OwnedFd, options: &MountOptions) -> Result<OwnedFd, Sys> {
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&fs, key, value);
    set("source", "thermocline")?;
    set("subtype", "thermocline")?;
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", "40000")?;
    set("user_id", &rustix::process::geteuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getegid().as_raw().to_string())?;
    fsconfig_set_flag(&fs, "default_permissions")?;
    if options.allow_other {
        fsconfig_set_flag(&fs, "allow_other")?;
    }
    if options.read_only {
        fsconfig_set_flag(&fs, "ro")?;
    }
    fsconfig_create(&fs)?;
    let mut flags = MountAttrFlags::empty();
    flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !options.suid);
    flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, !options.dev);
    flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only);
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Number of the file system that is at a path, as far as the kernel knows without asking it; None: nothing can be seen there.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let seen = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((seen.stx_dev_major, seen.stx_dev_minor))
}

/// A mount whose daemon is gone answers everything with ENOTCONN.
fn remove_stale(mountpoint: &Path) -> Result<(), MountError> {
    const MOST: usize = 16; // restarts may have stacked several
    for _ in 0..MOST {
        // The kernel may remember the attributes of a dead mount's root: it must ask.
        match statx(CWD, mountpoint, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS) {
            Err(Sys::NOTCONN | Sys::CONNABORTED) => {
                tracing::warn!(mountpoint = %mountpoint.display(), "removing the dead mount of an earlier daemon");
                unmount(mountpoint, UnmountFlags::DETACH).map_err(|source| match source {
                    Sys::PERM => MountError::NotPrivileged { mountpoint: mountpoint.into() },
                    _ => MountError::Stale { mountpoint: mountpoint.into(), source: source.into() },
                })?;
            }
            _ => return Ok(()),
        }
    }
    Err(MountError::Stale { mountpoint: mountpoint.into(), source: Sys::NOTCONN.into() })
}

/// The directory is there, empty, and nothing is mounted on it; gives its absolute path.
fn check(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let at = || mountpoint.to_path_buf();
    let failed = |doing| move |source| MountError::Failed { mountpoint: at(), doing, source };
    let path = match fs::canonicalize(mountpoint) {
        Ok(path) => path,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::Missing { mountpoint: at() });
        }
        Err(e) => return Err(failed("looking at the directory")(e)),
    };
    let seen = statx(CWD, &path, AtFlags::empty(), StatxFlags::TYPE)
        .map_err(|e| failed("looking at the directory")(e.into()))?;
    if u32::from(seen.stx_mode) & libc::S_IFMT != libc::S_IFDIR {
        return Err(MountError::NotADirectory { mountpoint: at() });
    }
    if seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(MountError::AlreadyMounted { mountpoint: at() });
    }
    let mut entries = fs::read_dir(&path).map_err(failed("reading the directory"))?;
    if entries.next().is_some() {
        return Err(MountError::NotEmpty { mountpoint: at() });
    }
    Ok(path)
}

fn open_device(mountpoint: &Path) -> Result<OwnedFd, MountError> {
    let mountpoint = mountpoint.to_path_buf();
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| match error {
        Sys::NOENT | Sys::NODEV | Sys::NXIO => MountError::NoFuse { mountpoint },
        source => MountError::Device { mountpoint, source: source.into() },
    })
}

fn attach(mountpoint: &Path, device: &OwnedFd, options: &MountOptions) -> Result<(), MountError> {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::RDONLY, options.read_only);
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    let data = CString::new(data).unwrap_or_default(); // made of numbers and fixed words: no NUL
    let mounted =
        rustix::mount::mount("thermocline", mountpoint, "fuse.thermocline", flags, Some(data.as_c_str()));
    let mountpoint = mountpoint.to_path_buf();
    mounted.map_err(|error| match error {
        Sys::PERM | Sys::ACCESS => MountError::NotPrivileged { mountpoint },
        Sys::NODEV => MountError::NoFuse { mountpoint },
        Sys::BUSY => MountError::AlreadyMounted { mountpoint },
        source => MountError::Failed { mountpoint, doing: "mount(2)", source: source.into() },
    })
}

fn start(
    api: Arc<dyn FileApi>,
    mountpoint: PathBuf,
    device: OwnedFd,
    options: &MountOptions,
    seen: (u32, u32),
) -> Result<Mount, MountError> {
    let at = mountpoint.clone();
    let failed = |doing| move |source| MountError::Failed { mountpoint: at, doing, source };
    let core = Core::new(api, options);
    let mut config = Config::default();
    config.n_threads = Some(options.session_threads());
    config.clone_fd = true;
    let session = Session::from_fd(Gateway(Arc::clone(&core)), device, SessionACL::All, config)
        .map_err(failed.clone()("the first exchange with the kernel"))?;
    let session = session.spawn().map_err(failed.clone()("starting threads"))?;
    let notifier = session.notifier();
    let (invalidating, watching) = (Arc::clone(&core), Arc::clone(&core));
    let helpers = vec![
        spawn("fuse-notify", move || invalidating.invalidator.send_all(&notifier))
            .map_err(failed.clone()("starting threads"))?,
        spawn("fuse-signals", move || watching.waits.watch(&*watching.api))
            .map_err(failed.clone()("starting threads"))?,
    ];
    core.api.watch(Arc::clone(&core.invalidator) as _);
    raise_read_ahead(seen);
    if options.passthrough && !core.passthrough.load(Ordering::Acquire) {
        tracing::warn!(
            "this kernel has no FUSE passthrough (Linux 6.9 or later has): data goes through the daemon, slower"
        );
    }
    let running = Mutex::new(Some(Running { session, helpers, place: None }));
    Ok(Mount { mountpoint, device: seen, id: None, core, running, parting: Arc::default() })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}

fn raise_read_ahead((major, minor): (u32, u32)) {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::info!(path, %error, "read-ahead stays at the kernel's default; reads of offline files are a little slower");
    }
}

impl Mount {
    /// Where it is mounted (absolute).
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Number of the file system, as the kernel numbers it for as long as it is served.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Where it is shown now, as the kernel knows it without asking anybody; None: it was taken out of the file tree, though programs may still use it.
    ///
    /// # Errors
    /// The list of mounts cannot be read.
    pub fn shown_at(&self) -> io::Result<Option<PathBuf>> {
        match self.id {
            Some(id) => Ok(tree::find(id, self.device)?.map(|seen| seen.path)),
            None => Ok((device_at(&self.mountpoint) == Some(self.device)).then(|| self.mountpoint.clone())),
        }
    }

    /// Whether wholly resident files are read and written by the kernel itself.
    pub fn passthrough(&self) -> bool {
        self.core.passthrough.load(Ordering::Acquire)
    }

    /// Whether the kernel is still served; false after somebody else unmounted it. Waits for nobody: what is being unmounted is still there.
    pub fn is_alive(&self) -> bool {
        self.running
            .try_lock()
            .is_none_or(|running| running.as_ref().is_some_and(|r| !r.session.guard.is_finished()))
    }

    /// Whether programs still use it, after it was detached.
    pub fn is_used(&self) -> bool {
        !self.parting.unused.load(Ordering::Acquire)
    }

    /// Whether every handle has been released to the interface, after it was detached or unmounted.
    pub fn has_ended(&self) -> bool {
        self.parting.ended.load(Ordering::Acquire)
    }

    /// Unmounts, and returns when every handle has been released to the interface. Does nothing if already unmounted.
    ///
    /// # Errors
    /// [`MountError::Busy`] while files are open inside (it tries for a second), after which the mount goes on.
    pub fn unmount(&self) -> Result<(), MountError> {
        let mut running = self.running.lock();
        let Some(now) = &*running else { return Ok(()) };
        let mountpoint = || self.mountpoint.clone();
        let (mut tries, mut done) = (0, false);
        while self.is_ours(&now.session) {
            match self.take_out(now, UnmountFlags::empty()) {
                Ok(()) => {
                    done = true;
                    break;
                }
                Err(Sys::BUSY) if tries < BUSY_TRIES => std::thread::sleep(BUSY_PAUSE),
                Err(Sys::BUSY) => return Err(MountError::Busy { mountpoint: mountpoint() }),
                Err(Sys::INVAL) => break, // somebody else was faster
                Err(source) => {
                    return Err(MountError::Unmount { mountpoint: mountpoint(), source: source.into() });
                }
            }
            tries += 1;
        }
        // Something else is mounted there now, and the kernel is served on: nobody knows for how long.
        while !done && !now.session.guard.is_finished() {
            if tries >= BUSY_TRIES {
                return Err(MountError::Busy { mountpoint: mountpoint() });
            }
            std::thread::sleep(BUSY_PAUSE);
            tries += 1;
        }
        if let Some(Running { session, helpers, place }) = running.take() {
            drop(place);
            served(session, &self.core, helpers, &self.parting);
        }
        Ok(())
    }

    /// Takes the mount out of the file tree at once, with all that is mounted in it. Programs that have files open may go on; the daemon serves them for
    /// as long as it lives. Does nothing if already unmounted.
    pub fn detach(&self) {
        let Some(mut running) = self.running.lock().take() else { return };
        if self.is_ours(&running.session)
            && let Err(error) = self.take_out(&running, UnmountFlags::DETACH)
        {
            tracing::warn!(mountpoint = %self.mountpoint.display(), %error, "could not detach the mount; try `umount -l`");
        }
        // It would keep in use what it lies in.
        drop(running.place.take());
        let (core, parting) = (Arc::clone(&self.core), Arc::clone(&self.parting));
        let cleaning = spawn("fuse-end", move || served(running.session, &core, running.helpers, &parting));
        if let Err(error) = cleaning {
            tracing::warn!(%error, "no thread to clean up after the mount");
        }
    }

    /// Unmounts what is uppermost there. With the descriptor of the place no path is walked, which may lead through a file system that does not answer now.
    fn take_out(&self, running: &Running, flags: UnmountFlags) -> Result<(), Sys> {
        match &running.place {
            Some(place) => unmount(place::by_descriptor(place), flags),
            None => unmount(&self.mountpoint, flags | UnmountFlags::NOFOLLOW),
        }
    }

    /// The uppermost mount at its place is the one made here. (The numbers are ours for as long as the session lives;
    /// the kernel reuses them afterwards.)
    fn is_ours(&self, session: &BackgroundSession) -> bool {
        let ours = match self.id {
            Some(id) => tree::find(id, self.device).is_ok_and(|seen| seen.is_some_and(|seen| !seen.covered)),
            None => device_at(&self.mountpoint) == Some(self.device),
        };
        ours && !session.guard.is_finished()
    }
}

/// Waits for the last request, and cleans up.
fn served(session: BackgroundSession, core: &Core, helpers: Vec<JoinHandle<()>>, parting: &Parting) {
    if let Err(error) = session.join() {
        tracing::warn!(%error, "a session thread ended with an error");
    }
    parting.unused.store(true, Ordering::Release);
    end(core, helpers);
    parting.ended.store(true, Ordering::Release);
}

/// After the last request: the kernel does not send RELEASE for what was open when the connection ended.
fn end(core: &Core, helpers: Vec<JoinHandle<()>>) {
    core.waits.end(&*core.api);
    core.invalidator.end();
    core.opens.drain().into_iter().for_each(|handle| core.api.release(handle));
    for helper in helpers {
        if helper.join().is_err() {
            tracing::error!("a helper thread of the mount panicked");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.detach();
    }
}
