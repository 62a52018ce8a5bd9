//! Random numbers that a seed repeats (SplitMix64).

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent sequence, e.g. of one thread or one trial.
    pub fn fork(&self, number: u64) -> Self {
        let mut dice = Self(self.0 ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(dice.next())
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "an endless source is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end` (0 if that is 0).
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A size up to `most`, small ones more often than large ones.
    pub fn size(&mut self, most: u64) -> u64 {
        let scale = 64 - self.below(most.max(2)).leading_zeros() as u64;
        let scale = self.below(scale + 1).max(self.below(scale + 1));
        self.below((1 << scale).min(most) + 1)
    }

    /// One of them; `None` if there is none.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len() as u64) as usize)
    }
}
