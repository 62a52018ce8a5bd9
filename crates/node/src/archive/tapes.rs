//! Volumes as the scheduler sees them. Every event asks for them and there may be tens of thousands, so only those records are
//! read anew that have changed in the catalogue, and of the others it is noted where they are now when a library was looked at.

use super::apart::{self, Apart};
use super::family::Member;
use super::state::State;
use crate::Node;
use sched::{Place, Tape};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use types::*;

/// With so many changed volumes reading all of them costs less.
const FEW: usize = 2_000;

/// What the scheduler sees, and after how many changes of the catalogue's volumes it was made.
pub struct Tapes {
    changes: u64,
    all: Arc<BTreeMap<Barcode, Tape>>,
    /// What matters of them to pools that collocate.
    members: Arc<HashMap<Barcode, Member>>,
    /// The same for pools that collocate, once it was asked for.
    apart: Option<Apart>,
    /// The configuration has changed since: all are looked at again.
    stale: bool,
}

impl Tapes {
    /// The volume, if it is known, is there now and of this medium.
    fn set(&mut self, barcode: &Barcode, place: Place, generation: Option<Generation>) {
        let is_news = |tape: &Tape| (tape.place, tape.generation) != (place, generation);
        if self.all.get(barcode).is_some_and(is_news)
            // Copied only if somebody looks at them right now.
            && let Some(tape) = Arc::make_mut(&mut self.all).get_mut(barcode)
        {
            (tape.place, tape.generation) = (place, generation);
            let now = Some((&*tape, self.members.get(barcode)));
            self.apart.iter_mut().for_each(|apart| apart.put(barcode, now));
        }
    }
}

/// All volumes, as they are now.
pub fn all(node: &Node) -> Arc<BTreeMap<Barcode, Tape>> {
    loop {
        let before = match &node.archive.state.lock().tapes {
            Some(known) if !known.stale && known.changes == node.catalog.volume_changes() => {
                return known.all.clone();
            }
            known => known.as_ref().filter(|known| !known.stale).map(|known| known.changes),
        };
        // Asked before they are read: what changes meanwhile is seen the next time.
        let (changes, changed) = match before {
            Some(before) => node.catalog.volumes_changed_since(before),
            None => (node.catalog.volume_changes(), None),
        };
        let read = match changed.filter(|changed| changed.len() <= FEW) {
            Some(changed) => some(node, changed).map(Read::Some),
            None => node.catalog.volumes().map(Read::All),
        };
        let mut state = node.archive.state.lock();
        match read {
            Ok(Read::All(volumes)) => return enter_all(node, &mut state, volumes, changes),
            // Unless somebody was faster, or the library has others since.
            Ok(Read::Some(volumes)) if state.tapes.as_ref().map(|known| known.changes) == before => {
                return state.update(volumes, changes, node.settings().tape.auto_label, node.is_attached());
            }
            Ok(Read::Some(_)) => {}
            Err(e) => {
                tracing::error!("the volumes cannot be read from the catalogue: {e}");
                // None at all would look as if every cartridge had been taken out.
                return state.tapes.as_ref().map(|known| known.all.clone()).unwrap_or_default();
            }
        }
    }
}

/// Records of volumes; None: there is none that can be read.
enum Read {
    All(Vec<Volume>),
    Some(Vec<(Barcode, Option<Volume>)>),
}

fn some(node: &Node, changed: BTreeSet<Barcode>) -> catalog::Result<Vec<(Barcode, Option<Volume>)>> {
    let read = |barcode: Barcode| match node.catalog.volume(&barcode) {
        Err(e) if e.is_damage() => Ok((barcode, None)),
        read => read.map(|volume| (barcode, volume)),
    };
    changed.into_iter().map(read).collect()
}

fn enter_all(
    node: &Node,
    state: &mut State,
    volumes: Vec<Volume>,
    changes: u64,
) -> Arc<BTreeMap<Barcode, Tape>> {
    let present = state.present();
    let auto_label = node.settings().tape.auto_label;
    let members = Arc::new(volumes.iter().map(|v| (v.barcode.clone(), Member::from(v))).collect());
    let all = volumes.into_iter().map(|v| {
        let (generation, wraps) = (state.medium(&v.barcode), node.is_attached());
        let place = present.get(&v.barcode).map_or(Place::Absent, |library| Place::Library(*library));
        (v.barcode.clone(), Tape { generation, wraps, ..tape(v, place, auto_label) })
    });
    let all: Arc<BTreeMap<_, _>> = Arc::new(all.collect());
    state.tapes = Some(Tapes { changes, all: all.clone(), members, apart: None, stale: false });
    all
}

/// The volumes as pools that collocate have them, and what matters of them; None if none does. Nobody has it until it is kept
/// again.
pub fn take_apart(
    state: &mut State,
    pools: &[Pool],
    all: &BTreeMap<Barcode, Tape>,
) -> Option<(Apart, Arc<HashMap<Barcode, Member>>)> {
    let pools = apart::collocating(pools);
    if pools.is_empty() {
        return None;
    }
    let Some(known) = &mut state.tapes else {
        // The library was looked at a moment ago, and nobody knows better yet.
        return Some((Apart::new(pools, all, &HashMap::new()), Arc::default()));
    };
    let apart = known.apart.take().filter(|apart| apart.is_of(&pools));
    let apart = apart.unwrap_or_else(|| Apart::new(pools, &known.all, &known.members));
    Some((apart, known.members.clone()))
}

