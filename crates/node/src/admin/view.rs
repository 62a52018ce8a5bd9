//! What the node says of itself: files, requests, volumes, pools, status.

use crate::Node;
use crate::archive::Moving;
use crate::error::{failure, refused};
use crate::files::percent;
use std::collections::HashMap;
use types::*;
use wire::Failure;

/// Files of a request that its estimate rests on.
const FILES_ESTIMATED: usize = 5_000;

/// Files that are being recalled, by the requests that wait for them.
pub(super) type RecallsByRequest = HashMap<RequestId, Vec<Ino>>;

/// What a listing shows of an entry whose inode is damaged.
pub(super) fn unknown_view(path: PathText, attr: Attr) -> FileView {
    FileView {
        path,
        attr,
        link_target: None,
        residency: None,
        file: None,
        copies_required: 0,
        versions: Vec::new(),
        request: None,
        percent: None,
        eta_s: None,
        directory_class: None,
    }
}

impl Node {
    pub(super) fn file_view(&self, path: PathText, inode: Inode) -> FileView {
        let ino = inode.attr.ino;
        let is_file = inode.attr.kind == FileKind::File;
        let staging = self.staging.get(ino);
        let archived = self.archived(&inode);
        let is_dir = inode.attr.kind == FileKind::Directory;
        let directory_class = is_dir.then(|| self.catalog.class_of(ino).ok()).flatten();
        FileView {
            path,
            residency: is_file.then(|| self.residency(&inode)),
            copies_required: archived.as_ref().map_or(0, |f| self.copies_required(&f.class) as u8),
            file: archived,
            attr: self.shown(inode),
            link_target: None,
            versions: Vec::new(),
            request: is_file.then(|| self.catalog.requests_for(ino).ok()?.first().copied()).flatten(),
            percent: staging.as_ref().map(|s| percent(s.arrived_bytes(), s.size)),
            eta_s: staging.and_then(|_| self.eta_s(ino)),
            directory_class,
        }
    }

    pub(super) fn request_view(&self, request: Request) -> RequestView {
        self.request_view_among(request, None)
    }

    /// The same, where it is known already which recalls belong to which request.
    pub(super) fn request_view_among(
        &self,
        mut request: Request,
        recalls: Option<&RecallsByRequest>,
    ) -> RequestView {
        let open = matches!(request.state, RequestState::Queued | RequestState::Active);
        let moving = if open { self.moving(&mut request, recalls) } else { Moving::default() };
        let open = matches!(request.state, RequestState::Queued | RequestState::Active);
        let bytes_moved =
            (request.bytes_done + moving.bytes).min(request.bytes_total.max(request.bytes_done));
        if open && (request.started.is_some() || moving.begun.is_some()) {
            // What is recorded of it follows.
            request.state = RequestState::Active;
            request.started = request.started.or(moving.begun.map(|begun| begun.max(request.created)));
        }
        let estimate = moving.estimate.map(|e| match request.started {
            Some(_) => Estimate { start_p50_s: 0, start_p90_s: 0, ..e },
            None => e,
        });
        let percent = match request.state {
            RequestState::Done => 100,
            _ if request.bytes_total > 0 => percent(bytes_moved, request.bytes_total).min(99),
            _ => percent(request.files_done, request.files_total.max(1)).min(99),
        };
        RequestView {
            queue_position: moving.queue_position,
            percent,
            bytes_moved,
            eta_s: estimate.map(|e| e.finish_p50_s),
            estimate,
            why: moving.why,
            doing: if open { moving.doing } else { String::new() },
            request,
        }
    }

    /// What is recorded of a request now, with the bytes that `beyond` counts besides.
    fn recorded(&self, request: &mut Request, beyond: impl Fn() -> u64) -> u64 {
        let read = || (self.catalog.request(request.id).ok().flatten(), beyond());
        let (recorded, bytes) = self.steady.read(read);
        if let Some(recorded) = recorded {
            *request = recorded;
        }
        bytes
    }

