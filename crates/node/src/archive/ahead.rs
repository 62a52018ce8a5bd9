//! What the scheduler has to know to bring the next volume before the present one is full: how much the volumes take that are
//! being written, and what drives still have in hand.

use super::state::DriveSlot;
use crate::Node;
use sched::{Backlog, DriveState, Mechanics, Work};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Pool, PoolName, Time};

/// The next volume is brought when the present one takes no more than a drive writes in so many times what an exchange costs.
const MARGIN: f64 = 2.0;

/// What a drive writes in the time of bringing another volume (bytes); 0 where that takes no time.
pub fn bytes(mechanics: &Mechanics, exchange: Duration) -> u64 {
    (mechanics.rate * exchange.as_secs_f64() * MARGIN) as u64
}

/// Says of a drive that writes how much its volume takes. One that only gets its index works for nobody: the next is written
/// meanwhile.
pub fn look(drive: &mut sched::Drive, slot: &DriveSlot) {
    let DriveState::Busy(busy) = &mut drive.state else { return };
    if busy.work != Work::Migrate {
        return;
    }
    if let Some((room, closing)) = slot.progress.room() {
        busy.room = Some(room);
        if closing {
            busy.want = None;
        }
    }
}

/// Adds what drives have taken from the queues and not yet read: one file may need several volumes.
pub fn add_in_hand(node: &Node, pools: &[Pool], writes: &mut BTreeMap<PoolName, Backlog>, now: Time) {
    for (queue, bytes) in node.writes.all_in_hand() {
        if let Some(backlog) = writes.get_mut(&queue) {
            backlog.in_hand = bytes;
        } else if let Some(pool) = pools.iter().find(|pool| pool.name == queue) {
            // A family's queue counts while something waits in it only: an empty one must not keep volumes from others.
            let (max_volumes, worm, library) = (pool.max_volumes, pool.worm, node.bound_to(pool));
            let none = Backlog {
                files: 0,
                bytes: 0,
                in_hand: bytes,
                since: now,
                max_volumes,
                library,
                worm,
                limited: None,
                rescue: false,
            };
            writes.insert(queue, none);
        }
    }
}
