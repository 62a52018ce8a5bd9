//! What of requests to migrate has been given to drives and does not count yet: written bytes of files of which some copy is not
//! recorded. So a request is seen to begin and to get on while a batch is written, and nobody takes that for safe.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use types::{CopyNo, Ino, RequestId, Time};

/// Files kept: a pool that takes no data must not make them any number. What is left out is seen when it is recorded.
const MOST: usize = 100_000;

/// A file on its way.
#[derive(Default)]
struct Flight {
    requests: Vec<RequestId>,
    /// Its length (bytes), and the copies that it lacked when the first of them was begun.
    size: u64,
    lacks: u64,
    /// Bytes of each copy that drives have: safe ones (of a part that is recorded), and all.
    copies: BTreeMap<CopyNo, (u64, u64)>,
}

impl Flight {
    /// Its share in the progress of its requests (bytes): each copy is as much of it as any other.
    fn moved(&self) -> u64 {
        let written: u64 = self.copies.values().map(|(_, written)| *written).sum();
        (written / self.lacks.max(1)).min(self.size)
    }
}

/// A request with files on their way.
#[derive(Default)]
struct Sum {
    bytes: u64,
    flights: u64,
    /// When the first byte of one of them was written, and whether that has been noted.
    began: Option<Time>,
    noted: bool,
}

#[derive(Default)]
struct Inner {
    files: HashMap<Ino, Flight>,
    sums: HashMap<RequestId, Sum>,
}

/// See the module.
#[derive(Default)]
pub struct Flights(Mutex<Inner>);

impl Inner {
    /// Changes a file on its way, and the sums with it.
    fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Flight)) {
        let Some(flight) = self.files.get_mut(&ino) else { return };
        let before = flight.moved();
        change(flight);
        let after = flight.moved();
        for request in &flight.requests {
            if let Some(sum) = self.sums.get_mut(request) {
                sum.bytes = (sum.bytes + after).saturating_sub(before);
            }
        }
    }
}

impl Flights {
    /// A copy is about to be written from byte `from` on, of a file of so many bytes that lacks `lacks` copies and that these open
    /// requests wait for.
    pub fn begin(
        &self,
        (ino, copy): (Ino, CopyNo),
        requests: Vec<RequestId>,
        (size, lacks): (u64, u64),
        from: u64,
    ) {
        let mut inner = self.0.lock();
        if requests.is_empty() || inner.files.len() >= MOST && !inner.files.contains_key(&ino) {
            return;
        }
        let Inner { files, sums } = &mut *inner;
        let flight = files.entry(ino).or_insert_with(|| {
            requests.iter().for_each(|request| sums.entry(*request).or_default().flights += 1);
            Flight { requests, size, lacks, copies: BTreeMap::new() }
        });
        flight.lacks =
            flight.lacks.max(flight.copies.len() as u64 + u64::from(!flight.copies.contains_key(&copy)));
        inner.change(ino, |flight| _ = flight.copies.insert(copy, (from, from)));
    }

    /// A drive has taken so many bytes more of a copy; `now` is when.
    pub fn wrote(&self, (ino, copy): (Ino, CopyNo), bytes: u64, now: impl Fn() -> Time) {
        let mut inner = self.0.lock();
        inner.change(ino, |flight| {
            if let Some((_, written)) = flight.copies.get_mut(&copy) {
                *written += bytes;
            }
        });
        let Inner { files, sums } = &mut *inner;
        for request in files.get(&ino).into_iter().flat_map(|flight| &flight.requests) {
            if let Some(sum) = sums.get_mut(request) {
                sum.began.get_or_insert_with(&now);
            }
        }
    }

    /// The bytes of a copy up to here are recorded; the rest goes to another volume.
    pub fn part(&self, (ino, copy): (Ino, CopyNo), to: u64) {
        self.0.lock().change(ino, |flight| {
            if let Some((safe, written)) = flight.copies.get_mut(&copy) {
                (*safe, *written) = (to, (*written).max(to));
            }
        });
    }

