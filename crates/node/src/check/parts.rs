//! Files of which only a part is there: what they lack, and where it is to be had.

use crate::Node;
use std::collections::BTreeSet;
use types::*;

/// Volumes named at most.
const NAMED: usize = 20;

/// What is known of a file that has no whole copy and is not on disk.
pub(super) fn finding(node: &Node, subject: String, inode: &Inode, version: Version) -> Finding {
    let copies = node.catalog.version_copies(inode.attr.ino, version).unwrap_or_default();
    let most = copies.iter().max_by_key(|copy| bytes(copy));
    let Some(copy) = most.filter(|copy| !copy.segments.is_empty()) else {
        return super::serious(subject, "is neither on disk nor on tape", "restore it from elsewhere");
    };
    let volumes: BTreeSet<&Barcode> =
        copies.iter().flat_map(|copy| &copy.segments).map(|segment| &segment.volume).collect();
    let imported = |barcode: &&Barcode| {
        let volume = node.catalog.volume(barcode).ok().flatten();
        volume.is_some_and(|v| v.imported)
    };
    let (has, of) = (bytes(copy), inode.attr.size);
    let on = names(volumes.iter().copied());
    if volumes.iter().any(imported) {
        let problem = format!("is incomplete: {has} of its {of} bytes came with volumes {on}");
        let waiting = waiting(node);
        let here = match waiting.is_empty() {
            true => {
                "bring the other volumes of its set (the manifest names them) into the library".to_owned()
            }
            false => format!(
                "it goes on on other volumes of its set; not imported yet, and in the library: {}",
                names(waiting.iter())
            ),
        };
        let remedy = format!(
            "{here}; then `thermo volume import` them `--into` the same directory. Nothing is damaged, and nothing is to be \
             restored"
        );
        return Finding { grade: Grade::Incomplete, subject, problem, remedy };
    }
    let problem = format!("is not on disk, and only {has} of its {of} bytes are on tape, on volumes {on}");
    let remedy = "put the missing cartridges into the library and run `thermo catalog rebuild --wait`; else restore it from elsewhere";
    super::serious(subject, problem, remedy)
}

fn bytes(copy: &CopyRecord) -> u64 {
    copy.segments.iter().map(|segment| segment.length).sum()
}

/// Cartridges in the library of which nobody knows what is on them.
fn waiting(node: &Node) -> Vec<Barcode> {
    let present = node.archive.present();
    let volumes = node.catalog.volumes().unwrap_or_default().into_iter();
    let unknown = |v: &Volume| matches!(v.state, VolumeState::Unknown | VolumeState::Foreign);
    volumes.filter(|v| unknown(v) && present.contains(&v.barcode)).map(|v| v.barcode).collect()
}

fn names<'b>(barcodes: impl ExactSizeIterator<Item = &'b Barcode>) -> String {
    let more = barcodes.len().saturating_sub(NAMED);
    let named: Vec<&str> = barcodes.take(NAMED).map(Barcode::as_str).collect();
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &and
}
