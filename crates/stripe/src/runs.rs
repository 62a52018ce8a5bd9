//! What one column gets of a request: pieces that lie end to end in its object, although other columns have what lies between them in the
//! file.

use layout::{Layout, Piece};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of an object, and where its pieces lie in the buffer of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) component: usize,
    pub(crate) column: u16,
    /// Where it begins in the object (bytes).
    pub(crate) offset: u64,
    /// How long it is (bytes).
    pub(crate) length: usize,
    /// Parts of the buffer, in the order of the object.
    pub(crate) parts: Vec<Range<usize>>,
}

/// Cuts a range of the file into runs of at most `most` bytes, those of a column in order.
pub(crate) fn runs(layout: &Layout, range: Range<u64>, most: usize) -> Vec<Run> {
    let start = range.start;
    let mut done: Vec<Run> = Vec::new();
    let mut open: BTreeMap<(usize, u16), usize> = BTreeMap::new();
    for piece in layout.pieces(range) {
        for piece in cut(piece, most) {
            let at = (piece.file_offset - start) as usize;
            let part = at..at + piece.length as usize;
            let key = (piece.component, piece.column);
            let last = open.get(&key).and_then(|number| done.get_mut(*number));
            match last {
                Some(run)
                    if run.offset + run.length as u64 == piece.object_offset
                        && run.length + part.len() <= most =>
                {
                    run.length += part.len();
                    run.parts.push(part);
                }
                _ => {
                    open.insert(key, done.len());
                    done.push(Run {
                        component: piece.component,
                        column: piece.column,
                        offset: piece.object_offset,
                        length: part.len(),
                        parts: vec![part],
                    });
                }
            }
        }
    }
    done
}

/// Pieces of at most `most` bytes.
fn cut(piece: Piece, most: usize) -> impl Iterator<Item = Piece> {
    let step = most as u64;
    (0..piece.length.div_ceil(step)).map(move |number| Piece {
        file_offset: piece.file_offset + number * step,
        object_offset: piece.object_offset + number * step,
        length: step.min(piece.length - number * step),
        ..piece
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Component, Redundancy};
    use proptest::prelude::*;
    use types::{ObjectId, TargetId};

    fn striped(columns: u32, unit_bytes: u32) -> Layout {
        let component = Component {
            range: 0..u64::MAX,
            unit_bytes,
            redundancy: Redundancy::None,
            base: ObjectId(1),
            targets: (1..=columns).map(TargetId).collect(),
        };
        Layout { generation: 1, components: vec![component] }
    }

    #[test]
    fn a_column_gets_several_rows_in_one_run() {
        let runs = runs(&striped(2, 4096), 0..16_384, 1 << 20);
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].offset, runs[0].length), (0, 8192));
        assert_eq!(runs[0].parts, [0..4096, 8192..12_288]);
        assert_eq!(runs[1].parts, [4096..8192, 12_288..16_384]);
    }

    proptest! {
        #[test]
        fn runs_cover_the_range_once(columns in 1_u32..6, start in 0_u64..100_000, length in 0_usize..200_000, most in 1000_usize..50_000) {
            let mut seen = vec![0_u8; length];
            for run in runs(&striped(columns, 8192), start..start + length as u64, most) {
                prop_assert!(run.length <= most && run.length == run.parts.iter().map(Range::len).sum::<usize>());
                run.parts.into_iter().flatten().for_each(|at| seen[at] += 1);
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
        }
    }
}