/// What was taken is kept for the next time.
pub fn keep_apart(state: &mut State, mut apart: Apart) {
    if let Some(known) = &mut state.tapes {
        apart.give_back();
        known.apart = Some(apart);
    }
}

impl State {
    /// These volumes are so now, in the catalogue; what is where has not changed.
    fn update(
        &mut self,
        volumes: Vec<(Barcode, Option<Volume>)>,
        changes: u64,
        auto_label: bool,
        wraps: bool,
    ) -> Arc<BTreeMap<Barcode, Tape>> {
        let Some(mut known) = self.tapes.take() else { return Arc::default() };
        // Copied only if somebody looks at them right now.
        let (all, members) = (Arc::make_mut(&mut known.all), Arc::make_mut(&mut known.members));
        for (barcode, volume) in volumes {
            let Some(volume) = volume else {
                all.remove(&barcode);
                members.remove(&barcode);
                known.apart.iter_mut().for_each(|apart| apart.put(&barcode, None));
                continue;
            };
            let place = all.get(&barcode).map_or_else(|| self.place(&barcode), |tape| tape.place);
            let generation = self.medium(&barcode);
            let member = Member::from(&volume);
            let tape = Tape { generation, wraps, ..tape(volume, place, auto_label) };
            known.apart.iter_mut().for_each(|apart| apart.put(&barcode, Some((&tape, Some(&member)))));
            members.insert(barcode.clone(), member);
            all.insert(barcode, tape);
        }
        known.changes = changes;
        let all = known.all.clone();
        self.tapes = Some(known);
        all
    }

    /// What takes data by the configuration may be something else.
    pub fn look_again_at_tapes(&mut self) {
        self.tapes.iter_mut().for_each(|known| known.stale = true);
    }

    /// A cartridge was carried, and may be on its way out now, or not any more; or it turned out to be another medium.
    pub fn replace(&mut self, barcode: &Barcode) {
        let (place, generation) = (self.place(barcode), self.medium(barcode));
        self.tapes.iter_mut().for_each(|known| known.set(barcode, place, generation));
    }

    /// A library was looked at, or it is not known what was carried: any cartridge may be elsewhere. What the catalogue has of
    /// them is as it was.
    pub fn replace_all(&mut self) {
        let Some(mut known) = self.tapes.take() else { return };
        let present = self.present();
        let place = |barcode: &Barcode| present.get(barcode).map_or(Place::Absent, |no| Place::Library(*no));
        let moved = known.all.iter().filter(|(barcode, tape)| place(barcode) != tape.place);
        let moved: Vec<(Barcode, Option<Generation>)> =
            moved.map(|(barcode, tape)| (barcode.clone(), tape.generation)).collect();
        for (barcode, generation) in moved {
            known.set(&barcode, place(&barcode), generation);
        }
        self.tapes = Some(known);
    }

    fn place(&self, barcode: &Barcode) -> Place {
        self.present_in(barcode).map_or(Place::Absent, Place::Library)
    }
}

fn tape(v: Volume, place: Place, auto_label: bool) -> Tape {
    // A cartridge whose label nobody has read yet is tried like a blank one: what it carries decides then.
    let state = match v.state {
        VolumeState::Unknown if auto_label => VolumeState::Blank,
        // Nothing is written to it, whatever else it is.
        VolumeState::Filling | VolumeState::Scratch if v.may_hold_more() => VolumeState::ReadOnly,
        state => state,
    };
    Tape {
        state,
        worm: v.worm,
        place,
        pool: v.pool,
        written: v.written,
        free: v.capacity.saturating_sub(v.written),
        generation: None,
        wraps: false,
    }
}

