//! Writes go on when a mover goes away; what it has is never read before it was rebuilt; blocks that rot are found and repaired.

use crate::common::{Cluster, Terms1, UNIT, bytes, read};
use data::frame::Op;
use data::{DataError, Refusal};
use layout::{Layout, Redundancy};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use stripe::{Authority, Columns, Mended, Room, Striped};

/// What a metadata service keeps of one file.
struct Decides {
    cluster: Arc<Cluster>,
    layout: Layout,
    state: Mutex<(u64, BTreeSet<u32>)>,
}

impl Decides {
    fn new(cluster: &Arc<Cluster>, layout: &Layout) -> Arc<Self> {
        Arc::new(Self {
            cluster: cluster.clone(),
            layout: layout.clone(),
            state: Mutex::new((1, BTreeSet::new())),
        })
    }

    fn open(self: &Arc<Self>) -> Striped {
        Striped::open_with(self.layout.clone(), self.columns(), Some(self.clone())).unwrap()
    }

    fn columns(&self) -> Columns {
        let (generation, stale) = self.state.lock().clone();
        self.cluster.columns(&self.layout, &stale, &self.terms(generation))
    }

    fn terms(&self, generation: u64) -> Terms1 {
        Terms1 { patience: Duration::from_millis(300), generation, ..Terms1::default() }
    }

    /// A new generation; whoever has an older one is refused by all that count.
    fn next(&self, change: impl FnOnce(&mut BTreeSet<u32>)) -> Columns {
        let mut state = self.state.lock();
        state.0 += 1;
        change(&mut state.1);
        self.cluster.every_object(&self.layout, Op::Fence, state.0, 0, &state.1);
        drop(state);
        self.columns()
    }
}

impl Authority for Decides {
    fn leave_out(&self, component: usize, column: u16, _: &DataError) -> Result<Columns, String> {
        let target = self.layout.components[component].targets[usize::from(column)];
        Ok(self.next(|stale| stale.extend([target.0])))
    }

    fn renew(&self) -> Result<Columns, String> {
        Ok(self.columns())
    }
}

fn layouts(cluster: &Cluster) -> Vec<Layout> {
    let mirror = Redundancy::Mirror { copies: 2 };
    let mirror = vec![cluster.component(0..u64::MAX, 3 * UNIT, mirror, 4)];
    vec![
        Layout { generation: 1, components: mirror },
        cluster.coded(3 * UNIT, 3, 1),
        cluster.coded(65_536, 2, 2),
    ]
}

#[test]
fn a_target_is_left_out_while_it_is_away_and_counts_again_once_it_is_rebuilt() {
    let cluster = Cluster::new(4);
    let layouts = layouts(&cluster);
    layouts.iter().for_each(|layout| drop(cluster.make(layout.clone())));
    let mut model = bytes(300_000, 1);
    for layout in &layouts {
        let file = cluster.open(layout.clone());
        file.write_at(0, &model).unwrap();
        file.sync().unwrap();
    }
    cluster.movers[1].0.stop().unwrap();
    let late = bytes(50_000, 2);
    model[100_000..150_000].copy_from_slice(&late);
    model.truncate(280_000);
    let shared = Arc::new(cluster);
    let all: Vec<Arc<Decides>> = layouts.iter().map(|layout| Decides::new(&shared, layout)).collect();
    let files: Vec<(Striped, Striped)> = all
        .iter()
        .map(|decides| {
            let (file, beside) = (decides.open(), decides.open());
            file.write_at(100_000, &late).unwrap();
            file.set_length(280_000).unwrap();
            assert_eq!(decides.state.lock().1, BTreeSet::from([2]), "target 2 is out of date");
            assert!(read(&file, 0, 400_000) == model);
            // Who had opened the file before is refused by all that count, and learns where its bytes are.
            assert!(read(&beside, 0, 400_000) == model);
            (file, beside)
        })
        .collect();
    drop(files);
    drop(all);
    let mut cluster = shared;
    // It comes back with what it had. Nobody asks it.
    Arc::get_mut(&mut cluster).unwrap().restart(2);
    for layout in &layouts {
        let decides = Decides::new(&cluster, layout);
        *decides.state.lock() = (2, BTreeSet::from([2]));
        let file = decides.open();
        assert!(read(&file, 0, 400_000) == model);
        let before = model.clone();
        rebuild(&decides, &file, &mut model);
        assert!(decides.state.lock().1.is_empty());
        // Everything is on it: without any other one, nothing is missing.
        file.fold().unwrap();
        drop(file);
        let (generation, _) = *decides.state.lock();
        let mirror = matches!(layout.components[0].redundancy, Redundancy::Mirror { .. });
        for other in if mirror { vec![1] } else { vec![1, 3, 4] } {
            let terms = decides.terms(generation);
            let file = cluster.open_but(layout.clone(), &BTreeSet::from([other]), &terms);
            assert!(read(&file, 0, 400_000) == model, "without {other}");
        }
        model.clone_from(&before);
    }
}