    /// Progress of an open request beyond what is recorded, which is looked at anew.
    fn moving(&self, request: &mut Request, recalls: Option<&RecallsByRequest>) -> Moving {
        match request.kind {
            RequestKind::Stage => {
                let known = recalls.map(|by| (by.get(&request.id).cloned().unwrap_or_default(), true));
                let (files, all) = known.unwrap_or_else(|| self.recalls_of(request.id));
                let moving = self.archive.progress_of(self, &files, all);
                let here =
                    || files.iter().filter_map(|ino| self.staging.get(*ino)).map(|s| s.arrived_bytes()).sum();
                Moving { bytes: self.recorded(request, here), ..moving }
            }
            RequestKind::Migrate => {
                let backlog = self.writes.backlog();
                let queued = backlog.values().fold((0, 0), |(f, b), pool| (f + pool.files, b + pool.bytes));
                // What a drive has taken, or nobody has queued yet, is in neither.
                let files = request.files_total.saturating_sub(request.files_done);
                let id = request.id;
                let written = self.recorded(request, || self.writes.flights.of(id).0);
                let begun = self.writes.flights.of(id).1;
                let bytes = request.bytes_total.saturating_sub(request.bytes_done + written);
                let blocked = self.writes.blocked();
                let left = blocked.is_empty().then(|| (queued.0.max(files), queued.1.max(bytes)));
                let moving = self.archive.writing_now(self, left, self.ahead_of(request));
                let mut moving = Moving { bytes: written, begun, ..moving };
                for (pool, why) in blocked {
                    // What the scheduler finds is told already.
                    let line = format!("writing to pool {pool} waits: {why}");
                    if !moving.why.contains(&line) {
                        moving.why.push(line);
                    }
                }
                if moving.doing.is_empty() {
                    moving.doing = moving.why.first().cloned().unwrap_or_default();
                }
                if written > 0 {
                    let text = format!("{written} bytes are written and do not count yet");
                    moving.doing =
                        if moving.doing.is_empty() { text } else { format!("{}; {text}", moving.doing) };
                }
                moving
            }
            RequestKind::Label => {
                let Moving { doing, .. } = self.archive.writing_now(self, None, 0);
                let queue_position =
                    if request.state == RequestState::Queued { self.ahead_of(request) + 1 } else { 0 };
                Moving { doing, queue_position, ..Moving::default() }
            }
            RequestKind::Verify | RequestKind::Repack | RequestKind::Export => self.moving_volumes(request),
            RequestKind::Drain | RequestKind::Balance | RequestKind::Scrub | RequestKind::Protect => {
                let id = request.id;
                let bytes = self.recorded(request, || self.movers.underway(id).1);
                moving_columns(request, bytes, self.movers.underway(id).0)
            }
            RequestKind::MoveEngine => self.engine_moves.moving(request),
            RequestKind::Purge | RequestKind::Rebuild | RequestKind::Import => Moving::default(),
        }
    }

    /// Which recalls belong to which open request, in one look at all of them; None if there are too many recalls.
    pub(super) fn recalls_by_request(&self) -> Option<RecallsByRequest> {
        if self.staging.len() > FILES_ESTIMATED {
            return None;
        }
        let mut by = RecallsByRequest::new();
        for staging in self.staging.all() {
            for id in self.catalog.requests_for(staging.ino).unwrap_or_default() {
                by.entry(id).or_default().push(staging.ino);
            }
        }
        Some(by)
    }

    /// Files of a request that are being recalled, as many as an estimate looks at, and whether these are all. When many recalls run most may be of
    /// other requests: then the request's own list is the shorter way.
    fn recalls_of(&self, request: RequestId) -> (Vec<Ino>, bool) {
        if self.staging.len() <= FILES_ESTIMATED {
            let mine = |ino: &Ino| self.catalog.requests_for(*ino).is_ok_and(|ids| ids.contains(&request));
            return (self.staging.all().into_iter().map(|s| s.ino).filter(mine).collect(), true);
        }
        let (mut found, mut after) = (Vec::new(), Ino(0));
        while let Ok(page) = self.catalog.items(request, after, FILES_ESTIMATED)
            && let Some(&(last, ..)) = page.last()
            && found.len() <= FILES_ESTIMATED
        {
            let pending = page.into_iter().filter(|(_, state, _)| *state == ItemState::Pending);
            found.extend(pending.map(|(ino, ..)| ino).filter(|ino| self.staging.get(*ino).is_some()));
            after = last;
        }
        let all = found.len() <= FILES_ESTIMATED;
        found.truncate(FILES_ESTIMATED);
        (found, all)
    }

