//! `thermo catalog`.

use crate::context::{Context, absolute_text};
use crate::exit::Exit;
use crate::progress::begun;
use crate::render::time;
use crate::units::size;
use anyhow::Result;
use std::path::PathBuf;
use types::{BackupView, RequestView, Time, plural};
use wire::Call;

/// The catalogue itself
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write a backup of the catalogue while the node runs
    #[command(after_help = "Example:\n  thermo catalog backup /backup/thermo\n\n\
                      Makes a new directory there, named after the time. `catalog.backup_dir` in the configuration makes \
                      backups by themselves. With `catalog.backup_to` those are put into the namespace as well, and written to tape at once.")]
    Backup {
        /// Directory of the backups [default: the configured one]
        dir: Option<PathBuf>,
    },
    /// Put a backup in the place of the catalogue; the node must not run
    #[command(after_help = "Example:\n  thermo catalog restore /backup/thermo/catalog-20261121T085959Z\n  \
                      thermo catalog restore /backup/thermo --at 2026-11-21T14:30:00Z\n\n\
                      One backup is taken as it was made. Of a directory of backups the newest is taken and brought forward by \
                      the log of changes beside it, as far as that goes or to the time given. \
                      The backup is checked from end to end before anything is changed; the catalogue that was there is kept \
                      beside it. What is on the disk tier counts where it is newer. Start the node and rebuild afterwards: \
                      volumes written since the backup are not written again before.")]
    Restore {
        /// A backup, or the directory of the backups
        backup: PathBuf,
        /// As it was then
        #[arg(long, value_name = "TIME")]
        at: Option<jiff::Timestamp>,
        /// Configuration file of the node
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The disk tier of the last start is lost: restore beside the one that the configuration names now
        #[arg(long)]
        new_disk_tier: bool,
    },
    /// Enter what is on tape: for when the catalogue was lost, or comes from a backup
    #[command(after_help = "Example:\n  thermo catalog rebuild --wait\n\n\
                      Every cartridge in the library is mounted and its newest index read. Files, owners, times, digests, \
                      versions, classes and pools come back, and directories, symlinks and devices as far as they went to tape; volumes \
                      that the catalogue knows are left as they are. What was never on tape (files not yet \
                      migrated) cannot come back this way. The request names the report that says what is missing. To be run again after more cartridges were put in.")]
    Rebuild {
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
}

/// Runs `thermo catalog`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Backup { dir } => backup(context, dir),
        Command::Restore { backup, at, config, new_disk_tier } => {
            let at = at.map(|at| Time::new(at.as_second(), at.subsec_nanosecond().unsigned_abs()));
            let mut config = context.config(config.as_deref())?;
            config.new_disk_tier = new_disk_tier;
            restore(context, &node::Source::choose(&backup, at)?, &config, at.is_some())
        }
        Command::Rebuild { wait } => rebuild(context, wait),
    }
}

fn backup(context: &mut Context, dir: Option<PathBuf>) -> Result<Exit> {
    let dir = dir.map(|dir| absolute_text(&dir)).transpose()?;
    let made: BackupView = context.connect()?.ask(&Call::Backup { dir })?;
    if context.global.json {
        context.out.json(&made)?;
    } else {
        context.out.line(format!("{}: {} in {} ms", made.path, size(made.bytes), made.took_ms))?;
    }
    Ok(Exit::OK)
}

/// `past`: as it was at a moment, not as lately as can be.
fn restore(context: &mut Context, source: &node::Source, config: &node::Config, past: bool) -> Result<Exit> {
    let done = node::restore_catalog(config, source)?;
    context.out.line(format!(
        "restored from {}: {} (files, directories and other nodes)",
        source.backup.display(),
        plural(done.inodes, "inode")
    ))?;
    if let Some(as_of) = done.as_of {
        let shown = time(as_of, true);
        context
            .out
            .line(format!("brought forward to {shown} by {} of changes", plural(done.batches, "batch")))?;
    }
    if done.changed > 0 {
        context.out.line(format!(
            "changed on disk after the backup, and as they are there: {}",
            plural(done.changed, "file")
        ))?;
    }
    if done.missing > 0 {
        context.out.line(format!(
            "not on disk any more, and read from tape if they are there: {}",
            plural(done.missing, "file")
        ))?;
    }
    if let Some(kept) = done.replaced {
        context.out.line(format!("the catalogue that was there is in {}", kept.display()))?;
    }
    context.out.line("now `thermo up`, then `thermo catalog rebuild --wait`: no volume is written before")?;
    if past {
        context.out.line(
            "tapes may tell of removals and changes since that moment, and the rebuild follows them: before it, `thermo stage --wait` \
             what is to stay as it was (what is on disk does)",
        )?;
    }
    Ok(Exit::OK)
}

fn rebuild(context: &mut Context, wait: bool) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    let view: RequestView = node.ask(&Call::Rebuild)?;
    begun(context, &mut node, view, wait)
}
