//! The steps of the demonstration, in order.

use super::host::Host;
use super::manifest::{self, Manifest};
use super::plan::Plan;
use super::ui::{Amount, Progress, Ui};
use super::way::{BIG, HOME, Way};
use super::{bulk, requests};
use crate::context::Context;
use crate::exit::Exit;
use crate::units::size;
use anyhow::{Context as _, Result, bail};
use client::Connection;
use client::copy::Event;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{CheckReport, RequestView, StatusView, VolumeView};
use wire::{Call, Selection};

/// Seed of the big file.
const SEED: u64 = 20_260_101;
/// What `stat` shows of an offline file: not 0, because archivers take a file without blocks for one hole (of 512 bytes).
const OFFLINE_BLOCKS: u64 = 1;

/// The demonstration.
pub struct Show {
    pub ui: Ui,
    pub host: Host,
    pub roots: Vec<PathBuf>,
    pub original: Manifest,
    pub plan: Plan,
    pub mount: Option<PathBuf>,
    /// Kill the node in the middle of the copy.
    pub crash: bool,
}

/// What the end shows.
pub struct Outcome {
    way: Way,
    differences: Vec<String>,
    compared: usize,
    first_byte: Duration,
}

/// Where an entry of a manifest is, given its roots.
pub fn place(roots: &[PathBuf], name: &Path) -> PathBuf {
    let root = roots.iter().find(|r| r.file_name().is_some_and(|last| name.starts_with(last)));
    let parent = root.and_then(|r| r.parent()).unwrap_or(Path::new("/"));
    parent.join(name)
}

/// Capacity of the disk tier and of the cartridges of a node that runs already (bytes).
pub fn existing(host: &Host) -> Result<(u64, Option<u64>)> {
    let mut node = Connection::open(&host.socket)?;
    let status: StatusView = node.ask(&Call::Status)?;
    let volumes: Vec<VolumeView> = node.ask(&Call::Volumes)?;
    let cartridge = volumes.iter().map(|v| v.volume.capacity).filter(|&c| c > 0).min();
    Ok((status.disk.capacity, cartridge))
}

/// Removes what an earlier demonstration copied in, and blanks cartridges on which nothing else is.
pub fn make_room(ui: &Ui, host: &Host, way: &Way) -> Result<()> {
    way.clean()?;
    let volumes: Vec<VolumeView> = Connection::open(&host.socket)?.ask(&Call::Volumes)?;
    let unused = |v: &&VolumeView| v.volume.files > 0 && v.volume.live_files == 0;
    let unused: Vec<_> = volumes.iter().filter(unused).map(|v| v.volume.barcode.clone()).collect();
    if unused.is_empty() {
        return Ok(());
    }
    ui.say(format!(
        "   Its files are removed; {} cartridges hold nothing else and get new labels.",
        unused.len()
    ))?;
    let call = Call::Label { volumes: unused, pool: None, force: true, key: None };
    requests::follow(&host.socket, &call, &Progress::hidden()).map(drop)
}

impl Show {
    /// All steps.
    pub fn run(&mut self, way: Option<Way>) -> Result<Outcome> {
        let status = self.host.up()?;
        let way = match way {
            Some(way) => way,
            None => self.host.way(&self.ui, self.mount.as_deref(), &status)?,
        };
        way.clean()?;
        if let Way::Mount(mount) = &way {
            self.ui.say(format!(
                "   The node runs (process {}); its files are at {}.",
                status.pid,
                mount.display()
            ))?;
        }
        self.copy_in(&way)?;
        let digest = self.big_file(&way)?;
        self.migrate()?;
        self.purge(&way)?;
        let (mut differences, first_byte) = self.read_big(&way, digest)?;
        let copy = self.read_tree(&way)?;
        let owner = rustix::process::geteuid().is_root();
        differences.extend(manifest::differences(&self.original, &copy, owner));
        differences.extend(self.check()?);
        Ok(Outcome { way, differences, compared: copy.len() + 1, first_byte })
    }

    fn tree_amount(&self) -> Amount {
        let files = manifest::files(&self.original);
        files.fold(Amount::default(), |a, (_, e)| Amount { files: a.files + 1, bytes: a.bytes + e.size })
    }

