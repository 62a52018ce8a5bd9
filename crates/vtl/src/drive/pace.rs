//! Streams at the rate of the tape. The buffer decouples host and tape: a write waits only when the buffer is full, a
//! read only when the tape has not been ahead. Deadlines are absolute, so late wake-ups do not add up.

use crate::clock::Clock;
use crate::config::Mechanics;
use crate::stats::DriveStats;
use std::time::Duration;

/// When the tape will have dealt with everything given to it.
pub(super) struct Pace {
    mechanics: Mechanics,
    buffer: Duration,
    free_at: Duration,
    streaming: bool,
    /// Something of this cartridge has been transferred.
    begun: bool,
}

impl Pace {
    pub(super) fn new(mechanics: Mechanics, buffer_bytes: u64) -> Self {
        Self {
            mechanics,
            buffer: mechanics.stream(buffer_bytes),
            free_at: Duration::ZERO,
            streaming: false,
            begun: false,
        }
    }

    fn limited(&self) -> bool {
        self.mechanics.stream_bytes_per_s.is_some()
    }

    /// Puts `bytes` behind what is in the buffer; waits while the buffer is full.
    pub(super) fn write(&mut self, bytes: u64, clock: &dyn Clock, stats: &mut DriveStats) {
        if !self.limited() {
            return;
        }
        let now = clock.now();
        self.start(now, now, stats);
        let time = self.mechanics.stream(bytes);
        self.free_at += time;
        stats.streaming += time;
        clock.sleep_until(self.free_at.saturating_sub(self.buffer));
    }

    /// Waits until the tape, reading ahead by at most the buffer, has passed `bytes` more.
    pub(super) fn read(&mut self, bytes: u64, clock: &dyn Clock, stats: &mut DriveStats) {
        if !self.limited() {
            return;
        }
        let now = clock.now();
        self.start(now, now.saturating_sub(self.buffer), stats);
        let time = self.mechanics.stream(bytes);
        self.free_at += time;
        stats.streaming += time;
        clock.sleep_until(self.free_at);
    }

    /// The tape begins at `earliest` at the soonest; it stood still since it was done, if it was streaming.
    fn start(&mut self, now: Duration, earliest: Duration, stats: &mut DriveStats) {
        let from = if self.streaming { earliest } else { now };
        if self.begun {
            stats.standing += from.saturating_sub(self.free_at);
        }
        if !self.streaming {
            self.free_at = now;
        } else if self.free_at < earliest {
            stats.idle += earliest - self.free_at;
            stats.gaps += 1;
            self.free_at = earliest;
        }
        (self.streaming, self.begun) = (true, true);
    }

    /// How long the tape has still to do with what is in the buffer.
    pub(super) fn pending(&self, now: Duration) -> Duration {
        if self.streaming { self.free_at.saturating_sub(now) } else { Duration::ZERO }
    }

    /// Another cartridge.
    pub(super) fn forget(&mut self) {
        (self.streaming, self.begun) = (false, false);
    }

    /// Waits until the buffer is empty.
    pub(super) fn drain(&mut self, clock: &dyn Clock) {
        if self.streaming {
            clock.sleep_until(self.free_at);
        }
    }

    /// The tape stops for something else than a slow host.
    pub(super) fn stop(&mut self) {
        self.streaming = false;
    }
}
