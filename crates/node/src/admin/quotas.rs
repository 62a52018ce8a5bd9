//! What owners may hold.

use crate::Node;
use crate::error::{failure, refused};
use types::*;
use wire::{Failure, QuotaChange};

impl Node {
    pub(super) fn quota_views(&self) -> Result<Vec<QuotaView>, Failure> {
        let quotas = self.catalog.quotas().map_err(|e| refused("quotas", &e))?;
        let users = self.usage_views()?;
        let volumes = self.catalog.volumes().map_err(|e| refused("volumes", &e))?;
        let pools = self.catalog.pools().map_err(|e| refused("pools", &e))?;
        let own_volumes = crate::archive::own_volumes(&volumes, &pools);
        let volumes_of = |uid: u32| own_volumes.get(&uid).copied().unwrap_or(0);
        let others = quotas.iter().find(|q| q.uid.is_none());
        let own = quotas.iter().map(|quota| {
            let usage = quota.uid.map(|uid| {
                let held = users.iter().find(|u| u.uid == uid).cloned();
                held.unwrap_or(UsageView {
                    uid,
                    files: 0,
                    bytes: 0,
                    disk_bytes: 0,
                    tape_bytes: 0,
                    target_bytes: 0,
                })
            });
            QuotaView { quota: quota.clone(), usage, volumes: quota.uid.map_or(0, volumes_of) }
        });
        let shared = others.into_iter().flat_map(|quota| {
            let without = |u: &&UsageView| u.uid != 0 && !quotas.iter().any(|q| q.uid == Some(u.uid));
            let view = |u: &UsageView| {
                let quota = Quota { uid: Some(u.uid), ..quota.clone() };
                QuotaView { quota, usage: Some(u.clone()), volumes: volumes_of(u.uid) }
            };
            users.iter().filter(without).map(view)
        });
        let mut views: Vec<QuotaView> = own.chain(shared).collect();
        views.sort_by_key(|v| v.quota.uid.unwrap_or(u32::MAX));
        Ok(views)
    }

    pub(super) fn set_quota(&self, uid: Option<u32>, change: Option<QuotaChange>) -> Result<(), Failure> {
        let subject = uid.map_or("quota of everybody else".to_owned(), |uid| format!("quota of uid {uid}"));
        let fail = |e| refused(&subject, &e);
        match (change, uid) {
            (Some(change), _) => {
                let known = self.catalog.quotas().map_err(fail)?.into_iter().find(|q| q.uid == uid);
                let mut quota = known.unwrap_or(Quota { uid, ..Quota::default() });
                quota.files = change.files.unwrap_or(quota.files);
                quota.bytes = change.bytes.unwrap_or(quota.bytes);
                quota.tape_bytes = change.tape_bytes.unwrap_or(quota.tape_bytes);
                quota.volumes = change.volumes.unwrap_or(quota.volumes);
                quota.disk_bytes = change.disk_bytes.unwrap_or(quota.disk_bytes);
                self.catalog.put_quota(&quota).map_err(fail)?;
            }
            (None, None) => self.catalog.put_quota(&Quota::default()).map_err(fail)?,
            (None, Some(uid)) => {
                if !self.catalog.remove_quota(uid).map_err(fail)? {
                    let message = format!("uid {uid} has no quota of its own: see `thermo quota ls`");
                    return Err(failure(ErrorClass::NotFound, message));
                }
            }
        }
        self.look_at_quotas().map_err(|e| crate::error::fs_failure(&subject, e))
    }
}