    fn copy_in(&mut self, way: &Way) -> Result<()> {
        let amount = self.tree_amount();
        let what = match way {
            Way::Mount(mount) => {
                format!("Copying the tree in with plain `cp -a ... {}`", mount.join(HOME).display())
            }
            Way::Socket { .. } => format!("Copying the tree in as `thermo put ... tc:/{HOME}` does"),
        };
        let (roots, host) = (&self.roots, &self.host);
        let crash_after = self.crash.then_some(self.original.len() as u64 / 2);
        let crashed = self.ui.step("copy tree in", what, |progress| {
            progress.total(amount.bytes);
            let watch = |event: Event<'_>| watch_copy(progress, &event);
            let ended = AtomicBool::new(false);
            let crashed = std::thread::scope(|scope| {
                let crash = crash_after.map(|n| {
                    scope.spawn({
                        let ended = &ended;
                        move || super::crash::crash(host, way, n, ended)
                    })
                });
                let copied = match way {
                    Way::Socket { .. } => way.copy_in(roots, false, &watch),
                    Way::Mount(_) => {
                        let quiet = self.crash; // each file would be complained about
                        watched(&host.socket, progress, || way.copy_in(roots, quiet, &watch))
                    }
                };
                ended.store(true, Ordering::Relaxed);
                let crashed =
                    crash.map(|thread| thread.join().unwrap_or_else(|_| bail!("the crash panicked")));
                match crashed.transpose()? {
                    Some(false) => {
                        bail!("the copy was over before the node could be killed; give a larger --tree")
                    }
                    // cp cannot go on without its mount: it is run again. `put` has waited.
                    Some(true) if copied.is_err() => way.copy_in(roots, false, &watch).map(|()| true),
                    crashed => copied.map(|()| crashed.is_some()),
                }
            })?;
            Ok((amount, crashed))
        })?;
        if crashed {
            self.ui.say(
                "   In the middle the node was killed (-9) and started again; the copy was completed.",
            )?;
        }
        Ok(())
    }

    fn big_file(&mut self, way: &Way) -> Result<[u8; 32]> {
        let (big, what) =
            (self.plan.big, format!("Writing {} of pseudo-random data to \"{BIG}\"", size(self.plan.big)));
        self.ui.step("write big file", what, |progress| {
            let digest = bulk::write(way, big, SEED, progress)?;
            Ok((Amount { files: 1, bytes: big }, digest))
        })
    }

    fn migrate(&mut self) -> Result<()> {
        let socket = &self.host.socket;
        let backlog: StatusView = Connection::open(socket)?.ask(&Call::Status)?;
        let amount = Amount { files: backlog.migrate_backlog_files, bytes: backlog.migrate_backlog_bytes };
        let what = format!(
            "Migrating to two copies in two pools ({} files, {} are left; the rest went to tape during the copy)",
            amount.files,
            size(amount.bytes)
        );
        self.ui.step("migrate the rest", what, |progress| {
            let call = Call::Migrate(requests::below(Way::inside(Path::new(""))));
            requests::follow(socket, &call, progress)?;
            Ok((amount, ()))
        })?;
        let volumes: Vec<VolumeView> = Connection::open(socket)?.ask(&Call::Volumes)?;
        let mut pools: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for view in volumes.iter().filter(|v| v.volume.files > 0) {
            let pool = view.volume.pool.as_ref().map_or("no pool".to_owned(), ToString::to_string);
            pools.entry(pool).or_default().push(format!(
                "{} ({})",
                view.volume.barcode,
                size(view.volume.written)
            ));
        }
        pools
            .iter()
            .try_for_each(|(pool, volumes)| self.ui.say(format!("   pool {pool}: {}", volumes.join(", "))))
    }

    fn purge(&mut self, way: &Way) -> Result<()> {
        let socket = &self.host.socket;
        let call = Call::Purge(requests::below(Way::inside(Path::new(""))));
        self.ui.step(
            "purge from disk",
            "Releasing the disk space of everything that has both copies",
            |progress| {
                let view: RequestView = requests::follow(socket, &call, progress)?;
                Ok((Amount { files: view.request.files_done, bytes: view.request.bytes_done }, ()))
            },
        )?;
        let original = &self.original;
        self.ui.step(
            "stat all, offline",
            "Proving that nothing is on disk (stat and residency of every file; no recall)",
            |_| {
                let files = prove_offline(socket, way, original)?;
                Ok((Amount { files, bytes: 0 }, ()))
            },
        )
    }

