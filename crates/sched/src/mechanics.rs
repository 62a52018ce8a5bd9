//! How long a library, a drive and a tape take: for estimates shown to users, never for decisions.

/// Cost model (seconds, bytes). [`Mechanics::default`] is LTO-9: 400 MB/s, load 16 s, unload 56 s, an average locate of
/// about 65 s (over a third of 18 TB).
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
    /// Locate: for each block of distance.
    pub locate_block_s: f64,
    /// Streaming rate (bytes per second).
    pub rate: f64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Default for Mechanics {
    fn default() -> Self {
        Self {
            move_s: 10.0,
            load_s: 16.0,
            unload_s: 56.0,
            locate_s: 4.3,
            locate_block_s: 5.3e-6,
            rate: 400e6,
            block_bytes: 512 << 10,
        }
    }
}

impl Mechanics {
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
        let distance = from.abs_diff(to) as f64;
        let locate = if distance == 0.0 { 0.0 } else { self.locate_s + distance * self.locate_block_s };
        if to >= from {
            locate.min(self.transfer((to - from).saturating_mul(self.block_bytes)))
        } else {
            locate
        }
    }

    /// Streams `bytes`.
    pub fn transfer(&self, bytes: u64) -> f64 {
        if self.rate > 0.0 { bytes as f64 / self.rate } else { 0.0 }
    }

    /// Block behind `bytes` that begin at `block`.
    pub fn end_block(&self, block: u64, bytes: u64) -> u64 {
        block.saturating_add(bytes.div_ceil(self.block_bytes.max(1)))
    }
}
