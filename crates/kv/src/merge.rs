//! Merges sorted layers into one sequence; upper layers shadow lower ones, and may hold deletions.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::{Result, Visit};

/// Which way a scan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Up => a.cmp(b),
            Direction::Down => b.cmp(a),
        }
    }
}

/// A key with its value; `None` says that the key is deleted.
pub(crate) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// A sorted layer, standing on an entry or at its end.
pub(crate) trait Source {
    /// The entry it stands on.
    fn peek(&self) -> Option<Entry<'_>>;
    /// Moves to the next entry in the direction of the scan.
    fn advance(&mut self) -> Result<()>;
}

/// Visits the merged layers, the uppermost first in `layers`.
pub(crate) fn merge(layers: &mut [&mut dyn Source], direction: Direction, visit: Visit<'_>) -> Result<()> {
    while let Some(top) = foremost(layers, direction) {
        let rest = &layers[top + 1..];
        let alone = top + 1 == layers.len() && layers[..top].iter().all(|l| l.peek().is_none());
        if alone {
            return drain(layers[top], visit);
        }
        let (key, value) = layers[top].peek().expect("the foremost layer stands on an entry");
        let shadowed = rest.iter().map(|l| l.peek().is_some_and(|(k, _)| k == key)).collect::<Shadowed>();
        if let Some(value) = value
            && visit(key, value).is_break()
        {
            return Ok(());
        }
        layers[top].advance()?;
        for (layer, same) in layers[top + 1..].iter_mut().zip(shadowed.0) {
            if same {
                layer.advance()?;
            }
        }
    }
    Ok(())
}

/// Index of the layer whose key comes first; of equal keys the uppermost.
fn foremost(layers: &[&mut dyn Source], direction: Direction) -> Option<usize> {
    let mut best: Option<(usize, &[u8])> = None;
    for (i, layer) in layers.iter().enumerate() {
        if let Some((key, _)) = layer.peek()
            && best.is_none_or(|(_, b)| direction.order(key, b) == Ordering::Less)
        {
            best = Some((i, key));
        }
    }
    best.map(|(i, _)| i)
}

/// The rest of the only layer that is left.
fn drain(layer: &mut dyn Source, visit: Visit<'_>) -> Result<()> {
    while let Some((key, value)) = layer.peek() {
        if let Some(value) = value
            && visit(key, value) == ControlFlow::Break(())
        {
            break;
        }
        layer.advance()?;
    }
    Ok(())
}

/// Which lower layers stand on the same key; there are never more than [`MAX_LAYERS`].
struct Shadowed([bool; MAX_LAYERS]);

/// Buffer, active overlay, frozen overlay, store.
pub(crate) const MAX_LAYERS: usize = 4;

impl FromIterator<bool> for Shadowed {
    fn from_iter<I: IntoIterator<Item = bool>>(iter: I) -> Self {
        let mut out = [false; MAX_LAYERS];
        for (slot, same) in out.iter_mut().zip(iter) {
            *slot = same;
        }
        Shadowed(out)
    }
}
