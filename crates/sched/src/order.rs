//! In which order a tape with wraps is read: the shortest way through all items that a bounded search finds.

use crate::wraps::Point;
use crate::{Layout, Mechanics, RecallItem};

/// Items that are ordered together; longer lists are ordered in pieces, one after the other in order of blocks. So the
/// table of distances stays below 4 MiB.
const TOGETHER: usize = 1000;
/// Steps of the search: so many for each item, and at most so many for each piece, about 20 ms.
const STEPS_EACH: usize = 20_000;
const STEPS: usize = 2_000_000;
/// Successors (and predecessors) of an item that the search looks at.
const NEAR: usize = 10;
/// Longest run of items that is moved as a whole.
const RUN: usize = 3;
/// Farthest apart, in places of the order, of what the search exchanges at random.
const WINDOW: usize = 50;

/// Puts `items`, given in order of blocks, into the order in which a tape that stands at block `from` serves them
/// soonest. On a line they stay as they are. The same arguments give the same order, and it never takes longer than
/// the one given ([`way_s`]).
pub fn recall_order(mechanics: &Mechanics, from: u64, items: &[RecallItem]) -> Vec<RecallItem> {
    if let Layout::Line { .. } = mechanics.layout {
        return items.to_vec();
    }
    let (mut at, mut ordered) = (from, Vec::with_capacity(items.len()));
    for piece in items.chunks(TOGETHER) {
        let way = Search::new(mechanics, at, piece).run();
        ordered.extend(way.into_iter().map(|n| piece[n]));
        at = ordered.last().map_or(at, |item| mechanics.last_block(item.block, item.byte, item.bytes));
    }
    let shorter = way_s(mechanics, from, &ordered) < way_s(mechanics, from, items);
    if shorter { ordered } else { items.to_vec() }
}

/// Seconds from block `from` to the end of the last item, reading all in this order.
pub fn way_s(mechanics: &Mechanics, from: u64, items: &[RecallItem]) -> f64 {
    let mut at = from;
    let mut time = 0.0;
    for item in items {
        time += mechanics.locate(at, item.block) + mechanics.transfer(item.bytes);
        at = mechanics.last_block(item.block, item.byte, item.bytes);
    }
    time
}

/// A tour over the items that begins at node 0, where the tape stands; going back there costs nothing.
struct Search {
    nodes: usize,
    /// Seconds from the end of one node to the beginning of another.
    cost: Vec<f32>,
    /// Cheapest successors and predecessors of each node.
    after: Vec<Vec<u16>>,
    before: Vec<Vec<u16>>,
    tour: Vec<u16>,
    place: Vec<u16>,
    steps: usize,
    chance: u64,
}

impl Search {
    fn new(mechanics: &Mechanics, from: u64, items: &[RecallItem]) -> Self {
        let nodes = items.len() + 1;
        let here = mechanics.point(from);
        let heads: Vec<Point> = items.iter().map(|item| mechanics.point(item.block)).collect();
        let last = |item: &RecallItem| mechanics.last_block(item.block, item.byte, item.bytes);
        let tails = items.iter().map(|item| mechanics.point(last(item)));
        let mut cost = Vec::with_capacity(nodes * nodes);
        for tail in std::iter::once(here).chain(tails) {
            cost.push(0.0);
            cost.extend(heads.iter().map(|head| mechanics.hop(tail, *head) as f32));
        }
        let tour: Vec<u16> = (0..nodes as u16).collect();
        let (after, before) = (Vec::new(), Vec::new());
        let mut search = Self {
            nodes,
            cost,
            after,
            before,
            place: tour.clone(),
            tour,
            steps: STEPS.min(nodes * STEPS_EACH),
            chance: 1,
        };
        search.after = search.nearest(|search, a, b| search.cost(a, b));
        search.before = search.nearest(|search, a, b| search.cost(b, a));
        search
    }

    fn nearest(&self, cost: impl Fn(&Self, u16, u16) -> f32) -> Vec<Vec<u16>> {
        let mut others: Vec<u16> = (1..self.nodes as u16).collect();
        let of = |node: u16| {
            let key =
                |other: &u16| (if *other == node { f32::INFINITY } else { cost(self, node, *other) }, *other);
            let by = |a: &u16, b: &u16| key(a).0.total_cmp(&key(b).0).then(a.cmp(b));
            if others.len() > NEAR {
                others.select_nth_unstable_by(NEAR, by);
            }
            let mut near: Vec<u16> =
                others.iter().take(NEAR).copied().filter(|other| *other != node).collect();
            near.sort_unstable_by(by);
            near
        };
        (0..self.nodes as u16).map(of).collect()
    }

    fn cost(&self, from: u16, to: u16) -> f32 {
        self.cost[usize::from(from) * self.nodes + usize::from(to)]
    }

    /// The order of the items.
    fn run(mut self) -> Vec<usize> {
        if self.nodes > 2 {
            // From the order of blocks and from always going to what is nearest: now one, now the other ends lower.
            self.improve_all();
            let forward = (self.length(), self.tour.clone());
            let greedy = self.greedy();
            self.set(&greedy);
            self.improve_all();
            if forward.0 <= self.length() {
                self.set(&forward.1);
            }
            self.shake();
        }
        self.tour.iter().filter_map(|node| usize::from(*node).checked_sub(1)).collect()
    }