#[test]
fn a_target_whose_host_has_another_disk_now_is_left_out_and_who_needs_it_is_told_what_to_do() {
    let mut cluster = Cluster::new(4);
    let layouts = layouts(&cluster);
    let plain = vec![cluster.component(0..u64::MAX, UNIT, Redundancy::None, 2)];
    let plain = Layout { generation: 1, components: plain };
    let model = bytes(200_000, 1);
    for layout in layouts.iter().chain([&plain]) {
        let file = cluster.make(layout.clone());
        file.write_at(0, &model).unwrap();
        file.sync().unwrap();
    }
    cluster.change_disk(2);
    let cluster = Arc::new(cluster);
    for layout in &layouts {
        let decides = Decides::new(&cluster, layout);
        let file = decides.open();
        assert!(read(&file, 0, 200_000) == model, "{layout:?}");
        file.write_at(50_000, &model[50_000..100_000]).unwrap();
        file.sync().unwrap();
        assert_eq!(decides.state.lock().1, BTreeSet::from([2]), "{layout:?}");
        assert!(read(&file, 0, 200_000) == model, "{layout:?}");
    }
    let file = Decides::new(&cluster, &plain).open();
    for error in [file.write_at(0, &model).unwrap_err(), file.read_at(0, &mut [0; 9000]).unwrap_err()] {
        assert_eq!(error.class(), types::ErrorClass::Retry);
        assert!(error.to_string().contains("`thermo target replace 2`"), "{error}");
    }
}

/// Rebuilds target 2, with a write between the steps.
fn rebuild(decides: &Decides, file: &Striped, model: &mut [u8]) {
    let component = &decides.layout.components[0];
    let generation = decides.state.lock().0;
    // The metadata service raises its fences before anybody uses it.
    decides.cluster.every_object(&decides.layout, Op::Fence, generation, 0, &BTreeSet::from([1, 3, 4]));
    let to = decides.cluster.column(component, component.targets[1], &decides.terms(generation));
    let mended = Mended { component: 0, column: 1, to: &to };
    let (mut next, mut written) = (Some(0), 0);
    while let Some(at) = next {
        let step = file.mend(mended, at).unwrap();
        written += step.written;
        next = step.next;
        let late = bytes(40_000, at as u8 ^ 77);
        file.write_at(120_000, &late).unwrap();
        model[120_000..160_000].copy_from_slice(&late);
    }
    assert!(written > 0);
    file.finish_mending(mended, || Ok(decides.next(BTreeSet::clear))).unwrap();
    assert!(read(file, 0, 400_000) == *model);
}

#[test]
fn what_is_read_without_a_column_is_not_changed_before_that_is_on_record() {
    type Changed = fn(&Striped) -> stripe::Result<()>;
    let changes: [(&str, Changed); 5] = [
        ("fold", Striped::fold),
        ("write", |file| file.write_at(5, b"x")),
        ("whole rows", |file| file.write_at(0, &bytes(6 * 65_536, 4))),
        ("length", |file| file.set_length(7)),
        ("sync", Striped::sync),
    ];
    let cluster = Arc::new(Cluster::new(4));
    for (what, change) in changes {
        for layout in layouts(&cluster) {
            let decides = Decides::new(&cluster, &layout);
            drop(cluster.make(layout.clone()));
            let file = decides.open();
            let model = bytes(100_000, 9);
            file.write_at(0, &model).unwrap();
            assert!(file.put_aside(0, 3));
            assert!(read(&file, 0, 100_000) == model);
            assert!(decides.state.lock().1.is_empty(), "it is still up to date");
            change(&file).unwrap();
            let mirror = matches!(layout.components[0].redundancy, Redundancy::Mirror { .. });
            let left_out = if mirror && what == "fold" { vec![] } else { vec![4] };
            assert_eq!(decides.state.lock().1, BTreeSet::from_iter(left_out), "{what} of {layout:?}");
        }
    }
}

