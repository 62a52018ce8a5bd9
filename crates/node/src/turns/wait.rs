//! Waiting for a turn: a process that has no engine, and takes the database when nobody has it.

use super::known::Known;
use super::pause;
use super::told::{self, Told, Way};
use crate::Config;
use crate::cluster::{Member, Own, renew_member};
use crate::engine::Opened;
use crate::error::{failure, refused};
use crate::movers::MasterKey;
use crate::standby::kept;
use crate::standby::listen::{Answers, listen_here};
use crate::startup::{patiently, prepare};
use catalog::Catalog;
use kv::{Movable, Place, Seen};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId, NodeId};
use wire::{Call, Failure, KeptFile, Reply, TurnState, TurnsView};

/// Between two times that what is needed besides the catalogue is fetched.
const FETCH: Duration = Duration::from_secs(30);
/// After so long it is worth saying that the database has not answered.
const SILENT: Duration = Duration::from_secs(3);
/// Between two looks whether this host still waits.
const RENEWAL_LOOK: Duration = Duration::from_millis(200);
/// Lets the answer to who ordered the end get there.
const PARTING: Duration = Duration::from_millis(300);

/// How waiting ended.
pub enum Waited {
    /// The process was told to stop.
    Stopped,
    /// It is this node's turn: start it.
    Turn(Turn),
}

/// The engine, held by this node from now on.
pub struct Turn {
    engine: Arc<Movable<Opened>>,
    /// This node's name there.
    name: String,
    /// Who else there is, as it was seen last.
    seen: Seen,
    known: Arc<Mutex<Known>>,
    /// It has lost so many openings, and an operator has given them up.
    lost: Option<u64>,
}

impl Turn {
    /// This node's name, and who else there is.
    pub(crate) fn seen(&self) -> (String, Seen) {
        (self.name.clone(), self.seen.clone())
    }

    /// Whether somebody had the engine before, who may hold library and drives still: another host, or this one before it died.
    pub fn follows(&self) -> bool {
        self.seen.owner.is_some()
    }

    /// Whatever is made from now on must not be taken for what was made before: an object of this node's disk tier for one of another's, and what has the number of
    /// something that the database may have lost unseen for that. Where it is known to have lost something, volumes may hold more than it knows, too.
    pub(crate) fn begin(self) -> Result<Arc<Movable<Opened>>, Failure> {
        let settle = || {
            let catalog = Catalog::open(self.engine.clone(), crate::now())?;
            match self.lost {
                Some(_) => catalog.mark_restored(crate::now())?,
                None => catalog.skip_numbers(crate::now())?,
            }
            // Each opening that was lost had one.
            catalog.turn_above(catalog.turn()?.saturating_add(self.lost.unwrap_or_default()))?;
            catalog.sync()
        };
        settle().map_err(|e| refused("taking over", &e))?;
        if let Some(reached) = self.engine.engine().reached() {
            self.known.lock().goes_on(&self.name, reached)?;
        }
        Ok(self.engine)
    }
}

/// Opens the engine; with true it may be made. One that has not been at this place is left as it is.
type OpenEngine = fn(&Config, bool, Option<Place>) -> Result<Arc<Movable<Opened>>, Failure>;

