//! What a member does from time to time: it hears who was removed and where the namespace is, and gets a new certificate before the present one ends. Who has the
//! namespace tells the others so when it begins.

use crate::Node;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::Failure;

/// Between two looks at who was removed.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two looks whether subsystems answer.
const LED: Duration = Duration::from_secs(10);
/// Before nodes that were away are told once more where the namespace is, at first and at last.
const TELL: Duration = Duration::from_secs(15);
const TELL_MOST: Duration = Duration::from_secs(480);
/// Looks between two times at which what hosts that are gone have left is forgotten.
const ROUNDS: u32 = 60;

type Stop = Arc<(Mutex<bool>, Condvar)>;

/// Looks after the membership until it is dropped. A question that is under way then is not waited for.
pub struct ClusterKeeper {
    stop: Stop,
}

/// Begins to look after the membership of a node; without one there is nothing to do until it joins.
///
/// # Errors
/// No thread.
pub fn keep_cluster(node: &Arc<Node>) -> Result<ClusterKeeper, Failure> {
    let stop = Stop::default();
    for (name, work) in [("cluster", tend as fn(&Weak<Node>, &(Mutex<bool>, Condvar))), ("places", tell)] {
        let (node, stopped) = (Arc::downgrade(node), stop.clone());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&node, &stopped));
        thread.map_err(|e| {
            crate::error::failure(ErrorClass::NoSpace, format!("no thread for the cluster: {e}"))
        })?;
    }
    Ok(ClusterKeeper { stop })
}

impl Drop for ClusterKeeper {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
    }
}

fn tend(node: &Weak<Node>, stop: &(Mutex<bool>, Condvar)) {
    let mut round = 0;
    let [mut look, mut renew, mut led] = [Instant::now(); 3];
    while let Some(node) = node.upgrade() {
        // First: nobody answers a host whose certificate has ended.
        if Instant::now() >= renew {
            if let Err(e) = node.renew_if_due(crate::now()) {
                tracing::warn!(
                    "the certificate of this node ends soon or has ended, and there is no new one: {e}"
                );
            }
            renew = Instant::now() + node.renewal_pause();
        }
        if Instant::now() >= look {
            hear(&node, round % ROUNDS == 0);
            round += 1;
            look = Instant::now() + PAUSE;
        }
        if Instant::now() >= led {
            if let Err(e) = node.look_at_subsystems() {
                tracing::debug!("whether subsystems answer is not known: {e}");
            }
            led = Instant::now() + LED;
        }
        drop(node);
        let mut stopped = stop.0.lock();
        if !*stopped {
            stop.1.wait_until(&mut stopped, look.min(renew).min(led));
        }
        if *stopped {
            return;
        }
    }
}

/// Has all other nodes told where the namespace is to be had. Those that are away are told when they are back, or soon after.
fn tell(node: &Weak<Node>, stop: &(Mutex<bool>, Condvar)) {
    let (mut left, mut pause) = (None, TELL);
    // The node may stop while they are asked.
    while let Some(telling) = node.upgrade().map(|node| node.telling(left.as_deref())) {
        match telling {
            Ok(None) => return,
            Ok(Some(telling)) => left = Some(telling.tell()),
            Err(e) => tracing::debug!("nobody is told where the namespace is: {e}"),
        }
        if left.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let again = Instant::now() + pause;
        pause = (2 * pause).min(TELL_MOST);
        let mut stopped = stop.0.lock();
        while !*stopped && Instant::now() < again {
            stop.1.wait_until(&mut stopped, again);
        }
        if *stopped {
            return;
        }
    }
}

fn hear(node: &Node, also_forgets: bool) {
    if let Err(e) = node.hear_of_removed() {
        tracing::debug!("who was removed from the cluster is not known: {e}");
    }
    if let Err(e) = node.hear_of_places() {
        tracing::debug!("whether the namespace is to be had elsewhere is not known: {e}");
    }
    if also_forgets && let Err(e) = node.forget_old_calls() {
        tracing::warn!("calls of hosts that did not come back stay on record: {e}");
    }
}
