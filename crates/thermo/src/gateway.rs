//! Mounts of the namespace on this host, and below them those of subsystems, each at its junction.

use client::{ClientError, ClusterFiles, FileApi, Names, Reach, Relay, Remote};
use fuse::{Mount, MountError, MountOptions, Place};
use ident::{Credentials, Uuid};
use node::{Mounter, Node, Relayed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use types::{Cx, ErrorClass, JunctionView, NonBlock};
use wire::{Call, Failure, Reply};

/// Between two looks for junctions that came or went.
const LOOK: Duration = Duration::from_secs(2);
/// Longest pause between two attempts to mount a subsystem.
const LONGEST: Duration = Duration::from_secs(60);
/// How long programs may still use mounts when the node ends.
const BUSY: Duration = Duration::from_secs(1);
/// How long the end of mounts may take that nobody uses any more.
const PARTING: Duration = Duration::from_secs(30);

/// Mounts of the namespace on this host.
pub struct Gateway {
    node: Weak<Node>,
    mounts: Mutex<Vec<Mounted>>,
    /// Of other nodes, as long as somebody uses them, also when they are in the file tree no more.
    elsewhere: Mutex<Vec<Weak<ClusterFiles>>>,
    /// For programs of this host, if the namespace is held by other nodes.
    relay: Mutex<Option<Arc<Relay>>>,
    /// Set with `mounts` locked: the node ends, and nothing is mounted any more.
    closed: AtomicBool,
}

/// A mount.
#[derive(Clone)]
struct Mounted {
    mount: Arc<Mount>,
    nonblock: Option<NonBlock>,
    /// The subsystem whose namespace it shows, if it is at a junction of another one.
    subsystem: Option<String>,
    /// Where it was last seen.
    path: PathBuf,
    /// It is being unmounted: nothing is mounted in it any more.
    leaving: bool,
}

/// What prevents that a subsystem is mounted.
struct Trouble {
    why: String,
    /// When it is tried again, and the pause after that.
    next: Instant,
    pause: Duration,
}

/// By where it is to be mounted.
type Troubles = BTreeMap<PathBuf, Trouble>;

impl Gateway {
    /// None yet.
    pub fn new(node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::downgrade(node),
            mounts: Mutex::default(),
            elsewhere: Mutex::default(),
            relay: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mounted>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used_elsewhere(&self) -> MutexGuard<'_, Vec<Weak<ClusterFiles>>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files of another node that are about to be mounted.
    fn of_another(&self, files: ClusterFiles) -> Arc<ClusterFiles> {
        let files = Arc::new(files);
        let mut all = self.used_elsewhere();
        all.retain(|files| files.strong_count() > 0);
        all.push(Arc::downgrade(&files));
        files
    }

    /// Takes everything out of the file tree, and waits until it has ended. Programs that still use a mount keep what they have open until this process ends.
    pub fn unmount_all(&self) {
        let mounts = {
            let mut mounts = self.lock();
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut *mounts)
        };
        detach(&mounts);
        let begin = Instant::now();
        let waits = |mounted: &&Mounted| {
            let most = if mounted.mount.is_used() { BUSY } else { PARTING };
            !mounted.mount.has_ended() && begin.elapsed() < most
        };
        while mounts.iter().any(|mounted| waits(&mounted)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        for mounted in mounts.iter().filter(|mounted| !mounted.mount.has_ended()) {
            let path = mounted.path.display();
            tracing::warn!("{path}: programs still use it (`fuser -vm {path}` names them); it is detached");
        }
        let left: Vec<_> = self.used_elsewhere().drain(..).filter_map(|files| files.upgrade()).collect();
        left.iter().for_each(|files| files.end_behind());
    }

    /// Takes all mounts out of the tree at once, unless somebody has them just now. With each go those that lie in it.
    pub fn detach_all(&self) {
        if let Ok(mut mounts) = self.mounts.try_lock() {
            detach(&mounts.drain(..).collect::<Vec<_>>());
        }
    }

    /// Looks for junctions until the node ends, and mounts at each the namespace to which it leads.
    ///
    /// # Errors
    /// No thread.
    pub fn keep_junctions(self: &Arc<Self>) -> std::io::Result<()> {
        let gateway = Arc::downgrade(self);
        let keep = move || {
            let mut troubles = Troubles::new();
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
    fn tend_junctions(&self, node: &Arc<Node>, troubles: &mut Troubles) -> Result<(), Failure> {
        let (tops, below): (Vec<Mounted>, Vec<Mounted>) = {
            let mut mounts = self.lock();
            mounts.retain(|mounted| mounted.mount.is_alive());
            let all = mounts.iter().filter(|mounted| !mounted.leaving).cloned();
            all.partition(|mounted| mounted.subsystem.is_none())
        };
        if tops.is_empty() {
            return Ok(());
        }
        let below = self.let_go(below);
        let junctions = node.junctions_here()?;
        let mut wanted: Vec<Wanted<'_>> = tops
            .iter()
            .flat_map(|top| junctions.iter().map(move |one| Wanted { top, view: one, shown: false }))
            .collect();
        wanted.iter_mut().for_each(|one| self.find(one, &below));
        self.unmount_unless(troubles, &below, &wanted);
        troubles.retain(|path, _| {
            wanted.iter().any(|one| one.path() == *path) || below.iter().any(|mounted| mounted.path == *path)
        });
        for one in wanted.iter().filter(|one| !one.shown) {
            let path = one.path();
            if troubles.get(&path).is_some_and(|trouble| Instant::now() < trouble.next) {
                continue;
            }
            match self.mount_junction(node, one) {
                Ok(()) => drop(troubles.remove(&path)),
                Err(e) => {
                    let subsystem = &one.view.junction.subsystem;
                    let why = format!(
                        "{}: subsystem {subsystem} is not mounted: {e}; it is tried on",
                        path.display()
                    );
                    tell_once(troubles, path, why);
                }
            }
        }
        Ok(())
    }

    /// Those that are in the file tree, with where they are now. The kernel takes a mount out when it cannot look up a name on the way there: its session serves
    /// until the last program is done with it, and it is in nobody's way.
    fn let_go(&self, below: Vec<Mounted>) -> Vec<Mounted> {
        let mut stay = Vec::new();
        for mut mounted in below {
            match mounted.mount.shown_at() {
                Ok(Some(path)) => self.seen_at(&mut mounted, path),
                Ok(None) => {
                    mounted.mount.detach();
                    let path = mounted.path.display();
                    tracing::info!("{path}: the subsystem's mount was taken away from there");
                    continue;
                }
                Err(e) => tracing::debug!("mounts cannot be listed: {e}"),
            }
            stay.push(mounted);
        }
        self.lock().retain(|mounted| mounted.mount.is_alive());
        stay
    }

    fn seen_at(&self, mounted: &mut Mounted, path: PathBuf) {
        if mounted.path == path {
            return;
        }
        let mut mounts = self.lock();
        if let Some(kept) = mounts.iter_mut().find(|kept| Arc::ptr_eq(&kept.mount, &mounted.mount)) {
            kept.path.clone_from(&path);
        }
        mounted.path = path;
    }

    /// Whether what is wanted is there. Only if a directory on the way was renamed, which the kernel may not know yet, the way is walked.
    fn find(&self, wanted: &mut Wanted<'_>, below: &[Mounted]) {
        let of_it = || below.iter().filter(|mounted| wanted.is_of(mounted));
        wanted.shown = of_it().any(|mounted| mounted.path == wanted.path())
            || of_it().next().is_some()
                && wanted.place().is_ok_and(|place| of_it().any(|m| m.mount.device() == place.device()));
    }

    /// Unmounts subsystems to which nothing leads any more. What programs still use stays until they are done with it.
    fn unmount_unless(&self, troubles: &mut Troubles, below: &[Mounted], wanted: &[Wanted<'_>]) {
        let led = |mounted: &Mounted| wanted.iter().any(|one| one.shown && one.is_of(mounted));
        for mounted in below.iter().filter(|mounted| !led(mounted)) {
            match mounted.mount.unmount() {
                Ok(()) => {
                    let path = mounted.path.display();
                    tracing::info!("{path}: unmounted, as nothing leads there any more");
                }
                Err(e) => tell_once(troubles, mounted.path.clone(), format!("{e}; it is tried on")),
            }
        }
        self.lock().retain(|mounted| mounted.mount.is_alive());
    }

    fn mount_junction(&self, node: &Arc<Node>, wanted: &Wanted<'_>) -> Result<(), Failure> {
        // Before anybody is asked; it is not kept open meanwhile, as that would keep the mount in use in which it lies.
        wanted.free_place()?;
        node.find_subsystem(wanted.view)?;
        let (known, led) = (Arc::downgrade(node), wanted.view.clone());
        let places = move || known.upgrade().map_or(Vec::new(), |node| node.subsystem_places(&led));
        let names = Names::Subsystem(Some(wanted.view.junction.subsystem.clone()));
        // A program's session has the names of the node's own mounts.
        let files = elsewhere(node, node.credentials_dir(), places, names, None)?;
        let (nonblock, subsystem) = (wanted.top.nonblock, &wanted.view.junction.subsystem);
        let options = to_all(far(node, nonblock));
        let place = wanted.free_place()?;
        let mount = fuse::mount_at(self.of_another(files), place, options).map_err(refused)?;
        self.enter(mount, wanted.path(), nonblock, Some((subsystem, wanted.top)))
    }

    fn add(
        &self,
        node: &Node,
        api: Arc<dyn FileApi>,
        path: &Path,
        mut options: MountOptions,
        nonblock: Option<NonBlock>,
    ) -> Result<(), Failure> {
        options.nonblock = nonblock.unwrap_or(node.config().nonblock);
        let mount = fuse::mount(api, path, to_all(options)).map_err(refused)?;
        let path = mount.mountpoint().to_owned();
        self.enter(mount, path, nonblock, None)
    }

    /// Of a subsystem: with what it lies in.
    fn enter(
        &self,
        mount: Mount,
        path: PathBuf,
        nonblock: Option<NonBlock>,
        subsystem: Option<(&String, &Mounted)>,
    ) -> Result<(), Failure> {
        let passthrough =
            if mount.passthrough() { "on" } else { "off: data of resident files goes through this process" };
        let of = subsystem.map_or_else(String::new, |(name, _)| format!(" subsystem {name}"));
        let mut mounts = self.lock();
        if self.closed.load(Ordering::Acquire) {
            mount.detach();
            return Err(failure(ErrorClass::Busy, "the node is stopping"));
        }
        let stays =
            |top: &Mounted| mounts.iter().any(|kept| Arc::ptr_eq(&kept.mount, &top.mount) && !kept.leaving);
        if subsystem.is_some_and(|(_, top)| !stays(top)) {
            mount.detach();
            return Err(failure(ErrorClass::Busy, "what it lies in is being unmounted"));
        }
        tracing::info!("mounted{of} at {}, passthrough {passthrough}", path.display());
        mounts.retain(|mounted| mounted.mount.is_alive());
        let subsystem = subsystem.map(|(name, _)| name.clone());
        mounts.push(Mounted { mount: Arc::new(mount), nonblock, subsystem, path, leaving: false });
        Ok(())
    }

    /// What is mounted at a path, and what of it lies inside; nothing is mounted there from now on.
    fn leave(&self, path: &Path) -> Result<(Mounted, Vec<Mounted>), Failure> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut mounts = self.lock();
        let found = mounts.iter_mut().find(|mounted| mounted.path == real).ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("{}: is not mounted by this node", path.display()))
        })?;
        if let Some(subsystem) = &found.subsystem {
            let message = format!(
                "{} shows subsystem {subsystem}, to which a junction leads there: `thermo junction rm` ends that, for all hosts",
                path.display()
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        found.leaving = true;
        let found = found.clone();
        let inside =
            mounts.iter().filter(|mounted| mounted.subsystem.is_some() && mounted.path.starts_with(&real));
        Ok((found, inside.cloned().collect()))
    }
}

/// Takes mounts out of the file tree: first those of whole namespaces, and with each what lies in it, so that no path is walked through one that may not answer.
fn detach(mounts: &[Mounted]) {
    let (tops, below): (Vec<_>, Vec<_>) = mounts.iter().partition(|mounted| mounted.subsystem.is_none());
    tops.into_iter().chain(below).for_each(|mounted| mounted.mount.detach());
}

impl Mounter for Gateway {
    fn mount(&self, path: &Path, nonblock: Option<NonBlock>) -> Result<(), Failure> {
        let node = self.node.upgrade().ok_or_else(|| failure(ErrorClass::Busy, "the node is stopping"))?;
        let Some(member) = node.joined()? else {
            let (passthrough, locks) = (node.config().passthrough, node.config().keeps_locks());
            let options = MountOptions { passthrough, locks, ..MountOptions::default() };
            return self.add(&node, node.clone(), path, options, nonblock);
        };
        let shown = Some(node.name_for_programs());
        let files = elsewhere(&node, member, places_of(&node), names_of(&node), shown)?;
        self.add(&node, self.of_another(files), path, far(&node, nonblock), nonblock)
    }

    fn unmount(&self, path: &Path) -> Result<(), Failure> {
        let (found, inside) = self.leave(path)?;
        // First what lies in it. Others are not kept from theirs meanwhile.
        let mut all = inside.iter().chain([&found]);
        let done = all.try_for_each(|mounted| mounted.mount.unmount()).map_err(refused);
        let mut mounts = self.lock();
        mounts.retain(|mounted| mounted.mount.is_alive());
        let kept = mounts.iter_mut().find(|kept| Arc::ptr_eq(&kept.mount, &found.mount));
        kept.into_iter().for_each(|kept| kept.leaving = false);
        done
    }

    /// Those of the node's own namespace: commands take a path below one for a path in that, and what a subsystem shows is another's.
    fn mounts(&self) -> Vec<PathBuf> {
        let mounts = self.lock();
        let alive = mounts.iter().filter(|mounted| mounted.subsystem.is_none() && mounted.mount.is_alive());
        alive.map(|mounted| mounted.path.clone()).collect()
    }

    fn relay(&self, uid: u32, session: Option<u64>) -> Result<Box<dyn Relayed>, Failure> {
        let node = self.node.upgrade().ok_or_else(|| failure(ErrorClass::Busy, "the node is stopping"))?;
        let relay = {
            let mut relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = || {
                let reach = reach(node.credentials_dir(), places_of(&node));
                Arc::new(Relay::new(reach, names_of(&node), &node.name_for_programs()))
            };
            relay.get_or_insert_with(begin).clone()
        };
        Ok(Box::new(Program(relay.connect(uid, session).map_err(|e| not_now(&e))?)))
    }
}

/// A program's connection to a node that holds its namespace.
struct Program(client::Relayed);

impl Relayed for Program {
    fn begun(&self) -> u64 {
        self.0.begun()
    }

    fn call(&mut self, cx: &Cx, call: Call) -> Result<Result<Reply, Failure>, String> {
        self.0.call(cx, call).map_err(|e| e.to_string())
    }
}

/// What is to be mounted at a junction.
struct Wanted<'j> {
    top: &'j Mounted,
    view: &'j JunctionView,
    /// It is there.
    shown: bool,
}

impl Wanted<'_> {
    fn inside(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        let inside = Path::new(std::ffi::OsStr::from_bytes(self.view.path.as_bytes()));
        inside.strip_prefix("/").unwrap_or(inside)
    }

    fn path(&self) -> PathBuf {
        self.top.path.join(self.inside())
    }

    /// Whether that mount shows its subsystem, in its namespace.
    fn is_of(&self, mounted: &Mounted) -> bool {
        mounted.subsystem.as_ref() == Some(&self.view.junction.subsystem)
            && mounted.path.starts_with(&self.top.path)
    }

    fn place(&self) -> Result<Place, Failure> {
        Place::below(&self.top.mount, self.inside()).map_err(refused)
    }

    /// The directory that leads there, with nothing mounted on it.
    fn free_place(&self) -> Result<Place, Failure> {
        let place = self.place()?;
        if place.device() != self.top.mount.device() {
            return Err(failure(ErrorClass::Busy, "something else is mounted there"));
        }
        if place.ino() != self.view.ino.0 {
            let message = "the directory there is another one than that which leads to it";
            return Err(failure(ErrorClass::Busy, message));
        }
        Ok(place)
    }
}

fn tell_once(troubles: &mut Troubles, path: PathBuf, why: String) {
    let before = troubles.get(&path);
    if before.is_none_or(|before| before.why != why) {
        tracing::warn!("{why}");
    }
    let pause = before.map_or(LOOK, |before| before.pause);
    let next = Instant::now() + pause;
    troubles.insert(path, Trouble { why, next, pause: (pause * 2).min(LONGEST) });
}

fn refused(e: MountError) -> Failure {
    failure(e.class(), e)
}

/// Users other than the one who mounts are let in, if that may be.
fn to_all(mut options: MountOptions) -> MountOptions {
    options.allow_other &= rustix::process::geteuid().is_root();
    options
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

/// Where the namespace is held that a node without one shows.
fn places_of(node: &Arc<Node>) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
    let known = Arc::downgrade(node);
    move || known.upgrade().map_or(Vec::new(), |node| node.namespace_places())
}

/// Which one that is.
fn names_of(node: &Node) -> Names {
    let first = node.config().cluster.namespace.is_empty();
    if first { Names::First } else { Names::Subsystem(None) }
}

/// The way to those places for the member whose credentials are in that directory.
fn reach(member: PathBuf, places: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Reach {
    Box::new(move || {
        let told = |source| ClientError::Ident { node: member.display().to_string(), source };
        let own = Credentials::load(&member)
            .map_err(told)?
            .ok_or_else(|| told(ident::IdentError::NoCertificate))?;
        places().iter().map(|address| Remote::new(address, &own)).collect()
    })
}

/// A namespace that other nodes hold, at those places.
fn elsewhere(
    node: &Node,
    member: PathBuf,
    places: impl Fn() -> Vec<String> + Send + Sync + 'static,
    names: Names,
    shown: Option<String>,
) -> Result<ClusterFiles, Failure> {
    let (session, beside) = (Uuid::new_v4().as_u64_pair().0, &node.config().state_dir);
    let files = ClusterFiles::new(reach(member, places), session, names, shown, Some(beside));
    files.probe().map_err(|e| not_now(&e))?;
    files.remember();
    Ok(files)
}

fn not_now(e: &ClientError) -> Failure {
    let message = format!("the namespace is held by other nodes of the cluster, and cannot be had now: {e}");
    failure(e.class(), message)
}

fn failure(class: ErrorClass, message: impl ToString) -> Failure {
    Failure { class, fs: None, message: message.to_string() }
}
