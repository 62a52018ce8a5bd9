//! Volumes whose record in the catalogue is damaged: nothing is done with them, and whoever asked for it is told.

use crate::Node;
use types::*;

/// Requests that name volumes, which the keeper serves.
const KINDS: [RequestKind; 3] = [RequestKind::Verify, RequestKind::Repack, RequestKind::Export];

/// What there is to be said of one.
pub fn why(e: &catalog::CatalogError) -> String {
    format!(
        "damaged: its record in the catalogue cannot be read ({e}); it is neither read nor written, files are read from their copies on \
         others; restore a backup of the catalogue (`thermo catalog restore`), the cartridge itself is not concerned"
    )
}

/// Ends what was asked for of volumes that have been damaged since.
pub(super) fn tick(node: &Node, damaged: &[(Barcode, String)]) -> catalog::Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    for kind in KINDS {
        for (volume, _) in node.volumes_asked_for(kind)? {
            if let Some((_, why)) = damaged.iter().find(|(barcode, _)| *barcode == volume) {
                node.finish_volume(kind, &volume, &ItemState::Failed(why.clone()), "")?;
            }
        }
    }
    Ok(())
}
