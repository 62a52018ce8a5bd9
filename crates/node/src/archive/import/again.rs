//! Volumes that were imported before.

use super::super::state::Adopted;
use super::super::trouble::ours;
use super::super::worker::Worker;
use super::Import;
use catalog::Catalog;
use tape::TapeError;
use types::*;

/// Files that are looked at to say where those of a volume are.
const LOOK_AT: usize = 1_000;

/// A volume that was imported before; perhaps it was exported since, and is back. Nothing is entered once more.
pub fn available(
    worker: &Worker,
    known: &Volume,
    order: &Import,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let fail = |e| ours(&known.barcode, "looking for its files", e);
    let catalog = &worker.node.catalog;
    let at = lie_below(catalog, &known.barcode).map_err(fail)?;
    let shown = |path: &[u8]| String::from_utf8_lossy(if path.is_empty() { b"/" } else { path }).into_owned();
    let elsewhere = match (&order.into, &at) {
        (Some(into), Some(at)) if !below(at, into) => Some((shown(at), shown(into))),
        _ => None,
    };
    let where_they_are =
        at.as_ref().map_or_else(String::new, |at| format!(": its files lie below {}", shown(at)));
    adopted.what = format!("imported already{where_they_are}");
    if known.state == VolumeState::Unverified {
        let now = crate::now();
        let recorded = worker.node.catalog.volume_comes_back(&known.barcode, &mut |v, before| {
            v.becomes(VolumeState::ReadOnly, "imported: only read", now);
            if let Some(Before { state, reason, by }) = before {
                v.becomes(*state, reason.clone(), now);
                v.by = *by;
            }
        });
        recorded.map_err(|e| ours(&known.barcode, "recording that it is back", e))?;
        adopted.what = format!("imported before, and back{where_they_are}");
    }
    if let Some((at, into)) = elsewhere {
        adopted.failed = Some(format!(
            "it was imported already, its files lie below {at}; nothing was entered below {into}: rename them if they are to be \
             there"
        ));
    }
    Ok(())
}

/// Whether a path is a directory or lies below it.
fn below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The deepest directory below which the files of a volume lie now, by the first of them; None: nothing on it is a file any more.
fn lie_below(catalog: &Catalog, barcode: &Barcode) -> catalog::Result<Option<Vec<u8>>> {
    let (files, _) = catalog.volume_files_from(barcode, &[], LOOK_AT)?;
    let mut common: Option<Vec<u8>> = None;
    for (_, file) in files.iter().filter(|(_, file)| file.live) {
        let Ok(path) = catalog.path_of(file.ino) else { continue };
        let dir = &path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)];
        let mut so_far = common.unwrap_or_else(|| dir.to_vec());
        while !below(dir, &so_far) {
            so_far.truncate(so_far.iter().rposition(|b| *b == b'/').unwrap_or(0));
        }
        common = Some(so_far);
    }
    Ok(common)
}
