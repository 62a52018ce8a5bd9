//! How short it could be: for each cartridge the shortest way of many that a local search finds from random orders, and for
//! the drives the best of as many random assignments, improved in the same way. Nothing of the scheduler is in it, and
//! its robot is in no drive's way. (Minima are taken for each cartridge by itself, which is harder to reach than the
//! best of as many whole schedules.)

use super::chance::Chance;
use super::load::{Load, Outcome};
use sched::{Mechanics, RecallItem};

const RUN: usize = 3;

/// The best schedule found.
pub fn best(load: &Load, drives: usize, restarts: usize, chance: &mut Chance) -> Outcome {
    let ways: Vec<Vec<f64>> =
        load.wanted.iter().map(|items| Way::new(&load.mechanics, items).best(restarts, chance)).collect();
    let m = &load.mechanics;
    let lengths: Vec<f64> =
        ways.iter().map(|way| m.mount_s() + way.last().copied().unwrap_or(0.0) + m.unmount_s()).collect();
    let assigned = assign(&lengths, drives, restarts, chance);
    let mut waits = Vec::new();
    for drive in 0..drives {
        let mut clock = 0.0;
        let mut own: Vec<usize> = (0..ways.len()).filter(|n| assigned[*n] == drive).collect();
        own.sort_by(|a, b| lengths[*a].total_cmp(&lengths[*b]));
        for n in own {
            waits.extend(ways[n].iter().map(|end| clock + m.mount_s() + end));
            clock += lengths[n];
        }
    }
    Outcome::new(waits)
}

/// Puts jobs on drives so that the longest drive is short.
fn assign(lengths: &[f64], drives: usize, restarts: usize, chance: &mut Chance) -> Vec<usize> {
    let mut best: (f64, Vec<usize>) = (f64::INFINITY, Vec::new());
    for _ in 0..restarts {
        let mut on: Vec<usize> = lengths.iter().map(|_| chance.below(drives)).collect();
        let loads = |on: &[usize]| {
            let mut loads = vec![0.0; drives];
            on.iter().zip(lengths).for_each(|(drive, length)| loads[*drive] += length);
            loads
        };
        // The sum of squares falls with each move, so it ends.
        let unevenness = |on: &[usize]| loads(on).iter().map(|load| load * load).sum::<f64>();
        let mut now = unevenness(&on);
        while let Some((then, better)) = neighbours(&on, drives)
            .into_iter()
            .map(|other| (unevenness(&other), other))
            .find(|(then, _)| *then < now - 1e-6)
        {
            (now, on) = (then, better);
        }
        let longest = loads(&on).into_iter().fold(0.0, f64::max);
        if longest < best.0 {
            best = (longest, on);
        }
    }
    best.1
}

/// One job on another drive, or two jobs exchanged.
fn neighbours(on: &[usize], drives: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for a in 0..on.len() {
        for drive in (0..drives).filter(|drive| *drive != on[a]) {
            let mut other = on.to_vec();
            other[a] = drive;
            all.push(other);
        }
        for b in (0..a).filter(|b| on[*b] != on[a]) {
            let mut other = on.to_vec();
            other.swap(a, b);
            all.push(other);
        }
    }
    all
}

/// Orders of one cartridge's files, from the beginning of the tape.
struct Way<'l> {
    mechanics: &'l Mechanics,
    items: &'l [RecallItem],
    /// From the end of one (0: the beginning of the tape, n + 1: file n) to the beginning of another; to 0 nothing.
    cost: Vec<f64>,
}

impl<'l> Way<'l> {
    fn new(mechanics: &'l Mechanics, items: &'l [RecallItem]) -> Self {
        let ends = items.iter().map(|item| mechanics.last_block(item.block, item.byte, item.bytes));
        let cost = std::iter::once(0).chain(ends).flat_map(|end| {
            let next = items.iter().map(move |item| mechanics.locate(end, item.block));
            std::iter::once(0.0).chain(next)
        });
        Self { mechanics, items, cost: cost.collect() }
    }

    fn cost(&self, from: usize, to: usize) -> f64 {
        self.cost[from * (self.items.len() + 1) + to]
    }

    /// Times at which the files are there in the best order found (seconds after the mount).
    fn best(&self, restarts: usize, chance: &mut Chance) -> Vec<f64> {
        let mut best: (f64, Vec<usize>) = (f64::INFINITY, Vec::new());
        for _ in 0..restarts {
            let mut tour: Vec<usize> = (1..=self.items.len()).collect();
            chance.shuffle(&mut tour);
            tour.insert(0, 0);
            self.improve(&mut tour);
            let length = tour.windows(2).map(|pair| self.cost(pair[0], pair[1])).sum();
            if length < best.0 {
                best = (length, tour);
            }
        }
        let mut clock = 0.0;
        let arrivals = best.1.windows(2).map(|pair| {
            clock += self.cost(pair[0], pair[1]) + self.mechanics.transfer(self.items[pair[1] - 1].bytes);
            clock
        });
        arrivals.collect()
    }

    /// Moves runs of files to where they shorten the way most, until none does.
    fn improve(&self, tour: &mut [usize]) {
        let nodes = tour.len();
        let mut since_last = 0;
        let mut first = 1;
        while since_last < nodes {
            first = if first + 1 < nodes { first + 1 } else { 1 };
            since_last += 1;
            while self.move_run(tour, first) {
                since_last = 0;
            }
        }
    }

    fn move_run(&self, tour: &mut [usize], first: usize) -> bool {
        let at = |place: usize| tour.get(place).copied().unwrap_or(0);
        let mut best = (-1e-6, 0, 0);
        for last in first..(first + RUN).min(tour.len()) {
            let (p, head, tail, q) = (at(first - 1), at(first), at(last), at(last + 1));
            let without = self.cost(p, q) - self.cost(p, head) - self.cost(tail, q);
            for place in (0..first.saturating_sub(1)).chain(last + 1..tour.len()) {
                let (a, b) = (at(place), at(place + 1));
                let change = without + self.cost(a, head) + self.cost(tail, b) - self.cost(a, b);
                if change < best.0 {
                    best = (change, last, place);
                }
            }
        }
        let (change, last, place) = best;
        if change >= -1e-6 {
            return false;
        }
        let len = last - first + 1;
        if place > last {
            tour[first..=place].rotate_left(len)
        } else {
            tour[place + 1..=last].rotate_right(len)
        }
        true
    }
}
