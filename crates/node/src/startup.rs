//! Starting: locks, formats, recovery after a crash, services.

use crate::archive::{Archive, Event, Hardware, Libraries, WriteQueue};
use crate::clock::Moment;
use crate::error::{failure, fs_failure, refused};
use crate::files::{Joined, ObjectPool, OpenTable, Quotas, Ready, Space, StagingTable, Wish};
use crate::governor::Governor;
use crate::leases::Leases;
use crate::moment::CHANGES;
use crate::movers::{MENDERS, Movers};
use crate::standby::Ledger;
use crate::turns::Turn;
use crate::{Config, Node};
use catalog::Catalog;
use crossbeam_channel::Receiver;
use disk::DiskTarget;
use kv::log::LogOptions;
use kv::standby::Feed;
use kv::{Durability, LmdbEngine, LmdbOptions};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use types::*;
use wire::Failure;

/// Format of the state directory as a whole; grows when an older program must not touch it.
const STATE_FORMAT: u32 = 1;
/// Threads that finish reads whose bytes have arrived.
const FINISHERS: usize = 2;
/// Disk objects kept in stock by a node that a simulator runs.
const STOCK_ALONE: usize = 16;
/// How long a lock held by somebody else is tried again.
const LOCK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// Ended requests are forgotten after this long.
const KEEP_REQUESTS: std::time::Duration = std::time::Duration::from_secs(30 * 24 * 3600);

pub(crate) fn start(
    config: Config,
    library: Option<Arc<vtl::Library>>,
    turn: Option<Turn>,
) -> Result<Arc<Node>, Failure> {
    config.validate().map_err(|e| failure(ErrorClass::Invalid, format!("configuration: {e}")))?;
    raise_descriptor_limit();
    let state = config.state_dir.clone();
    let (lock, fresh) = patiently(|| prepare(&state))?;
    let ledger = Arc::new(Ledger::open(&state)?);
    let prepared = crate::standby::before_start(&config, &ledger)?;
    let feed = prepared.as_ref().map(|prepared| prepared.feed.clone());
    let has_none = fresh && !ledger.has_taken_over();
    let seen = turn.as_ref().map(Turn::seen).unwrap_or_default();
    let engine = match turn {
        Some(turn) => turn.begin()?,
        None => crate::engine::open(&config, has_none, change_log(&config), feed)?,
    };
    let feeding = prepared
        .zip(engine.engine().embedded())
        .map(|(prepared, engine)| prepared.start(engine, &config))
        .transpose()?;
    crate::standby::begin(&ledger, &config, engine.clone())?;
    let hardware = |config: &Config| Hardware::of(config, library.clone());
    let Assembled { node, events, ready } = assemble(config, (lock, fresh), engine.clone(), hardware)?;
    node.engine_moves.belongs(engine);
    node.turns.begin_with(&seen.0, seen.1);
    if let Some(feeding) = feeding {
        node.feeding.get_or_init(|| feeding);
    }
    recover(&node)?;
    node.finish_cluster()?;
    node.begin_locks()?;
    node.begin_returning()?;
    for n in 0..FINISHERS {
        let ready = ready.clone();
        spawn(None, &format!("finish-{n}"), move || ready.iter().for_each(Ready::finish))?;
    }
    crate::archive::start(&node, events)?;
    let governed = node.clone();
    spawn(Some(&node), "governor", move || governed.govern())?;
    let backed_up = node.clone();
    spawn(Some(&node), "backup", move || backed_up.keep_backups())?;
    let stocked = node.clone();
    spawn(Some(&node), "objects", move || stocked.objects.keep_stocked(&stocked.catalog, &stocked.disk))?;
    resume(&node)?;
    node.movers.belong_to(&node);
    crate::turns::keep_telling(&node)?;
    let tending = node.clone();
    spawn(Some(&node), "tend-far", move || tending.tend_far())?;
    start_mending(&node)?;
    let moving = node.clone();
    spawn(Some(&node), "move-far", move || moving.move_far())?;
    let protecting = node.clone();
    spawn(Some(&node), "protect-far", move || protecting.protect_far())?;
    let folding = node.clone();
    spawn(Some(&node), "fold-far", move || folding.fold_far())?;
    let writing = node.clone();
    spawn(Some(&node), "write-behind", move || writing.write_behind())?;
    let scrubbing = node.clone();
    spawn(Some(&node), "scrub-far", move || scrubbing.scrub_far())?;
    let keeping = node.clone();
    spawn(Some(&node), "keeper", move || keeping.keep())?;
    if ledger.has_taken_over() {
        ledger.serves()?;
    }
    Ok(node)
}

