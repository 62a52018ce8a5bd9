//! Loads that take long: LTO-9 and later drives calibrate a cartridge when it is loaded for the first time in its life.

use crate::clock::Moment;
use parking_lot::Mutex;
use std::time::Duration;
use types::{Barcode, DriveStatus, Generation};

/// The first generation that does so.
const FIRST: u8 = 9;
/// How long that takes by the makers of drives: usually, and at most.
const USUALLY: Duration = Duration::from_secs(40 * 60);
const AT_MOST: Duration = Duration::from_secs(2 * 3600);

/// How the volume that a drive loads gets on, if that takes long.
#[derive(Default)]
pub struct SlowLoad(Mutex<Option<(tape::SlowLoad, Moment)>>);

impl SlowLoad {
    /// The drive says so, or that it has ended.
    pub fn tell(&self, load: Option<tape::SlowLoad>) {
        *self.0.lock() = load.map(|load| (load, Moment::now()));
    }

    /// What people see of a drive that mounts this volume, if it takes long.
    pub fn shown(&self, volume: Option<&Barcode>) -> Option<(DriveStatus, String)> {
        let (load, told) = (*self.0.lock())?;
        let waited = load.waited + told.elapsed();
        let so_far = format!("for {} min so far", waited.as_secs() / 60);
        let number = volume.and_then(Generation::of).map(|g| g.number());
        if number.is_some_and(|n| n < FIRST) {
            return Some((DriveStatus::Mounting, format!("has loaded {so_far}, longer than it should")));
        }
        let left = left(waited, load.progress);
        Some((DriveStatus::Calibrating, format!("calibrates a new cartridge, {so_far}, {left}")))
    }
}

/// For how much longer.
fn left(waited: Duration, progress: Option<u8>) -> String {
    let minutes = |time: Duration| time.as_secs().div_ceil(60);
    match progress.filter(|share| *share > 0) {
        Some(share) => {
            let share = f64::from(share) / 256.0;
            let left = waited.mul_f64((1.0 - share) / share).min(AT_MOST);
            format!("{:.0} % done, about {} min more", share * 100.0, minutes(left))
        }
        None if waited < USUALLY => format!("usually {} min more", minutes(USUALLY - waited)),
        None => format!("at most {} min more", minutes(AT_MOST.saturating_sub(waited))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_load_is_shown_with_what_is_left_of_it() {
        let slow = SlowLoad::default();
        let volume = Barcode::from("TC0001L9");
        assert_eq!(slow.shown(Some(&volume)), None);
        slow.tell(Some(tape::SlowLoad { waited: Duration::from_secs(150), progress: None }));
        let (status, text) = slow.shown(Some(&volume)).unwrap();
        assert_eq!(status, DriveStatus::Calibrating);
        assert!(text.starts_with("calibrates a new cartridge, for 2 min so far, usually 3"), "{text}");
        let older = Barcode::from("TC0001L8");
        assert_eq!(slow.shown(Some(&older)).unwrap().0, DriveStatus::Mounting);
        slow.tell(None);
        assert_eq!(slow.shown(Some(&volume)), None);
    }
    #[test]
    fn what_is_left_follows_from_what_is_done_or_from_what_is_usual() {
        let of = |minutes: u64, progress| left(Duration::from_secs(minutes * 60), progress);
        assert_eq!(of(2, None), "usually 38 min more");
        assert_eq!(of(50, Some(0)), "at most 70 min more");
        assert_eq!(of(10, Some(64)), "25 % done, about 30 min more");
        assert_eq!(of(3, Some(1)), "0 % done, about 120 min more");
        assert_eq!(of(200, None), "at most 0 min more");
    }
}
