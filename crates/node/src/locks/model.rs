//! The table against a plain model: bytes with their holders.

use super::*;
use types::LockKind;

const FILES: u64 = 2;
const OWNERS: u64 = 4;
const BYTES: u64 = 6;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Of each file, family, byte and owner: how it is held.
#[derive(Default)]
struct Model {
    held: BTreeMap<(u64, LockSpace, u64, u64), LockKind>,
    waiting: BTreeMap<Ticket, Asked>,
}

fn asked(ino: u64, owner: u64, order: LockOrder) -> Asked {
    // Sessions matter as little as owners: half of the owners are those of another host.
    Asked {
        ino: Ino(ino),
        handle: Handle(owner),
        session: owner % 2,
        far: owner % 2 == 1,
        order,
        claimed: false,
    }
}

fn bytes(asked: &Asked) -> impl Iterator<Item = u64> + use<> {
    let range = match asked.order.space {
        LockSpace::Records => asked.order.range,
        LockSpace::Files => LockRange { start: 0, end: BYTES - 1 },
    };
    range.start..=range.end.min(BYTES - 1)
}

impl Model {
    /// Owners whose locks are in the way.
    fn against(&self, asked: &Asked) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        for byte in bytes(asked) {
            for owner in (0..OWNERS).filter(|owner| *owner != asked.order.owner) {
                let held = self.held.get(&(asked.ino.0, asked.order.space, byte, owner));
                let exclusive = |kind| kind == Some(LockKind::Exclusive);
                if held.is_some() && (exclusive(held.copied()) || exclusive(asked.order.kind)) {
                    found.insert(owner);
                }
            }
        }
        found
    }

    fn set(&mut self, asked: &Asked, kind: Option<LockKind>) {
        for byte in bytes(asked) {
            let key = (asked.ino.0, asked.order.space, byte, asked.order.owner);
            match kind {
                Some(kind) => drop(self.held.insert(key, kind)),
                None => drop(self.held.remove(&key)),
            }
        }
    }

    /// Who can be reached from an owner by waits for locks.
    fn waits_for(&self, from: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut all = from.clone();
        for _ in 0..OWNERS {
            for asked in self.waiting.values().filter(|asked| asked.order.wait == LockWait::Checked) {
                if all.contains(&asked.order.owner) {
                    all.extend(self.against(asked));
                }
            }
        }
        all
    }

    fn expected(&mut self, asked: &Asked) -> Answer {
        let Some(kind) = asked.order.kind else {
            self.set(asked, None);
            return Answer::Done;
        };
        let first = (asked.ino.0, asked.order.space, 0, asked.order.owner);
        if asked.order.space == LockSpace::Files && self.held.get(&first) != Some(&kind) {
            self.set(asked, None);
        }
        let against = self.against(asked);
        match asked.order.wait {
            _ if against.is_empty() => {
                self.set(asked, Some(kind));
                Answer::Done
            }
            LockWait::Never => Answer::Refused(FsError::WouldBlock),
            LockWait::Checked if self.waits_for(&against).contains(&asked.order.owner) => {
                Answer::Refused(FsError::Deadlock)
            }
            _ => Answer::Waits,
        }
    }

    /// Somebody got what he waited for: nothing was in the way at that moment.
    fn got(&mut self, ended: Ended) {
        for (ticket, outcome) in ended {
            let asked = self.waiting.remove(&ticket).expect("somebody who waits");
            assert_eq!(outcome, Ok(()));
            assert_eq!(self.against(&asked), BTreeSet::new());
            self.set(&asked, asked.order.kind);
        }
    }

    fn check(&self, table: &Table) {
        let queued: BTreeSet<Ticket> = table.waiting.keys().copied().collect();
        assert_eq!(queued, self.waiting.keys().copied().collect());
        // Nobody waits for nothing.
        assert!(self.waiting.values().all(|asked| !self.against(asked).is_empty()));
        for ino in 0..FILES {
            for space in [LockSpace::Records, LockSpace::Files] {
                for (byte, owner) in (0..BYTES).flat_map(|byte| (0..OWNERS).map(move |owner| (byte, owner))) {
                    let holder = table
                        .files
                        .get(&Ino(ino))
                        .and_then(|file| file.holders.get(&(space, Who { session: owner % 2, owner })));
                    let held = holder.and_then(|h| {
                        h.ranges.iter().find(|(r, _)| r.start <= byte && byte <= r.end).map(|(_, kind)| kind)
                    });
                    assert_eq!(
                        held.as_ref(),
                        self.held.get(&(ino, space, byte, owner)),
                        "{ino} {byte} {owner}"
                    );
                }
            }
        }
        let ranges = table.files.values().flat_map(|f| f.holders.values()).map(|h| h.ranges.len());
        assert_eq!(table.held, ranges.sum::<usize>());
    }
}

fn order(random: &mut Random) -> LockOrder {
    let space = if random.below(4) == 0 { LockSpace::Files } else { LockSpace::Records };
    let start = random.below(BYTES);
    let range = match space {
        LockSpace::Records => LockRange { start, end: start + random.below(BYTES - start) },
        LockSpace::Files => LockRange::WHOLE,
    };
    LockOrder {
        space,
        owner: random.below(OWNERS),
        kind: [None, Some(LockKind::Shared), Some(LockKind::Exclusive)][random.below(3) as usize],
        range,
        pid: 0,
        wait: match (space, random.below(3)) {
            (_, 0) => LockWait::Never,
            (LockSpace::Records, 1) => LockWait::Checked,
            _ => LockWait::Patient,
        },
    }
}

