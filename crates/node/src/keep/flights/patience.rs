//! Which files on their way to a copy wait for drives that nobody else wants, and until when.

use super::{Flights, Goal};
use crate::Node;
use crate::clock::Moment;
use crate::files::Staging;
use std::sync::Arc;
use std::time::Duration;
use types::Ino;

/// Files with several copies left wait so long; then they are read behind what users asked for.
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 3600);

impl Flights {
    /// Of the files that were to get a copy when they had several: those that have lost another and have only one now, which have
    /// to be rescued, and those that have waited long enough. Gives back the recalls that shall not wait any more.
    pub(super) fn impatient(&mut self, node: &Node) -> Vec<Arc<Staging>> {
        let several = self.all.iter().filter(|(_, flight)| flight.goal == Goal::Complete);
        let several: Vec<Ino> = several.map(|(ino, _)| *ino).collect();
        let mut urgent = Vec::new();
        for ino in several {
            // What cannot be looked at shows when it is its turn.
            let copies = node.catalog.archived(ino).ok().flatten().map(|file| file.copies.len());
            let Some(mut flight) = self.all.get(&ino).cloned() else { continue };
            let rescue = copies.is_some_and(|copies| copies <= 1);
            if !rescue && (flight.raised || flight.patient > Moment::now()) {
                continue;
            }
            if !std::mem::replace(&mut flight.raised, true) {
                urgent.extend(flight.staging.clone().filter(|staging| staging.outcome().is_none()));
            }
            if rescue {
                flight.goal = Goal::Rescue;
            }
            flight.stands_still = false; // that is looked at next
            self.insert(ino, flight);
        }
        urgent
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lose_one, offline};
    use super::*;
    use crate::Config;

    #[test]
    fn what_waits_for_a_copy_and_loses_another_is_rescued_and_nothing_waits_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.classes[0].migrate_after_s = 0;
        let node = Node::start(config).unwrap();
        node.keeper.stop();
        let (ino, version) = offline(&node);
        node.stop(true);
        let mut flights = Flights::default();
        flights.send(&node, vec![(ino, version, 7, Goal::Complete)]).unwrap();
        let urgent = |flights: &mut Flights| -> Vec<Ino> {
            flights.impatient(&node).iter().map(|staging| staging.ino).collect()
        };
        assert_eq!(urgent(&mut flights), [], "it has two copies, and waits for drives that nobody wants");
        flights.all.get_mut(&ino).unwrap().patient = Moment::now();
        assert_eq!(urgent(&mut flights), [ino], "but not for ever");
        assert_eq!(urgent(&mut flights), [], "which is said once");
        assert_eq!((flights.others.files, flights.rescues.files), (1, 0));
        let flight = flights.all.get_mut(&ino).unwrap();
        (flight.patient, flight.raised) = (Moment::now() + PATIENCE, false);
        lose_one(&node, ino, version);
        assert_eq!(urgent(&mut flights), [ino]);
        assert_eq!((flights.others.files, flights.others.bytes), (0, 0));
        assert_eq!((flights.rescues.files, flights.rescues.bytes), (1, 7));
        assert_eq!(urgent(&mut flights), []);
    }
}
