//! Mounts of the namespace on this host, and below them those of subsystems, each at its junction.

use client::{ClientError, ClusterFiles, FileApi, Names, Remote};
use fuse::{Mount, MountOptions};
use ident::{Credentials, Uuid};
use node::{Mounter, Node};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use types::{ErrorClass, JunctionView, NonBlock};
use wire::Failure;

/// Between two looks for junctions that came or went.
const LOOK: Duration = Duration::from_secs(2);

/// Mounts of the namespace on this host.
pub struct Gateway {
    node: Weak<Node>,
    mounts: Mutex<Vec<Mounted>>,
    /// Set with `mounts` locked: the node ends, and nothing is mounted any more.
    closed: AtomicBool,
}

/// A mount.
struct Mounted {
    mount: Mount,
    nonblock: Option<NonBlock>,
    /// The subsystem whose namespace it shows, if it is at a junction of another one.
    subsystem: Option<String>,
}

impl Gateway {
    /// None yet.
    pub fn new(node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::downgrade(node),
            mounts: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mounted>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Programs that still use a mount keep what they have open until this process ends.
    pub fn unmount_all(&self) {
        let mut mounts = self.lock();
        self.closed.store(true, Ordering::Release);
        // Those at junctions came behind what they lie in.
        for mounted in mounts.drain(..).rev() {
            if let Err(e) = mounted.mount.unmount() {
                tracing::warn!("{e}; it is detached");
                mounted.mount.detach();
            }
        }
    }

    /// Takes all mounts out of the tree at once, unless somebody has them just now. With each go those that lie in it.
    pub fn detach_all(&self) {
        if let Ok(mut mounts) = self.mounts.try_lock() {
            mounts.drain(..).for_each(|mounted| mounted.mount.detach());
        }
    }

    /// Looks for junctions until the node ends, and mounts at each the namespace to which it leads.
    ///
    /// # Errors
    /// No thread.
    pub fn keep_junctions(self: &Arc<Self>) -> std::io::Result<()> {
        let gateway = Arc::downgrade(self);
        let keep = move || {
            let mut troubles = BTreeMap::new();
            while let Some(gateway) = gateway.upgrade()
                && let Some(node) = gateway.node.upgrade()
            {
                if let Err(e) = gateway.tend_junctions(&node, &mut troubles) {
                    tracing::debug!("junctions are not known now: {e}");
                }
                drop(gateway);
                if node.stops_within(LOOK) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("junctions".into()).spawn(keep).map(drop)
    }

    /// One look. Of each trouble the log tells once.
    fn tend_junctions(
        &self,
        node: &Arc<Node>,
        troubles: &mut BTreeMap<PathBuf, String>,
    ) -> Result<(), Failure> {
        let tops: Vec<(PathBuf, Option<NonBlock>)> = {
            let mut mounts = self.lock();
            mounts.retain(|mounted| mounted.mount.is_alive());
            let tops = mounts.iter().filter(|mounted| mounted.subsystem.is_none());
            tops.map(|top| (top.mount.mountpoint().to_owned(), top.nonblock)).collect()
        };
        if tops.is_empty() {
            return Ok(());
        }
        let junctions = node.junctions_here()?;
        let wanted: Vec<Wanted<'_>> = tops
            .iter()
            .flat_map(|(top, nonblock)| junctions.iter().map(move |one| Wanted::new(top, one, *nonblock)))
            .collect();
        self.unmount_unless(troubles, &wanted);
        troubles.retain(|path, _| wanted.iter().any(|one| one.path == *path) || self.has(path));
        for one in wanted {
            if self.has(&one.path) {
                continue;
            }
            match self.mount_junction(node, &one) {
                Ok(()) => drop(troubles.remove(&one.path)),
                Err(e) => {
                    let subsystem = &one.view.junction.subsystem;
                    let why = format!(
                        "{}: subsystem {subsystem} is not mounted: {e}; it is tried on",
                        one.path.display()
                    );
                    tell_once(troubles, one.path, why);
                }
            }
        }
        Ok(())
    }

    fn has(&self, path: &Path) -> bool {
        self.lock().iter().any(|mounted| mounted.mount.mountpoint() == path)
    }

    /// Unmounts subsystems to which nothing leads any more. What programs still use stays until they are done with it.
    fn unmount_unless(&self, troubles: &mut BTreeMap<PathBuf, String>, wanted: &[Wanted<'_>]) {
        // Nobody waits for it who only wants to know what is mounted.
        let gone: Vec<Mounted> = {
            let mut mounts = self.lock();
            let (mut stay, mut gone) = (Vec::new(), Vec::new());
            for mut mounted in mounts.drain(..) {
                let subsystem = mounted.subsystem.as_ref();
                let found = wanted.iter().find(|one| one.shows(&mounted));
                if let Some(one) = found {
                    // A directory above it may have been renamed.
                    mounted.mount.moved_to(&one.path);
                }
                if subsystem.is_none() || found.is_some() { stay.push(mounted) } else { gone.push(mounted) }
            }
            *mounts = stay;
            gone
        };
        for mounted in gone {
            let path = mounted.mount.mountpoint().to_owned();
            match mounted.mount.unmount() {
                Ok(()) => {
                    tracing::info!("{}: unmounted, as nothing leads there any more", path.display());
                }
                Err(e) => {
                    tell_once(troubles, path, format!("{e}; it is tried on"));
                    self.lock().push(mounted);
                }
            }
        }
    }

    fn mount_junction(&self, node: &Arc<Node>, wanted: &Wanted<'_>) -> Result<(), Failure> {
        node.find_subsystem(wanted.view)?;
        let (known, led) = (Arc::downgrade(node), wanted.view.clone());
        let places = move || known.upgrade().map_or(Vec::new(), |node| node.subsystem_places(&led));
        let names = Names::Subsystem(Some(wanted.view.junction.subsystem.clone()));
        let files = elsewhere(node.credentials_dir(), places, names)?;
        let (options, subsystem) = (far(node, wanted.nonblock), &wanted.view.junction.subsystem);
        self.add(node, Arc::new(files), &wanted.path, options, wanted.nonblock, Some(subsystem))
    }

    fn add(
        &self,
        node: &Node,
        api: Arc<dyn FileApi>,
        path: &Path,
        mut options: MountOptions,
        nonblock: Option<NonBlock>,
        subsystem: Option<&String>,
    ) -> Result<(), Failure> {
        options.nonblock = nonblock.unwrap_or(node.config().nonblock);
        options.allow_other &= rustix::process::geteuid().is_root();
        let mount = fuse::mount(api, path, options).map_err(|e| failure(e.class(), e))?;
        let passthrough =
            if mount.passthrough() { "on" } else { "off: data of resident files goes through this process" };
        let of = subsystem.map_or_else(String::new, |name| format!(" subsystem {name}"));
        tracing::info!("mounted{of} at {}, passthrough {passthrough}", path.display());
        let mut mounts = self.lock();
        if self.closed.load(Ordering::Acquire) {
            mount.detach();
            return Err(failure(ErrorClass::Busy, "the node is stopping"));
        }
        mounts.retain(|mounted| mounted.mount.is_alive());
        mounts.push(Mounted { mount, nonblock, subsystem: subsystem.cloned() });
        Ok(())
    }
}

impl Mounter for Gateway {
    fn mount(&self, path: &Path, nonblock: Option<NonBlock>) -> Result<(), Failure> {
        let node = self.node.upgrade().ok_or_else(|| failure(ErrorClass::Busy, "the node is stopping"))?;
        let Some(member) = node.joined()? else {
            let (passthrough, locks) = (node.config().passthrough, node.config().keeps_locks());
            let options = MountOptions { passthrough, locks, ..MountOptions::default() };
            return self.add(&node, node.clone(), path, options, nonblock, None);
        };
        let known = Arc::downgrade(&node);
        let places = move || known.upgrade().map_or(Vec::new(), |node| node.namespace_places());
        let first = node.config().cluster.namespace.is_empty();
        let names = if first { Names::First } else { Names::Subsystem(None) };
        let files = elsewhere(member, places, names)?;
        self.add(&node, Arc::new(files), path, far(&node, nonblock), nonblock, None)
    }

    fn unmount(&self, path: &Path) -> Result<(), Failure> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut mounts = self.lock();
        let here = |mounted: &Mounted| mounted.mount.mountpoint() == real;
        let found = mounts.iter().find(|mounted| here(mounted)).ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("{}: is not mounted by this node", path.display()))
        })?;
        if let Some(subsystem) = &found.subsystem {
            let message = format!(
                "{} shows subsystem {subsystem}, to which a junction leads there: `thermo junction rm` ends that, for all hosts",
                path.display()
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        // First what lies in it.
        let inside =
            |mounted: &Mounted| mounted.subsystem.is_some() && mounted.mount.mountpoint().starts_with(&real);
        for mounted in mounts.iter().filter(|mounted| inside(mounted)).chain([found]) {
            mounted.mount.unmount().map_err(|e| failure(e.class(), e))?;
        }
        mounts.retain(|mounted| mounted.mount.is_alive());
        Ok(())
    }

    /// Those of the node's own namespace: commands take a path below one for a path in that, and what a subsystem shows is another's.
    fn mounts(&self) -> Vec<PathBuf> {
        let mounts = self.lock();
        let alive = mounts.iter().filter(|mounted| mounted.subsystem.is_none() && mounted.mount.is_alive());
        alive.map(|mounted| mounted.mount.mountpoint().to_owned()).collect()
    }
}

/// What is to be mounted at a junction.
struct Wanted<'j> {
    path: PathBuf,
    view: &'j JunctionView,
    nonblock: Option<NonBlock>,
    /// What is mounted there now.
    device: Option<(u32, u32)>,
}

impl<'j> Wanted<'j> {
    fn new(top: &Path, view: &'j JunctionView, nonblock: Option<NonBlock>) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let inside = Path::new(std::ffi::OsStr::from_bytes(view.path.as_bytes()));
        let path = top.join(inside.strip_prefix("/").unwrap_or(inside));
        let device = fuse::device_at(&path);
        Self { path, view, nonblock, device }
    }

