//! A volume on which nothing is needed becomes scratch: only if the catalogue and the label in the drive agree on what it is.

use super::label::{ours_on, set_state, write_label};
use super::trouble::ours;
use super::worker::Worker;
use crate::keep::Ticket;
use tape::{LabelState, Mounted, Overwrite, TapeError};
use types::*;

/// Gives the mounted volume a fresh label, or finds out why that must not be; returns the tape's position. WORM media and
/// volumes of others, those whose medium has failed and those that may hold more than the catalogue lists are retired instead.
pub fn reclaim(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    ticket: Ticket,
) -> Result<u64, TapeError> {
    let known = super::migrate::volume(worker, barcode)?;
    if known.state != VolumeState::Repacking {
        // Whoever asked has withdrawn; by now another may have asked, whom this must not refuse.
        ticket.paused(format!("it is {} by now", known.state));
        return Ok(0);
    }
    match try_reclaim(worker, mounted, barcode) {
        Ok(Ok(position)) => {
            let retired = super::migrate::volume(worker, barcode)?.state == VolumeState::Retired;
            ticket.done(if retired { "retired".into() } else { "scratch again".into() });
            Ok(position)
        }
        Ok(Err(why)) => {
            ticket.refused(why);
            Ok(0)
        }
        Err(e) => {
            ticket.failed(&e);
            Err(e)
        }
    }
}

/// Inner error: refused, with the reason.
fn try_reclaim(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
) -> Result<Result<u64, String>, TapeError> {
    let catalog = &worker.node.catalog;
    // What made it free of files is on stable storage, or a power failure could bring back files without their bytes.
    catalog.sync().map_err(|e| ours(barcode, "making sure that nothing on it is needed", e))?;
    let volume = super::migrate::volume(worker, barcode)?;
    if volume.state != VolumeState::Repacking {
        return Ok(Err(format!("it is {} by now", volume.state)));
    }
    if volume.live_files > 0 {
        return Ok(Err(format!("{} file segments on it are needed", volume.live_files)));
    }
    let kept = match (mounted.worm(), volume.imported) {
        (true, _) => Some("it is of WORM medium, which cannot be used again"),
        // Others may need it, and not all of it may have been taken.
        (false, true) => {
            Some("it was imported and is left as it is; `thermo volume label --force` overwrites it")
        }
        // A fresh label would make it forget that, and have others' files written to it.
        (false, false) if volume.may_hold_more() => Some(
            "its tape may hold more than the catalogue lists; `thermo volume label --force` overwrites it",
        ),
        (false, false) if volume.errors > 0 => {
            Some("its medium has failed; `thermo volume label --force` has it used all the same")
        }
        (false, false) => None,
    };
    if let Some(why) = kept {
        let why = format!("nothing on it is needed here, and {why}");
        let usable = !mounted.worm() && !volume.imported;
        if usable {
            worker.node.archive.warn(format!("volume {barcode} is retired: {why}"));
        }
        set_state(worker, barcode, VolumeState::Retired, &why)?;
        return Ok(Ok(0));
    }
    if mounted.write_protected() {
        return Ok(Err("it is write protected; move its tab, then label it".into()));
    }
    // A label that was about to be written when the node died is ours as well.
    let intended = catalog.intended_label(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    let label = mounted.label();
    if *label == LabelState::Blank && intended.is_some() {
        // The node died when the old label was gone and the new one not yet there.
        return write_label(worker, mounted, barcode, None, (Overwrite::OnlyBlank, None)).map(Ok);
    }
    let Some(uuid) = ours_on(label, &[Some(volume.uuid.clone()), intended]) else {
        let found = label.uuid().map_or_else(|| label.describe(), str::to_owned);
        let why = format!(
            "it carries not the label recorded ({}) but {found}; it was left alone: find out what cartridge this is",
            volume.uuid
        );
        set_state(worker, barcode, VolumeState::Foreign, &why)?;
        return Ok(Err(why));
    };
    write_label(worker, mounted, barcode, None, (Overwrite::Volume(&uuid), None)).map(Ok)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{labelled, with_one};
    use super::*;

    #[test]
    fn a_volume_that_may_hold_more_than_the_catalogue_lists_is_not_made_scratch() {
        with_one(|worker, mounted, barcode| {
            labelled(worker, mounted, barcode);
            let catalog = &worker.node.catalog;
            let before = catalog.volume(barcode).unwrap().unwrap().uuid;
            let mut emptied = |holds_more| {
                let now = &mut |v: &mut Volume| {
                    (v.state, v.holds_more) = (VolumeState::Repacking, holds_more);
                };
                catalog.update_volume(barcode, now).unwrap();
                try_reclaim(worker, mounted, barcode).unwrap().unwrap();
                let v = catalog.volume(barcode).unwrap().unwrap();
                (v.state, v.uuid == before)
            };
            assert_eq!(emptied(true), (VolumeState::Retired, true));
            assert_eq!(emptied(false), (VolumeState::Scratch, false));
        });
    }
}
