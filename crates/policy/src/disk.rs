//! How full the disk pool is.

use std::fmt;

/// How much the disk pool is in need of space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pressure {
    /// Below the high watermark.
    #[default]
    None,
    /// Above the high watermark: purge.
    Soft,
    /// Nearly full: migrate everything at once whatever its age, slow writers down, purge.
    Hard,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "disk has room",
            Self::Soft => "disk is above its high watermark",
            Self::Hard => "disk is nearly full",
        })
    }
}

/// What a decision leaves for the next one (hysteresis).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskMode {
    /// Level of need.
    pub pressure: Pressure,
    /// Purging began at the high watermark and has not yet reached the low one.
    pub purging: bool,
}

/// Use of the disk pool (bytes). Watermarks are expected in the order low <= high <= hard <= capacity; other orders do
/// no harm (see [`DiskUse::marks`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// What the pool may hold.
    pub capacity: u64,
    /// What it holds now.
    pub used: u64,
    /// What running recalls and open writers are about to add.
    pub growing: u64,
    /// Purging ends here.
    pub low: u64,
    /// Purging begins here.
    pub high: u64,
    /// [`Pressure::Hard`] begins here and ends below `high`.
    pub hard: u64,
    /// Outcome of the decision before.
    pub last: DiskMode,
}

impl DiskUse {
    /// Watermarks from per cent of the capacity, `hard` midway between `high_percent` and full.
    pub fn with_percent(capacity: u64, low_percent: u8, high_percent: u8) -> Self {
        let part = |percent: u8| (u128::from(capacity) * u128::from(percent.min(100)) / 100) as u64;
        let high = part(high_percent);
        let low = part(low_percent).min(high);
        Self { capacity, low, high, hard: high + (capacity - high) / 2, ..Self::default() }
    }

    /// Bytes that count against the watermarks.
    pub fn load(&self) -> u64 {
        self.used.saturating_add(self.growing)
    }

    /// Whether files are to be purged now, so that [`crate::PolicyView::purgeable`] is looked at.
    pub fn purges(&self) -> bool {
        purging(self)
    }

    /// The level of need now.
    pub fn pressure(&self) -> Pressure {
        level(self)
    }

    /// The watermarks in order (low, high, hard), whatever was configured.
    pub fn marks(&self) -> (u64, u64, u64) {
        let hard = self.hard.min(self.capacity);
        let high = self.high.min(hard);
        (self.low.min(high), high, hard)
    }
}

/// The level of need now.
pub(crate) fn level(disk: &DiskUse) -> Pressure {
    let (_, high, hard) = disk.marks();
    let load = disk.load();
    if load >= hard || (disk.last.pressure == Pressure::Hard && load >= high) {
        Pressure::Hard
    } else if load >= high {
        Pressure::Soft
    } else {
        Pressure::None
    }
}

/// Whether space is to be released now.
pub(crate) fn purging(disk: &DiskUse) -> bool {
    let (low, high, _) = disk.marks();
    disk.load() >= high && disk.load() > low || (disk.last.purging && disk.load() > low)
}
