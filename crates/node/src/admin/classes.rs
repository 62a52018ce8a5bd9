//! Classes of service and labels.

use crate::Node;
use crate::archive::Event;
use crate::archive::mismatch;
use crate::error::{failure, refused};
use types::*;
use wire::{ClassChange, Failure};

impl Node {
    pub(super) fn assign_class(&self, cx: &Cx, path: &[u8], class: &ClassName) -> Result<(), Failure> {
        let shown = escape(path);
        let inode = self.catalog.resolve(cx, path, true).map_err(|e| refused(&shown, &e))?;
        if !self.is_admin(cx) && inode.attr.uid != cx.uid {
            return Err(crate::error::fs_failure(&shown, FsError::NotPermitted));
        }
        self.known_class(class)?;
        let set = self.catalog.set_class(inode.attr.ino, class, crate::now());
        self.seen_by_all(set).map_err(|e| refused(&shown, &e))?;
        self.governor.wake();
        Ok(())
    }

    fn known_class(&self, name: &ClassName) -> Result<Class, Failure> {
        let found = self.catalog.class(name).map_err(|e| refused("class", &e))?;
        found.ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("there is no class `{name}`; see `thermo class ls`"))
        })
    }

    pub(super) fn set_class(&self, name: &ClassName, change: ClassChange) -> Result<(), Failure> {
        let known = self.catalog.class(name).map_err(|e| refused("class", &e))?;
        let mut class = known.unwrap_or(Class {
            name: name.clone(),
            copies: Vec::new(),
            migrate_after_s: 60,
            migrate_bytes: 0,
            keep_on_disk: false,
        });
        if let Some(copies) = change.copies {
            let pools = self.catalog.pools().map_err(|e| refused("pools", &e))?;
            for (i, pool) in copies.iter().enumerate() {
                if !pools.iter().any(|p| p.name == *pool) {
                    let message = format!("class {name}: there is no pool `{pool}`; see `thermo pool ls`");
                    return Err(failure(ErrorClass::NotFound, message));
                }
                if copies[..i].contains(pool) {
                    let message = format!(
                        "class {name}: pool `{pool}` is named twice; copies belong on different pools"
                    );
                    return Err(failure(ErrorClass::Invalid, message));
                }
            }
            class.copies = copies;
        }
        class.migrate_after_s = change.migrate_after_s.unwrap_or(class.migrate_after_s);
        class.migrate_bytes = change.migrate_bytes.unwrap_or(class.migrate_bytes);
        class.keep_on_disk = change.keep_on_disk.unwrap_or(class.keep_on_disk);
        self.catalog.put_class(&class).map_err(|e| refused(&format!("class {name}"), &e))?;
        while self.catalog.refresh_classes(1_000, crate::now()).map_err(|e| refused("class", &e))? {}
        self.governor.wake();
        Ok(())
    }

    /// Orders labels for volumes; what may not be labelled is refused before anything moves.
    pub(super) fn label(
        &self,
        cx: &Cx,
        mut volumes: Vec<Barcode>,
        pool: Option<PoolName>,
        force: bool,
        key: Option<String>,
    ) -> Result<Request, Failure> {
        let known = self.catalog.volumes().map_err(|e| refused("volumes", &e))?;
        let pools = self.catalog.pools().map_err(|e| refused("pools", &e))?;
        if let Some(pool) = &pool
            && !pools.iter().any(|p| p.name == *pool)
        {
            return Err(failure(
                ErrorClass::NotFound,
                format!("there is no pool `{pool}`; see `thermo pool ls`"),
            ));
        }
        if let Some(name) = &key {
            self.has_key(name)?;
        }
        if volumes.is_empty() {
            let worm = pool.as_ref().is_some_and(|pool| pools.iter().any(|p| p.worm && p.name == *pool));
            let blank = |v: &&Volume| matches!(v.state, VolumeState::Blank | VolumeState::Unknown);
            let fresh = known.iter().filter(|v| blank(v) && v.worm == worm);
            volumes = fresh.map(|v| v.barcode.clone()).collect();
        }
        for barcode in &volumes {
            let Some(volume) = known.iter().find(|v| v.barcode == *barcode) else {
                let message = format!("volume {barcode} is not in the library; see `thermo library show`");
                return Err(failure(ErrorClass::NotFound, message));
            };
            refuse_label(volume, force)?;
            if let Some(why) = mismatch(&pools, pool.as_ref(), volume.worm) {
                return Err(failure(ErrorClass::Invalid, format!("volume {barcode} is not labelled: {why}")));
            }
        }
        let subject = match volumes.as_slice() {
            [one] => format!("volume {one}"),
            many => plural(many.len(), "volume"),
        };
        let mut request = Request::new(RequestKind::Label, cx.uid, subject, crate::now());
        request.files_total = volumes.len() as u64;
        if volumes.is_empty() {
            (request.state, request.finished) = (RequestState::Done, Some(crate::now()));
            request.message = "no blank volume is in the library".into();
        }
        // The catalogue counts items, and volumes are not items.
        let total = request.files_total;
        let made = self.catalog.create_request(&request, &[]);
        let counted = made.and_then(|r| self.catalog.update_request(r.id, &mut |r| r.files_total = total));
        let request = counted.map_err(|e| refused("label", &e))?;
        self.catalog.sync().map_err(|e| refused("label", &e))?;
        self.archive.send(Event::Label { request: request.id, volumes, pool, force, key });
        Ok(request)
    }
}

fn refuse_label(volume: &Volume, force: bool) -> Result<(), Failure> {
    let barcode = &volume.barcode;
    if volume.live_files > 0 {
        let message = format!(
            "volume {barcode} holds what is still needed ({}); it is not labelled, not even with --force",
            plural(volume.live_files, "file")
        );
        return Err(failure(ErrorClass::Busy, message));
    }
    let ours = matches!(volume.state, VolumeState::Unknown | VolumeState::Blank);
    if !ours && volume.worm {
        let message = format!(
            "volume {barcode} is of WORM medium and has its label for life; it is not labelled again, not even with --force"
        );
        return Err(failure(ErrorClass::Invalid, message));
    }
    if !ours && !force {
        let message = format!(
            "volume {barcode} is {} ({}); add --force if all on it may be destroyed",
            volume.state,
            if volume.reason.is_empty() { "no reason given" } else { &volume.reason }
        );
        return Err(failure(ErrorClass::Invalid, message));
    }
    Ok(())
}
