//! How long a library, a drive and a tape take: for estimates shown to users, and for the order in which a tape with
//! wraps is read.

use crate::wraps::{Facts, Point, Wraps};
use types::Generation;

/// Cost model (seconds, bytes). [`Mechanics::default`] is an LTO-9 drive and a tape of which nothing is known but that
/// it goes forward: 400 MB/s, load 16 s, unload 56 s, an average locate of about 65 s (over a third of 18 TB).
#[derive(Clone, Debug, PartialEq)]
pub struct Mechanics {
    /// Robot: from slot to drive or back.
    pub move_s: f64,
    /// Drive: load to ready.
    pub load_s: f64,
    /// Drive: rewind and unload.
    pub unload_s: f64,
    /// Locate: part that does not depend on the distance.
    pub locate_s: f64,
    /// How the data lies on the tape.
    pub layout: Layout,
    /// Streaming rate (bytes per second).
    pub rate: f64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// How the blocks of a volume lie on its tape.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// On one line: reading goes forward only.
    Line {
        /// Locate: seconds for each block of distance.
        block_s: f64,
    },
    /// Forth and back along the tape, in wraps: the next block in number may lie farther away than one of another wrap.
    Wraps(Wraps),
}

impl Default for Mechanics {
    fn default() -> Self {
        Self {
            move_s: 10.0,
            load_s: 16.0,
            unload_s: 56.0,
            locate_s: 4.3,
            layout: Layout::Line { block_s: 5.3e-6 },
            rate: 400e6,
            block_bytes: 512 << 10,
        }
    }
}

impl Mechanics {
    /// The same library and blocks, and a full-height drive with a medium of this generation, as far as there are
    /// [`Facts`] of it.
    pub fn with(&self, generation: Generation) -> Self {
        let Some(facts) = Facts::of(generation) else { return self.clone() };
        Self {
            move_s: self.move_s,
            load_s: facts.load_s,
            unload_s: facts.unload_s,
            locate_s: Wraps::START_S,
            layout: Layout::Wraps(Wraps::even(&facts, self.block_bytes)),
            rate: facts.rate,
            block_bytes: self.block_bytes,
        }
    }

    /// A full-height drive with a medium of this generation, written in blocks of this size.
    pub fn of(generation: Generation, block_bytes: u64) -> Self {
        Self { block_bytes, ..Self::default() }.with(generation)
    }

    /// Brings a volume from its slot to ready.
    pub fn mount_s(&self) -> f64 {
        self.move_s + self.load_s
    }

    /// Brings a volume back to its slot.
    pub fn unmount_s(&self) -> f64 {
        self.unload_s + self.move_s
    }

    /// Goes from one block to another: reading through a short gap is quicker than a locate.
    pub fn locate(&self, from: u64, to: u64) -> f64 {
        self.hop(self.point(from), self.point(to))
    }

    pub(crate) fn point(&self, block: u64) -> Point {
        match &self.layout {
            Layout::Line { .. } => Point { block, wrap: 0, along: 0.0 },
            Layout::Wraps(wraps) => wraps.point(block),
        }
    }

    pub(crate) fn hop(&self, from: Point, to: Point) -> f64 {
        let blocks = from.block.abs_diff(to.block);
        if blocks == 0 {
            return 0.0;
        }
        let motion = match &self.layout {
            Layout::Line { block_s } => blocks as f64 * block_s,
            Layout::Wraps(wraps) => wraps.motion_s(from, to),
        };
        let locate = self.locate_s + motion;
        if to.block > from.block && to.wrap == from.wrap {
            locate.min(self.transfer(blocks.saturating_mul(self.block_bytes)))
        } else {
            locate
        }
    }

    /// Streams `bytes`.
    pub fn transfer(&self, bytes: u64) -> f64 {
        if self.rate > 0.0 { bytes as f64 / self.rate } else { 0.0 }
    }

    /// The last block of `bytes` that begin at this byte of a block: where the tape stands when they are read.
    pub fn last_block(&self, block: u64, byte: u32, bytes: u64) -> u64 {
        let end = bytes.saturating_add(u64::from(byte)).saturating_sub(1);
        block.saturating_add(end / self.block_bytes.max(1))
    }
}
