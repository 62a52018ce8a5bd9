//! Verify and repack: which volumes, and how far they are.

use crate::Node;
use crate::archive::Moving;
use crate::error::{failure, refused};
use crate::keep::{can_be_verified, may_be_repacked, subject};
use types::*;
use wire::{Failure, VolumeChoice};

impl Node {
    /// The volumes that are meant; those of a pool, or all, as far as `may` allows it.
    fn choose(
        &self,
        choice: &VolumeChoice,
        may: &dyn Fn(&Volume) -> Result<(), String>,
    ) -> Result<Vec<Volume>, Failure> {
        let known = self.catalog.all_volumes().map_err(|e| refused("volumes", &e))?;
        let all = known.found;
        match choice {
            VolumeChoice::These(barcodes) => {
                for barcode in barcodes {
                    if let Some((_, e)) = known.damaged.iter().find(|(damaged, _)| damaged == barcode) {
                        let why = crate::keep::damaged(e);
                        return Err(failure(
                            ErrorClass::Corrupt,
                            format!("volume {barcode}: {why}; nothing was begun"),
                        ));
                    }
                    let Some(volume) = all.iter().find(|v| v.barcode == *barcode) else {
                        let message = format!("there is no volume {barcode}; see `thermo volume ls`");
                        return Err(failure(ErrorClass::NotFound, message));
                    };
                    may(volume).map_err(|why| {
                        failure(ErrorClass::Invalid, format!("volume {barcode}: {why}; nothing was begun"))
                    })?;
                }
                Ok(all.into_iter().filter(|v| barcodes.contains(&v.barcode)).collect())
            }
            VolumeChoice::Pool(pool) => {
                if !self.catalog.pools().map_err(|e| refused("pools", &e))?.iter().any(|p| p.name == *pool) {
                    let message = format!("there is no pool `{pool}`; see `thermo pool ls`");
                    return Err(failure(ErrorClass::NotFound, message));
                }
                let of_pool = |v: &Volume| v.pool.as_ref() == Some(pool) && may(v).is_ok();
                Ok(all.into_iter().filter(of_pool).collect())
            }
            VolumeChoice::All => Ok(all.into_iter().filter(|v| may(v).is_ok()).collect()),
        }
    }

    /// Begins to verify; the request tells how far it is.
    pub(super) fn verify_volumes(&self, cx: &Cx, choice: &VolumeChoice) -> Result<Request, Failure> {
        let volumes = self.choose(choice, &|v| match can_be_verified(v) {
            true => Ok(()),
            false => Err(format!("it is {}; only labelled volumes that can be read are verified", v.state)),
        })?;
        let fail = |e| refused("verify", &e);
        let subject = subject(volumes.iter().map(|v| &v.barcode));
        let mut request = Request::new(RequestKind::Verify, cx.uid, subject, crate::now());
        if volumes.is_empty() {
            (request.state, request.finished) = (RequestState::Done, Some(request.created));
        }
        let items: Vec<(Barcode, u64)> = volumes.iter().map(|v| (v.barcode.clone(), v.live)).collect();
        let made = self.catalog.create_volume_request(&request, &items, None).map_err(fail)?;
        self.keeper.wake();
        Ok(made)
    }

    /// Begins to empty volumes.
    pub(super) fn repack_volumes(
        &self,
        cx: &Cx,
        choice: &VolumeChoice,
        dead_percent: Option<u8>,
        generation: Option<u8>,
    ) -> Result<Request, Failure> {
        let mut volumes = self.choose(choice, &may_be_repacked)?;
        let most_files = self.settings().tape.max_files_per_volume;
        volumes.retain(|v| {
            let dead = dead_percent.is_none_or(|least| policy::dead_percent(v, most_files) >= least);
            let old = generation.is_none_or(|g| policy::generation(&v.barcode).is_some_and(|of| of <= g));
            dead && old && (v.files > 0 || matches!(choice, VolumeChoice::These(_)))
        });
        if volumes.is_empty() {
            let message = "no volume is to be repacked by these conditions; see `thermo volume ls --long`";
            return Err(failure(ErrorClass::NotFound, message));
        }
        let chosen: Vec<&Volume> = volumes.iter().collect();
        self.begin_repack(cx.uid, &chosen).map_err(|e| refused("repack", &e))
    }

    /// Volumes of a request as its items; `after` counts those that are known already.
    pub(super) fn volume_items(
        &self,
        id: RequestId,
        after: Ino,
        limit: u32,
    ) -> Result<Vec<RequestItemView>, Failure> {
        let volumes = self.catalog.request_volumes(id).map_err(|e| refused("request", &e))?;
        let view = |(n, (barcode, state, _)): (u64, (Barcode, ItemState, u64))| RequestItemView {
            ino: Ino(n),
            path: format!("volume {barcode}").into(),
            state,
        };
        let rest = (1..).zip(volumes).skip(usize::try_from(after.0).unwrap_or(usize::MAX));
        Ok(rest.take(limit.min(10_000) as usize).map(view).collect())
    }

    /// How far a request for volumes is beyond those that are finished.
    pub(super) fn moving_volumes(&self, request: &Request) -> Moving {
        let volumes = self.catalog.request_volumes(request.id).unwrap_or_default();
        let drives = self.archive.view().drives;
        let mut moving = Moving::default();
        let (mut active, mut doing, mut to_index) = (false, Vec::new(), 0);
        for (barcode, _, bytes) in volumes.iter().filter(|(_, state, _)| *state == ItemState::Pending) {
            let Ok(Some(volume)) = self.catalog.volume(barcode) else { continue };
            to_index += u64::from(volume.indexed_to < volume.append_block);
            let done = match request.kind {
                RequestKind::Verify => {
                    let block = self.keeper.verifying_at(barcode).unwrap_or(0).max(volume.verified_to);
                    let end = u128::from(volume.append_block.max(1));
                    (u128::from(*bytes) * u128::from(block) / end) as u64
                }
                RequestKind::Export => 0,
                _ => bytes.saturating_sub(volume.live),
            };
            moving.bytes += done.min(*bytes);
            if let Some(d) = drives.iter().find(|d| d.volume.as_ref() == Some(barcode)) {
                active = true;
                let rate = d.rate / 1_000_000;
                doing.push(format!("volume {barcode} is in drive {} ({rate} MB/s)", d.drive));
            }
        }
        moving.doing = doing.join("; ");
        if !active {
            moving.queue_position = self.ahead_of(request) + 1;
        }
        if request.kind == RequestKind::Export {
            // No bytes move: each volume that lacks its index is mounted and put away.
            let m = sched::Mechanics::default();
            let each = 2.0 * m.move_s + m.load_s + 2.0 * m.locate_s + m.unload_s;
            let p50 = (to_index as f64 * each / drives.len().max(1) as f64).ceil() as u64;
            moving.estimate = Some(estimate(p50));
            return moving;
        }
        // Measured if something moves, else by what was done so far.
        let left = request.bytes_total.saturating_sub(request.bytes_done + moving.bytes);
        let since = request.started.unwrap_or(request.created);
        let passed = crate::now().since(since).as_secs_f64();
        let rate = (request.bytes_done + moving.bytes) as f64 / passed.max(1.0);
        if rate > 0.0 {
            moving.estimate = Some(estimate((left as f64 / rate).ceil() as u64));
        }
        moving
    }
}

/// Others go first: half as long again is seldom exceeded.
fn estimate(finish_p50_s: u64) -> Estimate {
    let finish_p90_s = finish_p50_s + finish_p50_s / 2;
    Estimate { start_p50_s: 0, start_p90_s: 0, finish_p50_s, finish_p90_s }
}