#[test]
fn a_column_that_fails_when_another_is_taken_in_stays_left_out() {
    let cluster = Arc::new(Cluster::new(4));
    for layout in layouts(&cluster).into_iter().filter(|layout| layout.components[0].unit_bytes != 3 * UNIT) {
        let decides = Decides::new(&cluster, &layout);
        drop(cluster.make(layout.clone()));
        let file = decides.open();
        file.write_at(0, &bytes(100_000, 9)).unwrap();
        let to = cluster.column(&layout.components[0], types::TargetId(2), &decides.terms(1));
        let mended = Mended { component: 0, column: 1, to: &to };
        assert!(file.mend(mended, 0).unwrap().next.is_none());
        std::thread::scope(|scope| {
            let admit = || {
                let columns = decides.columns();
                scope.spawn(|| file.leave_out(0, 2, "it fails").unwrap());
                std::thread::sleep(Duration::from_millis(100));
                Ok(columns)
            };
            file.finish_mending(mended, admit).unwrap();
        });
        assert_eq!(decides.state.lock().1, BTreeSet::from([3]));
        assert!(file.ways().iter().all(|((_, column), _)| *column != 2), "it would be read: {layout:?}");
    }
}

#[test]
fn scrubbing_finds_what_rots_and_it_is_repaired_from_the_others() {
    use std::os::unix::fs::FileExt;
    let cluster = Cluster::new(4);
    for layout in layouts(&cluster) {
        let file = cluster.make(layout.clone());
        let content = bytes(300_000, 5);
        file.write_at(0, &content).unwrap();
        file.fold().unwrap();
        let object = layout.components[0].base.0 + 1;
        let rotten = std::fs::File::options().write(true).open(cluster.path(2, object)).unwrap();
        let last = rotten.metadata().unwrap().len() - 1;
        rotten.write_all_at(b"x", 5).unwrap();
        rotten.write_all_at(&[0xa5], last).unwrap();
        let target = &cluster.targets[1];
        let scrub = || {
            let (mut bad, mut first) = (BTreeSet::new(), Some(0));
            while let Some(at) = first {
                let part = target.scrub(types::ObjectId(object), at, 1).unwrap();
                bad.extend(part.bad);
                first = part.next;
            }
            bad
        };
        let bad = scrub();
        assert_eq!(bad, BTreeSet::from([0, last / 65_536]));
        for block in bad {
            file.repair(0, 1, block * 65_536..(block + 1) * 65_536).unwrap();
        }
        assert_eq!(scrub(), BTreeSet::new());
        assert!(read(&file, 0, 400_000) == content);
        assert!(target.objects().unwrap().contains(&types::ObjectId(object)));
    }
}

