//! Volumes go to other sites and come from there.

use crate::Node;
use crate::archive::import::Import;
use crate::archive::{Errand, Event};
use crate::error::{failure, refused};
use catalog::StateOrder;
use sched::MaintenanceKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::*;
use wire::{Failure, ImportOrder};

/// How often an index is ordered for a volume before it counts as one that cannot be had.
const ATTEMPTS: u32 = 3;
/// Between two looks whether an index is written.
const LOOK: Duration = Duration::from_millis(50);

impl Node {
    /// Volumes are closed, get their index, and are neither read nor written from then on.
    pub(super) fn export_volumes(
        &self,
        cx: &Cx,
        volumes: &[Barcode],
        reason: String,
    ) -> Result<String, Failure> {
        for barcode in volumes {
            let v = self.volume_view(barcode)?.volume;
            let fit = matches!(
                v.state,
                VolumeState::Filling
                    | VolumeState::Full
                    | VolumeState::ReadOnly
                    | VolumeState::Suspect
                    | VolumeState::Exported
            );
            if !fit || v.uuid.is_empty() {
                let message = format!(
                    "volume {barcode} is {:?}: only volumes that hold files are exported; nothing was changed",
                    v.state
                );
                return Err(failure(ErrorClass::Invalid, message));
            }
        }
        self.set_volume_state(cx, volumes, VolumeState::ReadOnly, "it is being exported".into())?;
        for barcode in volumes {
            self.index_for_export(barcode)?;
        }
        self.set_volume_state(cx, volumes, VolumeState::Exported, reason)?;
        let site = self.catalog.site().map_err(|e| refused("export", &e))?;
        Ok(site.unwrap_or_default())
    }

    /// Waits until the volume's index lists all that is on it.
    fn index_for_export(&self, barcode: &Barcode) -> Result<(), Failure> {
        let mut ordered = 0;
        loop {
            let known = self.catalog.volume(barcode).map_err(|e| refused("export", &e))?;
            // What a drive has written since its last flush is not on record yet.
            if known.is_none_or(|v| v.indexed_to >= v.append_block) && !self.archive.writes_to(barcode) {
                return Ok(());
            }
            if self.archive.halted() {
                let message = format!("the node stops; volume {barcode} is not exported: ask again");
                return Err(failure(ErrorClass::Retry, message));
            }
            if !self.archive.works_on(barcode) {
                if ordered == ATTEMPTS {
                    let message = format!(
                        "the index of volume {barcode} could not be written, see `thermo status`; it is read-only now, \
                         and not exported"
                    );
                    return Err(failure(ErrorClass::Busy, message));
                }
                ordered += 1;
                self.archive.send(Event::Errand {
                    kind: MaintenanceKind::Index,
                    volume: barcode.clone(),
                    errand: Errand::Index,
                });
            }
            crate::clock::sleep(LOOK);
        }
    }

    /// Begins to import; the request tells how far it is.
    pub(super) fn import_volumes(self: &Arc<Self>, cx: &Cx, order: ImportOrder) -> Result<Request, Failure> {
        let ImportOrder { volumes, into, pool, uids, gids } = order;
        let into = into.map(|path| path.strip_suffix(b"/").map_or(path.clone(), <[u8]>::to_vec));
        if into.as_ref().is_some_and(|path| !path.is_empty() && path[0] != b'/') {
            return Err(failure(
                ErrorClass::Invalid,
                "the directory must be an absolute path of the namespace",
            ));
        }
        let mut back = Vec::new();
        for barcode in &volumes {
            let v = self.volume_view(barcode)?.volume;
            if v.state == VolumeState::Exported {
                back.push(barcode.clone());
            }
        }
        for barcode in back {
            let order = StateOrder {
                state: VolumeState::Unverified,
                reason: "it was exported and is back; it is being looked at".into(),
                by: cx.uid,
                now: crate::now(),
            };
            let looked_at = self.catalog.update_volume(&barcode, &mut |v| {
                v.becomes(order.state, order.reason.clone(), order.now);
                v.by = Some(order.by);
            });
            looked_at.map_err(|e| refused(&format!("volume {barcode}"), &e))?;
        }
        let below = into.as_ref().map_or_else(String::new, |path| {
            format!(" below {}", if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) })
        });
        let subject = format!("import of {} volumes{below}", volumes.len());
        let by = (cx.uid, cx.gid);
        let map = |pairs: Vec<(u32, u32)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
        let import = Import { into, pool, uids: map(uids), gids: map(gids), by };
        self.take_in(cx, subject, volumes, Some(Arc::new(import)), false)
    }
}
