//! Answers to [`wire::Call`]: one match, one function per call.

mod access;
mod acts;
#[cfg(test)]
mod again;
mod classes;
mod described;
mod exchange;
mod junctions;
mod keep;
mod leased;
mod locks;
mod ordered;
mod overview;
mod pools;
mod quotas;
mod quote;
mod rebuild;
mod select;
mod session;
mod sums;
mod told;
mod undelete;
mod view;
mod volumes;

use crate::Node;
use crate::error::{failure, fs_failure, refused};
use std::path::PathBuf;
use std::sync::Arc;
use types::api::FileApi;
use types::*;
use wire::{Act, Answer, Call, Failure, FilesOrder, Outcome, Reply, Selection};

pub(crate) use session::Held;
pub use session::Session;
use view::unknown_view;

impl Node {
    /// Root, or the user who runs the node.
    pub(crate) fn is_admin(&self, cx: &Cx) -> bool {
        cx.uid == 0 || cx.uid == self.uid
    }

    fn admin_only(&self, cx: &Cx, what: &str) -> Result<(), Failure> {
        if self.is_admin(cx) {
            return Ok(());
        }
        Err(fs_failure(
            &format!("{what} is for the administrator (root or uid {})", self.uid),
            FsError::NotPermitted,
        ))
    }

    /// Answers a call of a connection.
    ///
    /// # Errors
    /// Ready to be shown to the user.
    pub fn call(self: &Arc<Self>, cx: &Cx, session: &mut Session, call: Call) -> Result<Answer, Failure> {
        let reply = match call {
            Call::File(call) => return self.file_call(cx, session, call, 0),
            Call::Status => Reply::Status(Box::new(self.status()?)),
            Call::Site => Reply::Site(self.site()?),
            Call::Cluster => Reply::Cluster(Box::new(self.cluster_view()?)),
            Call::ClusterStatus => Reply::ClusterStatus(Box::new(self.cluster_status()?)),
            Call::Targets => Reply::Targets(self.target_views()?),
            Call::Standby => Reply::Standby(Box::new(self.standby_view()?)),
            Call::Turns => Reply::Turns(Box::new(self.turns_view()?)),
            Call::Junctions => Reply::Junctions(self.junction_views()?),
            Call::RefusedTargets => Reply::RefusedTargets(self.all_target_warnings()?),
            Call::List { path, after, limit } => self.list(cx, &path, after, limit)?,
            Call::Stat { path } => Reply::File(Box::new(self.stat(cx, &path)?)),
            Call::Stage(files) => self.all_of(cx, &Act::Stage { priority: None, by: None }, &files)?,
            Call::Act(order) => Reply::Acted(Box::new(self.act(cx, session, &order)?)),
            Call::Quote { files, after } => {
                Reply::Quote(Box::new(self.quote_part(cx, session, &files, after)?))
            }
            Call::RequestSums(by) => Reply::RequestSums(self.request_sums(by)?),
            Call::PurgeList { all, limit } => {
                self.admin_only(cx, "listing the files of all users")?;
                Reply::PurgeList(self.purge_list(all, limit)?)
            }
            Call::StageAs { files, priority, by } => self.all_of(cx, &Act::Stage { priority, by }, &files)?,
            Call::Migrate(files) => self.all_of(cx, &Act::Migrate, &files)?,
            Call::Purge(files) => self.all_of(cx, &Act::Purge, &files)?,
            Call::Pin { files, pin } => self.all_of(cx, &Act::Pin(pin), &files)?,
            Call::Requests { all, limit } => self.requests(all, limit)?,
            Call::Request(id) => self.request_reply(self.request(id)?),
            Call::RequestItems { id, after, limit } => self.request_items(id, after, limit)?,
            Call::Cancel(id) => self.cancel(cx, id).map(|()| Reply::Done)?,
            Call::Volumes => Reply::Volumes(self.volume_views()?),
            Call::Volume(barcode) => Reply::Volume(Box::new(self.volume_view(&barcode)?)),
            Call::VolumeFiles { volume, skip, limit } => self.volume_files(&volume, skip, limit)?,
            Call::VolumeFilesFrom(order) => self.volume_files_from(&order)?,
            Call::ExportedAs(volumes) => Reply::ExportedAs(self.exported_as(&volumes)?),
            Call::Layout(path) => Reply::Layout(Box::new(self.layout_of(cx, &path)?)),
            Call::SetLayout(path, rule) => self.set_layout(cx, &path, rule).map(|()| Reply::Done)?,
            Call::Drives => Reply::Drives(self.archive.view().drives),
            Call::DriveDetails(drive) => Reply::DriveDetails(Box::new(self.drive_details(drive)?)),
            Call::Library => Reply::Library(self.archive.view().libraries),
            Call::Classes => Reply::Classes(self.catalog.classes().map_err(|e| refused("classes", &e))?),
            Call::Pools => Reply::Pools(self.pool_views()?),
            Call::PoolKeys => Reply::PoolKeys(self.pool_keys()?),
            Call::Ended { path, below, after } => self.ended(cx, &path, below, after)?,
            Call::Undelete { ino, version, to } => {
                Reply::File(Box::new(self.undelete(cx, ino, version, &to)?))
            }
            Call::Usage => Reply::Usage(self.usage_views()?),
            Call::UsageV4 => Reply::UsageV4(self.usage_views()?.into_iter().map(Into::into).collect()),
            Call::Quotas => Reply::Quotas(self.quota_views()?),
            Call::QuotasV4 => Reply::QuotasV4(self.quota_views()?.into_iter().map(Into::into).collect()),
            Call::Holdings { owner, class } => Reply::Holdings(self.holdings(owner, class.as_ref())?),
            call => self.admin_call(cx, call)?,
        };
        Ok(reply.into())
    }