/// Starts who hands out what is to be mended, and those who do it: they end when that one has.
fn start_mending(node: &Arc<Node>) -> Result<(), Failure> {
    let (give, files) = crossbeam_channel::bounded(0);
    for n in 0..MENDERS {
        let (mending, files) = (node.clone(), files.clone());
        spawn(Some(node), &format!("mend-{n}"), move || mending.mend_given(&files))?;
    }
    let mending = node.clone();
    spawn(Some(node), "mend-far", move || mending.mend_far(&give)).map(drop)
}

/// A node that nobody works for yet.
pub(crate) struct Assembled {
    pub(crate) node: Arc<Node>,
    /// What happens to the archive.
    pub(crate) events: Receiver<Event>,
    /// Reads whose bytes have arrived.
    pub(crate) ready: Receiver<Ready>,
}

/// What hosts may remember, which is told of every change.
fn leases(catalog: &Catalog, subsystem: bool) -> Result<Arc<Leases>, Failure> {
    let members = catalog.members().map_err(|e| refused("members", &e))?.len();
    // The members of a subsystem's cluster are not in its own catalogue.
    let leases = Arc::new(Leases::new(members > 1 || subsystem));
    let told = leases.clone();
    catalog.watch(Box::new(move |inodes| told.changed(inodes)));
    Ok(leases)
}

/// Opens catalogue, disk tier and library, and makes the first settings of a `fresh` state directory.
pub(crate) fn assemble(
    config: Config,
    (lock, fresh): (File, bool),
    engine: Arc<dyn kv::Engine>,
    hardware: impl Fn(&Config) -> Result<Vec<Hardware>, Failure>,
) -> Result<Assembled, Failure> {
    let state = config.state_dir.clone();
    let subsystem = config.cluster.subsystem.is_some();
    let uid = fs::metadata(&state).map_err(|e| io(&state, &e))?.uid();
    let now = crate::now();
    let catalog = Catalog::open(engine, now).map_err(|e| refused("catalogue", &e))?;
    let disk = crate::tier::open(&config, fresh)?;
    if fresh {
        begin(&config, &catalog, &disk, uid)?;
    }
    let keys = crate::keys::NodeKeys::of(&config.encryption).map_err(|e| failure(ErrorClass::Invalid, e))?;
    let hardware = patiently(|| hardware(&config))?;
    let (archive, events) = Archive::new();
    let (to_finish, ready) = crossbeam_channel::unbounded::<Ready>();
    let objects = object_pool(&catalog)?;
    let movers = movers_of(&catalog)?;
    let node = Node {
        space: Space::new(&config.disk),
        quotas: Quotas::default(),
        given: crate::devices::Given::of(&config),
        settings: crate::settings::Settings::new(&config),
        config,
        uid,
        started: std::time::Instant::now(),
        run: uuid::Uuid::new_v4(),
        start: mover::start_of_machine()
            .map_err(|e| failure(ErrorClass::Retry, format!("which start of this machine it is: {e}")))?,
        leases: leases(&catalog, subsystem)?,
        catalog,
        disk,
        objects,
        open: OpenTable::new(),
        staging: Arc::new(StagingTable::default()),
        ready: to_finish,
        governor: Governor::default(),
        writes: WriteQueue::default(),
        steady: crate::files::Steady::default(),
        archive,
        keeper: crate::keep::Keeper::default(),
        watchers: Default::default(),
        watched: Default::default(),
        mounter: Default::default(),
        stopping: Default::default(),
        stop_asked: Default::default(),
        threads: Default::default(),
        hardware: Libraries::new(hardware),
        keys: keys.map(Arc::new),
        membership: Default::default(),
        locks: Default::default(),
        spared: Default::default(),
        movers,
        feeding: Default::default(),
        engine_moves: Default::default(),
        turns: Default::default(),
        putting_backup: Default::default(),
        _lock: lock,
    };
    node.apply();
    Ok(Assembled { node: Arc::new(node), events, ready })
}

