//! On tape that is written in wraps the next file in order of blocks is seldom the nearest: each drive finds the shortest way
//! through its batch itself, so that drives which begin at the same time do not wait for one another.

use super::recalls::recall_item;
use super::tapes;
use super::worker::Wanted;
use crate::Node;
use sched::{Limits, Mechanics, first_part, recall_order};
use tape::Mounted;
use types::{Barcode, Extent, Segment, Time};

/// What a drive reads now, in this order, and what goes back to the queue. A drive that recommends an order itself knows better
/// than any model.
pub fn choose(
    node: &Node,
    volume: &Barcode,
    mounted: &mut Mounted<'_>,
    wanted: Vec<Wanted>,
) -> (Vec<Wanted>, Vec<Wanted>) {
    let (block, bytes) = (node.config.tape.block_size.0, Limits::default().recall_bytes);
    if wanted.len() > 1 {
        let stretches: Vec<_> = wanted.iter().map(|one| stretch(&one.queued.segment, block)).collect();
        if let Some(order) = mounted.recommended_order(&stretches) {
            return ordered(wanted, order, bytes);
        }
    }
    match tapes::in_wraps(node, volume) {
        Some(generation) => shortest(&Mechanics::of(generation, block), mounted.reads_from(), wanted, bytes),
        None => (wanted, Vec::new()),
    }
}

/// First and last block of a segment.
fn stretch(segment: &Segment, block_bytes: u64) -> (u64, u64) {
    let last = |e: &Extent| {
        let end = u64::from(e.byte_offset).saturating_add(e.byte_count).saturating_sub(1);
        e.start_block.saturating_add(end / block_bytes.max(1))
    };
    let (first, end) = (segment.extents.first(), segment.extents.last());
    (first.map_or(0, |e| e.start_block), end.map_or(0, last))
}

/// In this order, up to `bytes`.
fn ordered(wanted: Vec<Wanted>, order: Vec<usize>, bytes: u64) -> (Vec<Wanted>, Vec<Wanted>) {
    let mut wanted: Vec<Option<Wanted>> = wanted.into_iter().map(Some).collect();
    let mut ordered: Vec<Wanted> = order.into_iter().filter_map(|n| wanted.get_mut(n)?.take()).collect();
    let items: Vec<_> =
        ordered.iter().map(|one| recall_item(0, &one.queued.segment, 0, Time::default())).collect();
    let later = ordered.split_off(first_part(&items, bytes).min(ordered.len()));
    (ordered, later)
}

/// The shortest way through all, up to `bytes`.
fn shortest(mechanics: &Mechanics, from: u64, wanted: Vec<Wanted>, bytes: u64) -> (Vec<Wanted>, Vec<Wanted>) {
    let item = |(n, one): (u64, &Wanted)| recall_item(n, &one.queued.segment, 0, Time::default());
    let mut items: Vec<_> = (0..).zip(&wanted).map(item).collect();
    items.sort_by_key(|item| (item.block, item.byte, item.id));
    let order = recall_order(mechanics, from, &items);
    ordered(wanted, order.into_iter().map(|item| item.id as usize).collect(), bytes)
}

#[cfg(test)]
mod tests {
    use super::super::state::QueuedSegment;
    use super::*;
    use crate::files::StagingTable;
    use types::Generation;
    use types::*;

    const BLOCK: u64 = 1 << 20;

    fn wanted(table: &StagingTable, ino: u64, start_block: u64) -> Wanted {
        let (staging, _) = table.join(Ino(ino), Version(1), 10);
        let extent = Extent { file_offset: 0, start_block, byte_offset: 0, byte_count: 1000 };
        let segment = Segment {
            volume: Barcode::from("TC0001L9"),
            file_offset: 0,
            length: 1000,
            extents: vec![extent],
            tape_dir: TapeDir(0),
            tape_name: String::new(),
        };
        Wanted { queued: QueuedSegment { ino: Ino(ino), copy: CopyNo(1), attempt: 1, segment }, staging }
    }

    #[test]
    fn what_lies_beside_the_head_comes_before_what_is_next_by_number() {
        let table = StagingTable::default();
        let mechanics = Mechanics::of(Generation::Lto9, BLOCK);
        let wrap = (18e12 / 280.0 / BLOCK as f64) as u64;
        // Half way back on the second wrap, at its end, beside that on the third, and half way out on the first.
        let blocks = [wrap + wrap / 2, 2 * wrap - 100, 2 * wrap + 100, wrap / 2];
        let all: Vec<Wanted> = (1..).zip(blocks).map(|(ino, block)| wanted(&table, ino, block)).collect();
        let inos = |of: &[Wanted]| of.iter().map(|one| one.queued.ino.0).collect::<Vec<_>>();
        let (now, later) = shortest(&mechanics, 0, all.clone(), u64::MAX);
        assert_eq!((inos(&now), inos(&later)), (vec![3, 2, 1, 4], vec![]), "by number: 4, 1, 2, 3");
        let (now, later) = shortest(&mechanics, 0, all, 1500);
        assert_eq!((inos(&now), inos(&later)), (vec![3, 2], vec![1, 4]), "as many as make up the bytes");
    }
}
