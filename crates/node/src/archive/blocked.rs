//! Demands that cannot be met: named to operators, and given up where waiting would not help.

use super::state::{Errand, State};
use super::{recalls, trouble, waits};
use crate::Node;
use sched::{Blocked, BlockedWhy, Want};
use std::collections::BTreeMap;
use tape::TapeError;
use types::*;

/// Takes note of what the plan could not serve.
pub fn note(node: &Node, blocked: Vec<Blocked>) {
    note_pools(node, &blocked);
    let (unreachable, down) = {
        let mut state = node.archive.state.lock();
        // What waits for a drive was told so when it began to wait.
        let before = waits::volumes(&state.blocked);
        let told = |b: &Blocked| matches!(&b.want, Want::Recall(volume) if before.contains(volume));
        let ends = blocked.iter().filter(|b| is_final(&b.why) && !(waits::for_a_drive(&b.why) && told(b)));
        let ends: Vec<(Barcode, TapeError, bool)> = ends.filter_map(|b| lost(&state, b)).collect();
        state.blocked = blocked;
        ends.into_iter().partition::<Vec<_>, _>(|(.., down)| !down)
    };
    for (volume, error, _) in unreachable {
        out_of_reach(node, &volume, &error);
    }
    for (volume, error, _) in down {
        recalls::unmountable(node, &volume, &error, true);
    }
}

/// Of this queue nothing can be written: its pool has as many volumes as it may, and all are full.
pub fn pool_full(queue: &PoolName) -> Blocked {
    Blocked { want: Want::Write(queue.clone()), why: BlockedWhy::PoolFull(super::family::pool_of(queue)) }
}

/// Pools that cannot take data are named to operators, and writers waiting for space need not wait for them.
fn note_pools(node: &Node, blocked: &[Blocked]) {
    let mut pools: BTreeMap<PoolName, Option<String>> = node
        .writes
        .blocked()
        .into_keys()
        .chain(node.writes.backlog().into_keys())
        .map(|p| (p, None))
        .collect();
    for b in blocked {
        use BlockedWhy as W;
        let stays = matches!(
            b.why,
            W::NoVolume(_) | W::PoolFull(_) | W::NoDrive | W::NoWriter { .. } | W::DrivesDown(_)
        );
        if let (Want::Write(pool), true) = (&b.want, stays) {
            pools.insert(pool.clone(), Some(b.why.to_string()));
        }
    }
    for (pool, why) in &mut pools {
        if node.allowed_to(pool) == Some(0) {
            let base = super::family::pool_of(pool);
            *why = Some(format!(
                "pool {pool} holds as many bytes as it may; remove files, or raise its limit with `thermo pool set {base} \
                 --max-bytes SIZE`"
            ));
        }
    }
    for (pool, why) in pools {
        let why = why.map(|why| match node.pool_library(&super::family::pool_of(&pool)) {
            Some(library) => format!("{why} (the pool is written in library {library} only)"),
            None => why,
        });
        node.writes.set_blocked(&pool, why);
    }
}

/// Whether nothing comes of it by waiting, but for what [`waits`] for a drive.
fn is_final(why: &BlockedWhy) -> bool {
    use BlockedWhy as W;
    matches!(
        why,
        W::NoDrive
            | W::StuckInDrive(_)
            | W::Absent(_)
            | W::Unreadable(_)
            | W::NoDriveFor { .. }
            | W::DrivesDown(_)
    )
}

/// The volume that cannot be had, and whether its files may wait for a drive.
fn lost(state: &State, blocked: &Blocked) -> Option<(Barcode, TapeError, bool)> {
    let (volume, down) = match &blocked.want {
        Want::Recall(volume) => (volume.clone(), waits::for_a_drive(&blocked.why)),
        Want::Maintain(id) => (state.maintenance.iter().find(|m| m.id == *id)?.volume.clone(), false),
        Want::Write(_) => return None,
    };
    let error = trouble::unreachable(&volume, blocked.why.to_string());
    Some((volume, error, down))
}

/// A volume cannot be had: its files are read from other copies, and whoever asked for work on it is told.
pub fn out_of_reach(node: &Node, volume: &Barcode, error: &TapeError) {
    recalls::unmountable(node, volume, error, false);
    let errands: Vec<Errand> = {
        let mut state = node.archive.state.lock();
        let ids: Vec<u64> = state.maintenance.iter().filter(|m| m.volume == *volume).map(|m| m.id).collect();
        state.maintenance.retain(|m| m.volume != *volume);
        ids.iter().filter_map(|id| state.errands.remove(id)).collect()
    };
    errands.into_iter().for_each(|errand| refuse(node, volume, errand, error));
}

/// Tells whoever gave an order that it cannot be carried out.
pub fn refuse(node: &Node, volume: &Barcode, errand: Errand, error: &TapeError) {
    match errand {
        Errand::Label { request, .. } => node.volume_labelled(request, volume, Some(error.to_string())),
        Errand::Check { answer, .. } => crate::check::answer_failed(&answer, volume, error),
        Errand::Adopt { answer, .. } => super::adopt::answer_failed(&answer, volume, error.to_string()),
        Errand::Verify(ticket) | Errand::Reclaim(ticket) => ticket.failed(error),
        // The next start or unload writes it.
        Errand::Index => {}
    }
}
