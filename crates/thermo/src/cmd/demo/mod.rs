//! `thermo demo`: the main job on real files, from copying in to comparing what came back.

mod bulk;
mod crash;
mod host;
mod manifest;
mod odd;
mod plan;
mod requests;
mod source;
mod steps;
mod ui;
mod way;

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::units::{parse_size, size};
use anyhow::{Context as _, Result};
use host::Host;
use manifest::Manifest;
use plan::{Plan, Wish};
use std::path::{Path, PathBuf};
use steps::Show;
use ui::{Amount, Ui};
use way::Way;

/// Show the main job on real files: copy in, migrate to two copies, purge, read back, compare
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo demo\n  thermo demo --tree /usr/include --big-file 1GiB\n  thermo demo --fresh --disk-pool 300MiB\n\n\
                        Starts a node of its own with a virtual tape library, and leaves it running. Only the directory /demo of its \
                        namespace is touched. Exit code 1 if anything differs."
)]
pub struct Args {
    /// Tree to copy in; may be repeated [default: the first of the system's documentation trees with 20000 files]
    #[arg(long, value_name = "DIR")]
    tree: Vec<PathBuf>,
    /// Size of the file that is made on the spot [default: 4GiB and a bit, less if space is short]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    big_file: Option<u64>,
    /// Capacity of the disk tier; may be smaller than the tree [default: plenty]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    disk_pool: Option<u64>,
    /// Capacity of each of the 8 cartridges [default: three quarters of the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cartridge: Option<u64>,
    /// Where to mount [default: /mnt/thermo-demo]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Go through the control socket instead of a mount
    #[arg(long, conflicts_with = "mount")]
    no_mount: bool,
    /// Throw away the node of an earlier demonstration and begin with a new one
    #[arg(long)]
    fresh: bool,
    /// Kill the node (-9) in the middle of the copy and start it again
    #[arg(long)]
    crash: bool,
    /// Stop the node at the end
    #[arg(long)]
    down: bool,
}

/// A little more than 4 GiB, not a multiple of any block size (bytes).
const BIG: u64 = (4 << 30) + 12_345;

/// Runs `thermo demo`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut ui = Ui::new(context.global.json);
    let host = Host::new(state_dir(context))?;
    let mount = args.mount.clone().unwrap_or_else(|| "/mnt/thermo-demo".into());
    let mount = (!args.no_mount).then_some(mount);
    if args.fresh && host.exists() {
        ui.say("Removing the node of the earlier demonstration.")?;
        host.remove()?;
    }
    let again = host.exists();
    if again && (args.disk_pool.is_some() || args.cartridge.is_some()) {
        return Err(usage("the node exists already: --disk-pool and --cartridge need --fresh"));
    }
    let forbidden: Vec<&Path> = mount.iter().map(PathBuf::as_path).chain([host.dir.as_path()]).collect();
    let chosen = source::choose(&args.tree, &forbidden)?;
    ui.say(format!("Tree to copy: {}, and a directory of odd names made on the spot.", chosen.note))?;
    let mut roots = chosen.roots;
    let work = Work::new()?;
    roots.push(odd_files(&ui, &work.0)?);
    let original = originals(&mut ui, &roots)?;
    let way = if again { Some(reuse(&ui, &host, mount.as_deref())?) } else { None };
    let plan = sizes(&ui, &args, &host, &original, way.as_ref())?;
    if !again {
        host.prepare(&plan)?;
    }
    let mut show = Show { ui, host, roots, original, plan, mount, crash: args.crash };
    let outcome = show.run(way)?;
    drop(work);
    show.finish(context, outcome, args.down)
}

/// The node of an earlier demonstration, emptied.
fn reuse(ui: &Ui, host: &Host, mount: Option<&Path>) -> Result<Way> {
    let status = host.up()?;
    ui.say(format!("The node of the earlier demonstration in {} is used again.", host.dir.display()))?;
    let way = host.way(ui, mount, &status)?;
    steps::make_room(ui, host, &way)?;
    Ok(way)
}

fn state_dir(context: &Context) -> PathBuf {
    let given = context.global.state_dir.is_some() || std::env::var_os("THERMO_STATE").is_some();
    let mut dir = context.global.state_dir().into_os_string();
    if !given {
        dir.push("-demo");
    }
    dir.into()
}

/// A directory for what is made on the spot, removed at the end.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("thermo-demo-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn odd_files(ui: &Ui, work: &Path) -> Result<PathBuf> {
    let odd = work.join("odd");
    let refused = odd::make(&odd)?;
    if !refused.is_empty() {
        ui.say(format!(
            "   {} does not allow {}; the demonstration goes without.",
            work.display(),
            refused.join(" and ")
        ))?;
    }
    Ok(odd)
}

/// Writes down the original with all digests.
fn originals(ui: &mut Ui, roots: &[PathBuf]) -> Result<Manifest> {
    ui.step("read original", "Reading the original: every name, attribute and SHA-256", |progress| {
        let mut manifest = manifest::scan(roots)?;
        let names: Vec<PathBuf> = manifest::files(&manifest).map(|(name, _)| name.clone()).collect();
        let bytes = manifest::files(&manifest).map(|(_, entry)| entry.size).sum();
        progress.total(bytes);
        let place = |name: &Path| steps::place(roots, name);
        manifest::digest(&mut manifest, &names, &place, progress)?;
        Ok((Amount { files: names.len() as u64, bytes }, manifest))
    })
}

fn sizes(ui: &Ui, args: &Args, host: &Host, original: &Manifest, way: Option<&Way>) -> Result<Plan> {
    let scratch = match way {
        Some(way) => matches!(way, Way::Socket { .. }),
        None => args.no_mount || !host::may_mount(),
    };
    let existing = way.map(|_| steps::existing(host)).transpose()?;
    let count = |kind| original.values().filter(|e| e.kind == kind).count();
    let links = original.values().filter(|e| e.same_as.is_some()).count();
    let empty = manifest::files(original).filter(|(_, e)| e.size == 0).count();
    let wish = Wish {
        big: args.big_file.unwrap_or(BIG),
        tree_bytes: manifest::files(original).map(|(_, e)| e.size).sum(),
        tree_files: original.len() as u64,
        free: host.free()?,
        disk_pool: args.disk_pool.or(existing.map(|(pool, _)| pool)),
        cartridge: args.cartridge.or(existing.and_then(|(_, cartridge)| cartridge)),
        scratch,
    };
    ui.say(format!(
        "   {} files ({} empty, {} more names by hard links), {} directories, {} symlinks, {}",
        count("file"),
        empty,
        links,
        count("directory"),
        count("symlink"),
        size(wish.tree_bytes)
    ))?;
    let plan = plan::plan(&wish).map_err(usage)?;
    for note in &plan.notes {
        ui.say(format!("   Note: {note}."))?;
    }
    ui.say(format!(
        "   State in {} ({} free): disk tier {}, 2 drives, 8 cartridges of {}; big file {}.",
        host.dir.display(),
        size(wish.free),
        size(plan.disk_pool),
        size(plan.cartridge),
        size(plan.big)
    ))?;
    Ok(plan)
}
