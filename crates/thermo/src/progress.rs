//! Progress on standard error: bars on a terminal, silence otherwise.

use crate::context::Context;
use crate::exit::Exit;
use crate::render::request_line;
use crate::units::span;
use anyhow::Result;
use client::copy::Event;
use client::{ClientError, Connection};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::{Ino, ItemState, RequestItemView, RequestState, RequestView};
use wire::Call;

fn bar(template: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(5)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// Progress of a copy.
pub struct CopyProgress {
    bar: ProgressBar,
    found: AtomicU64,
    bytes: AtomicU64,
    ended: AtomicU64,
    verbose: bool,
}

impl CopyProgress {
    /// `verbose` prints each finished path.
    pub fn new(verbose: bool) -> Self {
        let bar = bar(
            "{elapsed_precise} [{bar:30}] {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} eta {eta} {msg}",
        );
        Self { bar, found: AtomicU64::new(0), bytes: AtomicU64::new(0), ended: AtomicU64::new(0), verbose }
    }

    /// Takes an event.
    pub fn event(&self, event: Event<'_>) {
        match event {
            Event::Found { bytes } => {
                self.found.fetch_add(1, Ordering::Relaxed);
                self.bar.set_length(self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes);
            }
            Event::Bytes(n) => self.bar.inc(n),
            Event::Done { path } => self.ended(path, self.verbose),
            Event::Skipped { path, bytes } => {
                self.bar.inc(bytes);
                self.ended(path, false);
            }
            Event::Warning { path, problem } => {
                self.say(format!("thermo: warning: {}", about(path, problem)))
            }
            Event::Failed { path, error } => {
                self.say(format!("thermo: {}", about(path, error)));
                self.ended(path, false);
            }
            Event::Waiting { error } => {
                self.say(format!("thermo: {error}; waiting for the node to come back"));
                for counter in [&self.found, &self.bytes, &self.ended] {
                    counter.store(0, Ordering::Relaxed);
                }
                self.bar.reset();
            }
        }
    }

    fn ended(&self, path: &[u8], say: bool) {
        if say {
            self.say(client::escape(path));
        }
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(format!("{ended} of {} entries", self.found.load(Ordering::Relaxed)));
    }

    fn say(&self, text: String) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The error, with the path that it is about unless it says that itself.
fn about(path: &[u8], error: &ClientError) -> String {
    let (path, text) = (client::escape(path), error.to_string());
    if text.contains(&path) { text } else { format!("{path}: {text}") }
}

/// Tells of a request that was just made, or waits for it.
pub fn begun(context: &mut Context, node: &mut Connection, view: RequestView, wait: bool) -> Result<Exit> {
    if wait {
        return follow(context, node, vec![view]);
    }
    match context.global.json {
        true => context.out.json(&view)?,
        false => context.out.line(request_line(&view))?,
    }
    Ok(Exit::OK)
}

/// Follows requests to their end, shows progress, and reports failed files. Ctrl-C ends the watching, not the requests.
pub fn follow(context: &mut Context, node: &mut Connection, views: Vec<RequestView>) -> Result<Exit> {
    follow_and_tell(context, node, views, None)
}

/// Prints a request as JSON, with what of its list is left out.
pub fn print_request(context: &mut Context, view: &RequestView, left: Option<&Value>) -> Result<()> {
    let mut shown = serde_json::to_value(view)?;
    if let Some(left) = left {
        shown["left_out"] = left.clone();
    }
    context.out.json(&shown)
}

/// As [`follow`], with what of the list is left out.
pub fn follow_and_tell(
    context: &mut Context,
    node: &mut Connection,
    views: Vec<RequestView>,
    left: Option<&Value>,
) -> Result<Exit> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let signal = signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted.clone())?;
    let mut exit = Exit::OK;
    for view in views {
        let id = view.request.id;
        let Some(ended) = follow_one(node, view, &interrupted)? else {
            eprintln!(
                "thermo: request {id} goes on; watch it with `thermo request watch {id}`, \
                 withdraw it with `thermo request cancel {id}`"
            );
            exit = Exit::INTERRUPTED;
            break;
        };
        if context.global.json {
            print_request(context, &ended, left)?;
        } else {
            context.out.line(request_line(&ended))?;
        }
        if ended.request.state != RequestState::Done {
            explain(node, &ended)?;
            exit = Exit::SOME_FAILED;
        }
    }
    signal_hook::low_level::unregister(signal);
    Ok(exit)
}

fn follow_one(
    node: &mut Connection,
    mut view: RequestView,
    interrupted: &AtomicBool,
) -> Result<Option<RequestView>> {
    let bar = bar("{elapsed_precise} [{bar:30}] {percent:>3}% {binary_bytes} {binary_bytes_per_sec} {msg}");
    let mut pause = Duration::from_millis(20);
    loop {
        let request = &view.request;
        bar.set_length(request.bytes_total);
        bar.set_position(view.bytes_moved.min(request.bytes_total));
        let eta = view.estimate.map_or(String::new(), |e| {
            format!("eta {} (9 of 10: {}) ", span(e.finish_p50_s), span(e.finish_p90_s))
        });
        let what = crate::render::counted(request.kind);
        bar.set_message(format!(
            "{eta}{}/{} {what}, {}",
            request.files_done, request.files_total, view.doing
        ));
        if matches!(request.state, RequestState::Done | RequestState::Failed | RequestState::Cancelled) {
            bar.finish_and_clear();
            return Ok(Some(view));
        }
        if interrupted.load(Ordering::Relaxed) {
            bar.abandon();
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
        view = node.ask(&Call::Request(request.id))?;
    }
}

/// Names the first failed files of a request that did not end well.
fn explain(node: &mut Connection, view: &RequestView) -> Result<()> {
    const SHOWN: usize = 20;
    let request = &view.request;
    if !request.message.is_empty() {
        eprintln!("thermo: request {}: {}", request.id, request.message);
    }
    let mut shown = 0;
    let mut after = Ino(0);
    while shown < SHOWN && request.files_failed > shown as u64 {
        let page: Vec<RequestItemView> =
            node.ask(&Call::RequestItems { id: request.id, after, limit: 1000 })?;
        let Some(last) = page.last() else { break };
        after = last.ino;
        for item in page {
            if let ItemState::Failed(why) = item.state
                && shown < SHOWN
            {
                eprintln!("thermo: {}: {why}", item.path);
                shown += 1;
            }
        }
    }
    if request.files_failed > shown as u64 {
        let id = request.id;
        eprintln!("thermo: see all of them with `thermo request show {id} --failed`");
    }
    Ok(())
}
