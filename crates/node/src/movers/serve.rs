//! The mover of this node: it reports its targets to the first node again and again, gets their numbers and secrets from it, and serves
//! them once it has those.

use super::REPORT_EVERY;
use super::apart::Apart;
use super::known::{Disks, Said};
use super::near::Near;
use crate::Node;
use crate::config::TargetConfig;
use crate::error::failure;
use mover::{Mover, Secrets, Target, TargetError};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId};
use wire::{Call, Failure, JoinSecret, Reply, TargetGrant, TargetOrder, TargetReport};

/// Before the next attempt where the first node does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the connection that wakes the listener when it is to end.
const WAKE: Duration = Duration::from_secs(1);

/// Longest wait for what was begun at a target before it takes new secrets ...
const PATIENCE: Duration = Duration::from_secs(1);
/// ... and until its disk has written down of which turn they are.
const WRITING: Duration = Duration::from_secs(2);
/// Longest wait for disks that are asked how full they are: whoever answers later is reported later.
const ASKING: Duration = Duration::from_secs(1);
/// Longest wait for targets that are opened: whoever takes longer is served later.
const OPENING: Duration = Duration::from_secs(1);

/// Least time between two reports.
const LEAST: Duration = Duration::from_millis(200);

/// What the thread that reports waits for.
#[derive(Default)]
struct Wakes {
    state: Mutex<Woken>,
    changed: Condvar,
}

#[derive(Default)]
struct Woken {
    stop: bool,
    /// Somebody knows of a turn of which this mover has not heard.
    behind: bool,
}

impl Wakes {
    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    fn is_behind(&self) {
        self.state.lock().behind = true;
        self.changed.notify_all();
    }

    /// Waits; true if there is to be no other report.
    fn wait(&self, pause: Duration) -> bool {
        let begin = Instant::now();
        let mut state = self.state.lock();
        while !state.stop {
            let pause = if state.behind { LEAST } else { pause };
            if begin.elapsed() >= pause {
                break;
            }
            self.changed.wait_until(&mut state, begin + pause);
        }
        // Whoever finds that from here on asks once more.
        state.behind = false;
        state.stop
    }
}