    /// What only the administrator may order, but for giving a class to one's own files.
    fn admin_call(self: &Arc<Self>, cx: &Cx, call: Call) -> Result<Reply, Failure> {
        if let Some(what) = of_the_administrator(&call) {
            self.admin_only(cx, what)?;
        }
        match call {
            Call::Label { volumes, pool, force, key } => {
                return Ok(self.request_reply(self.label(cx, volumes, pool, force, key)?));
            }
            Call::Reload => return Ok(Reply::Reloaded(Box::new(self.reload()?))),
            Call::AddTarget { path, domain } => {
                return Ok(Reply::Reloaded(Box::new(self.add_target(std::path::Path::new(&path), &domain)?)));
            }
            Call::Check { tapes, deep } => return Ok(Reply::Check(self.check(tapes, deep)?)),
            Call::Verify(volumes) => return Ok(self.request_reply(self.verify_volumes(cx, &volumes)?)),
            Call::Repack { volumes, dead_percent, generation } => {
                let request = self.repack_volumes(cx, &volumes, dead_percent, generation)?;
                return Ok(self.request_reply(request));
            }
            Call::Inventory { library, audit } => {
                return Ok(Reply::Library(self.take_inventory(library.as_deref(), audit)?));
            }
            Call::ExportCartridges(volumes) => return Ok(Reply::Library(self.export(&volumes)?)),
            Call::ImportCartridges(volumes) => return Ok(Reply::Library(self.import(&volumes)?)),
            Call::Import(order) => return self.import_reply(cx, order, Vec::new()),
            Call::ImportAs(order, was) => return self.import_reply(cx, order, was),
            Call::Export { volumes, reason } => {
                return Ok(self.request_reply(self.export_volumes(cx, &volumes, reason)?));
            }
            Call::ClusterInit { name } => return Ok(Reply::Cluster(Box::new(self.cluster_init(&name)?))),
            Call::ClusterToken { grant, lifetime_s } => {
                return Ok(Reply::Token(self.cluster_token(grant, lifetime_s)?));
            }
            Call::ClusterRemove { id, reason } => {
                return Ok(Reply::Unreached(self.cluster_remove(id, &reason)?));
            }
            Call::ClusterRevoke => return Ok(Reply::Count(self.cluster_revoke()?)),
            Call::ClusterAddresses => return Ok(Reply::Addresses(self.namespace_addresses())),
            Call::ClusterRemoved { list } => return Ok(Reply::Removed(self.cluster_removed(&list)?)),
            Call::ClusterPlaces { list } => {
                self.cluster_places(&list)?;
                return Ok(Reply::Done);
            }
            Call::Rebuild => return Ok(self.request_reply(self.rebuild(cx)?)),
            Call::Backup { dir } => return Ok(Reply::Backup(self.backup_below(dir)?)),
            Call::MoveEngine { to } => {
                return self.move_engine(cx, to.as_deref()).map(|r| self.request_reply(r));
            }
            Call::MoveTargets(act) => return self.move_targets_reply(cx, act),
            Call::TargetPool(order) => self.change_target_pool(&order)?,
            Call::JunctionMake { .. } | Call::JunctionRemove { .. } => self.set_junction(cx, call)?,
            Call::AssignClass { path, class } => self.assign_class(cx, &path, &class)?,
            Call::SetClass { name, change } => self.set_class(&name, change)?,
            Call::SetVolume { volumes, state, reason } => {
                self.set_volume_state(cx, &volumes, (state, false), reason)?;
            }
            Call::SetPool { name, create, change } => self.set_pool(&name, create, change)?,
            Call::SetQuota { uid, change } => self.set_quota(uid, change)?,
            Call::SetQuotaV4 { uid, change } => self.set_quota(uid, change.map(Into::into))?,
            Call::SetDrive { drive, up: true } => self.drive_up(drive, false)?,
            Call::SetDrive { drive, up: false } => self.drive_out(cx, drive, String::new())?,
            Call::TakeDrive { drive } => self.drive_up(drive, true)?,
            Call::TakeDriveOut { drive, reason } => self.drive_out(cx, drive, reason)?,
            Call::Down { graceful } => self.request_stop(graceful),
            Call::Mount { path, nonblock } => self.mount_at(path.as_ref(), nonblock)?,
            Call::Umount { path } => self.unmount_at(path.as_ref())?,
            other => return Err(not_here(&other)),
        }
        Ok(Reply::Done)
    }