    /// A copy does not count: what was written of it was in vain, but for parts that are recorded.
    pub fn lost(&self, (ino, copy): (Ino, CopyNo)) {
        self.0.lock().change(ino, |flight| {
            if let Some((safe, written)) = flight.copies.get_mut(&copy) {
                *written = *safe;
            }
        });
    }

    /// A file lacks no copy any more, or is given up: its requests count it themselves.
    pub fn ended(&self, ino: Ino) {
        let mut inner = self.0.lock();
        inner.change(ino, |flight| flight.copies.clear());
        let Inner { files, sums } = &mut *inner;
        for request in files.remove(&ino).map(|flight| flight.requests).unwrap_or_default() {
            if let Some(sum) = sums.get_mut(&request) {
                sum.flights = sum.flights.saturating_sub(1);
            }
            sums.retain(|_, sum| sum.flights > 0);
        }
    }

    /// Of a request: bytes that drives have and that do not count yet, and when the first of them was written.
    pub fn of(&self, request: RequestId) -> (u64, Option<Time>) {
        self.0.lock().sums.get(&request).map_or((0, None), |sum| (sum.bytes, sum.began))
    }

    /// Requests of which a first byte was written since this was last asked, and when.
    pub fn take_begun(&self) -> Vec<(RequestId, Time)> {
        let mut inner = self.0.lock();
        let fresh = inner.sums.iter_mut().filter(|(_, sum)| sum.began.is_some() && !sum.noted);
        let noted = fresh.filter_map(|(id, sum)| {
            sum.noted = true;
            Some((*id, sum.began?))
        });
        noted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [RequestId; 2] = [RequestId(1), RequestId(2)];

    fn copy(ino: u64, copy: u8) -> (Ino, CopyNo) {
        (Ino(ino), CopyNo(copy))
    }

    fn now() -> Time {
        Time::new(7, 0)
    }

    #[test]
    fn what_is_written_of_each_copy_is_a_share_of_the_file_until_it_ends() {
        let flights = Flights::default();
        let moved = || IDS.map(|id| flights.of(id).0);
        flights.begin(copy(1, 1), IDS.to_vec(), (1000, 2), 0);
        assert_eq!((moved(), flights.of(IDS[0]).1, flights.take_begun()), ([0, 0], None, vec![]));
        flights.wrote(copy(1, 1), 600, now);
        assert_eq!((moved(), flights.of(IDS[1]).1), ([300, 300], Some(now())));
        let mut begun = flights.take_begun();
        begun.sort_unstable();
        assert_eq!((begun, flights.take_begun()), (IDS.map(|id| (id, now())).to_vec(), vec![]));
        flights.begin(copy(1, 2), IDS.to_vec(), (1000, 2), 0);
        flights.begin(copy(2, 1), vec![IDS[1]], (50, 1), 0);
        flights.wrote(copy(1, 2), 400, now);
        flights.wrote(copy(2, 1), 50, now);
        assert_eq!(moved(), [500, 550]);
        flights.lost(copy(1, 1));
        assert_eq!(moved(), [200, 250]);
        // A part of it counts, and the rest goes elsewhere.
        flights.wrote(copy(1, 1), 900, now);
        flights.part(copy(1, 1), 800);
        flights.lost(copy(1, 1));
        assert_eq!(moved(), [600, 650]);
        flights.begin(copy(1, 1), IDS.to_vec(), (1000, 2), 800);
        flights.wrote(copy(1, 1), 200, now);
        assert_eq!(moved(), [700, 750]);
        flights.ended(Ino(1));
        assert_eq!(moved(), [0, 50]);
        flights.ended(Ino(2));
        assert!(flights.0.lock().sums.is_empty() && flights.0.lock().files.is_empty());
        flights.wrote(copy(1, 1), 5, now);
        flights.begin(copy(3, 1), vec![], (5, 1), 0);
        assert!(flights.0.lock().files.is_empty(), "nobody waits for it");
    }
}
