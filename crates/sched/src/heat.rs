//! How often somebody wants files of a volume: whether it pays to leave it in its drive.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;
use types::{Barcode, Time};

/// Wishes older than about this count little.
const MEMORY: Duration = Duration::from_secs(600);
/// A volume that is wanted more rarely than once in this time is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// Volumes that are looked at with each new one, whether they are to be forgotten: more than one, so that they do not become more
/// and more, and few, because a new one comes with a request that is to be placed at once.
const LOOKED_AT: usize = 2;

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
    /// Up to here they were looked at.
    looked_at: Barcode,
}

impl Heat {
    /// Files of a volume are wanted that nobody was waiting for.
    pub fn note(&mut self, volume: &Barcode, now: Time) {
        self.all.note(now);
        match self.volumes.get_mut(volume) {
            Some(rate) => rate.note(now),
            None => {
                (0..LOOKED_AT).for_each(|_| self.forget_one(now));
                self.volumes.insert(volume.clone(), Rate { weight: 1.0, at: now });
            }
        }
    }

    /// Forgets the next volume in line if it is wanted too rarely.
    fn forget_one(&mut self, now: Time) {
        let behind = (Bound::Excluded(&self.looked_at), Bound::Unbounded);
        let next = self.volumes.range(behind).next().map(|(volume, rate)| (volume.clone(), rate.weight(now)));
        // Behind the last one from the beginning.
        let Some((volume, weight)) = next else { return self.looked_at = Barcode::default() };
        if weight < MEMORY.as_secs_f64() / FORGOTTEN.as_secs_f64() {
            self.volumes.remove(&volume);
        }
        self.looked_at = volume;
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
    #[test]
    fn volumes_that_nobody_wants_any_more_are_forgotten_a_few_at_a_time() {
        let mut heat = Heat::default();
        let volume = |n: i64| Barcode::from(format!("V{n:05}L9").as_str());
        let at = |s: i64| Time::new(1_000_000 + s, 0);
        (0..1_000).for_each(|n| heat.note(&volume(n), at(0)));
        assert_eq!(heat.volumes.len(), 1_000);
        let late = 3 * 24 * 3600;
        for n in 1_000..1_600 {
            let before = heat.volumes.len();
            heat.note(&volume(n), at(late));
            assert!(heat.volumes.len() + LOOKED_AT > before, "so many are not looked at in one go");
        }
        assert_eq!(heat.volumes.len(), 600, "the old ones are gone, the new ones are not");
        assert!(heat.of(&volume(0), at(late)) == 0.0 && heat.of(&volume(1_000), at(late)) > 0.0);
    }
}