    /// Writes a backup of the catalogue below `dir`; None: below the configured directory.
    fn backup_below(self: &Arc<Self>, dir: Option<String>) -> Result<BackupView, Failure> {
        let dir = dir.map(PathBuf::from).or_else(|| self.config.catalog.backup_dir.clone());
        let dir = dir.ok_or_else(|| {
            let message = "name a directory for the backup, or set `catalog.backup_dir`";
            failure(ErrorClass::Invalid, message)
        })?;
        let made = self.backup_catalog(&dir)?;
        if self.config.catalog.backup_dir.as_ref() == Some(&dir) {
            self.put_backup(&dir)?;
        }
        Ok(made)
    }

    fn requests(&self, all: bool, limit: u32) -> Result<Reply, Failure> {
        let found =
            self.catalog.requests(all, limit.min(10_000) as usize).map_err(|e| refused("requests", &e))?;
        let recalls = self.recalls_by_request();
        if let Some(recalls) = &recalls {
            let files: Vec<Ino> = recalls.values().flatten().copied().collect();
            self.archive.prepare_progress(self, &files);
        }
        let view = |r| self.request_view_among(r, recalls.as_ref());
        Ok(Reply::Requests(found.into_iter().map(view).collect()))
    }

    /// An act that is refused as a whole if one path cannot be chosen.
    fn all_of(&self, cx: &Cx, act: &Act, files: &Selection) -> Result<Reply, Failure> {
        Ok(match self.act_whole(cx, act, files)? {
            Outcome::Request(view) => Reply::Request(view),
            Outcome::Changed(count) => Reply::Count(count),
            Outcome::Quote(view, waits) => Reply::Quote(Box::new(view.with_waiting_lost(*waits))),
            Outcome::Gathered | Outcome::Nothing => Reply::Done,
        })
    }