    /// Seconds until a file under recall is whole.
    pub(crate) fn eta_s(&self, ino: Ino) -> Option<u64> {
        crate::archive::expected(self, &[ino], true).map(|e| e.estimate.finish_p50_s)
    }

    /// Open requests of the same kind that came before.
    pub(super) fn ahead_of(&self, request: &Request) -> u64 {
        self.catalog.open_before(request.kind, request.id).unwrap_or(0)
    }

    pub(super) fn usage_views(&self) -> Result<Vec<UsageView>, Failure> {
        let users = self.catalog.usages().map_err(|e| refused("usage", &e))?;
        let view = |(uid, u): (u32, catalog::Usage)| UsageView {
            uid,
            files: u.files,
            bytes: u.bytes,
            disk_bytes: u.disk_bytes.saturating_add(u.target_bytes),
            tape_bytes: u.tape_bytes,
            target_bytes: u.target_bytes,
        };
        Ok(users.into_iter().map(view).collect())
    }

    pub(super) fn volume_views(&self) -> Result<Vec<VolumeView>, Failure> {
        let volumes = self.catalog.all_volumes().map_err(|e| refused("volumes", &e))?;
        let libraries = self.archive.view().libraries;
        // Of a volume whose record is damaged nothing is known but that.
        let damaged = volumes.damaged.iter().map(|(barcode, e)| Volume {
            state: VolumeState::Broken,
            reason: crate::keep::damaged(e),
            ..Volume::new(barcode.clone(), crate::now())
        });
        let mut all: Vec<Volume> = volumes.found.into_iter().chain(damaged).collect();
        all.sort_by(|a, b| a.barcode.cmp(&b.barcode));
        let view = |v: Volume| VolumeView { location: location(&libraries, &v.barcode), volume: v };
        Ok(all.into_iter().map(view).collect())
    }

