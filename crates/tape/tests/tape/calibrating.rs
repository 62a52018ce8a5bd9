//! Loads that take long, as those of new LTO-9 media do, are told to whoever watches.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tape::{Changer, Drive, SlowLoad};
use vtl::{Library, Mechanics, VirtualClock, VtlConfig};

#[test]
fn the_first_load_of_a_cartridge_is_waited_for_and_told_with_its_progress() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let config = VtlConfig {
        mechanics: Mechanics::LTO9,
        calibration: Duration::from_secs(3600),
        cartridges: 1,
        ..VtlConfig::new(dir.path())
    };
    let library = Library::open_with_clock(config, clock.clone()).unwrap();
    let sleeper = || -> tape::Sleeper {
        let clock = clock.clone();
        Box::new(move |time| clock.advance(time))
    };
    let told: Arc<Mutex<Vec<Option<SlowLoad>>>> = Arc::default();
    let seen = told.clone();
    let watcher: tape::Watcher = Arc::new(move |load| seen.lock().unwrap().push(load));
    let mut changer = Changer::open(Box::new(library.changer()), sleeper()).unwrap();
    let mut drive = Drive::open(Box::new(library.drive(0)), sleeper()).unwrap().watched(watcher);
    changer.inventory().unwrap();
    changer.move_medium(1001, 1).unwrap();
    drive.mount(None).unwrap().unload().unwrap();
    let first = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(first.last(), Some(&None));
    let loads: Vec<SlowLoad> = first.into_iter().flatten().collect();
    assert_eq!(loads[0].waited, Duration::from_secs(120));
    assert!(loads.len() > 3000, "{}", loads.len());
    let share = |load: &SlowLoad| f64::from(load.progress.unwrap()) / 256.0;
    assert!((share(&loads[0]) - 120.0 / 3616.0).abs() < 0.01, "{:?}", loads[0]);
    assert!(loads.is_sorted_by_key(|load| load.progress) && share(&loads[loads.len() - 1]) > 0.99);
    changer.move_medium(1, 1001).unwrap();
    changer.move_medium(1001, 1).unwrap();
    drive.mount(None).unwrap();
    assert!(told.lock().unwrap().iter().all(Option::is_none), "it is calibrated once in its life");
}