    /// Whether that mount is the one.
    fn shows(&self, mounted: &Mounted) -> bool {
        mounted.subsystem.as_ref() == Some(&self.view.junction.subsystem)
            && self.device == Some(mounted.mount.device())
    }
}

fn tell_once(troubles: &mut BTreeMap<PathBuf, String>, path: PathBuf, why: String) {
    if troubles.get(&path) != Some(&why) {
        tracing::warn!("{why}");
        troubles.insert(path, why);
    }
}

/// Of a namespace that another node holds. Nobody tells the kernel what others change: it asks each time. Its calls wait for the network, so there are several at
/// once.
fn far(node: &Node, nonblock: Option<NonBlock>) -> MountOptions {
    MountOptions {
        nonblock: nonblock.unwrap_or(node.config().nonblock),
        ttl: Duration::ZERO,
        passthrough: false,
        threads: 8,
        locks: true,
        ..MountOptions::default()
    }
}

/// A namespace that other nodes hold, at those places, for the member whose credentials are in that directory.
fn elsewhere(
    member: PathBuf,
    places: impl Fn() -> Vec<String> + Send + Sync + 'static,
    names: Names,
) -> Result<ClusterFiles, Failure> {
    let reach = move || {
        let told = |source| ClientError::Ident { node: member.display().to_string(), source };
        let own = Credentials::load(&member)
            .map_err(told)?
            .ok_or_else(|| told(ident::IdentError::NoCertificate))?;
        places().iter().map(|address| Remote::new(address, &own)).collect()
    };
    let files = ClusterFiles::new(Box::new(reach), Uuid::new_v4().as_u64_pair().0, names);
    files.probe().map_err(|e| {
        failure(
            e.class(),
            format!("the namespace is held by other nodes of the cluster, and cannot be had now: {e}"),
        )
    })?;
    files.remember();
    Ok(files)
}

fn failure(class: ErrorClass, message: impl ToString) -> Failure {
    Failure { class, fs: None, message: message.to_string() }
}
