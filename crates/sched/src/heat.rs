//! How often somebody wants files of a volume: whether it pays to leave it in its drive.

use std::collections::BTreeMap;
use std::time::Duration;
use types::{Barcode, Time};

/// Wishes older than about this count little.
const MEMORY: Duration = Duration::from_secs(600);
/// A volume that is wanted more rarely than once in this time is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// Arrivals, newer ones counting more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    weight: f64,
    at: Time,
}

impl Rate {
    fn weight(self, now: Time) -> f64 {
        self.weight * (-now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }

    fn note(&mut self, now: Time) {
        *self = Self { weight: self.weight(now) + 1.0, at: now };
    }
}

/// When which volumes were wanted: note each wish that finds nothing else waiting for its volume, so that a list of a
/// thousand files counts once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    volumes: BTreeMap<Barcode, Rate>,
    all: Rate,
}

impl Heat {
    /// Files of a volume are wanted that nobody was waiting for.
    pub fn note(&mut self, volume: &Barcode, now: Time) {
        self.all.note(now);
        match self.volumes.get_mut(volume) {
            Some(rate) => rate.note(now),
            None => {
                let floor = MEMORY.as_secs_f64() / FORGOTTEN.as_secs_f64();
                self.volumes.retain(|_, rate| rate.weight(now) >= floor);
                self.volumes.insert(volume.clone(), Rate { weight: 1.0, at: now });
            }
        }
    }

    /// Wishes for a volume (per second).
    pub fn of(&self, volume: &Barcode, now: Time) -> f64 {
        self.volumes.get(volume).map_or(0.0, |rate| rate.weight(now) / MEMORY.as_secs_f64())
    }

    /// Wishes for all others (per second).
    pub fn of_others(&self, volume: &Barcode, now: Time) -> f64 {
        (self.all.weight(now) / MEMORY.as_secs_f64() - self.of(volume, now)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_wanted_every_minute_is_told_from_one_that_was_wanted_once() {
        let mut heat = Heat::default();
        let (hot, cold) = (Barcode::from("V00001L9"), Barcode::from("V00002L9"));
        let at = |s: i64| Time::new(1_000_000 + s, 0);
        heat.note(&cold, at(0));
        (0..60).for_each(|n| heat.note(&hot, at(n * 60)));
        let now = at(3600);
        let rate = heat.of(&hot, now);
        assert!((1.0 / 80.0..1.0 / 50.0).contains(&rate), "about once a minute: {rate}");
        assert!(heat.of(&cold, now) < 1e-5 && heat.of_others(&cold, now) > 0.9 * rate);
        heat.note(&hot, at(7 * 24 * 3600));
        heat.note(&cold, at(7 * 24 * 3600));
        assert_eq!(heat.volumes.len(), 2);
    }
}