struct Waiting {
    config: Config,
    open: OpenEngine,
    known: Arc<Mutex<Known>>,
    /// Held while what is needed besides the catalogue, or another certificate, is put somewhere; true: this node serves, and nothing more is kept beside.
    kept: Mutex<bool>,
    lease: Duration,
    now: Mutex<Now>,
    begun: Instant,
    /// Somebody has had the database while this process looked.
    had_owner: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct Now {
    seen: Seen,
    trouble: Option<String>,
    lacks: Option<String>,
    /// When the other one was asked for what is needed besides the catalogue.
    asked: Option<Instant>,
    /// It has not answered yet.
    asking: bool,
}

/// Waits until no other node has the database, and takes it. What is needed besides it is fetched from the one that serves meanwhile.
///
/// # Errors
/// The state directory, the configuration or the database cannot be used.
pub fn wait_for_turn(config: &Config, stopped: &AtomicBool) -> Result<Waited, Failure> {
    config.validate().map_err(|e| failure(ErrorClass::Invalid, format!("configuration: {e}")))?;
    let state = &config.state_dir;
    let (lock, fresh) = patiently(|| prepare(state))?;
    let waiting = Arc::new(Waiting::new(config, crate::engine::open_in_turn, Known::open(state)?));
    let waited = waiting.wait(stopped, fresh);
    waiting.ended.store(true, Ordering::Release);
    drop(lock); // the node takes it anew
    waited
}

impl Waiting {
    fn new(config: &Config, open: OpenEngine, known: Known) -> Self {
        let lacks = Some("it was started a moment ago".into());
        Self {
            config: config.clone(),
            open,
            known: Arc::new(Mutex::new(known)),
            kept: Mutex::new(false),
            lease: config.turn().unwrap_or_default(),
            now: Mutex::new(Now { lacks, ..Now::default() }),
            begun: Instant::now(),
            had_owner: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    fn wait(self: &Arc<Self>, stopped: &AtomicBool, fresh: bool) -> Result<Waited, Failure> {
        let (mut way, since) = (Way::of(&self.config)?, crate::now().secs);
        listen_here(self.clone(), &self.config)?;
        self.begin_to_renew()?;
        let mut said = false;
        loop {
            if let Some(turn) = self.look(&mut way, since, fresh)? {
                tracing::info!("it is this node's turn");
                return Ok(Waited::Turn(turn));
            }
            if !std::mem::replace(&mut said, true) {
                tracing::info!("this node waits for its turn with the database");
            }
            if stopped.load(Ordering::Acquire) || self.ended.load(Ordering::Acquire) {
                self.keep_known();
                std::thread::sleep(PARTING);
                let _ = std::fs::remove_file(self.config.socket_path()); // the next start does it otherwise
                return Ok(Waited::Stopped);
            }
            std::thread::sleep(pause(self.lease));
        }
    }

    /// Tells the others, and takes the database if it may. Only what somebody has to change in the configuration is an error: all else may be mended while nobody
    /// looks at this host, and is tried on.
    fn look(self: &Arc<Self>, way: &mut Way, since: i64, fresh: bool) -> Result<Option<Turn>, Failure> {
        match self.try_look(way, since, fresh) {
            Err(e) if e.class != ErrorClass::Invalid => {
                self.trouble(e);
                Ok(None)
            }
            looked => {
                self.now.lock().trouble = None;
                looked
            }
        }
    }

    fn try_look(self: &Arc<Self>, way: &mut Way, since: i64, fresh: bool) -> Result<Option<Turn>, Failure> {
        let own = {
            let _none_is_put_there = self.kept.lock();
            crate::cluster::own(&self.config)?.map(Arc::new)
        };
        let lacks = self.now.lock().lacks.clone();
        let member = own.as_ref().and_then(|own| own.number());
        let told = Told { member, lacks, ..Told::of(&self.config, since) };
        let seen = way.tell(&told).inspect_err(|_| self.keep_known())?;
        let owner = seen.owner.clone();
        self.had_owner.fetch_or(owner.is_some(), Ordering::AcqRel);
        self.now.lock().seen = seen.clone();
        let lacks = self.fetch(own.as_ref(), &way.name);
        if let Some(why) = lacks.as_ref().filter(|why| self.now.lock().lacks.as_ref() != Some(why)) {
            tracing::warn!("this node cannot serve yet: {why}");
        }
        self.now.lock().lacks.clone_from(&lacks);
        let lost =
            owner.as_ref().map(|owner| self.known.lock().compare(&way.name, owner)).transpose()?.flatten();
        if owner.as_ref().is_some_and(|owner| owner.live) || lacks.is_some() {
            return Ok(None);
        }
        // Where tables are missing that others have used (a dump is being restored) no new catalogue begins.
        let first = (own.is_none() || self.subsystem()) && !self.is_kept();
        let has_been = self.known.lock().place();
        let create = fresh && first && !self.had_owner.load(Ordering::Acquire) && has_been.is_none();
        // Before the engine is taken: a full disk must not keep it from the others.
        self.known.lock().keep()?;
        let mut serves = self.kept.lock();
        if self.is_kept() {
            kept::install(&self.config.state_dir)?;
        }
        let engine = (self.open)(&self.config, create, has_been)?;
        if self.subsystem() {
            MasterKey::open(&self.config.state_dir)?;
        }
        *serves = true;
        Ok(Some(Turn { engine, name: way.name.clone(), seen, known: self.known.clone(), lost }))
    }

    /// The database does not answer, or nobody looks any more.
    fn keep_known(&self) {
        if let Err(e) = self.known.lock().keep() {
            tracing::warn!("how far the database was is not written down: {e}");
        }
    }

    fn trouble(&self, e: Failure) {
        let mut now = self.now.lock();
        if now.trouble.as_ref() != Some(&e.message) {
            tracing::warn!("{e}; it is tried on");
        }
        now.trouble = Some(e.message);
    }

    /// Has what is not in the catalogue fetched from the node that serves. What is missing, if this node could not serve without it.
    fn fetch(self: &Arc<Self>, own: Option<&Arc<Own>>, name: &str) -> Option<String> {
        let server = self.server(name);
        let Some(own) = own else {
            let why =
                "the node that serves belongs to a cluster, and this one does not: `thermo cluster join`";
            return server.and_then(|server| server.member).map(|_| why.into());
        };
        let has = self.has_keys(own, name);
        let due = {
            let now = self.now.lock();
            let live = now.seen.owner.as_ref().is_some_and(|owner| owner.live);
            (live || !has) && !now.asking && now.asked.is_none_or(|at| at.elapsed() >= FETCH)
        };
        if let (true, Some(server)) = (due, &server) {
            self.begin_to_fetch(own.clone(), server.clone(), name.to_owned());
        }
        let from = server.map_or_else(String::new, |server| format!(" at {}", server.addresses.join(" ")));
        (!has)
            .then(|| format!("the keys of the cluster were not fetched yet from the node that serves{from}"))
    }

    fn has_keys(&self, own: &Own, name: &str) -> bool {
        let has = if self.subsystem() {
            // Of a namespace that nobody has had yet this node makes them.
            kept::has_served(&self.config.state_dir)
                || self.now.lock().seen.owner.as_ref().is_none_or(|owner| owner.name == name)
        } else {
            own.admits()
        };
        has || self.is_kept()
    }

    fn subsystem(&self) -> bool {
        self.config.cluster.subsystem.is_some()
    }

    fn is_kept(&self) -> bool {
        kept::is_complete(&self.config.state_dir, self.subsystem())
    }

    /// Beside the looks: one that stands still keeps nobody from taking over.
    fn begin_to_fetch(self: &Arc<Self>, own: Arc<Own>, server: Told, name: String) {
        {
            let mut now = self.now.lock();
            (now.asking, now.asked) = (true, Some(Instant::now()));
        }
        let waiting = self.clone();
        let spawned = crate::startup::spawn(None, "turn-keys", move || {
            let fetched = waiting.fetch_now(&own, &server);
            if let Err(e) = &fetched {
                tracing::debug!("what is needed to serve the cluster is not fetched: {e}");
            }
            let again = fetched.is_err() && !waiting.has_keys(&own, &name);
            let mut now = waiting.now.lock();
            now.asking = false;
            now.asked = now.asked.filter(|_| !again);
        });
        if spawned.is_err() {
            self.now.lock().asking = false;
        }
    }

    /// Sees to it that the certificate of this host does not end while it waits.
    fn begin_to_renew(self: &Arc<Self>) -> Result<(), Failure> {
        let waiting = self.clone();
        let renewing = crate::startup::spawn(None, "turn-certificate", move || {
            while waiting.goes_on() {
                let next = Instant::now() + renew_member(&*waiting);
                while waiting.goes_on() && Instant::now() < next {
                    std::thread::sleep(RENEWAL_LOOK);
                }
            }
        });
        renewing.map(drop)
    }

    /// What the other node told that has, or had, the database.
    fn server(&self, name: &str) -> Option<Told> {
        let Seen { owner, takers } = &self.now.lock().seen;
        let owner = owner.as_ref().filter(|owner| owner.name != name)?;
        takers.iter().find(|taker| taker.name == owner.name).map(|taker| Told::read(&taker.told))
    }

    fn fetch_now(&self, own: &Own, server: &Told) -> Result<(), Failure> {
        let whom = server.member.map(|number| MemberId::Node(NodeId(number)));
        match own.ask(&server.addresses, whom, &Call::TurnKept)? {
            Reply::Kept(files) => {
                let serves = self.kept.lock();
                if *serves { Ok(()) } else { self.keep_files(own, files) }
            }
            _ => Err(failure(ErrorClass::Bug, "keys were asked for, and something else came")),
        }
    }

    /// Who was removed is known here at once if the first node tells a member of a subsystem: what it told this host may be later than what the other one has.
    fn keep_files(&self, own: &Own, mut files: Vec<KeptFile>) -> Result<(), Failure> {
        let removed = if self.subsystem() { kept::take_removed(&mut files) } else { None };
        kept::keep(&self.config.state_dir, &files)?;
        removed.map_or(Ok(()), |list| own.note_removed(&self.config.state_dir, &list).map(drop))
    }

    fn view(&self) -> TurnsView {
        let now = self.now.lock();
        let silent = now.seen.owner.is_none() && self.begun.elapsed() > SILENT;
        let trouble = || silent.then(|| "the database has not answered yet".to_owned());
        let trouble = now.trouble.clone().or_else(trouble);
        TurnsView { trouble, ..told::view(&now.seen, self.lease, true) }
    }
}

impl Member for Waiting {
    const WHAT: &str = "this node, which waits for its turn,";

    fn config(&self) -> &Config {
        &self.config
    }

    fn signers(&self) -> Vec<String> {
        if self.subsystem() {
            return Vec::new(); // who serves that admits nobody
        }
        let Seen { owner, takers } = self.now.lock().seen.clone();
        let owner = owner.filter(|owner| owner.live);
        let serves = |taker: &&kv::Taker| owner.as_ref().is_some_and(|owner| owner.name == taker.name);
        takers.iter().find(serves).map(|taker| Told::read(&taker.told).addresses).unwrap_or_default()
    }

    fn keeps(&self, put: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let serves = self.kept.lock();
        if *serves { Ok(()) } else { put() }
    }
}

impl Answers for Waiting {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// What people of this host ask.
    fn answer(&self, call: Call, administrator: bool) -> Result<Reply, Failure> {
        match call {
            Call::Turns => Ok(Reply::Turns(Box::new(self.view()))),
            Call::Down { .. } if !administrator => {
                Err(failure(ErrorClass::Denied, "that is for the administrator, and for who runs this node"))
            }
            Call::Down { .. } => {
                self.ended.store(true, Ordering::Release);
                Ok(Reply::Done)
            }
            _ => {
                let view = self.view();
                let served = view.nodes.iter().find(|node| node.state == TurnState::Serves).map_or_else(
                    || "no other node serves now".into(),
                    |node| format!("the names are at {} ({})", node.host, node.addresses.join(" ")),
                );
                let message = format!(
                    "this node waits for its turn: {served}; ask there, or see `thermo cluster status`"
                );
                Err(failure(ErrorClass::Busy, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::{Authority, Credentials, Key, Uuid, Validity};
    use kv::Taker;
    use kv::{KvError, Reached, SeenOwner, Turns};
    use std::fs;
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};

    /// What a look finds.
    struct Finds(Box<dyn FnMut() -> kv::Result<Seen> + Send>);

    impl Turns for Finds {
        fn tell(&mut self, _told: &str) -> kv::Result<Seen> {
            (self.0)()
        }
    }

    fn finds(found: impl FnMut() -> kv::Result<Seen> + Send + 'static) -> Way {
        Way::over(Finds(Box::new(found)))
    }

    /// An engine whose last owner was called this.
    fn of(name: &str, live: bool) -> Seen {
        let owner = Some(SeenOwner { name: name.into(), reached: Reached { epoch: 3, number: 9 }, live });
        Seen { owner, takers: Vec::new() }
    }

    /// Waits with a new state directory.
    fn waiting(state: &Path, open: OpenEngine) -> Arc<Waiting> {
        let config = Config { state_dir: state.into(), ..Config::default() };
        Arc::new(Waiting::new(&config, open, Known::open(state).unwrap()))
    }

    /// Instead of a database.
    fn embedded(
        config: &Config,
        _create: bool,
        _has_been: Option<Place>,
    ) -> Result<Arc<Movable<Opened>>, Failure> {
        let dir = config.state_dir.join("engine");
        let engine = crate::startup::open_engine(&dir, None, None, None)?;
        Ok(Arc::new(Movable::new(Opened::Embedded(Arc::new(engine)))))
    }

    fn full() -> KvError {
        KvError::Full { path: PathBuf::new() }
    }

    #[test]
    fn whatever_somebody_may_mend_elsewhere_is_tried_on_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let look = |waiting: &Arc<Waiting>, way: &mut Way| waiting.look(way, 0, false);
        // The server has no space; then it has, and its tables are of another release.
        let mut way = finds(|| Err(full()));
        let waits = waiting(dir.path(), |_, _, _| Err(failure(ErrorClass::Invalid, "another format")));
        assert!(look(&waits, &mut way).unwrap().is_none());
        let trouble = waits.view().trouble.unwrap();
        assert!(trouble.contains("no space"), "{trouble}");
        assert!(look(&waits, &mut finds(|| Ok(of("other", true)))).unwrap().is_none());
        assert_eq!(waits.view().trouble, None);
        let wrong = look(&waits, &mut finds(|| Ok(of("other", false)))).err().unwrap();
        assert_eq!(wrong.message, "another format");
        // It cannot be opened.
        let opens: [OpenEngine; 2] = [
            |_, _, _| Err(failure(crate::engine::class(&full()), "not now")),
            |_, _, _| Err(failure(ErrorClass::Corrupt, "not now")),
        ];
        for open in opens {
            let waits = waiting(dir.path(), open);
            assert!(look(&waits, &mut finds(|| Ok(of("other", false)))).unwrap().is_none());
            assert_eq!(waits.view().trouble.as_deref(), Some("not now"));
        }
    }

    /// The directory of a member of a cluster; the key of its authority.
    fn member(state: &Path) -> Vec<u8> {
        let (key, now) = (Key::generate().unwrap(), crate::now().secs as u64);
        let signs = Key::generate().unwrap();
        let der = signs.to_der();
        let authority = Authority::create(Uuid::new_v4(), signs, now).unwrap();
        let role = ident::Role::Node(NodeId(2));
        let signed = authority.sign(&key.request().unwrap(), role, Validity::of_member(now, 3600)).unwrap();
        let own = Credentials::new(signed.to_vec(), key, authority.certificate().to_vec()).unwrap();
        own.prepare(&state.join("cluster")).unwrap();
        Credentials::commit(&state.join("cluster")).unwrap();
        der
    }

    #[test]
    fn keys_that_get_no_place_keep_the_engine_from_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| wire::KeptFile { name: name.into(), bytes: bytes.into() };
        let keys = [file("cluster/authority-key.der", &member(dir.path())), file("targets.key", b"x")];
        kept::keep(dir.path(), &keys).unwrap();
        // One of them cannot be put where it belongs.
        let path = dir.path().join("targets.key");
        fs::create_dir_all(path.join("in the way")).unwrap();
        let (waits, mut way) = (waiting(dir.path(), embedded), finds(|| Ok(of("other", false))));
        assert!(waits.look(&mut way, 0, false).unwrap().is_none());
        let trouble = waits.view().trouble.unwrap();
        assert!(trouble.contains("targets.key") && !dir.path().join("engine").exists(), "{trouble}");
        fs::remove_dir_all(&path).unwrap();
        assert!(waits.look(&mut way, 0, false).unwrap().is_some(), "{:?}", waits.view().trouble);
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn one_that_stands_still_while_it_is_asked_for_keys_keeps_nobody_from_taking_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| wire::KeptFile { name: name.into(), bytes: bytes.into() };
        let keys = [file("cluster/authority-key.der", &member(dir.path())), file("targets.key", b"x")];
        kept::keep(dir.path(), &keys).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // it takes connections, and answers nothing
        let addresses = vec![silent.local_addr().unwrap().to_string(); 2];
        let told = toml::to_string(&Told { addresses, member: Some(1), ..Told::default() }).unwrap();
        let mut live = true;
        let mut way = finds(move || {
            let seen = of("other", std::mem::take(&mut live));
            let takers = vec![Taker { name: "other".into(), told: told.clone(), ago: Duration::ZERO }];
            Ok(Seen { takers, ..seen })
        });
        let (waits, begin) = (waiting(dir.path(), embedded), Instant::now());
        assert!(waits.look(&mut way, 0, false).unwrap().is_none());
        assert!(waits.now.lock().asking && waits.view().nodes.len() == 1);
        let turn = waits.look(&mut way, 0, false).unwrap().expect("its turn");
        assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        assert!(turn.follows() && waits.now.lock().asking);
        // What comes too late is not kept.
        assert!(*waits.kept.lock());
    }

    #[test]
    fn an_engine_that_lost_something_is_not_taken_before_an_operator_gives_that_up() {
        let dir = tempfile::tempdir().unwrap();
        let known = dir.path().join("engine-reached");
        fs::write(&known, "3 10 other\n").unwrap();
        let (waits, mut way) = (waiting(dir.path(), embedded), finds(|| Ok(of("other", false))));
        assert!(waits.look(&mut way, 0, false).unwrap().is_none());
        let trouble = waits.view().trouble.unwrap();
        assert!(
            trouble.contains("change 9 of opening 3") && trouble.contains("was at change 10"),
            "{trouble}"
        );
        assert!(!dir.path().join("engine").exists());
        fs::rename(&known, dir.path().join("engine-reached.given-up")).unwrap();
        let turn = waits.look(&mut way, 0, false).unwrap().expect("its turn");
        assert_eq!(turn.lost, Some(0));
    }

    /// The numbers of what is made in its turn are none that were given before, whatever the database has lost.
    #[test]
    fn a_turn_begins_with_numbers_that_nothing_ever_had() {
        let dir = tempfile::tempdir().unwrap();
        let (waits, mut way) = (waiting(dir.path(), embedded), finds(|| Ok(Seen::default())));
        let turn = waits.look(&mut way, 0, false).unwrap().expect("its turn");
        assert!(!turn.follows(), "nobody had it");
        let engine = turn.begin().unwrap();
        let catalog = Catalog::open(engine, crate::now()).unwrap();
        let (cx, new) =
            (types::Cx::admin(crate::now()), catalog::New::node(types::FileKind::Directory, 0o755));
        let made = catalog.create(&cx, types::Ino::ROOT, b"d", &new).unwrap();
        // They begin with the second in which it began.
        assert!(made.attr.ino.0 >> 20 > 1_700_000_000, "{}", made.attr.ino);
    }

    /// Who belongs to the cluster is the first node's: of a subsystem's keys only the one of its targets goes from host to host.
    #[test]
    fn the_first_host_of_a_subsystem_makes_its_key_and_others_wait_until_they_have_it() {
        let subsystem = |state: &Path| {
            let mut config = Config { state_dir: state.into(), ..Config::default() };
            config.cluster.subsystem = Some("scratch".into());
            Arc::new(Waiting::new(&config, embedded, Known::open(state).unwrap()))
        };
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for dir in [&first, &second] {
            member(dir.path());
        }
        let key = |dir: &tempfile::TempDir| fs::read(dir.path().join("targets.key"));
        let mut nobody = finds(|| Ok(Seen::default()));
        assert!(subsystem(first.path()).look(&mut nobody, 0, true).unwrap().is_some(), "its turn");
        let made = key(&first).unwrap();
        // It died before it had told anybody: the other one knows less.
        let mut gone = finds(|| Ok(of("other", false)));
        let waits = subsystem(second.path());
        assert!(waits.look(&mut gone, 0, true).unwrap().is_none());
        assert!(waits.now.lock().lacks.as_ref().unwrap().contains("not fetched yet"));
        assert!(key(&second).is_err());
        kept::keep(second.path(), &kept::gather(first.path(), true).unwrap()).unwrap();
        assert!(waits.look(&mut gone, 0, true).unwrap().is_some(), "its turn");
        assert_eq!(key(&second).unwrap(), made);
        // The first one comes back, and has served.
        let mut own = finds(|| Ok(of("other", false)));
        assert!(subsystem(first.path()).look(&mut own, 0, false).unwrap().is_some());
    }
}