/// The first settings of a new state directory.
fn begin(config: &Config, catalog: &Catalog, disk: &DiskTarget, uid: u32) -> Result<(), Failure> {
    let now = crate::now();
    let skipped = if has_objects(disk)? {
        // Objects of a catalogue that was lost: new ones must not be mistaken for them.
        catalog.skip_numbers(now)
    } else {
        catalog.skip_objects(now)
    };
    skipped.map_err(|e| refused("first settings", &e))?;
    // A database may know this node although its state directory is new: what operators have set there counts.
    if catalog.site().map_err(|e| refused("first settings", &e))?.is_none() {
        first_settings(catalog, config).and_then(|()| give_root(catalog, uid))?;
        name_site(catalog)?;
    }
    write_marker(&config.state_dir).map_err(|e| io(&config.state_dir, &e))
}

fn movers_of(catalog: &Catalog) -> Result<Movers, Failure> {
    let movers = Movers::new();
    movers.begin_turn(catalog.turn().map_err(|e| refused("the targets", &e))?);
    Ok(movers)
}

fn object_pool(catalog: &Catalog) -> Result<ObjectPool, Failure> {
    let objects = ObjectPool::new(catalog).map_err(|e| fs_failure("disk objects", e))?;
    // A simulator starts nodes by the thousand.
    Ok(if crate::clock::alone() { objects.with_stock(STOCK_ALONE) } else { objects })
}

/// Changes are logged beside the backups.
fn change_log(config: &Config) -> Option<LogOptions> {
    let clock_ms = || crate::moment::milliseconds(crate::now());
    let dir = config.catalog.backup_dir.as_ref().filter(|_| config.catalog.log_changes)?;
    Some(LogOptions { dir: dir.join(CHANGES), clock_ms })
}

impl Node {
    /// A mount over the log of changes would make the catalogue wait for itself.
    pub(crate) fn keep_off_the_log(&self, mount: &Path) -> Result<(), Failure> {
        let Some(log) = change_log(&self.config) else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !real(&log.dir).starts_with(real(mount)) {
            return Ok(());
        }
        let message = format!(
            "{}: changes of the catalogue are logged below it, in {}: mount elsewhere, set another `catalog.backup_dir`, or \
             `catalog.log_changes = false`",
            mount.display(),
            log.dir.display()
        );
        Err(failure(ErrorClass::Invalid, message))
    }
}

/// Opens or makes the embedded engine in `dir`; one that was set aside only for the move `moved`.
pub(crate) fn open_engine(
    dir: &Path,
    log: Option<LogOptions>,
    moved: Option<&str>,
    feed: Option<Arc<Feed>>,
) -> Result<LmdbEngine, Failure> {
    let options = LmdbOptions { log, feed, aside: moved.map(Into::into), ..LmdbOptions::default() };
    LmdbEngine::open(dir, options).map_err(|e| failure(crate::engine::class(&e), e.to_string()))
}

/// Every open resident file holds a descriptor: take as many as the system allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {e}");
    }
}

/// How many connections of one kind are taken at once, `most` at most: each has two or three descriptors, and there are others to have some.
pub(crate) fn connections(most: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let of = |limit: u64| usize::try_from((limit / 16).max(256.min(limit / 8))).unwrap_or(most).min(most);
    limit.map_or(most, of)
}

/// Starts a named thread; with a node it is joined when the node stops.
pub(crate) fn spawn(
    node: Option<&Node>,
    name: &str,
    f: impl FnOnce() + Send + 'static,
) -> Result<Option<std::thread::JoinHandle<()>>, Failure> {
    let clock = crate::clock::given();
    let f = move || {
        crate::clock::give(clock);
        f();
    };
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(f)
        .map_err(|e| failure(ErrorClass::Retry, format!("thread {name} cannot be started: {e}")))?;
    match node {
        Some(node) => {
            node.threads.lock().push(thread);
            Ok(None)
        }
        None => Ok(Some(thread)),
    }
}

pub(crate) fn io(path: &Path, e: &std::io::Error) -> Failure {
    failure(
        ErrorClass::Denied,
        format!("state directory {}: {e}; check its owner, mode and free space", path.display()),
    )
}

