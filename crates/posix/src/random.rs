//! Random numbers that a seed repeats (SplitMix64).

/// A sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n.max(1) as u64) as usize
    }

    /// One of several.
    pub fn of<'a, T>(&mut self, several: &'a [T]) -> &'a T {
        &several[self.below(several.len())]
    }

    /// Bytes that do not repeat.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        words.take(length.div_ceil(8)).flatten().take(length).collect()
    }
}

/// The seed from the environment, or one of the clock, which is printed either way.
pub fn seed(what: &str) -> u64 {
    let given = std::env::var("SEED").ok().map(|s| s.parse().expect("SEED is a number"));
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64;
    let seed = given.unwrap_or_else(clock);
    println!("{what}: SEED={seed}");
    seed
}

/// How long a random test goes on: `RANDOM_SECONDS`, or `default`.
pub fn seconds(default: u64) -> std::time::Duration {
    let given = std::env::var("RANDOM_SECONDS").ok().map(|s| s.parse().expect("RANDOM_SECONDS is a number"));
    std::time::Duration::from_secs(given.unwrap_or(default))
}