    fn length(&self) -> f32 {
        let ends = self.tour.iter().zip(self.tour.iter().skip(1));
        ends.map(|(a, b)| self.cost(*a, *b)).sum()
    }

    fn set(&mut self, tour: &[u16]) {
        self.tour.copy_from_slice(tour);
        self.note(0, self.nodes);
    }

    /// Places of the nodes in a part of the tour that has changed.
    fn note(&mut self, from: usize, to: usize) {
        for at in from..to {
            self.place[usize::from(self.tour[at])] = at as u16;
        }
    }

    fn greedy(&self) -> Vec<u16> {
        let mut left: Vec<u16> = (1..self.nodes as u16).collect();
        let mut tour = vec![0];
        let mut at = 0;
        while let Some(next) =
            (0..left.len()).min_by(|a, b| self.cost(at, left[*a]).total_cmp(&self.cost(at, left[*b])))
        {
            at = left.swap_remove(next);
            tour.push(at);
        }
        tour
    }

    fn improve_all(&mut self) {
        let mut work: Vec<u16> = (1..self.nodes as u16).rev().collect();
        self.improve(&mut work);
    }

    /// Moves runs that begin with a node of `work` to better places until none is left; the change of the length.
    fn improve(&mut self, work: &mut Vec<u16>) -> f32 {
        let mut gained = 0.0;
        while let Some(node) = work.pop() {
            while let Some((gain, ends)) = self.move_run(node) {
                gained += gain;
                work.extend(ends.into_iter().filter(|end| *end != 0 && *end != node));
            }
            if self.steps == 0 {
                break;
            }
        }
        gained
    }

    /// The best move of a run that begins with this node, made if it shortens the tour; the nodes at its ends.
    fn move_run(&mut self, node: u16) -> Option<(f32, [u16; 6])> {
        let first = usize::from(self.place[usize::from(node)]);
        let mut best = (-1e-3, None);
        for last in first..(first + RUN).min(self.nodes) {
            let (head, tail) = (self.tour[first], self.tour[last]);
            let (p, q) = (self.tour[first - 1], self.at(last + 1));
            let without = self.cost(p, q) - self.cost(p, head) - self.cost(tail, q);
            let behind =
                self.before[usize::from(head)].iter().map(|a| usize::from(self.place[usize::from(*a)]));
            let ahead =
                self.after[usize::from(tail)].iter().map(|b| usize::from(self.place[usize::from(*b)]) - 1);
            // Going back to the beginning is no nearest successor of anything: the end of the tour is one more place.
            for at in behind.chain(ahead).chain([self.nodes - 1]) {
                if at + 1 >= first && at <= last {
                    continue;
                }
                let (a, b) = (self.tour[at], self.at(at + 1));
                let change = without + self.cost(a, head) + self.cost(tail, b) - self.cost(a, b);
                if change < best.0 {
                    best = (change, Some((last, at, [p, q, a, b, head, tail])));
                }
            }
            self.steps = self.steps.saturating_sub(2 * NEAR + 1);
        }
        let (last, at, ends) = best.1?;
        let len = last - first + 1;
        if at > last {
            self.tour[first..=at].rotate_left(len);
            self.note(first, at + 1);
        } else {
            self.tour[at + 1..=last].rotate_right(len);
            self.note(at + 1, last + 1);
        }
        Some((best.0, ends))
    }

    /// The node at a place; after the last one comes the first again.
    fn at(&self, place: usize) -> u16 {
        self.tour.get(place).copied().unwrap_or(0)
    }

    /// Exchanges two neighbouring runs somewhere, mends what that breaks, and keeps the result if it is no worse.
    fn shake(&mut self) {
        let mut work = Vec::new();
        while self.steps > 0 && self.nodes > 4 {
            let kept = self.tour.clone();
            let window = WINDOW.min(self.nodes - 1);
            let begin = 1 + self.below(self.nodes - window);
            let mut cuts = [0; 3].map(|_| begin + self.below(window + 1));
            cuts.sort_unstable();
            let [i, j, k] = cuts;
            self.steps = self.steps.saturating_sub(1 + window);
            if i == j || j == k || k > self.nodes {
                continue;
            }
            let (p, q) = (self.tour[i - 1], self.at(k));
            let (a, b, c, d) = (self.tour[i], self.tour[j - 1], self.tour[j], self.tour[k - 1]);
            let change = self.cost(p, c) + self.cost(d, a) + self.cost(b, q)
                - self.cost(p, a)
                - self.cost(b, c)
                - self.cost(d, q);
            self.tour[i..k].rotate_left(j - i);
            self.note(i, k);
            work.clear();
            work.extend([a, b, c, d, q].into_iter().filter(|node| *node != 0));
            if change + self.improve(&mut work) > 0.0 {
                self.set(&kept);
            }
        }
    }

    /// A number below `limit`; the same sequence each time.
    fn below(&mut self, limit: usize) -> usize {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) as usize % limit.max(1)
    }
}