    fn read_big(&mut self, way: &Way, digest: [u8; 32]) -> Result<(Vec<String>, Duration)> {
        let size = self.plan.big;
        let what = format!("Opening \"{BIG}\" and reading it while it comes back from tape");
        let read = self.ui.step("recall big file", what, |progress| {
            let read = bulk::read(way, size, progress)?;
            Ok((Amount { files: 1, bytes: read.bytes }, read))
        })?;
        self.ui.say(format!("   the first MiB was there after {:.3} s", read.first_byte.as_secs_f64()))?;
        let mut differences = Vec::new();
        if (read.bytes, read.digest) != (size, digest) {
            differences
                .push(format!("{BIG}: content differs (SHA-256), {} bytes instead of {size}", read.bytes));
        }
        Ok((differences, read.first_byte))
    }

    /// Stages and reads the tree, in parts that fit into the disk tier together with what is being released.
    fn read_tree(&mut self, way: &Way) -> Result<Manifest> {
        let parts = parts(&self.original, self.plan.disk_pool / 3);
        let (socket, amount) = (self.host.socket.clone(), self.tree_amount());
        if let [_] = parts[..] {
            let call = Call::Stage(requests::below(Way::inside(Path::new(""))));
            self.ui.step("stage tree", "Staging the tree in the order of the tapes", |progress| {
                requests::follow(&socket, &call, progress).map(|_| (amount, ()))
            })?;
            return self.ui.step(
                "read tree back",
                "Reading and hashing every file of the copy",
                |progress| {
                    progress.total(amount.bytes);
                    read_back(way, &self.roots, &parts, progress, &|_| Ok(())).map(|copy| (amount, copy))
                },
            );
        }
        let what = format!(
            "Staging and reading the tree in {} parts: it does not fit on the disk tier",
            parts.len()
        );
        self.ui.step("stage and read tree", what, |progress| {
            progress.total(amount.bytes);
            let stage = |part: &[PathBuf]| {
                let paths = part.iter().map(|name| Way::inside(name)).collect();
                let call = Call::Stage(Selection { paths, recursive: false });
                requests::follow(&socket, &call, &Progress::hidden()).map(drop)
            };
            read_back(way, &self.roots, &parts, progress, &stage).map(|copy| (amount, copy))
        })
    }

    fn check(&mut self) -> Result<Vec<String>> {
        let socket = &self.host.socket;
        let report = self.ui.step(
            "check",
            "Checking the catalogue against the disk tier and all cartridges",
            |_| {
                let report: CheckReport =
                    Connection::open(socket)?.ask(&Call::Check { tapes: true, deep: false })?;
                Ok((Amount { files: report.tape_files, bytes: 0 }, report))
            },
        )?;
        let serious = report.findings.iter().filter(|f| f.is_serious());
        Ok(serious.map(|f| format!("check: {}: {}. {}", f.subject, f.problem, f.remedy)).collect())
    }

    /// Tells the result and what to try next.
    pub fn finish(self, context: &mut Context, outcome: Outcome, down: bool) -> Result<Exit> {
        self.ui.say("")?;
        self.ui.table()?;
        self.ui.say("")?;
        let bad = outcome.differences.len();
        for line in outcome.differences.iter().take(50) {
            self.ui.say(format!("DIFFERENT {line}"))?;
        }
        self.ui.say(match bad {
            0 => format!("All {} entries are the same as the original: type, mode, owner, size, times, links, SHA-256.", outcome.compared),
            _ => format!("{bad} DIFFERENCES. The node is left as it is; its log is {}/thermo.log.", self.host.dir.display()),
        })?;
        if context.global.json {
            context.out.json(&serde_json::json!({
                "steps": self.ui.rows,
                "entries": outcome.compared,
                "differences": outcome.differences,
                "first_byte_seconds": outcome.first_byte.as_secs_f64(),
                "state_dir": self.host.dir,
            }))?;
        }
        if down {
            self.host.down()?;
        } else {
            self.next(&outcome.way)?;
        }
        Ok(if bad == 0 { Exit::OK } else { Exit::SOME_FAILED })
    }

    fn next(&self, way: &Way) -> Result<()> {
        let program = std::env::current_exe().ok().and_then(|p| p.parent().map(|d| d.display().to_string()));
        let files = match way {
            Way::Mount(mount) => mount.join(HOME).display().to_string(),
            Way::Socket { .. } => format!("tc:/{HOME}"),
        };
        self.ui.say(format!(
            "\nThe node stays up. To try next:\n\
             \x20 export PATH=\"{}:$PATH\" THERMO_STATE={}\n\
             \x20 thermo status                     what it does\n\
             \x20 thermo ls {files}     where the bytes are\n\
             \x20 thermo stat \"{files}/{BIG}\"\n\
             \x20 thermo purge -r {files}; thermo stage --wait -r {files}\n\
             \x20 thermo volume ls                  the cartridges; thermo volume files BARCODE\n\
             \x20 thermo check --deep               read and compare everything\n\
             \x20 thermo down                       stop; `thermo up` starts it again, files and tapes stay",
            program.unwrap_or_default(),
            self.host.dir.display(),
        ))
    }
}

