//! `thermo put`, `thermo get`.

use crate::context::Context;
use crate::exit::{self, Exit, usage};
use crate::progress::CopyProgress;
use crate::units::{per_second, rate, size, span};
use anyhow::Result;
use client::copy::{self, Options, Summary};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use types::{RequestView, plural};
use wire::{Call, Selection};

#[derive(Debug, clap::Args)]
struct CopyOptions {
    /// The last argument is the name of the copy, even if it is a directory: repeat an interrupted copy with this
    #[arg(short = 'T', long)]
    exact: bool,
    /// Copy again what has the same size and modification time
    #[arg(long)]
    overwrite: bool,
    /// Files copied at the same time
    #[arg(short, long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Print each path
    #[arg(short, long)]
    verbose: bool,
    /// How long to wait for a node that restarts (seconds)
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    patience: u64,
}

/// Copy local files and trees into the namespace
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo put /data/run1 /data/run2 tc:/archive\n  thermo put -T /data/run1 tc:/archive/run1\n\n\
                        Keeps modes, times, links, holes, attributes, and owners when run by root. Interrupted? Run it again: what \
                        is complete is skipped. When it ends with 0, everything is on stable storage."
)]
pub struct PutArgs {
    /// Local files and trees
    #[arg(required = true)]
    sources: Vec<PathBuf>,
    /// Directory of the namespace, or the name of the copy
    dest: OsString,
    #[command(flatten)]
    options: CopyOptions,
}

/// Copy files and trees of the namespace to a local directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo get tc:/archive/run1 /scratch\n\n\
                        Files on tape are recalled with one request, in the order of the tape. Interrupted? Run it again.")]
pub struct GetArgs {
    /// Files and trees of the namespace
    #[arg(required = true)]
    sources: Vec<OsString>,
    /// Local directory, or the name of the copy
    dest: PathBuf,
    /// Do not ask for files on tape before copying
    #[arg(long)]
    no_stage: bool,
    #[command(flatten)]
    options: CopyOptions,
}

impl CopyOptions {
    fn options(&self) -> Options {
        Options {
            workers: self.jobs.into(),
            exact: self.exact,
            overwrite: self.overwrite,
            patience: Duration::from_secs(self.patience),
            ..Options::default()
        }
    }
}

/// Runs `thermo put`.
pub fn put(context: &mut Context, args: PutArgs) -> Result<Exit> {
    let mut node = context.connect()?;
    let dest = context.path(&mut node, &args.dest)?;
    for source in &args.sources {
        // A tree copied into itself would never end.
        if let Ok(inside) = context.path(&mut node, source.as_os_str())
            && (dest == inside || dest.starts_with(&[&inside[..], b"/"].concat()) || inside == b"/")
        {
            return Err(usage(format!("{}: is copied into itself", source.display())));
        }
    }
    drop(node);
    let (progress, started) = (CopyProgress::new(args.options.verbose), Instant::now());
    let options = args.options.options();
    let socket = context.global.socket();
    let result = copy::put(&socket, &args.sources, &dest, &options, &|event| progress.event(event));
    progress.finish();
    report(context, result?, started.elapsed())
}

/// Runs `thermo get`.
pub fn get(context: &mut Context, args: GetArgs) -> Result<Exit> {
    let mut node = context.connect()?;
    let paths = context.paths(&mut node, &args.sources)?;
    if !args.no_stage {
        stage(&mut node, &paths);
    }
    drop(node);
    let (progress, started) = (CopyProgress::new(args.options.verbose), Instant::now());
    let options = args.options.options();
    let socket = context.global.socket();
    let result = copy::get(&socket, &paths, &args.dest, &options, &|event| progress.event(event));
    progress.finish();
    report(context, result?, started.elapsed())
}

/// Asks for everything at once so that tapes are read in order. What cannot be asked for (a symlink, a pipe) is copied
/// all the same.
fn stage(node: &mut client::Connection, paths: &[Vec<u8>]) {
    for path in paths {
        let call = Call::Stage(Selection { paths: vec![path.clone()], recursive: true });
        if let Ok(view) = node.ask::<RequestView>(&call)
            && view.request.files_total > view.request.files_done
        {
            eprintln!(
                "thermo: request {} brings {} from tape",
                view.request.id,
                plural(view.request.files_total, "file")
            );
        }
    }
}

fn report(context: &mut Context, summary: Summary, took: Duration) -> Result<Exit> {
    if context.global.json {
        context.out.json(&serde_json::json!({
            "files": summary.files,
            "bytes": summary.bytes,
            "skipped": summary.skipped,
            "directories": summary.directories,
            "others": summary.others,
            "failed": summary.failed,
            "warnings": summary.warnings,
            "seconds": took.as_secs_f64(),
            "error": summary.fatal.as_ref().map(ToString::to_string),
        }))?;
    } else {
        context.out.line(format!(
            "{}, {} in {} ({}), {}, {} others, {} skipped as complete, {} failed",
            plural(summary.files, "file"),
            size(summary.bytes),
            span(took.as_secs()),
            rate(per_second(summary.bytes, took)),
            plural(summary.directories, "directory"),
            summary.others,
            summary.skipped,
            summary.failed
        ))?;
    }
    if let Some(error) = summary.fatal {
        let error =
            anyhow::Error::new(error).context("the copy ended early; run the same command again with -T");
        eprintln!("thermo: {}", exit::told(&error));
        return Ok(exit::of_error(&error).unwrap_or(Exit::SOME_FAILED));
    }
    Ok(if summary.failed > 0 { Exit::SOME_FAILED } else { Exit::OK })
}
