//! What a person sees: numbered steps with progress, and a table of times and rates at the end.

use crate::out::Table;
use crate::units::{per_second, rate, size};
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Without a terminal, progress is a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// What a step did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A finished step.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// What was done.
    pub step: String,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Output of the demonstration.
pub struct Ui {
    to_stderr: bool,
    number: u32,
    /// Finished steps.
    pub rows: Vec<Row>,
}

impl Ui {
    /// With `json`, standard output is kept for the result.
    pub fn new(json: bool) -> Self {
        Self { to_stderr: json, number: 0, rows: Vec::new() }
    }

    /// Prints a line.
    pub fn say(&self, text: impl Display) -> Result<()> {
        let text = format!("{text}\n");
        let written = match self.to_stderr {
            true => std::io::stderr().write_all(text.as_bytes()),
            false => std::io::stdout().write_all(text.as_bytes()),
        };
        written.context("printing")
    }

    /// Runs a step, shows how far it is, and keeps its time.
    pub fn step<T>(
        &mut self,
        name: &str,
        what: impl Display,
        work: impl FnOnce(&Progress) -> Result<(Amount, T)>,
    ) -> Result<T> {
        self.number += 1;
        self.say(format!("{}. {what}", self.number))?;
        let (progress, started) = (Progress::new(), Instant::now());
        let done = work(&progress);
        progress.bar.finish_and_clear();
        let took = started.elapsed();
        let (amount, value) = done.with_context(|| name.to_owned())?;
        self.say(format!("   done in {:.1} s{}", took.as_secs_f64(), amount.rates(took)))?;
        self.rows.push(Row {
            step: name.to_owned(),
            files: amount.files,
            bytes: amount.bytes,
            seconds: took.as_secs_f64(),
        });
        Ok(value)
    }

    /// The table of all steps.
    pub fn table(&self) -> Result<()> {
        let mut table = Table::new(&["STEP", "FILES>", "SIZE>", "TIME>", "FILES/S>", "RATE>"]);
        for row in &self.rows {
            let took = Duration::from_secs_f64(row.seconds);
            let files_rate = if row.files > 1 { per_second(row.files, took).to_string() } else { "-".into() };
            table.row(vec![
                row.step.clone(),
                row.files.to_string(),
                if row.bytes > 0 { size(row.bytes) } else { "-".into() },
                format!("{:.2} s", row.seconds),
                files_rate,
                if row.bytes > 0 { rate(per_second(row.bytes, took)) } else { "-".into() },
            ]);
        }
        table.lines().iter().try_for_each(|line| self.say(line))
    }
}

impl Amount {
    fn rates(self, took: Duration) -> String {
        let mut text = String::new();
        if self.files > 1 {
            text += &format!(", {} files ({}/s)", self.files, per_second(self.files, took));
        }
        if self.bytes > 0 {
            text += &format!(", {} ({})", size(self.bytes), rate(per_second(self.bytes, took)));
        }
        text
    }
}

/// How far a step is; may be told by several threads.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    started: Instant,
    lines: AtomicU64,
}

impl Progress {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let template = "   {elapsed_precise} [{bar:30}] {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} {msg}";
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        };
        Self { bar, terminal, started: Instant::now(), lines: AtomicU64::new(1) }
    }

    /// Shows nothing, for small things within a step.
    pub fn hidden() -> Self {
        let far = AtomicU64::new(u64::from(u32::MAX));
        Self { bar: ProgressBar::hidden(), terminal: true, started: Instant::now(), lines: far }
    }

    /// Bytes in all.
    pub fn total(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    /// More bytes are done.
    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.line();
    }

    /// So many bytes are done, and a note.
    pub fn at(&self, bytes: u64, note: impl Into<String>) {
        self.bar.set_position(bytes);
        self.bar.set_message(note.into());
        self.line();
    }

    fn line(&self) {
        let due = LINE_EVERY * self.lines.load(Ordering::Relaxed).min(u64::from(u32::MAX)) as u32;
        if self.terminal || self.started.elapsed() < due {
            return;
        }
        let next = self.started.elapsed().as_secs() / LINE_EVERY.as_secs() + 1;
        if self.lines.swap(next, Ordering::Relaxed) < next {
            let (at, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("   ... {} of {} {}", size(at), size(total), self.bar.message());
        }
    }
}