/// A node that was killed a moment ago may still hold its locks while the kernel takes it apart.
pub(crate) fn patiently<T>(mut open: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let end = Moment::now() + LOCK_PATIENCE;
    loop {
        match open() {
            Err(e) if e.class == ErrorClass::Busy && Moment::now() < end => {
                crate::clock::sleep(std::time::Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Makes the state directory and takes it for this process; true if it is new.
pub(crate) fn prepare(state: &Path) -> Result<(File, bool), Failure> {
    let fail = |e: std::io::Error| io(state, &e);
    fs::create_dir_all(state).map_err(fail)?;
    let lock =
        File::options().create(true).truncate(false).write(true).open(state.join("lock")).map_err(fail)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let message = format!(
                "state directory {} is in use by another node; stop it with `thermo down --state-dir {}`",
                state.display(),
                state.display()
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail(e)),
    }
    match fs::read_to_string(state.join("format")) {
        Ok(text) => check_format(state, &text).map(|()| (lock, false)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::set_permissions(state, fs::Permissions::from_mode(0o755)).map_err(fail)?;
            Ok((lock, true))
        }
        Err(e) => Err(fail(e)),
    }
}

/// Written last when a state directory is made: without it the first settings are entered again.
pub(crate) fn write_marker(state: &Path) -> std::io::Result<()> {
    let mut file = File::create(state.join("format.new"))?;
    writeln!(file, "thermocline-state {STATE_FORMAT}")?;
    file.sync_all()?;
    fs::rename(state.join("format.new"), state.join("format"))?;
    File::open(state)?.sync_all()
}

fn check_format(state: &Path, text: &str) -> Result<(), Failure> {
    let number = text.trim().strip_prefix("thermocline-state ").and_then(|n| n.parse::<u32>().ok());
    let problem = match number {
        Some(STATE_FORMAT) => return Ok(()),
        Some(n) if n > STATE_FORMAT => format!(
            "was written by a newer release (state format {n}, this program knows {STATE_FORMAT}); start it with that release"
        ),
        _ => format!("has a marker file `format` that is not ours ({:?}); nothing was changed", text.trim()),
    };
    Err(failure(ErrorClass::Invalid, format!("state directory {} {problem}", state.display())))
}

/// A node must not begin with an empty namespace beside the disk objects and volumes of another.
pub(crate) fn has_catalogue(state: &Path) -> Result<(), Failure> {
    let data = state.join("catalog").join("data.mdb");
    if data.exists() {
        return Ok(());
    }
    let message = format!(
        "the catalogue is gone: there is no {}. If it lies on a file system that is not mounted, mount that; if it is lost, \
         nothing on disk or tape was touched: see \"When the catalogue is lost\" in docs/OPERATIONS.md",
        data.display()
    );
    Err(failure(ErrorClass::Corrupt, message))
}

/// A node that an ordinary user starts is his: so is the root of its namespace.
fn give_root(catalog: &Catalog, uid: u32) -> Result<(), Failure> {
    let owner = SetAttr { uid: Some(uid), ..SetAttr::default() };
    let given = catalog.setattr(&Cx::admin(crate::now()), Ino::ROOT, &owner);
    given.map(drop).map_err(|e| refused("the root directory", &e))
}

fn has_objects(disk: &DiskTarget) -> Result<bool, Failure> {
    let mut found = false;
    let listed = disk.list(&mut |_| {
        found = true;
        std::ops::ControlFlow::Break(())
    });
    listed.map(|()| found).map_err(|e| failure(e.class(), e.to_string()))
}

/// A new namespace gets a name that volumes carry, once its settings are made. One whose catalogue was lost gets its old one back from them.
fn name_site(catalog: &Catalog) -> Result<(), Failure> {
    catalog.set_site(&uuid::Uuid::new_v4().to_string()).map_err(|e| refused("first settings", &e))
}

/// Pools and classes of the configuration; afterwards operators change them by command.
fn first_settings(catalog: &Catalog, config: &Config) -> Result<(), Failure> {
    let fail = |e| refused("first settings", &e);
    for pool in &config.pools {
        let (name, max_volumes) = (PoolName(pool.name.clone()), pool.max_volumes);
        let (max_bytes, format, worm) = (pool.max_bytes.0, pool.format, pool.worm);
        let pool = Pool { max_volumes, max_bytes, format, worm, ..Pool::new(name) };
        catalog.put_pool(&pool).map_err(fail)?;
    }
    for class in &config.classes {
        catalog.put_class(&Class::from(class)).map_err(fail)?;
    }
    while catalog.refresh_classes(1_000, crate::now()).map_err(fail)? {}
    Ok(())
}

/// Brings catalogue and disk together after whatever ended the last run.
pub(crate) fn recover(node: &Node) -> Result<(), Failure> {
    let fail = |e| refused("recovery", &e);
    let cx = Cx::admin(crate::now());
    for ino in node.catalog.writing().map_err(fail)? {
        let Ok(inode) = node.catalog.inode(ino) else { continue };
        let Some(object) = inode.file.as_ref().and_then(|f| f.object) else {
            node.catalog.clear_writing(ino).map_err(fail)?;
            continue;
        };
        if inode.file.is_some_and(|f| f.far) {
            node.open.left_by_earlier(ino);
            continue; // its targets may not answer yet: see `Node::tend_far`
        }
        match node.disk.open_object(object, true) {
            Ok(fd) => {
                // Bytes may have changed without the times having reached the disk: a fresh change time makes the
                // content count as changed whatever the stamp says.
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::fchmod(&fd, mode).map_err(|e| io(&node.disk.path(object), &e.into()))?;
                let stamp = node.disk.stamp(&fd).map_err(|e| failure(e.class(), e.to_string()))?;
                node.catalog.observe(&cx, ino, object, &stamp, true, Durability::Relaxed).map_err(fail)?;
            }
            Err(e) => tracing::error!("inode {ino} was open for writing when the last run ended, and {e}"),
        }
    }
    for ino in node.catalog.orphans().map_err(fail)? {
        node.catalog.reap(ino).map_err(fail)?;
    }
    let ended_before = Time::from_nanos(cx.now.as_nanos() - KEEP_REQUESTS.as_nanos() as i64);
    while node.catalog.prune_requests(ended_before, 1_000).map_err(fail)? > 0 {}
    node.movers.begin_after(node.catalog.next_object().map_err(fail)?);
    let swept = node.objects.sweep(&node.catalog, &node.disk).map_err(|e| fs_failure("recovery", e))?;
    if swept > 0 {
        tracing::info!("recovery removed {swept} disk objects that belonged to nobody");
    }
    node.objects.top_up(&node.catalog, &node.disk).map_err(|e| fs_failure("disk objects", e))?;
    node.look_at_space().map(drop).map_err(|e| fs_failure("disk tier", e))
}

/// Continues what users had asked for when the last run ended.
pub(crate) fn resume(node: &Arc<Node>) -> Result<(), Failure> {
    let fail = |e| refused("resume requests", &e);
    for request in node.catalog.open_requests().map_err(fail)? {
        match request.kind {
            RequestKind::Stage => resume_stage(node, &request)?,
            RequestKind::Migrate => node.governor.wake(),
            RequestKind::Verify | RequestKind::Repack | RequestKind::Export => node.keeper.wake(),
            RequestKind::Drain | RequestKind::Balance | RequestKind::Scrub | RequestKind::Protect => {} // they go on by themselves
            RequestKind::MoveEngine => node.resume_engine_move(&request)?,
            RequestKind::Purge | RequestKind::Label | RequestKind::Rebuild | RequestKind::Import => {
                let now = crate::now();
                let end = &mut |r: &mut Request| {
                    r.state = RequestState::Failed;
                    r.finished = Some(now);
                    r.message = "the node was restarted meanwhile; ask again".into();
                };
                node.catalog.update_request(request.id, end).map_err(fail)?;
            }
        }
    }
    Ok(())
}

fn resume_stage(node: &Node, request: &Request) -> Result<(), Failure> {
    let id = request.id;
    let (uid, priority) = (Some(request.owner), Some(request.priority));
    let wish = Wish { uid, reader: false, priority, deadline: request.deadline };
    let mut after = Ino(0);
    loop {
        let page = node.catalog.items(id, after, 1_000).map_err(|e| refused("resume requests", &e))?;
        let Some(&(last, ..)) = page.last() else { return Ok(()) };
        after = last;
        let mut tasks = Vec::new();
        for (ino, state, bytes) in page {
            if state != ItemState::Pending {
                continue;
            }
            match node.join_recall(ino, wish) {
                Ok(Joined::Begun(task, _)) => tasks.push(task),
                Ok(Joined::Running(_)) => {}
                Ok(Joined::Resident) => node.finish_item(ino, RequestKind::Stage, &ItemState::Done, bytes),
                Err(e) => node.finish_item(ino, RequestKind::Stage, &ItemState::Failed(e.to_string()), 0),
            }
        }
        node.archive.send(Event::Recall(tasks));
    }
}
