//! When a file will be back.

use crate::demand::{InHand, Need, demands};
use crate::{DriveState, Mechanics, RecallQueue, SchedView};
use types::{Barcode, Time};

/// Estimate for one queued item. Counts from now; a guess that assumes no new work, no writes and no errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eta {
    /// Seconds until its first byte.
    pub start_s: f64,
    /// Seconds until its last byte.
    pub finish_s: f64,
    /// Its place in the queue of its volume; 1 is next.
    pub position: u64,
    /// Volumes that get a drive before its own does.
    pub volumes_ahead: u64,
}

/// Estimates when the item `id` in the queue of `volume` will be read. None when it is not queued there, or when no
/// drive is usable.
pub fn estimate(view: &SchedView<'_>, volume: &Barcode, id: u64) -> Option<Eta> {
    let queue = view.recalls.get(volume)?;
    queue.get(id)?;
    let turn = turn(view, volume)?;
    let mechanics = view.mechanics;
    let (mut clock, mut at, mut position) = (turn.ready_s, turn.block, 0);
    for item in queue.pass(turn.block) {
        position += 1;
        clock += mechanics.locate(at, item.block);
        let finish_s = clock + mechanics.transfer(item.bytes);
        if item.id == id {
            return Some(Eta { start_s: clock, finish_s, position, volumes_ahead: turn.ahead });
        }
        at = mechanics.last_block(item.block, item.byte, item.bytes);
        clock = finish_s;
    }
    None
}

/// When and where a volume stands ready to be read.
struct Turn {
    ready_s: f64,
    block: u64,
    ahead: u64,
}

/// A usable drive in the simulated future.
struct Server<'v> {
    free_s: f64,
    volume: Option<&'v Barcode>,
    block: u64,
}

/// Gives drives to volumes in the order of demands until `volume` has one (list scheduling).
fn turn(view: &SchedView<'_>, volume: &Barcode) -> Option<Turn> {
    let mut servers = servers(view);
    if let Some(server) = servers.iter().find(|server| server.volume == Some(volume)) {
        return Some(Turn { ready_s: server.free_s, block: server.block, ahead: 0 });
    }
    for server in &mut servers {
        if let Some(queue) = server.volume.and_then(|mounted| view.recalls.get(mounted)) {
            server.free_s += service_s(view.mechanics, queue);
        }
    }
    let mut ahead = 0;
    for demand in demands(view, &InHand::new(view)) {
        let Need::Recall(wanted) = demand.need else { continue };
        if servers.iter().any(|server| server.volume == Some(wanted)) {
            continue;
        }
        let server = servers.iter_mut().min_by(|a, b| a.free_s.total_cmp(&b.free_s))?;
        let unmount_s = if server.volume.is_some() { view.mechanics.unmount_s() } else { 0.0 };
        server.free_s += unmount_s + view.mechanics.mount_s();
        if wanted == volume {
            return Some(Turn { ready_s: server.free_s, block: 0, ahead });
        }
        ahead += 1;
        server.volume = view.recalls.get_key_value(wanted).map(|(name, _)| name);
        server.free_s += view.recalls.get(wanted).map_or(0.0, |queue| service_s(view.mechanics, queue));
    }
    None
}

fn servers<'v>(view: &'v SchedView<'_>) -> Vec<Server<'v>> {
    let seconds = |until: Option<Time>| until.map_or(0.0, |until| until.since(view.now).as_secs_f64());
    let usable = view.drives.iter().filter(|drive| drive.usable);
    usable
        .map(|drive| match &drive.state {
            DriveState::Empty => Server { free_s: 0.0, volume: None, block: 0 },
            DriveState::Loaded(loaded) => {
                Server { free_s: 0.0, volume: Some(&loaded.volume), block: loaded.position }
            }
            DriveState::Busy(busy) => {
                let volume = Some(&busy.volume).filter(|_| busy.work != crate::Work::Unmount);
                Server { free_s: seconds(busy.until), volume, block: 0 }
            }
        })
        .collect()
}

/// About how long a whole queue takes: streaming, and one locate over the mean gap for each item.
fn service_s(mechanics: &Mechanics, queue: &RecallQueue) -> f64 {
    let Some((first, last)) = queue.span() else { return 0.0 };
    let count = queue.len() as u64;
    mechanics.transfer(queue.bytes()) + count as f64 * mechanics.locate(0, (last - first) / count)
}
