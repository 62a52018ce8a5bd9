//! What happened, in order: the same seed gives the same lines.

use parking_lot::Mutex;
use std::fmt::Display;
use std::time::Duration;

/// Lines kept for whoever looks for the cause of a failure.
const KEPT: usize = 400;

#[derive(Default)]
struct Inner {
    lines: u64,
    /// FNV-1a over all lines.
    sum: u64,
    last: std::collections::VecDeque<String>,
    all: Option<Vec<String>>,
}

/// See the module.
#[derive(Default)]
pub struct Trace(Mutex<Inner>);

impl Trace {
    /// `whole`: every line is kept, not only the last ones.
    pub fn new(whole: bool) -> Self {
        let sum = 0xcbf2_9ce4_8422_2325;
        Self(Mutex::new(Inner { sum, all: whole.then(Vec::new), ..Inner::default() }))
    }

    /// Notes a line.
    pub fn note(&self, at: Duration, what: impl Display) {
        let line = format!("{:>10}.{:03} {what}", at.as_secs(), at.subsec_millis());
        let mut inner = self.0.lock();
        inner.lines += 1;
        for byte in line.bytes() {
            inner.sum = (inner.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(all) = &mut inner.all {
            all.push(line);
        } else {
            if inner.last.len() == KEPT {
                inner.last.pop_front();
            }
            inner.last.push_back(line);
        }
    }

    /// Number of lines, and their sum.
    pub fn sum(&self) -> (u64, u64) {
        let inner = self.0.lock();
        (inner.lines, inner.sum)
    }

    /// All lines, or the last ones.
    pub fn lines(&self) -> Vec<String> {
        let inner = self.0.lock();
        inner.all.clone().unwrap_or_else(|| inner.last.iter().cloned().collect())
    }
}