/// Serves the targets of a node until it is dropped.
pub struct TargetServer {
    wakes: Arc<Wakes>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Serves what `[[targets]]` says, now or later; None if the node moves no bytes. Until it is a member of a cluster, and has targets, it waits.
///
/// # Errors
/// `cluster.data_listen` cannot be used.
pub fn serve_targets(node: &Arc<Node>) -> Result<Option<TargetServer>, Failure> {
    let Some(listen) = node.config.cluster.data_listen else {
        return Ok(None);
    };
    let fail = |e: std::io::Error| {
        let hint = "is that an address of this host, and free?";
        failure(ErrorClass::Invalid, format!("cluster.data_listen = \"{listen}\": {e}; {hint}"))
    };
    let listener = TcpListener::bind(listen).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let wakes = Arc::new(Wakes::default());
    let (node, waking) = (Arc::downgrade(node), wakes.clone());
    let thread = std::thread::Builder::new()
        .name("targets".into())
        .spawn(move || serve(&node, listener, address, &waking))
        .map_err(fail)?;
    Ok(Some(TargetServer { wakes, thread: Some(thread) }))
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        self.wakes.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What is served, once the first report is answered. A target whose disk answers later is served from then on.
struct Serving {
    cluster: [u8; 16],
    mover: Arc<Mover>,
    targets: BTreeMap<String, Arc<Target>>,
    /// With what those that are not open yet are to be opened.
    granted: BTreeMap<String, TargetGrant>,
    opens: Apart<Result<Target, TargetError>>,
    tells: Apart<Result<(), TargetError>>,
    thread: std::thread::JoinHandle<()>,
    /// For programs of this host.
    near: Option<Near>,
}

impl Serving {
    /// Opens those that may be served and are not open yet; why one is not. One that hangs keeps none of the others from it.
    fn open(&mut self, found: &[Found]) -> Result<(), Failure> {
        let closed = |uuid: &String| !self.targets.contains_key(uuid);
        let asked = found.iter().filter(|(_, report)| closed(&report.uuid)).filter_map(|(config, report)| {
            let (grant, path, cluster) =
                (self.granted.get(&report.uuid)?.clone(), config.path.clone(), self.cluster);
            let open = move || Target::open(grant.id, cluster, &path, secrets(&grant));
            Some((report.uuid.clone(), open))
        });
        let mut outcome = Ok(());
        for (uuid, opened) in self.opens.ask(asked, OPENING) {
            let why = match opened {
                Some(Ok(target)) => {
                    tracing::info!("target {} is served", target.id());
                    self.granted.remove(&uuid);
                    self.targets.insert(uuid, Arc::new(target));
                    continue;
                }
                Some(Err(e)) => format!("target {uuid} is not served: {e}"),
                None => format!(
                    "target {uuid} is not served yet: it is being opened, and what a crash has left there may be looked at; if that goes on, its disk hangs: look at the kernel log"
                ),
            };
            outcome = Err(failure(ErrorClass::Retry, why));
        }
        outcome
    }

    /// Whether a target is to be reported: one that may be served and does not get open is as one that is away.
    fn reports(&self, uuid: &str) -> bool {
        !self.granted.contains_key(uuid)
    }

    /// Notes with what those that are not open yet are to be opened.
    fn grant(&mut self, grants: &[TargetGrant]) {
        let closed = grants.iter().filter(|grant| !self.targets.contains_key(&grant.uuid));
        self.granted.extend(closed.map(|grant| (grant.uuid.clone(), grant.clone())));
    }

    /// Takes new secrets; one target that does not keeps none of the others from it.
    fn take(&mut self, grants: &[TargetGrant]) -> Result<(), Failure> {
        let told = grants.iter().filter_map(|grant| {
            let target = self.targets.get(&grant.uuid)?.clone();
            let secrets = secrets(grant);
            Some((grant.uuid.clone(), move || target.set_secrets(secrets, PATIENCE)))
        });
        let mut outcome = Ok(());
        for (uuid, taken) in self.tells.ask(told, WRITING) {
            let foreign = matches!(taken, Some(Err(TargetError::Foreign { .. })));
            if let Some(target) = self.targets.get(&uuid).filter(|_| taken.is_some() && !foreign) {
                // Not before it was told of the present turn: it may have been opened with the secrets of an earlier one.
                // Its name is there first: whoever finds it served goes that way.
                if let Some(near) = &mut self.near {
                    near.name(target.id());
                }
                self.mover.add(target);
            }
            let why = match taken {
                Some(Ok(())) => continue,
                Some(Err(e)) => e.to_string(),
                None => format!(
                    "target {uuid} takes no new secrets: its disk does not write down whose they are; if that goes on, it hangs: look at the kernel log"
                ),
            };
            outcome = Err(failure(ErrorClass::Retry, why));
        }
        outcome
    }
}

/// A target of the configuration, and what is reported of it.
type Found = (TargetConfig, TargetReport);

/// What this node asks its disks.
struct Looks {
    disks: Arc<Disks>,
    asked: Apart<Result<Said, Failure>>,
}

impl Looks {
    fn of(state: &Path) -> Self {
        Self { disks: Arc::new(Disks::of(state)), asked: Apart::default() }
    }

    /// What each of them says; one that hangs keeps none of the others from it.
    fn look(&mut self, targets: &[TargetConfig], patience: Duration) -> Vec<Result<Said, Failure>> {
        let questions = targets.iter().map(|target| {
            let (disks, path) = (self.disks.clone(), target.path.clone());
            (path.display().to_string(), move || disks.look(&path))
        });
        let late = |path: &str| {
            let message = format!(
                "target {path}: its disk does not say how full it is, so it is not reported and counts as down; if that goes on, it hangs: look at the kernel log"
            );
            Err(failure(ErrorClass::Retry, message))
        };
        let said = self.asked.ask(questions, patience).into_iter();
        said.map(|(path, said)| said.unwrap_or_else(|| late(&path))).collect()
    }
}

fn serve(node: &Weak<Node>, listener: TcpListener, address: SocketAddr, wakes: &Arc<Wakes>) {
    let mut listener = Some(listener);
    let mut serving: Option<Serving> = None;
    let mut told = String::new();
    let mut looks = None;
    while let Some(node) = node.upgrade() {
        let looks = looks.get_or_insert_with(|| Looks::of(&node.config.state_dir));
        let outcome = node.tend_targets(&mut listener, &mut serving, looks, wakes);
        drop(node);
        let pause = match &outcome {
            Ok(()) => REPORT_EVERY,
            Err(e) => {
                if e.message != told {
                    tracing::warn!("the targets of this node: {e}; tried again every second");
                }
                RETRY
            }
        };
        told = outcome.err().map(|e| e.message).unwrap_or_default();
        if wakes.wait(pause) {
            break;
        }
    }
    let Some(Serving { mover, thread, near, .. }) = serving else { return };
    near.iter().for_each(Near::hide);
    if let Err(e) = mover.stop() {
        tracing::error!(
            "the targets of this node could not be closed well: {e}; they are repaired at the next start"
        );
    }
    // Whether it succeeds does not matter.
    let _ = TcpStream::connect_timeout(&super::reachable(address), WAKE);
    let _ = thread.join();
    if let Some(near) = near {
        near.end();
    }
}

impl Node {
    /// Reports the targets, and begins to serve when that is answered for the first time; later it takes the new secrets.
    fn tend_targets(
        &self,
        listener: &mut Option<TcpListener>,
        serving: &mut Option<Serving>,
        looks: &mut Looks,
        wakes: &Arc<Wakes>,
    ) -> Result<(), Failure> {
        let Some(own) = self.membership()? else { return Ok(()) };
        if serving.is_none() && self.settings().targets.is_empty() {
            return Ok(());
        }
        let (mut found, mut missing) = self.own_targets(looks);
        if let Some(serving) = serving.as_mut() {
            missing = serving.open(&found).err().or(missing);
            found.retain(|(_, report)| serving.reports(&report.uuid));
            for (_, report) in &mut found {
                report.turn = serving.targets.get(&report.uuid).map_or(0, |served| served.reported_turn());
            }
        }
        let order = TargetOrder {
            data: self.config.cluster.data(),
            targets: found.iter().map(|(_, report)| report.clone()).collect(),
        };
        let mut grants = match (own.holds_names(), super::node_of(&own)) {
            (true, MemberId::Node(id)) => self.report_targets(id, &order)?,
            _ => match self.ask_of_names(&own, Call::ReportTargets(order))? {
                Reply::TargetGrants(grants) => grants,
                _ => return Err(failure(ErrorClass::Bug, "targets were reported, and something else came")),
            },
        };
        let served = found.iter().map(|(config, report)| (report.uuid.as_str(), config.path.as_path()));
        missing = self.without_refused(&mut grants, served).or(missing);
        if serving.is_none() {
            let cluster = *own.credentials.identity.cluster.as_bytes();
            *serving = begin(cluster, &self.config.state_dir, listener, wakes)?;
        }
        if let Some(serving) = serving {
            serving.grant(&grants);
            let opened = serving.open(&found);
            serving.take(&grants).and(opened)?;
        }
        missing.map_or(Ok(()), Err)
    }

    /// The targets of the configuration, each with what is reported of it, and why one is left out.
    fn own_targets(&self, looks: &mut Looks) -> (Vec<Found>, Option<Failure>) {
        let (mut found, mut missing) = (Vec::new(), None);
        let settings = self.settings();
        let said = looks.look(&settings.targets, ASKING);
        for (target, said) in settings.targets.iter().zip(said) {
            match said {
                Ok(said) => found.push((target.clone(), report(target, said))),
                Err(e) => missing = Some(e),
            }
        }
        (found, missing)
    }
}

/// What is reported of a target; the turn comes to it where it is served.
fn report(target: &TargetConfig, said: Said) -> TargetReport {
    let Said { uuid, capacity, free, site, unclaimed } = said;
    TargetReport { uuid, domain: target.domain.clone(), capacity, free, turn: 0, site, unclaimed }
}

/// Listens for who wants to move bytes; the targets come as they are opened.
fn begin(
    cluster: [u8; 16],
    state: &Path,
    listener: &mut Option<TcpListener>,
    wakes: &Arc<Wakes>,
) -> Result<Option<Serving>, Failure> {
    let failed = |e: std::io::Error| failure(ErrorClass::NoSpace, format!("the mover cannot begin: {e}"));
    let mover = Mover::new(cluster, [], Box::new(crate::now)).map_err(failed)?;
    let Some(listener) = listener.take() else { return Ok(None) };
    let near = Near::listen(state, &mover);
    let (accepts, wakes) = (mover.clone(), wakes.clone());
    mover.when_behind(Box::new(move || wakes.is_behind()));
    let thread = std::thread::Builder::new().name("mover-accept".into()).spawn(move || {
        if let Err(e) = accepts.listen_tcp(&listener) {
            tracing::error!("nobody can connect to the targets of this node any more: {e}; start it again");
        }
    });
    Ok(Some(Serving {
        cluster,
        mover,
        targets: BTreeMap::new(),
        granted: BTreeMap::new(),
        opens: Apart::default(),
        tells: Apart::default(),
        thread: thread.map_err(failed)?,
        near,
    }))
}

fn secrets(grant: &TargetGrant) -> Secrets {
    let key = |(epoch, secret): &(u32, JoinSecret)| (*epoch, data::TargetSecret::new(&secret.0));
    Secrets { site: grant.site.clone(), turn: grant.turn, keys: grant.keys.iter().map(key).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::TargetId;

    fn grant(uuid: &str, id: u32, turn: u64) -> TargetGrant {
        let (uuid, id, site) = (uuid.into(), TargetId(id), String::new());
        TargetGrant { uuid, id, turn, keys: Vec::new(), site, refused: None }
    }

    /// What the node tries again too, if it takes longer on a busy machine.
    fn soon(mut what: impl FnMut() -> Result<(), Failure>) {
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(e) = what() {
            assert!(e.class == ErrorClass::Retry && Instant::now() < end, "{e}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A pipe in the place of a file keeps whoever opens it until there is somebody at its other end, as a disk that hangs.
    fn hangs(path: &Path) {
        let _ = std::fs::remove_file(path);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        );
        made.unwrap();
    }

    #[test]
    fn a_disk_that_hangs_keeps_no_other_one_from_being_reported_and_from_hearing_of_a_turn() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| TargetConfig { path: dir.path().join(name), ..TargetConfig::default() };
        let targets = [of("a"), of("b"), of("c")];
        let mut looks = Looks::of(dir.path());
        let said: Vec<Said> = looks.look(&targets, LONG).into_iter().map(Result::unwrap).collect();
        let grants =
            |turn| -> Vec<_> { (1..).zip(&said).map(|(id, said)| grant(&said.uuid, id, turn)).collect() };
        let mut serving = serving();
        serving.grant(&grants(1));
        soon(|| serving.open(&reported(&targets, &said)));
        soon(|| serving.take(&grants(1)));
        // The first one hangs when its turn is to be written, the second one when it is asked how full it is.
        hangs(&targets[0].path.join("turn"));
        hangs(&targets[1].path.join("target"));
        let begin = Instant::now();
        for _ in 0..3 {
            let said = looks.look(&targets, ASKING);
            let late = said[1].as_ref().unwrap_err();
            assert!(said[0].is_ok() && said[2].is_ok() && late.message.contains("how full"), "{late}");
            let late = serving.take(&grants(2)).unwrap_err();
            assert!(late.message.contains("write down"), "{late}");
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        let turns = said.iter().map(|said| serving.targets[&said.uuid].turn());
        assert_eq!(turns.collect::<Vec<_>>(), [1, 2, 2]);
    }
    const LONG: Duration = Duration::from_secs(60);

    fn serving() -> Serving {
        let mut listener = Some(TcpListener::bind("127.0.0.1:0").unwrap());
        // Nothing of it is there, so nobody listens for programs of this host.
        begin([1; 16], Path::new("/nonexistent"), &mut listener, &Arc::default()).unwrap().unwrap()
    }

    fn reported(targets: &[TargetConfig], said: &[Said]) -> Vec<Found> {
        targets
            .iter()
            .zip(said)
            .map(|(target, said)| (target.clone(), report(target, said.clone())))
            .collect()
    }

    /// Opens what is behind a pipe, as if the disk went on.
    fn goes_on(path: &Path) {
        let pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        std::fs::remove_file(path).unwrap();
        drop(pipe);
    }

    /// The namespace that it is reported to is none that may have it, whatever that says.
    #[test]
    fn a_target_of_another_namespace_is_not_opened_and_one_that_is_open_takes_nothing_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| TargetConfig { path: dir.path().join(name), ..TargetConfig::default() };
        let targets = [of("a"), of("b")];
        let mut looks = Looks::of(dir.path());
        let mut look = || looks.look(&targets, LONG).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let said = look();
        assert!(said.iter().all(|said| said.site.is_empty() && !said.unclaimed));
        let of =
            |n: usize, site: &str, turn| TargetGrant { site: site.into(), ..grant(&said[n].uuid, 1, turn) };
        let mut own = serving();
        own.grant(&[of(0, "a", 1)]);
        own.open(&reported(&targets, &said)).unwrap();
        own.take(&[of(0, "a", 1)]).unwrap();
        assert_eq!(look()[0].site, "a");
        let refused = own.take(&[of(0, "b", 2)]).unwrap_err();
        assert!(refused.message.contains("belongs to namespace a"), "{refused}");
        assert_eq!(own.targets[&said[0].uuid].turn(), 1);
        own.mover.stop().unwrap();
        std::fs::write(targets[1].path.join("site"), "a\n").unwrap();
        let mut other = serving();
        other.grant(&[of(1, "b", 2)]);
        let refused = other.open(&reported(&targets, &said)).unwrap_err();
        assert!(refused.message.contains("belongs to namespace a"), "{refused}");
        other.take(&[of(1, "b", 2)]).unwrap();
        assert!(other.targets.is_empty() && format!("{:?}", other.mover) == "Mover([])");
        // Nobody has said whose its objects are.
        std::fs::remove_file(targets[1].path.join("site")).unwrap();
        std::fs::write(targets[1].path.join("objects/07/0000000000000700"), b"bytes").unwrap();
        assert!(look()[1].unclaimed && !look()[0].unclaimed);
        other.mover.stop().unwrap();
    }

    /// It hangs when it is opened, after it has said how full it is.
    #[test]
    fn a_target_whose_disk_answers_late_is_served_from_then_on_and_keeps_no_other_one_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| TargetConfig { path: dir.path().join(name), ..TargetConfig::default() };
        let targets = [of("a"), of("b")];
        let mut looks = Looks::of(dir.path());
        let said: Vec<Said> = looks.look(&targets, LONG).into_iter().map(Result::unwrap).collect();
        let found = reported(&targets, &said);
        let grants =
            |turn| -> Vec<_> { (1..).zip(&said).map(|(id, said)| grant(&said.uuid, id, turn)).collect() };
        let hang = targets[0].path.join("turn");
        hangs(&hang);
        let (mut serving, begun) = (serving(), Instant::now());
        serving.grant(&grants(1));
        for _ in 0..2 {
            let late = serving.open(&found).unwrap_err();
            assert!(late.message.contains("being opened"), "{late}");
            serving.take(&grants(1)).unwrap();
        }
        assert!(begun.elapsed() < LONG / 2);
        let shown = |serving: &Serving| format!("{:?}", serving.mover);
        assert_eq!(shown(&serving), "Mover([TargetId(2)])");
        // It does not count as up meanwhile.
        assert_eq!([&said[0].uuid, &said[1].uuid].map(|uuid| serving.reports(uuid)), [false, true]);
        goes_on(&hang);
        while serving.open(&found).is_err() {
            assert!(begun.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Another turn began while it was opened: what was of the former one is never served.
        assert!(serving.reports(&said[0].uuid));
        assert_eq!(shown(&serving), "Mover([TargetId(2)])");
        serving.take(&grants(2)).unwrap();
        assert_eq!(shown(&serving), "Mover([TargetId(1), TargetId(2)])");
        assert_eq!(serving.targets[&said[0].uuid].turn(), 2);
        serving.mover.stop().unwrap();
    }
}
