//! The mover of this node: it reports its targets to the first node again and again, gets their numbers and secrets from it, and serves
//! them once it has those.

use super::{REPORT_EVERY, known};
use crate::Node;
use crate::config::TargetConfig;
use crate::error::failure;
use mover::{Mover, Secrets, Target};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;
use types::{ErrorClass, MemberId};
use wire::{Call, Failure, Reply, TargetGrant, TargetOrder, TargetReport};

/// Before the next attempt where the first node does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the connection that wakes the listener when it is to end.
const WAKE: Duration = Duration::from_secs(1);

type Stop = (Mutex<bool>, Condvar);

/// Serves the targets of a node until it is dropped.
pub struct TargetServer {
    stop: Arc<Stop>,
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
    let stop = Arc::new((Mutex::new(false), Condvar::new()));
    let (node, stopped) = (Arc::downgrade(node), stop.clone());
    let thread = std::thread::Builder::new()
        .name("targets".into())
        .spawn(move || serve(&node, listener, address, &stopped))
        .map_err(fail)?;
    Ok(Some(TargetServer { stop, thread: Some(thread) }))
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
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
    thread: std::thread::JoinHandle<()>,
}

fn serve(node: &Weak<Node>, listener: TcpListener, address: SocketAddr, stop: &Stop) {
    let mut listener = Some(listener);
    let mut serving: Option<Serving> = None;
    let mut told = String::new();
    while let Some(node) = node.upgrade() {
        let outcome = node.tend_targets(&mut listener, &mut serving);
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
        let mut stopped = stop.0.lock();
        if !*stopped {
            stop.1.wait_for(&mut stopped, pause);
        }
        if *stopped {
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
    ) -> Result<(), Failure> {
        let Some(own) = self.membership()? else { return Ok(()) };
        let (found, missing) = self.own_targets(serving.as_ref());
        let order = TargetOrder {
            data: self.config.cluster.data(),
            targets: found.iter().map(|(_, report)| report.clone()).collect(),
        };
        let grants = match (own.credentials.authority_key.is_some(), super::node_of(&own)) {
            (true, MemberId::Node(id)) => self.report_targets(id, &order)?,
            _ => match own.ask(&own.credentials.addresses, None, &Call::ReportTargets(order))? {
                Reply::TargetGrants(grants) => grants,
                _ => return Err(failure(ErrorClass::Bug, "targets were reported, and something else came")),
            },
        };
        match serving {
            Some(serving) => {
                for grant in &grants {
                    if let Some(target) = serving.targets.get(&grant.uuid) {
                        target.set_secrets(secrets(grant));
                    }
                }
            }
            None => {
                let cluster = *own.credentials.identity.cluster.as_bytes();
                *serving = begin(cluster, &found, &grants, listener)?;
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
                    found.push((target.clone(), TargetReport { uuid, domain, capacity, free }));
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
    Ok(Some(Serving { mover, targets, thread: thread.map_err(failed)? }))
}

fn secrets(grant: &TargetGrant) -> Secrets {
    grant.keys.iter().map(|(epoch, secret)| (*epoch, data::TargetSecret::new(&secret.0))).collect()
}
