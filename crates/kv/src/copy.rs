//! A backup: one snapshot, copied into an embedded engine.

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::lmdb::place::{io_error, make_empty_dir, sync_dir, sync_parent};
use crate::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, Reader, Result, write};

/// Bytes of keys and values that are held before they are written.
const BATCH: usize = 4 << 20;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Writes everything that `from` holds at one moment into a new embedded engine in `to`. Until all is there it stands beside, under the
/// name with `.partial` behind it.
pub(crate) fn copy(from: &dyn Engine, to: &Path) -> Result<()> {
    make_empty_dir(to)?;
    let partial = partial(to);
    let copied = from.read_dyn(&mut |r| fill(r, &partial));
    let moved = copied.and_then(|()| {
        let fail = |e: std::io::Error| io_error(to, "moving the backup into its place", &e);
        sync_dir(&partial)
            .and_then(|()| fs::rename(&partial, to))
            .and_then(|()| sync_parent(to))
            .map_err(fail)
    });
    if moved.is_err() {
        let _ = fs::remove_dir_all(&partial); // it is no backup, and does not look like one
    }
    moved
}

fn partial(to: &Path) -> PathBuf {
    let mut name = to.file_name().map_or_else(|| OsString::from("backup"), OsString::from);
    name.push(".partial");
    to.with_file_name(name)
}

fn fill(r: &dyn Reader, dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|e| io_error(dir, "removing what an earlier backup has left", &e))?;
    }
    let engine = LmdbEngine::open(dir, LmdbOptions { journal: false, ..LmdbOptions::default() })?;
    let (mut batch, mut bytes, mut failed) = (Pairs::new(), 0, None);
    r.scan(&[], &[255; crate::MAX_KEY + 1], &mut |k, v| {
        bytes += k.len() + v.len();
        batch.push((k.to_vec(), v.to_vec()));
        if bytes < BATCH {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        match put_all(&engine, &std::mem::take(&mut batch)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    put_all(&engine, &batch)?;
    engine.sync()
}

fn put_all(engine: &LmdbEngine, pairs: &Pairs) -> Result<()> {
    write::<_, KvError>(engine, Durability::Relaxed, |w| pairs.iter().try_for_each(|(k, v)| w.put(k, v)))
}