    fn move_targets_reply(self: &Arc<Self>, cx: &Cx, act: TargetAct) -> Result<Reply, Failure> {
        let request = self.move_targets(cx, act)?;
        Ok(request.map_or(Reply::Done, |request| self.request_reply(request)))
    }

    fn request_reply(&self, request: Request) -> Reply {
        Reply::Request(Box::new(self.request_view(request)))
    }

    fn request_items(&self, id: RequestId, after: Ino, limit: u32) -> Result<Reply, Failure> {
        self.request(id)?;
        let volumes = self.volume_items(id, after, limit)?;
        if !volumes.is_empty() {
            return Ok(Reply::RequestItems(volumes));
        }
        let items =
            self.catalog.items(id, after, limit.min(10_000) as usize).map_err(|e| refused("request", &e))?;
        let view = |(ino, state, _bytes): (Ino, ItemState, u64)| {
            let path = self.catalog.path_of(ino.told_of()).map(PathText::from);
            RequestItemView {
                ino,
                path: path.unwrap_or_else(|_| format!("(deleted inode {ino})").into()),
                state,
            }
        };
        Ok(Reply::RequestItems(items.into_iter().map(view).collect()))
    }

    fn volume_files(&self, volume: &Barcode, skip: u64, limit: u32) -> Result<Reply, Failure> {
        self.volume_view(volume)?;
        let files = self.catalog.volume_files(volume, skip, limit.min(10_000) as usize);
        let files = files.map_err(|e| refused(&format!("volume {volume}"), &e))?;
        Ok(Reply::VolumeFiles(
            files.into_iter().map(|(tape_path, file)| VolumeFileView { tape_path, file }).collect(),
        ))
    }

    fn volume_files_from(&self, order: &FilesOrder) -> Result<Reply, Failure> {
        let FilesOrder { volume, from, limit } = order;
        self.volume_view(volume)?;
        let page = self.catalog.volume_files_from(volume, from, (*limit).min(10_000) as usize);
        let (files, next) = page.map_err(|e| refused(&format!("volume {volume}"), &e))?;
        let files = files.into_iter().map(|(tape_path, file)| VolumeFileView { tape_path, file }).collect();
        Ok(Reply::VolumeFilesPart(files, next))
    }

    fn list(&self, cx: &Cx, path: &[u8], after: u64, limit: u32) -> Result<Reply, Failure> {
        let fail = |e| refused(&escape(path), &e);
        let inode = self.catalog.resolve(cx, path, after == 0).map_err(fail)?;
        if inode.attr.kind != FileKind::Directory {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
            return Ok(Reply::Files {
                entries: vec![(name, self.file_view(path.into(), inode))],
                next: None,
            });
        }
        self.catalog.access(cx, &inode.attr, 4).map_err(fail)?;
        let limit = limit.clamp(1, 1_000) as usize;
        let page = self.catalog.readdir_plus(inode.attr.ino, after, limit).map_err(fail)?;
        let page = crate::files::past_damage(page);
        let next = page.last().filter(|_| page.len() == limit).map(|(e, _)| e.cookie);
        let entries = page.into_iter().map(|(e, inode)| {
            let path = PathText::from([path.strip_suffix(b"/").unwrap_or(path), &e.name].join(&b'/'));
            let view = match inode {
                Ok(inode) => self.file_view(path, inode),
                Err(error) => unknown_view(path, crate::files::unknown(&e, &error)),
            };
            (e.name, view)
        });
        Ok(Reply::Files { entries: entries.collect(), next })
    }

    fn stat(&self, cx: &Cx, path: &[u8]) -> Result<FileView, Failure> {
        let fail = |e| refused(&escape(path), &e);
        let inode = self.catalog.resolve(cx, path, false).map_err(fail)?;
        let ino = inode.attr.ino;
        let kind = inode.attr.kind;
        let mut view = self.file_view(path.into(), inode);
        match kind {
            FileKind::File => view.versions = self.catalog.versions(ino).map_err(fail)?,
            FileKind::Symlink => {
                let target = self.readlink(cx, ino).map_err(|e| fs_failure(&escape(path), e))?;
                view.link_target = Some(target.into());
            }
            _ => {}
        }
        Ok(view)
    }
}

