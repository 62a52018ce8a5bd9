//! The log of changes: every batch that a flush makes durable also goes into files of another directory, so that a
//! backup can be brought forward to any moment behind it. Format: `docs/formats/engine.md`.
//!
//! A *chain* is a directory of segments whose batches follow each other without a gap, numbered
//! one after the other. The engine's directory says which chain is its own. When it cannot be gone on with (power failed before the log was
//! on the disk, the disk of the log was full, the catalogue was restored), a new chain begins, and a new backup is needed.

pub(crate) mod batch;
mod read;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

pub use self::read::{Position, Replayed, position, prune, replay};
use super::place::{sync_dir, sync_parent};

/// First line of a segment.
const MAGIC: &[u8] = b"thermocline changes 1\n";
/// In the engine's directory: the name of its chain.
const CHAIN_FILE: &str = "chain";
/// In the directory of a backup: its chain, the last batch that it holds, and a time (milliseconds since 1970) at which it held all.
pub const POSITION_FILE: &str = "position";
/// A segment that has reached this length (bytes) is followed by a new one.
const SEGMENT: u64 = 64 << 20;

/// Where changes are logged.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Directory of the chains, on another disk than the engine, and of backups beside it. Never below a mount whose files this
    /// engine knows: a flush would wait for itself.
    pub dir: PathBuf,
    /// Wall clock: milliseconds since 1970.
    pub clock_ms: fn() -> i64,
}

/// How the log of changes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// No backup belongs to its chain yet: nothing can be brought forward by it before one is made.
    pub needs_backup: bool,
    /// Why nothing is logged until the next backup.
    pub trouble: Option<String>,
}

/// The log of a running engine.
pub(super) struct ChangeLog {
    options: LogOptions,
    engine: PathBuf,
    state: Mutex<Writing>,
}

struct Writing {
    chain: String,
    segment: Option<Segment>,
    /// The last batch logged, or that the chain begins behind.
    last: u64,
    needs_backup: bool,
    trouble: Option<String>,
}

struct Segment {
    file: File,
    len: u64,
    /// Where the last batch begins.
    last_at: u64,
}

impl ChangeLog {
    /// Goes on with the chain of the engine in `engine`, whose last batch is `at`, or begins one.
    pub(super) fn open(options: LogOptions, engine: &Path, at: u64) -> Self {
        let log = Self {
            options,
            engine: engine.into(),
            state: Mutex::new(Writing {
                chain: String::new(),
                segment: None,
                last: at,
                needs_backup: true,
                trouble: None,
            }),
        };
        let mut state = log.state.lock();
        match log.go_on(&mut state, at) {
            Ok(true) => state.needs_backup = false,
            Ok(false) => log.begin_noting(&mut state, at),
            Err(e) => state.trouble = Some(format!("change log {}: {e}", log.options.dir.display())),
        }
        drop(state);
        log
    }