/// The medium of a volume, as far as it matters for the order of reading: the tape of the virtual library is small, and read
/// forward only.
pub fn in_wraps(node: &Node, volume: &Barcode) -> Option<Generation> {
    node.is_attached().then(|| Generation::of(volume)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;

    fn element(barcode: &Barcode, outgoing: bool) -> ElementView {
        let (source, exception) = (None, None);
        let barcode = Some(barcode.clone());
        ElementView {
            address: 1001,
            kind: ElementKind::Slot,
            full: true,
            barcode,
            source,
            exception,
            outgoing,
        }
    }

    #[test]
    fn what_the_scheduler_sees_is_made_anew_when_the_catalogue_or_the_library_changes() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let volume = Volume::new(Barcode::from("TC0001L9"), Time::default());
        let seen = || all(node).get(&volume.barcode).map(|tape| (tape.place, tape.written));
        assert_eq!(seen(), None);
        node.catalog.put_volume(&volume).unwrap();
        assert_eq!(seen(), Some((Place::Absent, 0)));
        let element = element(&volume.barcode, false);
        node.archive.state.lock().set_elements(LibraryNo(0), vec![element]);
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 0)));
        node.catalog.update_volume(&volume.barcode, &mut |v| v.written = 7).unwrap();
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 7)));
        assert!(Arc::ptr_eq(&all(node), &all(node)), "nothing has changed");
        let other = Volume::new(Barcode::from("TC0002L9"), Time::default());
        node.catalog.put_volume(&other).unwrap();
        assert_eq!(all(node)[&other.barcode].place, Place::Absent, "no library has it");
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 7)), "it is as it was");
        node.archive.state.lock().shelves.values_mut().for_each(|shelf| shelf.elements[0].outgoing = true);
        node.archive.state.lock().replace(&volume.barcode);
        assert_eq!(seen(), Some((Place::Absent, 7)), "on its way out");
        node.archive.state.lock().shelves.values_mut().for_each(|shelf| shelf.elements[0].outgoing = false);
        node.archive.state.lock().replace(&volume.barcode);
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 7)));
        let found = Volume { state: VolumeState::ReadOnly, uuid: "u".into(), ..volume.clone() };
        node.catalog.begin_adoption(&found).unwrap();
        assert_eq!(
            all(node)[&volume.barcode].state,
            VolumeState::ReadOnly,
            "nobody takes it for a blank one"
        );
    }

    #[test]
    fn an_inventory_reads_no_record_of_volumes_that_are_known() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let [here, gone, new] = ["TC0001L9", "TC0002L9", "TC0003L9"].map(Barcode::from);
        let look = |at: &[&Barcode]| {
            let elements: Vec<ElementView> = at.iter().map(|barcode| element(barcode, false)).collect();
            super::super::library::enter_volumes(node, &elements).unwrap();
            node.archive.state.lock().set_elements(LibraryNo(0), elements);
        };
        look(&[&here, &gone]);
        let before = all(node);
        look(&[&here, &gone]);
        assert!(Arc::ptr_eq(&before, &all(node)), "nothing has changed");
        drop(before);
        // Only what another look at the catalogue would bring to light.
        let known = || node.archive.state.lock().tapes.as_ref().map(|known| known.changes);
        let changes = known();
        look(&[&here]);
        assert_eq!(known(), changes);
        assert_eq!(all(node)[&gone].place, Place::Absent);
        look(&[&here, &new]);
        let place = |barcode: &Barcode| all(node)[barcode].place;
        let library = Place::Library(LibraryNo(0));
        assert_eq!([place(&here), place(&gone), place(&new)], [library, Place::Absent, library]);
    }

    #[test]
    fn only_what_changed_is_read_anew_and_then_all_is_as_if_everything_had_been() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let mut chance = 12345u64; // the same in every run
        let mut below = |n: u64| {
            chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (chance >> 33) % n
        };
        let barcode = |n: u64| Barcode::from(format!("TC{n:04}L9").as_str());
        let pool = Pool { collocate: Collocate::Owner, ..Pool::new("p".into()) };
        let pools = std::slice::from_ref(&pool);
        for round in 0..200 {
            for _ in 0..below(4) {
                let mut volume = Volume::new(barcode(below(12)), Time::default());
                let states = [VolumeState::Filling, VolumeState::Full, VolumeState::Unknown];
                (volume.state, volume.written) = (states[below(3) as usize], below(1000));
                (volume.files, volume.family) = (below(2), (below(2) == 0).then(|| "uid 7".into()));
                (volume.pool, volume.capacity) = ((below(3) > 0).then(|| pool.name.clone()), 900);
                node.catalog.put_volume(&volume).unwrap();
            }
            if below(3) == 0 {
                let carried = element(&barcode(below(12)), below(2) == 0);
                let mut state = node.archive.state.lock();
                let shelf = state.shelves.entry(LibraryNo(0)).or_default();
                let changed = shelf.elements.iter().chain([&carried]).filter_map(|e| e.barcode.clone());
                let changed: Vec<Barcode> = changed.collect();
                if below(2) == 0 {
                    state.set_elements(LibraryNo(0), vec![carried]);
                } else {
                    shelf.elements = vec![carried];
                    changed.iter().for_each(|barcode| state.replace(barcode));
                }
            }
            if below(5) == 0 {
                let (volume, medium) = (barcode(below(12)), [Generation::Lto8, Generation::Lto9]);
                let medium = medium[below(2) as usize];
                node.archive.state.lock().mounted_medium(DriveNo(0), &volume, Some(medium));
            }
            let seen = || {
                let tapes = all(node);
                let mut state = node.archive.state.lock();
                let (apart, members) = take_apart(&mut state, pools, &tapes).unwrap();
                keep_apart(&mut state, apart.clone());
                (tapes, apart, members)
            };
            let some = seen();
            node.archive.state.lock().tapes = None;
            assert_eq!(some, seen(), "round {round}");
            node.archive.state.lock().tapes.as_mut().unwrap().apart = Some(some.1);
        }
    }
}