    pub(super) fn volume_view(&self, barcode: &Barcode) -> Result<VolumeView, Failure> {
        let found = self.catalog.volume(barcode).map_err(|e| refused("volume", &e))?;
        let volume = found.ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("there is no volume {barcode}; see `thermo volume ls`"))
        })?;
        Ok(VolumeView { location: location(&self.archive.view().libraries, barcode), volume })
    }

    pub(super) fn pool_views(&self) -> Result<Vec<PoolView>, Failure> {
        self.pool_views_of(&self.catalog.volumes().map_err(|e| refused("pools", &e))?)
    }

    fn pool_views_of(&self, volumes: &[Volume]) -> Result<Vec<PoolView>, Failure> {
        let fail = |e| refused("pools", &e);
        let pools = self.catalog.pools().map_err(fail)?;
        let present = self.present();
        let view = |pool: Pool| {
            let mine: Vec<&Volume> = volumes.iter().filter(|v| v.pool.as_ref() == Some(&pool.name)).collect();
            let backlog = self.catalog.pool_backlog(&pool.name).map_err(fail)?;
            let usable = |v: &&&Volume| {
                matches!(v.state, VolumeState::Filling | VolumeState::Scratch) && present.contains(&v.barcode)
            };
            Ok(PoolView {
                volumes: mine.len() as u64,
                filling: mine.iter().filter(usable).count() as u64,
                capacity: mine.iter().map(|v| v.capacity).sum(),
                written: mine.iter().map(|v| v.written).sum(),
                live: mine.iter().map(|v| v.live).sum(),
                backlog_files: backlog.files,
                backlog_bytes: backlog.bytes,
                max_volumes: pool.max_volumes,
                max_bytes: pool.max_bytes,
                format: pool.format,
                collocate: pool.collocate,
                worm: pool.worm,
                key: pool.key,
                library: pool.library,
                name: pool.name,
            })
        };
        pools.into_iter().map(view).collect()
    }

    /// What is wrong now, whenever it began.
    fn standing_warnings(&self, drives: &[DriveView], backlog: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        let out = |d: &DriveView| matches!(d.status, DriveStatus::Suspect(_) | DriveStatus::Down);
        if drives.iter().all(out) {
            warnings.push(format!(
                "no drive is in use: nothing is read from tape and {} to be written to it; see `thermo drive ls`, repair a \
                 drive, then `thermo drive up`",
                if backlog == 1 { "1 file waits".into() } else { format!("{backlog} files wait") }
            ));
        }
        for drive in drives {
            if let DriveStatus::Suspect(why) = &drive.status {
                warnings.push(format!("drive {} is out of use: {why}", drive.drive));
            }
        }
        warnings
    }

    pub(super) fn status(&self) -> Result<StatusView, Failure> {
        let fail = |e| refused("status", &e);
        let totals = self.catalog.totals().map_err(fail)?;
        let space = self.space.view();
        let archive = self.archive.view();
        let mut warnings = self.standing_warnings(&archive.drives, totals.backlog_files);
        let volumes = self.catalog.all_volumes().map_err(fail)?;
        warnings.extend(volumes.damaged.iter().map(|(barcode, e)| {
            format!(
                "volume {barcode} is out of use: {e}; files are read from their copies on others; `thermo check` tells \
                 more, and a backup of the catalogue has the record (`thermo catalog restore`)"
            )
        }));
        warnings.extend(self.overdue_warning(&volumes.found));
        warnings.extend(archive.warnings);
        warnings.extend(self.turns_warning());
        warnings.extend(self.feeding.get().and_then(|feeding| feeding.warning(&self.config)));
        warnings.extend(
            self.writes.blocked().into_iter().map(|(pool, why)| format!("pool {pool} takes no data: {why}")),
        );
        warnings.extend(self.target_warnings().unwrap_or_else(|e| vec![e.to_string()]));
        warnings.extend(self.subsystem_warnings());
        warnings.extend(self.refused());
        Ok(StatusView {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            state_dir: self.config.state_dir.display().to_string(),
            mounts: self.mount_points(),
            inodes: totals.inodes,
            bytes: totals.bytes,
            disk: DiskView {
                path: self.disk.dir().display().to_string(),
                capacity: space.capacity,
                used: space.used,
                fs_free: space.fs_free,
                purgeable: space.purgeable,
                high_watermark: space.high,
                low_watermark: space.low,
            },
            drives: archive.drives,
            pools: self.pool_views_of(&volumes.found)?,
            requests_open: self.catalog.open_requests().map_err(fail)?.len() as u64,
            migrate_backlog_files: totals.backlog_files,
            migrate_backlog_bytes: totals.backlog_bytes,
            warnings,
        })
    }
}

fn location(libraries: &[LibraryView], barcode: &Barcode) -> String {
    let inside =
        |library: &&LibraryView| library.elements.iter().any(|e| e.barcode.as_ref() == Some(barcode));
    let found: Vec<&LibraryView> = libraries.iter().filter(inside).collect();
    match found[..] {
        [] => "not in the library".into(),
        [one] if libraries.len() > 1 => format!("{} {}", one.name, location_in(one, barcode)),
        [one] => location_in(one, barcode),
        _ => "in two libraries, and used in neither".into(),
    }
}

fn location_in(library: &LibraryView, barcode: &Barcode) -> String {
    let element = library.elements.iter().find(|e| e.barcode.as_ref() == Some(barcode));
    match element {
        None => "not in the library".into(),
        Some(e) => match e.kind {
            ElementKind::Slot => format!("slot {}", e.address),
            ElementKind::ImportExport if e.outgoing => {
                format!("import/export slot {}, to be taken out", e.address)
            }
            ElementKind::ImportExport => format!("import/export slot {}", e.address),
            ElementKind::Drive => format!("drive at element {}", e.address),
            ElementKind::Transport => "robot hand".into(),
        },
    }
}

/// Columns go on moving as fast as they did so far.
fn moving_columns(request: &Request, bytes: u64, doing: String) -> Moving {
    let done = request.bytes_done + bytes;
    let estimate = request.started.filter(|_| done > 0).map(|began| {
        let left = request.bytes_total.saturating_sub(done);
        let seconds = crate::now().since(began).as_secs_f64() * left as f64 / done as f64;
        let seconds = seconds.ceil() as u64;
        Estimate { start_p50_s: 0, start_p90_s: 0, finish_p50_s: seconds, finish_p90_s: seconds * 2 }
    });
    Moving { bytes, estimate, doing, ..Moving::default() }
}
