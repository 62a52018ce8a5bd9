//! All volumes with what is live on them, as they were a moment ago: for limits and estimates that are asked for many times a
//! second, while reading tens of thousands of records takes a good part of one.

use crate::Node;
use crate::clock::Moment;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use types::Volume;

/// A list is used for so many times as long as it took to read.
const USED: u32 = 20;

/// The list read last.
#[derive(Default)]
pub struct Lately(Mutex<Option<Read>>);

struct Read {
    at: Moment,
    took: Duration,
    volumes: Arc<Vec<Volume>>,
}

impl Node {
    /// All volumes; None if they cannot be read.
    pub(super) fn volumes_lately(&self) -> Option<Arc<Vec<Volume>>> {
        let mut last = self.archive.lately.0.lock();
        if let Some(read) = last.as_ref().filter(|read| read.at.elapsed() < read.took * USED) {
            return Some(read.volumes.clone());
        }
        let at = Moment::now();
        let volumes = Arc::new(self.catalog.volumes().ok()?);
        *last = Some(Read { at, took: at.elapsed(), volumes: volumes.clone() });
        Some(volumes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;
    use types::{Barcode, Time};

    #[test]
    fn a_list_is_used_for_as_long_as_its_reading_allows_and_no_longer() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let count = || node.volumes_lately().unwrap().len();
        assert_eq!(count(), 0);
        node.catalog.put_volume(&Volume::new(Barcode::from("TC0001L9"), Time::default())).unwrap();
        let slow = Read { at: Moment::now(), took: Duration::from_secs(60), volumes: Arc::default() };
        *node.archive.lately.0.lock() = Some(slow);
        assert_eq!(count(), 0, "it took a minute to read");
        if let Some(read) = node.archive.lately.0.lock().as_mut() {
            read.took = Duration::ZERO;
        }
        assert_eq!(count(), 1);
    }
}
