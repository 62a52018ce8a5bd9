//! Size, identity and speed of a virtual library.

use std::path::PathBuf;
use std::time::Duration;
use types::{Access, Barcode, Generation};

/// What a library consists of.
#[derive(Clone, Debug)]
pub struct VtlConfig {
    /// Directory that holds the library; made if missing.
    pub dir: PathBuf,
    /// Number of drives (1 to 99).
    pub drives: u16,
    /// Number of storage slots (1 to 60000).
    pub slots: u16,
    /// Number of import/export slots (0 to 899).
    pub import_export: u16,
    /// How the barcodes of new cartridges begin.
    pub prefix: String,
    /// Cartridges made when the library is new, in the first slots: `TC0001L9`, `TC0002L9` ...
    pub cartridges: u16,
    /// Last two characters of their barcodes, which name the kind of medium; several take turns. `L1` to `L4` cannot be
    /// partitioned.
    pub media: Vec<String>,
    /// Generations of the drives, in order; the last one goes for those that follow. None: the oldest that writes the (first)
    /// medium.
    pub generations: Vec<Generation>,
    /// Capacity of the data partition of new cartridges (bytes of record data).
    pub capacity_bytes: u64,
    /// Early warning comes this many bytes before the end of a partition; None: a twentieth of the capacity, within
    /// 1 MiB and 5 GB.
    pub early_warning_bytes: Option<u64>,
    /// Bytes that a drive's buffer holds (an LTO-9 drive has about 1 GiB).
    pub buffer_bytes: u64,
    /// Speeds.
    pub mechanics: Mechanics,
    /// How much longer the first load of a cartridge takes: LTO-9 drives calibrate new media.
    pub calibration: Duration,
    /// Serial number of the library; drives and media derive theirs from it.
    pub serial: String,
}

impl VtlConfig {
    /// Two drives, eight slots with eight cartridges of 1 GiB, one import/export slot, no waiting.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            drives: 2,
            slots: 8,
            import_export: 1,
            prefix: "TC".into(),
            cartridges: 8,
            media: vec!["L9".into()],
            generations: Vec::new(),
            capacity_bytes: 1 << 30,
            early_warning_bytes: None,
            buffer_bytes: 1 << 30,
            mechanics: Mechanics::ZERO,
            calibration: Duration::ZERO,
            serial: "TCVTL001".into(),
        }
    }
}

impl VtlConfig {
    /// Generation of drive `n`, counted from 0.
    pub fn generation(&self, n: u16) -> Generation {
        let named = self.generations.get(usize::from(n)).or(self.generations.last()).copied();
        named.unwrap_or_else(|| {
            let media = self.media.first().map_or("", String::as_str);
            let medium = Generation::of(&Barcode::from(format!("TC0000{media}")));
            let writes = |drive: &Generation| medium.is_some_and(|m| drive.takes(m, Access::Write));
            Generation::ALL.into_iter().find(writes).unwrap_or(Generation::Lto9)
        })
    }

    /// Last two characters of the barcode of cartridge `n`, counted from 0.
    pub(crate) fn media_of(&self, n: u16) -> &str {
        let kinds = self.media.len().max(1);
        self.media.get(usize::from(n) % kinds).map_or("L9", String::as_str)
    }
}

/// How long things take. Tape length is measured in units of the whole capacity, so small cartridges behave like a big
/// one seen from far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mechanics {
    /// From insertion to ready.
    pub load: Duration,
    /// From the UNLOAD command to ejected, wherever the tape stands.
    pub unload: Duration,
    /// Robot: one move.
    pub robot_move: Duration,
    /// Locate: start and settle.
    pub locate_base: Duration,
    /// Locate: added when the wrap changes.
    pub wrap_change: Duration,
    /// Locate: added when the direction of motion turns.
    pub turn: Duration,
    /// Search or rewind over the whole length of the tape.
    pub full_length: Duration,
    /// Wraps on the tape.
    pub wraps: u32,
    /// Streaming: bytes per second; None: as fast as the host.
    pub stream_bytes_per_s: Option<u64>,
}

impl Mechanics {
    /// Nothing takes time.
    pub const ZERO: Self = Self {
        load: Duration::ZERO,
        unload: Duration::ZERO,
        robot_move: Duration::ZERO,
        locate_base: Duration::ZERO,
        wrap_change: Duration::ZERO,
        turn: Duration::ZERO,
        full_length: Duration::ZERO,
        wraps: 280,
        stream_bytes_per_s: None,
    };

    /// LTO-9 full height: load 16 s, unload 56 s, rewind 62 s on average (124 s over the length), 280 wraps, 400 MB/s.
    /// Parts of a locate follow the cost model published for LTO-7M; the average locate is about 55 s.
    pub const LTO9: Self = Self {
        load: Duration::from_secs(16),
        unload: Duration::from_secs(56),
        robot_move: Duration::from_secs(12),
        locate_base: Duration::from_millis(4290),
        wrap_change: Duration::from_millis(6690),
        turn: Duration::from_millis(5220),
        full_length: Duration::from_secs(124),
        wraps: 280,
        stream_bytes_per_s: Some(400_000_000),
    };

    /// Only the stream rate is limited.
    pub const fn streaming(bytes_per_s: u64) -> Self {
        Self { stream_bytes_per_s: Some(bytes_per_s), ..Self::ZERO }
    }

    /// All times multiplied by `factor` (0.01: a hundred times faster), the stream rate unchanged.
    pub fn scaled(self, factor: f64) -> Self {
        let by = |d: Duration| Duration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or_default();
        Self {
            load: by(self.load),
            unload: by(self.unload),
            robot_move: by(self.robot_move),
            locate_base: by(self.locate_base),
            wrap_change: by(self.wrap_change),
            turn: by(self.turn),
            full_length: by(self.full_length),
            ..self
        }
    }

    /// Time to stream `bytes`.
    pub fn stream(&self, bytes: u64) -> Duration {
        match self.stream_bytes_per_s {
            Some(rate) if rate > 0 => Duration::from_secs_f64(bytes as f64 / rate as f64),
            _ => Duration::ZERO,
        }
    }

    /// Wrap, and distance from the beginning of the tape (0 to 1), of a point given as share of the capacity.
    fn place(&self, share: f64) -> (u64, f64) {
        let turns = share.clamp(0.0, 1.0) * f64::from(self.wraps.max(1));
        let wrap = turns.floor();
        let along = turns - wrap;
        let wrap = wrap as u64;
        (wrap, if wrap.is_multiple_of(2) { along } else { 1.0 - along })
    }

    /// Time to rewind from a point given as share of the capacity.
    pub fn rewind(&self, share: f64) -> Duration {
        self.full_length.mul_f64(self.place(share).1)
    }

    /// Time to go from one point to another (shares of the capacity); `bytes` lie between them. Short hops ahead are
    /// read through.
    pub fn locate(&self, from: f64, to: f64, bytes: u64) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        let ((w1, x1), (w2, x2)) = (self.place(from), self.place(to));
        let mut time = self.locate_base + self.full_length.mul_f64((x1 - x2).abs());
        if w1 != w2 {
            time += self.wrap_change;
        }
        if w1 % 2 != w2 % 2 || to < from {
            time += self.turn;
        }
        let through = self.stream(bytes);
        if to > from && w1 == w2 && !through.is_zero() { time.min(through) } else { time }
    }
}