#[test]
fn random_requests_do_what_they_do_on_single_bytes() {
    let mut random = Random(1);
    let mut answers = BTreeMap::new();
    for _ in 0..300 {
        let (mut table, mut model) = (Table::default(), Model::default());
        for ticket in 0..80 {
            let mut ended = Vec::new();
            match random.below(10) {
                0 => {
                    let withdrawn = model.waiting.keys().next().copied();
                    assert_eq!(withdrawn.is_some_and(|t| table.withdraw(t)), withdrawn.is_some());
                    withdrawn.map(|t| model.waiting.remove(&t));
                }
                1 => {
                    let (ino, owner) = (random.below(FILES), random.below(OWNERS));
                    table.end(Ino(ino), Handle(owner), &mut ended);
                    model.held.retain(|(of, _, _, who), _| (*of, *who) != (ino, owner));
                    let (gone, got): (Ended, Ended) = ended.drain(..).partition(|(_, end)| end.is_err());
                    for (ticket, why) in gone {
                        assert_eq!(why, Err(FsError::BadHandle));
                        assert_eq!(model.waiting.remove(&ticket).map(|a| a.handle), Some(Handle(owner)));
                    }
                    ended = got;
                }
                _ => {
                    let order = order(&mut random);
                    let asked = asked(random.below(FILES), order.owner, order);
                    let answer = table.ask(ticket, asked, &mut ended);
                    assert_eq!(answer, model.expected(&asked), "{asked:?}");
                    if answer == Answer::Waits {
                        model.waiting.insert(ticket, asked);
                    }
                    *answers.entry(format!("{answer:?}")).or_insert(0) += 1;
                }
            }
            model.got(ended);
            model.check(&table);
        }
        (0..FILES).flat_map(|ino| (0..OWNERS).map(move |owner| (ino, owner))).for_each(|(ino, owner)| {
            table.end(Ino(ino), Handle(owner), &mut Vec::new());
        });
        assert!(table.files.is_empty() && table.waiting.is_empty() && table.held == 0);
    }
    assert!(answers.len() == 4 && answers.values().all(|count| *count > 50), "{answers:?}");
}

fn write(owner: u64, byte: u64) -> LockOrder {
    let range = LockRange { start: byte, end: byte };
    let (kind, wait) = (Some(LockKind::Exclusive), LockWait::Checked);
    LockOrder { space: LockSpace::Records, owner, kind, range, pid: 40 + owner as u32, wait }
}

#[test]
fn owners_of_two_hosts_who_would_wait_for_each_other_are_told() {
    let (mut table, mut ended) = (Table::default(), Vec::new());
    for owner in 0..3 {
        assert_eq!(table.ask(owner, asked(0, owner, write(owner, owner)), &mut ended), Answer::Done);
    }
    assert_eq!(table.ask(10, asked(0, 0, write(0, 1)), &mut ended), Answer::Waits);
    assert_eq!(table.ask(11, asked(0, 1, write(1, 2)), &mut ended), Answer::Waits);
    let circle = asked(0, 2, write(2, 0));
    assert_eq!(table.ask(12, circle, &mut ended), Answer::Refused(FsError::Deadlock));
    let patient = Asked { order: LockOrder { wait: LockWait::Patient, ..circle.order }, ..circle };
    assert_eq!(table.ask(13, patient, &mut ended), Answer::Waits);
    // Who closes his file lets the next one on.
    table.end(Ino(0), Handle(2), &mut ended);
    assert_eq!(ended, [(13, Err(FsError::BadHandle)), (11, Ok(()))]);
    // Who holds it is told to those of his host only.
    let test = |owner| table.test(&asked(0, owner, write(owner, 1))).map(|held| held.pid);
    assert_eq!((test(3), test(2)), (Some(41), Some(0)));
}

#[test]
fn before_it_is_open_only_what_is_claimed_is_given() {
    let (mut table, mut ended) = (Table::default(), Vec::new());
    table.close();
    let never = |owner, byte| {
        let order = LockOrder { wait: LockWait::Never, ..write(owner, byte) };
        asked(0, owner, order)
    };
    assert_eq!(table.ask(1, never(0, 3), &mut ended), Answer::Waits);
    assert_eq!(table.ask(2, never(0, 4), &mut ended), Answer::Waits);
    assert_eq!(table.ask(3, asked(0, 2, write(2, 3)), &mut ended), Answer::Waits);
    let claimed = Asked { claimed: true, ..never(1, 3) };
    assert_eq!(table.ask(4, claimed, &mut ended), Answer::Done);
    assert_eq!(
        table.ask(5, Asked { claimed: true, ..never(2, 3) }, &mut ended),
        Answer::Refused(FsError::WouldBlock)
    );
    assert_eq!(ended, []);
    table.open(&mut ended);
    assert_eq!(ended, [(1, Err(FsError::WouldBlock)), (2, Ok(()))]);
    ended.clear();
    table.end(Ino(0), Handle(1), &mut ended);
    assert_eq!(ended, [(3, Ok(()))]);
}
