//! What operators decide about volumes and pools.

use crate::Node;
use crate::archive::{Errand, Event};
use crate::error::{failure, refused};
use catalog::{StateOrder, TapeNode};
use sched::MaintenanceKind;
use std::ops::ControlFlow;
use tape::Keys;
use types::*;
use wire::{Failure, PoolChange};

impl Node {
    pub(super) fn set_volume_state(
        &self,
        cx: &Cx,
        volumes: &[Barcode],
        (state, leave): (VolumeState, bool),
        reason: String,
    ) -> Result<(), Failure> {
        if let Some(bad) = reason.chars().find(|c| c.is_control()) {
            let message = format!("the reason contains the control character {bad:?}; use plain text");
            return Err(failure(ErrorClass::Invalid, message));
        }
        let mut behind = Vec::new();
        for barcode in volumes {
            let volume = self.volume_view(barcode)?.volume;
            let written = matches!(volume.state, VolumeState::Filling | VolumeState::Full);
            let lacks_index = volume.indexed_to < volume.append_block && !volume.may_hold_more();
            if written && state == VolumeState::ReadOnly && lacks_index {
                behind.push(barcode.clone());
            }
        }
        let order = StateOrder { state, reason, by: cx.uid, now: crate::now(), leave };
        let set = self.catalog.set_volume_state(volumes, &order);
        set.map_err(|e| refused("volumes are left as they were", &e))?;
        for barcode in volumes {
            tracing::info!("volume {barcode} is {state} by order of uid {}: {}", cx.uid, order.reason);
        }
        for volume in behind {
            // It takes no more files, and lists those that it has: then it tells all of itself.
            let errand = Event::Errand { kind: MaintenanceKind::Index, volume, errand: Errand::Index };
            self.archive.send(errand);
        }
        // What waits for these volumes is looked at anew, and so is what their pools take.
        self.archive.send(Event::Backlog);
        self.governor.wake();
        Ok(())
    }

    /// The volumes that hold files of an owner or a class: walks the trees of all volumes.
    pub(super) fn holdings(
        &self,
        owner: Option<u32>,
        class: Option<&ClassName>,
    ) -> Result<Vec<HoldingView>, Failure> {
        let mut found = Vec::new();
        for view in self.volume_views()?.into_iter().filter(|view| view.volume.live_files > 0) {
            let VolumeView { volume, location } = view;
            let (mut files, mut bytes) = (0, 0);
            let walked = self.catalog.walk_volume(&volume.barcode, &mut |node| {
                if let TapeNode::File { file, .. } = node
                    && file.live
                    && owner.is_none_or(|uid| uid == file.uid_owner)
                    && class.is_none_or(|class| *class == file.class)
                {
                    files += 1;
                    bytes += file.segment_length;
                }
                ControlFlow::Continue(())
            });
            walked.map_err(|e| refused(&format!("volume {}", volume.barcode), &e))?;
            if files > 0 {
                found.push(HoldingView { volume: volume.barcode, pool: volume.pool, location, files, bytes });
            }
        }
        Ok(found)
    }

    pub(super) fn set_pool(&self, name: &PoolName, create: bool, change: PoolChange) -> Result<(), Failure> {
        let subject = format!("pool {name}");
        let pools = self.catalog.pools().map_err(|e| refused(&subject, &e))?;
        let mut pool = match (pools.into_iter().find(|p| p.name == *name), create) {
            (Some(_), true) => {
                let message = format!("there is a pool `{name}` already; without --create it is changed");
                return Err(failure(ErrorClass::Invalid, message));
            }
            (Some(pool), false) => pool,
            (None, true) => Pool::new(name.clone()),
            (None, false) => {
                let message = format!("there is no pool `{name}`: see `thermo pool ls`, or add --create");
                return Err(failure(ErrorClass::NotFound, message));
            }
        };
        pool.max_volumes = change.max_volumes.unwrap_or(pool.max_volumes);
        pool.max_bytes = change.max_bytes.unwrap_or(pool.max_bytes);
        pool.format = change.format.unwrap_or(pool.format);
        pool.collocate = change.collocate.unwrap_or(pool.collocate);
        if let Some(library) = change.library {
            if !library.is_empty() && self.library_named(&library).is_none() {
                let names: Vec<String> = self.libraries().map(|no| self.library_name(no)).collect();
                let message = format!("there is no library `{library}`, but {}", names.join(", "));
                return Err(failure(ErrorClass::NotFound, message));
            }
            pool.library = Some(library).filter(|library| !library.is_empty());
        }
        if let Some(worm) = change.worm.filter(|worm| *worm != pool.worm) {
            let volumes = self.catalog.volumes().map_err(|e| refused(&subject, &e))?;
            if let Some(one) = volumes.iter().find(|v| v.pool.as_ref() == Some(name)) {
                let message = format!(
                    "{subject} has volumes already ({} and perhaps others) and keeps the kind of media it has; make another \
                     pool",
                    one.barcode
                );
                return Err(failure(ErrorClass::Invalid, message));
            }
            pool.worm = worm;
        }
        if let Some(key) = change.key {
            if !key.is_empty() {
                self.has_key(&key)?;
            }
            pool.key = key;
        }
        self.catalog.put_pool(&pool).map_err(|e| refused(&subject, &e))?;
        self.archive.send(Event::Backlog);
        self.governor.wake();
        Ok(())
    }
    /// Fails unless there is a key of this name.
    pub(super) fn has_key(&self, name: &str) -> Result<(), Failure> {
        let found = match &self.keys {
            Some(keys) => keys.key(name).map(drop),
            None => Err("encryption.keys in the configuration does not say where keys are".to_owned()),
        };
        found.map_err(|why| {
            failure(ErrorClass::NotFound, format!("key `{name}` cannot be had: {why}; nothing was changed"))
        })
    }
}