    /// Finds the end of the present chain, and takes back what did not get into the store; false if it has a gap.
    fn go_on(&self, state: &mut Writing, at: u64) -> io::Result<bool> {
        let chain = match fs::read_to_string(self.engine.join(CHAIN_FILE)) {
            Ok(chain) => chain.trim_end().to_owned(),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let dir = self.options.dir.join(&chain);
        let Some(segment) = read::last_segment(&dir)? else { return Ok(false) };
        let Some(end) = read::end_at(&segment, at)? else { return Ok(false) };
        let mut file = OpenOptions::new().write(true).open(&segment)?;
        file.set_len(end)?;
        file.seek(SeekFrom::End(0))?;
        (state.chain, state.last) = (chain, at);
        state.segment = Some(Segment { file, len: end, last_at: end });
        Ok(true)
    }

    fn begin_noting(&self, state: &mut Writing, at: u64) {
        let begun = self.begin(state, at);
        state.trouble = begun.err().map(|e| format!("change log {}: {e}", self.options.dir.display()));
    }

    /// Begins a chain behind batch `at`.
    fn begin(&self, state: &mut Writing, at: u64) -> io::Result<()> {
        // Later than every chain that is there, whatever the clock says: the last by name is the one being written.
        let ms =
            (self.options.clock_ms)().max(0).max(read::newest_chain_ms(&self.options.dir)?.saturating_add(1));
        let chain = format!("{ms:015}-{at}");
        let dir = self.options.dir.join(&chain);
        fs::create_dir_all(&dir)?;
        sync_parent(&dir)?;
        let new = self.engine.join("chain.new");
        let mut file = File::create(&new)?;
        file.write_all(format!("{chain}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.engine.join(CHAIN_FILE))?;
        sync_dir(&self.engine)?;
        (state.chain, state.last, state.segment, state.needs_backup) = (chain, at, None, true);
        state.segment = Some(self.segment(state, at + 1)?);
        Ok(())
    }

    fn segment(&self, state: &Writing, first: u64) -> io::Result<Segment> {
        let dir = self.options.dir.join(&state.chain);
        let path = dir.join(format!("{first:020}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all(MAGIC)?;
        sync_dir(&dir)?;
        let len = MAGIC.len() as u64;
        Ok(Segment { file, len, last_at: len })
    }

    /// Logs batch `number`, before it goes to stable storage. Never fails: what cannot be logged ends the chain. A number that comes
    /// again (its first try failed) replaces what was logged.
    pub(super) fn append(&self, number: u64, batch: &[u8]) {
        let mut state = self.state.lock();
        if state.trouble.is_some() {
            return;
        }
        if let Err(e) = self.write(&mut state, number, batch) {
            let dir = self.options.dir.display();
            state.trouble = Some(format!("change log {dir}: {e}; nothing is logged until the next backup"));
            state.segment = None;
        }
    }

    fn write(&self, state: &mut Writing, number: u64, batch: &[u8]) -> io::Result<()> {
        let again = number == state.last;
        if state.segment.as_ref().is_none_or(|s| s.len >= SEGMENT && !again) {
            if let Some(full) = state.segment.take() {
                full.file.sync_data()?;
            }
            state.segment = Some(self.segment(state, number)?);
        }
        let Some(segment) = &mut state.segment else { return Ok(()) };
        if again {
            segment.file.set_len(segment.last_at)?;
            segment.len = segment.file.seek(SeekFrom::End(0))?;
        }
        segment.last_at = segment.len;
        segment.file.write_all(batch)?;
        segment.len += batch.len() as u64;
        state.last = number;
        Ok(())
    }

    /// Milliseconds since 1970.
    pub(super) fn time_ms(&self) -> i64 {
        (self.options.clock_ms)()
    }

    /// Before a backup: a chain in trouble is followed by a new one, behind batch `at`.
    pub(super) fn mend(&self, at: u64) {
        let mut state = self.state.lock();
        if state.trouble.is_some() {
            self.begin_noting(&mut state, at);
        }
    }

    /// Writes into a backup beside the log which batches follow it.
    pub(super) fn mark(&self, backup: &Path, number: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        // Nothing will follow it, or what follows lies beside other backups, where nobody would look for it.
        if state.trouble.is_some() || backup.parent() != self.options.dir.parent() {
            return Ok(());
        }
        let mut file = File::create(backup.join(POSITION_FILE))?;
        writeln!(file, "{} {number} {}", state.chain, (self.options.clock_ms)())?;
        file.sync_all()?;
        state.needs_backup = false;
        Ok(())
    }

    pub(super) fn view(&self) -> LogState {
        let state = self.state.lock();
        LogState { needs_backup: state.needs_backup, trouble: state.trouble.clone() }
    }

    /// Puts what was logged on stable storage.
    pub(super) fn sync(&self) {
        let state = self.state.lock();
        if let Some(segment) = &state.segment {
            // Its end is compared with the store at the next open: a loss is noticed there.
            let _ = segment.file.sync_data();
        }
    }
}