fn watch_copy(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::Bytes(n) | Event::Skipped { bytes: n, .. } => progress.add(*n),
        Event::Failed { path, error } => eprintln!("   {}: {error}", client::escape(path)),
        _ => {}
    }
}

/// While `work` runs, progress is what the node counts.
fn watched(socket: &Path, progress: &Progress, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let ended = AtomicBool::new(false);
    let mut node = Connection::open_patient(socket, Duration::from_secs(60))?;
    let before: StatusView = node.ask(&Call::Status)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(now) = node.ask::<StatusView>(&Call::Status) {
                    let files = now.inodes.saturating_sub(before.inodes);
                    let note = format!("{files} entries, disk tier {}", size(now.disk.used));
                    progress.at(now.bytes.saturating_sub(before.bytes), note);
                }
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

/// Every file with content must have no data on disk and be reported as offline.
fn prove_offline(socket: &Path, way: &Way, original: &Manifest) -> Result<u64> {
    let (mut found, mut files) = ((0, Vec::new()), 0);
    match way {
        Way::Socket { .. } => {
            let mut node = Connection::open(socket)?;
            files = requests::not_offline(&mut node, &Way::inside(Path::new("")), &mut found)?;
        }
        Way::Mount(mount) => {
            let home = mount.join(HOME);
            let big = PathBuf::from(BIG);
            let names = manifest::files(original).filter(|(_, e)| e.size > 0).map(|(name, _)| name);
            for name in names.chain([&big]) {
                let path = home.join(name);
                files += 1;
                if let Some(why) = on_disk(&path)? {
                    found.0 += 1;
                    found.1.push(format!("{} ({why})", client::escape(path.as_os_str().as_encoded_bytes())));
                }
            }
        }
    }
    if found.0 > 0 {
        found.1.truncate(5);
        bail!("{} of {files} files are still on disk, the first: {}", found.0, found.1.join(", "));
    }
    Ok(files)
}

/// What shows that a file still has bytes on disk. The kernel is told after the node that a file has become smaller on
/// disk, so old figures are asked for again for a moment.
fn on_disk(path: &Path) -> Result<Option<String>> {
    let mut value = [0; 64];
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let blocks = path.symlink_metadata().with_context(|| path.display().to_string())?.blocks();
        let length = rustix::fs::lgetxattr(path, "user.thermo.residency", &mut value[..])
            .with_context(|| format!("residency of {}", path.display()))?;
        match &value[..length] {
            b"offline" if blocks <= OFFLINE_BLOCKS => return Ok(None),
            b"offline" if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            other => return Ok(Some(format!("{blocks} blocks, {}", String::from_utf8_lossy(other)))),
        }
    }
}

/// Cuts the files into parts of at most `most` bytes (one file at least).
fn parts(original: &Manifest, most: u64) -> Vec<Vec<PathBuf>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for (name, entry) in manifest::files(original) {
        let cost = entry.size + 4096;
        if bytes + cost > most && parts.last().is_some_and(|p: &Vec<PathBuf>| !p.is_empty()) {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += cost;
        if let Some(part) = parts.last_mut() {
            part.push(name.clone());
        }
    }
    parts
}

fn read_back(
    way: &Way,
    roots: &[PathBuf],
    parts: &[Vec<PathBuf>],
    progress: &Progress,
    before: &dyn Fn(&[PathBuf]) -> Result<()>,
) -> Result<Manifest> {
    let names: Vec<PathBuf> = roots.iter().filter_map(|r| r.file_name().map(PathBuf::from)).collect();
    if let Way::Socket { scratch, .. } = way {
        let _ = std::fs::remove_dir_all(scratch);
        std::fs::create_dir_all(scratch)?;
    }
    let home = way.bring_out(&names, &|event| watch_copy(progress, &event))?;
    let copies: Vec<PathBuf> = names.iter().map(|n| home.join(n)).collect();
    let mut copy = manifest::scan(&copies)?;
    for part in parts {
        before(part)?;
        let there: Vec<PathBuf> = part.iter().filter(|name| copy.contains_key(*name)).cloned().collect();
        manifest::digest(&mut copy, &there, &|name| home.join(name), progress)?;
    }
    if let Way::Socket { scratch, .. } = way {
        std::fs::remove_dir_all(scratch)?;
    }
    Ok(copy)
}