/// What an order does, if only the administrator may give it: all but those named as free.
fn of_the_administrator(call: &Call) -> Option<&'static str> {
    Some(match call {
        Call::SetClass { .. } => "changing a class of service",
        Call::Label { .. } => "labelling volumes",
        Call::Check { .. } => "checking the whole system",
        Call::Verify(_) => "verifying volumes",
        Call::Repack { .. } => "repacking volumes",
        Call::Import(_) | Call::ImportAs(..) => "importing volumes",
        Call::Export { .. } => "exporting volumes",
        Call::ClusterInit { .. } => "making a cluster",
        Call::ClusterToken { .. } => "giving out tokens of the cluster",
        Call::ClusterRemove { .. } => "removing members of the cluster",
        Call::StandbyTakeOver { .. } => "taking over",
        Call::ClusterRevoke => "withdrawing tokens of the cluster",
        Call::ClusterRemoved { .. } => "bringing lists of removed members",
        Call::ClusterPlaces { .. } => "saying where the namespace is to be had",
        Call::ClusterJoin(_)
        | Call::ClusterRenew(_)
        | Call::ReportTargets(_)
        | Call::StandbyStep(_)
        | Call::StandbyKeep(_)
        | Call::TurnKept
        | Call::Subsystem
        | Call::Session(_)
        | Call::FileFor(_)
        | Call::For(_)
        | Call::ProgramSession(_) => return None,
        Call::MoveTargets(_) => "emptying and filling targets",
        Call::TargetPool(_) => "changing pools of targets",
        Call::Reload | Call::AddTarget { .. } => "changing the configuration",
        Call::Rebuild => "rebuilding the catalogue",
        Call::MoveEngine { .. } => "moving the catalogue",
        Call::Backup { .. } => "making a backup of the catalogue",
        Call::Inventory { .. } => "having the library's inventory taken",
        Call::ExportCartridges(_) | Call::ImportCartridges(_) => "moving cartridges in and out",
        Call::SetVolume { .. } => "setting the state of volumes",
        Call::SetPool { .. } => "making and changing pools",
        Call::SetQuota { .. } | Call::SetQuotaV4 { .. } => "changing quotas",
        Call::JunctionMake { .. } | Call::JunctionRemove { .. } => "making and removing junctions",
        Call::SetDrive { .. } | Call::TakeDriveOut { .. } => "taking drives in or out of use",
        Call::TakeDrive { .. } => "taking drives from other hosts",
        Call::Down { .. } => "stopping the node",
        Call::Mount { .. } => "mounting",
        Call::Umount { .. } => "unmounting",
        Call::AssignClass { .. } => return None,
        _ => "this",
    })
}

/// Why a call that goes to another place is not answered at this one.
fn not_here(call: &Call) -> Failure {
    let message = match call {
        Call::StandbyTakeOver { .. } => "this node is no standby: it serves already",
        Call::StandbyStep(_) | Call::StandbyKeep(_) => "a standby is fed over TLS, by its node",
        Call::Subsystem => "whose names are here is asked over TLS",
        Call::TurnKept => "keys of the cluster are for nodes that wait for their turn, over TLS",
        Call::ReportTargets(_) => "targets are reported over TLS, by their node",
        Call::Devices | Call::OpenDevice { .. } | Call::Scsi(_) | Call::Depot(_) => {
            "devices of this host are for other nodes, over TLS"
        }
        Call::ClusterRenew(_) => "a certificate is renewed over TLS, with the one before",
        Call::Session(_) | Call::FileFor(_) | Call::For(_) | Call::ProgramSession(_) => {
            "other users are spoken for over TLS, by their node"
        }
        Call::ClusterJoin(_) => "joining goes over TLS, with a token: `thermo cluster join`",
        other => return failure(ErrorClass::Bug, format!("no answer is defined for {other:?}")),
    };
    failure(ErrorClass::Invalid, message)
}