#[test]
fn a_rebuild_passes_over_what_is_lost_and_counts_it_and_goes_on_behind_it() {
    use std::os::unix::fs::FileExt;
    let cluster = Arc::new(Cluster::new(4));
    // One with two pieces of parity would lose nothing.
    for layout in layouts(&cluster).into_iter().take(2) {
        let coded = matches!(layout.components[0].redundancy, Redundancy::Coded { .. });
        let decides = Decides::new(&cluster, &layout);
        let file = cluster.make(layout.clone());
        let mut content = bytes(3_000_000, 5);
        file.write_at(0, &content).unwrap();
        file.fold().unwrap();
        drop(file);
        let base = layout.components[0].base.0;
        let whole = std::fs::read(cluster.path(2, base + 1)).unwrap();
        // The second target comes back with something else, and something of the first has rotted.
        *decides.state.lock() = (1, BTreeSet::from([2]));
        let spoil = |target: u32, object: u64, at: u64| {
            let rotten = std::fs::File::options().write(true).open(cluster.path(target, object)).unwrap();
            rotten.write_all_at(&[0xa5; 200], at).unwrap();
        };
        spoil(1, base, 200_000);
        [5_000, 500_000].iter().for_each(|at| spoil(2, base + 1, *at));
        let file = decides.open();
        let to = cluster.column(&layout.components[0], types::TargetId(2), &decides.terms(1));
        let mended = Mended { component: 0, column: 1, to: &to };
        let over = || {
            let (mut next, mut lost, mut first) = (Some(0), 0, None);
            while let Some(at) = next {
                let step = file.mend(mended, at).unwrap();
                (next, lost) = (step.next, lost + step.lost);
                first = first.or(step.why.map(|e| e.to_string()));
            }
            (lost, first)
        };
        let (lost, why) = over();
        assert!(lost > 0 && lost < 400_000, "{lost} of {layout:?}");
        let why = why.unwrap();
        assert!(
            why.contains(if coded { "write these bytes again" } else { "is not what was written" }),
            "{why}"
        );
        let now = std::fs::read(cluster.path(2, base + 1)).unwrap();
        assert!(
            now[..190_000] == whole[..190_000] && now[450_000..900_000] == whole[450_000..900_000],
            "around it: {layout:?}"
        );
        // Once it was written again, nothing is missing.
        let new = bytes(1_000_000, 6);
        file.write_at(0, &new).unwrap();
        content[..1_000_000].copy_from_slice(&new);
        file.fold().unwrap();
        assert_eq!(over(), (0, None), "{layout:?}");
        file.finish_mending(mended, || Ok(decides.next(BTreeSet::clear))).unwrap();
        assert!(read(&file, 0, 3_100_000) == content);
    }
}

#[test]
fn what_a_target_that_is_away_has_is_not_lost() {
    use std::os::unix::fs::FileExt;
    // While the second column is rebuilt a copy or unit rots, and the next target, or the one before, does not answer for a moment.
    for (rots, away) in [(1, 3), (3, 1)] {
        let cluster = Arc::new(Cluster::new(4));
        let three = vec![cluster.component(0..u64::MAX, UNIT, Redundancy::Mirror { copies: 3 }, 3)];
        let layouts = [Layout { generation: 1, components: three }, cluster.coded(65_536, 2, 2)];
        let files = layouts.each_ref().map(|layout| {
            let file = cluster.make(layout.clone());
            file.write_at(0, &bytes(600_000, 7)).unwrap();
            file.fold().unwrap();
            drop(file);
            let decides = Decides::new(&cluster, layout);
            *decides.state.lock() = (1, BTreeSet::from([2]));
            let (file, to) = (decides.open(), &layout.components[0]);
            let to = cluster.column(to, types::TargetId(2), &decides.terms(1));
            let step = file.mend(Mended { component: 0, column: 1, to: &to }, 0).unwrap();
            assert_eq!(step.lost, 0);
            let object = layout.components[0].base.0 + u64::from(rots) - 1;
            let rotten = std::fs::File::options().write(true).open(cluster.path(rots, object)).unwrap();
            rotten.write_all_at(&[0xa5; 200], 5_000).unwrap();
            (file, to)
        });
        cluster.movers[away as usize - 1].0.stop().unwrap();
        for (file, to) in &files {
            let again = file.mend(Mended { component: 0, column: 1, to }, 0).unwrap_err();
            assert_eq!(again.class(), types::ErrorClass::Retry, "{again}");
        }
    }
}

#[test]
fn nothing_is_written_where_too_few_columns_count() {
    let cluster = Cluster::new(4);
    let plain = vec![cluster.component(0..u64::MAX, UNIT, Redundancy::None, 2)];
    let plain = Layout { generation: 1, components: plain };
    let few = [
        (plain, vec![2]),
        (layouts(&cluster).remove(0), vec![1, 2]),
        (cluster.coded(UNIT, 3, 1), vec![1, 4]),
    ];
    for (layout, lost) in few {
        drop(cluster.make(layout.clone()));
        let file = cluster.open_but(layout, &lost.into_iter().collect(), &Terms1::default());
        for outcome in [
            file.write_at(0, &bytes(100_000, 1)),
            file.write_at(UNIT.into(), b"x"),
            file.set_length(0),
            file.sync(),
        ] {
            assert_eq!(outcome.unwrap_err().class(), types::ErrorClass::Retry);
        }
    }
}

