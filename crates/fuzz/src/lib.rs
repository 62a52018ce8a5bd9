//! Fuzz targets for every decoder of bytes that somebody else wrote or that may be damaged. Each is a plain function of
//! the input: `tests/replay.rs` runs them over the corpus and seeded changes of it with nothing but a stable toolchain,
//! and `cargo xtask fuzz` drives the same functions with libFuzzer. What is covered: `docs/design/0005-fuzzing.md`.
#![deny(unsafe_code)]

pub mod corpus;
mod input;
mod memory;
pub mod mutate;
mod target;

/// One fuzz target.
pub struct Target {
    /// Name, also of its directory in the corpus.
    pub name: &'static str,
    /// Tries one input; panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs made by the real encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input worth trying (bytes).
    pub longest: usize,
    /// Changed inputs that the bounded run in the tests tries.
    pub rounds: u32,
}

pub use target::TARGETS;

/// Memory that a target may hold whatever its input says (bytes), and for each byte of input.
const BASE: usize = 24 << 20;
const PER_BYTE: usize = 1 << 10;

impl Target {
    /// The target of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Tries one input, and that memory stays in proportion to it.
    ///
    /// # Panics
    /// When a promise is broken: a defect was found.
    pub fn check(&self, input: &[u8]) {
        let most = memory::most_held(|| (self.run)(input));
        let allowed = BASE + PER_BYTE * input.len();
        assert!(most <= allowed, "{} held {most} bytes for an input of {} bytes", self.name, input.len());
    }
}
