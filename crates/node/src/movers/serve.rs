//! The mover of this node: it reports its targets to the first node again and again, gets their numbers and secrets from it, and serves
//! them once it has those.

use super::{REPORT_EVERY, known};
use crate::Node;
use crate::config::TargetConfig;
use crate::error::failure;
use mover::{Mover, Secrets, Target};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId};
use wire::{Call, Failure, JoinSecret, Reply, TargetGrant, TargetOrder, TargetReport};

/// Before the next attempt where the first node does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the connection that wakes the listener when it is to end.
const WAKE: Duration = Duration::from_secs(1);

/// Longest wait for what was begun at a target before it takes new secrets.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// Serves what `[[targets]]` says; None if it says nothing. Until the node is a member of a cluster it waits.
///
/// # Errors
/// `cluster.data_listen` cannot be used.
pub fn serve_targets(node: &Arc<Node>) -> Result<Option<TargetServer>, Failure> {
    let Some(listen) = node.config.cluster.data_listen.filter(|_| !node.config.targets.is_empty()) else {
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

/// What is served, once there is something.
struct Serving {
    mover: Arc<Mover>,
    targets: BTreeMap<String, Arc<Target>>,
    late: Late,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    /// Takes new secrets; one target that does not keeps none of the others from it.
    fn take(&mut self, grants: &[TargetGrant]) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for grant in grants {
            let Some(target) = self.targets.get(&grant.uuid) else { continue };
            let taken = target.set_secrets(secrets(grant), self.late.patience(&grant.uuid));
            self.late.note(&grant.uuid, taken.is_err());
            if let Err(e) = taken {
                outcome = Err(failure(ErrorClass::Retry, e.to_string()));
            }
        }
        outcome
    }
}

/// Targets that did not take their secrets the last time.
#[derive(Default)]
struct Late(BTreeSet<String>);

impl Late {
    /// How long what was begun at this target is waited for. However many disks hang, all of them together take little of the time in which the others have to
    /// report.
    fn patience(&self, uuid: &str) -> Duration {
        if self.0.contains(uuid) { PATIENCE / self.0.len() as u32 } else { PATIENCE }
    }

    fn note(&mut self, uuid: &str, late: bool) {
        if late {
            self.0.insert(uuid.into());
        } else {
            self.0.remove(uuid);
        }
    }
}

fn serve(node: &Weak<Node>, listener: TcpListener, address: SocketAddr, wakes: &Arc<Wakes>) {
    let mut listener = Some(listener);
    let mut serving: Option<Serving> = None;
    let mut told = String::new();
    while let Some(node) = node.upgrade() {
        let outcome = node.tend_targets(&mut listener, &mut serving, wakes);
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
    let Some(Serving { mover, thread, .. }) = serving else { return };
    if let Err(e) = mover.stop() {
        tracing::error!(
            "the targets of this node could not be closed well: {e}; they are repaired at the next start"
        );
    }
    // Whether it succeeds does not matter.
    let _ = TcpStream::connect_timeout(&super::reachable(address), WAKE);
    let _ = thread.join();
}

impl Node {
    /// Reports the targets, and begins to serve them when that is answered for the first time; later it takes the new secrets.
    fn tend_targets(
        &self,
        listener: &mut Option<TcpListener>,
        serving: &mut Option<Serving>,
        wakes: &Arc<Wakes>,
    ) -> Result<(), Failure> {
        let Some(own) = self.membership()? else { return Ok(()) };
        let (found, missing) = self.own_targets(serving.as_ref());
        let order = TargetOrder {
            data: self.config.cluster.data(),
            targets: found.iter().map(|(_, report)| report.clone()).collect(),
        };
        let grants = match (own.holds_names(), super::node_of(&own)) {
            (true, MemberId::Node(id)) => self.report_targets(id, &order)?,
            _ => match own.ask_any(&self.names_at(&own), Call::ReportTargets(order))? {
                Reply::TargetGrants(grants) => grants,
                _ => return Err(failure(ErrorClass::Bug, "targets were reported, and something else came")),
            },
        };
        match serving {
            Some(serving) => serving.take(&grants)?,
            None => {
                let cluster = *own.credentials.identity.cluster.as_bytes();
                *serving = begin(cluster, &found, &grants, listener)?;
                if let Some(serving) = serving {
                    let wakes = wakes.clone();
                    serving.mover.when_behind(Box::new(move || wakes.is_behind()));
                }
            }
        }
        missing.map_or(Ok(()), Err)
    }

    /// The targets of the configuration, each with what is reported of it, and why one is left out. Once some are served, others begin with
    /// the next start only.
    fn own_targets(&self, serving: Option<&Serving>) -> (Vec<(TargetConfig, TargetReport)>, Option<Failure>) {
        let (mut found, mut missing) = (Vec::new(), None);
        for target in &self.config.targets {
            match known::look(&self.config.state_dir, &target.path) {
                Ok((uuid, ..)) if serving.is_some_and(|serving| !serving.targets.contains_key(&uuid)) => {
                    let why = format!("{} is served from the next start on", target.path.display());
                    missing = Some(failure(ErrorClass::Busy, why));
                }
                Ok((uuid, capacity, free)) => {
                    let domain = target.domain.clone();
                    let served = serving.and_then(|serving| serving.targets.get(&uuid));
                    let turn = served.map_or(0, |served| served.turn());
                    found.push((target.clone(), TargetReport { uuid, domain, capacity, free, turn }));
                }
                Err(e) => missing = Some(e),
            }
        }
        (found, missing)
    }
}

/// Opens the targets and serves them.
fn begin(
    cluster: [u8; 16],
    found: &[(TargetConfig, TargetReport)],
    grants: &[TargetGrant],
    listener: &mut Option<TcpListener>,
) -> Result<Option<Serving>, Failure> {
    let mut targets = BTreeMap::new();
    for (config, report) in found {
        let Some(grant) = grants.iter().find(|grant| grant.uuid == report.uuid) else { continue };
        match Target::open(grant.id, cluster, &config.path, secrets(grant)) {
            Ok(target) => drop(targets.insert(report.uuid.clone(), Arc::new(target))),
            Err(e) => tracing::error!("target {} is not served: {e}", grant.id),
        }
    }
    let failed = |e: std::io::Error| failure(ErrorClass::NoSpace, format!("the mover cannot begin: {e}"));
    let mover = Mover::new(cluster, targets.values().cloned(), Box::new(crate::now)).map_err(failed)?;
    let Some(listener) = listener.take() else { return Ok(None) };
    let serving = mover.clone();
    let thread = std::thread::Builder::new().name("mover-accept".into()).spawn(move || {
        if let Err(e) = serving.listen_tcp(&listener) {
            tracing::error!("nobody can connect to the targets of this node any more: {e}; start it again");
        }
    });
    tracing::info!("{} targets are served", targets.len());
    Ok(Some(Serving { mover, targets, late: Late::default(), thread: thread.map_err(failed)? }))
}

fn secrets(grant: &TargetGrant) -> Secrets {
    let key = |(epoch, secret): &(u32, JoinSecret)| (*epoch, data::TargetSecret::new(&secret.0));
    Secrets { turn: grant.turn, keys: grant.keys.iter().map(key).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_are_late_share_the_time_of_one() {
        let mut late = Late::default();
        assert_eq!(late.patience("a"), PATIENCE);
        for uuid in ["a", "b", "c", "d"] {
            late.note(uuid, true);
        }
        assert_eq!((late.patience("a"), late.patience("e")), (PATIENCE / 4, PATIENCE));
        late.note("a", false);
        assert_eq!((late.patience("a"), late.patience("b")), (PATIENCE, PATIENCE / 3));
    }
}