#[test]
fn who_was_fenced_writes_nothing() {
    let cluster = Cluster::new(4);
    for layout in layouts(&cluster) {
        let file = cluster.make(layout.clone());
        file.write_at(0, &bytes(100_000, 1)).unwrap();
        cluster.every_object(&layout, Op::Fence, 2, 0, &BTreeSet::new());
        let error = file.write_at(10, b"too late").unwrap_err();
        assert!(
            matches!(&error, stripe::StripeError::Mover { source, .. } if source.is(&Refusal::Fenced)),
            "{error}"
        );
        let next = cluster.open_but(layout, &BTreeSet::new(), &Terms1 { generation: 2, ..Terms1::default() });
        assert!(read(&next, 0, 200_000) == bytes(100_000, 1));
    }
}

/// Waits for so long for movers that nobody can stand in for.
struct Waits(Duration);

impl Authority for Waits {
    fn leave_out(&self, _: usize, _: u16, _: &DataError) -> Result<Columns, String> {
        Err("nobody else has it".to_owned())
    }

    fn renew(&self) -> Result<Columns, String> {
        Err("there is no other right".to_owned())
    }

    fn patience(&self) -> Duration {
        self.0
    }
}

#[test]
fn a_mover_that_nobody_can_stand_in_for_is_waited_for_over_the_same_channel() {
    let cluster = Cluster::new(3);
    let mirror = cluster.component(0..u64::MAX, UNIT, Redundancy::Mirror { copies: 2 }, 2);
    let mirror = Layout { generation: 1, components: vec![mirror] };
    for layout in [mirror, cluster.coded(UNIT, 2, 1)] {
        drop(cluster.make(layout.clone()));
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let patience = Duration::from_millis(50);
        let terms = Terms1 { patience, budget: Some(left.clone()), ..Terms1::default() };
        // One is out of date already.
        let stale = BTreeSet::from([1]);
        let open = |secs| {
            let columns = cluster.columns(&layout, &stale, &terms);
            let waits = Arc::new(Waits(Duration::from_secs(secs)));
            Striped::open_with(layout.clone(), columns, Some(waits)).unwrap()
        };
        let (hasty, patient) = (open(0), open(60));
        let patient = patient.gathering(&Arc::new(Room::new(1 << 20)));
        let is_away = |file: &Striped| file.ways().iter().any(|(_, way)| way.channel.is_away());
        // The mover is away when it is asked for something, and comes back later than its channel waits.
        let while_away = |what: &(dyn Fn(&Striped) -> stripe::Result<()> + Sync)| {
            left.store(0, Ordering::SeqCst);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| what(&patient));
                // Who has written knows some of it himself.
                while !is_away(&patient) && !waits.is_finished() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::thread::sleep(Duration::from_millis(200));
                left.store(i64::MAX, Ordering::SeqCst);
                waits.join().unwrap().unwrap();
            });
        };
        let mut model = bytes(50_000, 1);
        while_away(&|file| file.write_at(0, &model));
        let new = bytes(3 * UNIT as usize, 2);
        while_away(&|file| file.write_behind(10_000, &new).and_then(|()| file.flush()));
        model[10_000..10_000 + new.len()].copy_from_slice(&new);
        while_away(&|file| {
            let mut found = vec![0; model.len()];
            file.read_at(0, &mut found).map(|_| assert!(found == model))
        });
        while_away(&Striped::sync);
        while_away(&|file| file.set_length(40_000));
        model.truncate(40_000);
        assert!(read(&cluster.open_but(layout.clone(), &stale, &Terms1::default()), 0, 60_000) == model);
        left.store(0, Ordering::SeqCst);
        assert!(hasty.read_at(0, &mut [0; 100]).is_err() && hasty.write_at(0, &[1; 100]).is_err());
    }
}
