//! A robot that fails is left alone for a while, longer each time: hundreds of identical moves help nobody, and wear it out.

use super::shelf::Shelf;
use crate::clock::Moment;
use std::time::Duration;
use tape::{Blame, TapeError};

/// After the first failure.
const SHORTEST: Duration = Duration::from_secs(2);
/// However often it has failed.
const LONGEST: Duration = Duration::from_secs(300);

/// How a robot fares.
#[derive(Default)]
pub struct Rest {
    /// Moves that failed in a row.
    failed: u32,
    /// What the last of them met.
    why: String,
    until: Option<Moment>,
}

impl Rest {
    /// A move failed through the robot's fault; returns how long it is left alone.
    fn failed(&mut self, now: Moment) -> Duration {
        let pause = SHORTEST.saturating_mul(1 << self.failed.min(10)).min(LONGEST);
        self.failed += 1;
        self.until = Some(now + pause);
        pause
    }

    /// It has moved something, or somebody has looked after it.
    pub fn over(&mut self) {
        *self = Self::default();
    }

    /// Why nothing is moved, and when that is tried again; None: it moves.
    pub fn shown(&self, now: Moment) -> Option<String> {
        let until = self.until?;
        let left = (until - now).as_secs().max(1);
        let again = if now < until { format!("in {left} s") } else { "with the next move".into() };
        let times = if self.failed == 1 { "once".into() } else { format!("{} times in a row", self.failed) };
        Some(format!("its robot has failed {times} and is tried again {again}: {}", self.why))
    }

    /// Whether it is left alone now.
    pub fn lasts(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Shelf {
    /// A move that was ordered has ended, well or not; true if the robot failed.
    pub fn robot_ended(&mut self, error: Option<&TapeError>) -> bool {
        match error {
            None => {
                self.rest.over();
                return false;
            }
            Some(e) if e.blame == Blame::Library => self.rest.why = e.to_string(),
            Some(_) => return false,
        }
        let pause = self.rest.failed(Moment::now());
        tracing::info!(
            "the robot of library {} has failed {} times in a row; it is tried again in {} s",
            self.name,
            self.rest.failed,
            pause.as_secs()
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::events;
    use super::super::look::with_view;
    use super::super::testing::Rig;
    use super::super::trouble::ours;
    use super::super::worker::{Done, Ended};
    use super::*;
    use sched::{Busy, DriveState, Work};
    use types::{Barcode, DriveNo};

    #[test]
    fn it_rests_longer_each_time_and_not_at_all_once_it_moves() {
        let mut rest = Rest::default();
        let now = Moment::now();
        assert!(!rest.lasts(now));
        let pauses: Vec<u64> = (0..12).map(|_| rest.failed(now).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
        assert!(rest.lasts(now + Duration::from_secs(299)) && !rest.lasts(now + LONGEST));
        rest.why = "TC-L020: it is stuck".into();
        let shown = rest.shown(now).expect("it rests");
        assert!(shown.contains("12 times in a row and is tried again in 300 s: TC-L020"), "{shown}");
        let shown = rest.shown(now + LONGEST).expect("nothing has been moved since");
        assert!(shown.contains("tried again with the next move"), "{shown}");
        rest.over();
        assert!(!rest.lasts(now) && rest.shown(now).is_none());
        assert_eq!(rest.failed(now), SHORTEST);
    }

    #[test]
    fn a_robot_that_failed_gets_no_orders_until_it_has_rested() {
        let rig = Rig::new();
        let (node, no, volume) = (&rig.worker.node, DriveNo(0), Barcode::from("TC0001L9"));
        let ended = |moved, result| {
            if let Some(drive) = node.archive.state.lock().drives.get_mut(&no) {
                drive.state = DriveState::Busy(Busy::new(volume.clone(), Work::Unmount));
            }
            events::finished(node, Ended::new(no, volume.clone(), moved, result));
            with_view(node, |view, _| !view.robots_busy.is_empty())
        };
        let stuck = |blame| TapeError { blame, ..ours(&volume, "moving", "it is stuck") };
        assert!(!ended(None, Err(stuck(Blame::Drive))), "the robot is not to blame");
        assert!(ended(None, Err(stuck(Blame::Library))));
        assert!(!ended(Some((1, 1001)), Ok(Done::Unmounted)), "it moves again");
    }
}
