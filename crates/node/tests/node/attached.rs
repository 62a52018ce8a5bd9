//! Attached libraries of a node that runs get more drives and others, and so does the node more libraries. Virtual ones in this process play them, behind sockets.

use crate::reload::reload;
use crate::support::{Bed, pattern};
use node::attached::{AttachedDrive, AttachedLibrary, Device};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::*;
use vtl::{Library, Mechanics, Server, VtlConfig, serve};
use wire::{Call, PoolChange, Reply};

/// Bytes per second of a drive that is to be at work for a while.
const SLOW: u64 = 8 << 20;

struct Hall {
    name: &'static str,
    dir: PathBuf,
    rate: u64,
    library: Arc<Library>,
    server: Server,
}

impl Hall {
    fn new(dir: &Path, name: &'static str) -> Self {
        Self::with(dir, name, 0)
    }

    fn with(dir: &Path, name: &'static str, rate: u64) -> Self {
        let dir = dir.join(name);
        let library = Self::open(&dir, (name, name), rate);
        let server = serve(library.clone(), &dir.join("sockets")).unwrap();
        Self { name, dir, rate, library, server }
    }

    fn open(dir: &Path, (name, serial): (&str, &str), rate: u64) -> Arc<Library> {
        let stream_bytes_per_s = Some(rate).filter(|rate| *rate > 0);
        let config = VtlConfig {
            capacity_bytes: 64 << 20,
            buffer_bytes: 1 << 20,
            mechanics: Mechanics { stream_bytes_per_s, ..Mechanics::ZERO },
            serial: serial.into(),
            prefix: format!("T{name}"),
            cartridges: 4,
            ..VtlConfig::new(dir.join("library"))
        };
        // Connections of a server before let go of the library when they see that it has ended.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Library::open(config.clone()) {
                Ok(library) => return library,
                Err(why) => assert!(Instant::now() < deadline, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Other drives take the places of all that it has.
    fn replace_drives(self) -> Self {
        let Self { name, dir, rate, library, server } = self;
        drop((library, server));
        let library = Self::open(&dir, (name, "NEW"), rate);
        let server = serve(library.clone(), &dir.join("sockets")).unwrap();
        Self { name, dir, rate, library, server }
    }

    fn drive(&self, n: u16, sockets: &str, serial: &str) -> AttachedDrive {
        let device = format!("unix:{}", self.dir.join(sockets).join(format!("drive{n}.sock")).display());
        AttachedDrive {
            device: Device(device.parse().unwrap()),
            serial: Some(format!("{serial}D0{n}")),
            element: Some(n + 1),
            path: None,
        }
    }

    /// What a configuration says of it, with so many of its drives.
    fn section(&self, drives: u16) -> AttachedLibrary {
        AttachedLibrary {
            name: self.name.into(),
            changer: Device(
                format!("unix:{}", self.dir.join("sockets/changer.sock").display()).parse().unwrap(),
            ),
            serial: None,
            drives: (0..drives).map(|n| self.drive(n, "sockets", self.name)).collect(),
        }
    }

    fn loads(&self) -> u64 {
        (0..2).map(|n| self.library.stats(n).unwrap().loads).sum()
    }
}

fn bed(libraries: &[AttachedLibrary]) -> Bed {
    Bed::with(|c| {
        c.libraries = libraries.to_vec();
        c.tape.drive_retry_s = 0;
        c.tape.block_size = node::Size(64 << 10);
        c.classes[0].copies = vec!["primary".into()];
    })
}

/// What was taken over, and what comes later.
fn change(bed: &Bed, libraries: &[AttachedLibrary]) -> (bool, bool) {
    let told = reload(bed, |c| c.libraries = libraries.to_vec());
    let only = |keys: &[String]| match keys {
        [] => false,
        [key] if key == "libraries" => true,
        other => panic!("{other:?}"),
    };
    (only(&told.taken), only(&told.later))
}

/// The same where drives that could not be opened are tried now and then: while one just is, nothing of its library changes.
fn changed_in_the_end(bed: &Bed, libraries: &[AttachedLibrary]) {
    bed.until("no drive is just tried", |bed| change(bed, libraries) == (true, false));
}

fn set(bed: &Bed, drive: u16, up: bool) -> Result<(), wire::Failure> {
    bed.try_call(Call::SetDrive { drive: DriveNo(drive), up }).map(drop)
}

fn down(bed: &Bed, drive: u16) {
    set(bed, drive, false).unwrap();
    bed.until("it is out of use", |b| b.drives()[usize::from(drive)].status == DriveStatus::Down);
}

fn device(bed: &Bed, drive: u16) -> String {
    match bed.call(Call::DriveDetails(DriveNo(drive))) {
        Reply::DriveDetails(details) => details.device,
        other => panic!("{other:?}"),
    }
}

fn usable(bed: &Bed) -> usize {
    let out = |status: &DriveStatus| matches!(status, DriveStatus::Suspect(_) | DriveStatus::Down);
    bed.drives().iter().filter(|drive| !out(&drive.status)).count()
}

fn warned(bed: &Bed, text: &str) -> bool {
    bed.status().warnings.iter().any(|w| w.contains(text))
}

/// A file of this content is written to tape, and comes back from there.
fn goes_and_comes(bed: &Bed, name: &str) {
    let data = pattern(300_000, 7);
    let ino = bed.write(name, &data);
    bed.migrate_and_purge();
    assert!(bed.read(ino) == data);
}

#[test]
fn a_library_that_is_added_is_used_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Hall::new(dir.path(), "A"), Hall::new(dir.path(), "B"));
    let bed = bed(&[first.section(2)]);
    goes_and_comes(&bed, "f");
    assert_eq!(change(&bed, &[first.section(2), second.section(2)]), (true, false));
    bed.until("its drives are in use", |b| usable(b) == 4);
    let change = PoolChange { library: Some("B".into()), ..PoolChange::default() };
    bed.call(Call::SetPool { name: PoolName::from("primary"), create: false, change });
    goes_and_comes(&bed, "g");
    assert!(bed.volumes_of("/g").iter().all(|volume| volume.as_str().starts_with("TB")));
    assert!(second.loads() > 0 && bed.drives()[2].library == "B");
    assert_eq!(bed.check(true).findings, []);
    // As after a start with it.
    let numbers = |b: &Bed| b.drives().into_iter().map(|d| (d.drive, d.serial)).collect::<Vec<_>>();
    let before = numbers(&bed);
    bed.node.stop(true);
    let config =
        node::Config { libraries: vec![first.section(2), second.section(2)], ..bed.node.config().clone() };
    let Bed { dir: state, node } = bed;
    drop(node);
    let bed = Bed { dir: state, node: crate::support::Running::start(config) };
    assert_eq!(numbers(&bed), before);
}

/// It is dead, and there is a mistake in what is said of it: both are put right while the node runs.
#[test]
fn a_library_that_is_added_may_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Hall::new(dir.path(), "A"), Hall::new(dir.path(), "B"));
    let bed = bed(&[first.section(2)]);
    let mut wrong = second.section(1);
    wrong.drives[0].element = Some(99);
    assert_eq!(change(&bed, &[first.section(2), wrong]), (true, false));
    bed.until("it is told", |b| {
        warned(b, "library B cannot be used") && warned(b, "has no drive element 99")
    });
    assert_eq!((usable(&bed), bed.drives().len()), (2, 3));
    goes_and_comes(&bed, "f");
    assert_eq!(change(&bed, &[first.section(2), second.section(2)]), (true, false));
    bed.until("it is in use", |b| usable(b) == 4);
}

#[test]
fn a_drive_that_is_added_gets_work_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let hall = Hall::new(dir.path(), "A");
    let bed = bed(&[hall.section(1)]);
    goes_and_comes(&bed, "f");
    let mut wrong = hall.section(2);
    wrong.drives[1].element = Some(99);
    assert_eq!(change(&bed, &[wrong]), (true, false));
    bed.until("it is told", |b| warned(b, "has no drive element 99"));
    assert_eq!(bed.drives().len(), 1);
    assert_eq!(change(&bed, &[hall.section(2)]), (true, false));
    bed.until("it is there", |b| b.drives().len() == 2 && usable(b) == 2);
    down(&bed, 0);
    goes_and_comes(&bed, "g");
    assert!(hall.library.stats(1).unwrap().loads > 0);
    set(&bed, 0, true).unwrap();
    assert_eq!(usable(&bed), 2);
}

/// Neither by a change, nor at a start with it.
#[test]
fn a_mistake_in_one_drive_keeps_no_other_out_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let hall = Hall::new(dir.path(), "A");
    let bed = bed(&[hall.section(1)]);
    let mut wrong = hall.section(2);
    let nowhere = AttachedDrive { element: Some(99), ..hall.drive(7, "sockets", "A") };
    wrong.drives.insert(1, nowhere);
    assert_eq!(change(&bed, &[wrong.clone()]), (true, false));
    let numbers = |b: &Bed| b.drives().iter().map(|drive| drive.drive.0).collect::<Vec<_>>();
    let told = |b: &Bed| warned(b, "cannot be used (1)") && warned(b, "has no drive element 99");
    bed.until("the one behind it is there, and it is told", |b| usable(b) == 2 && told(b));
    assert_eq!(numbers(&bed), [0, 2]);
    goes_and_comes(&bed, "f");
    bed.node.stop(true);
    let config = node::Config { libraries: vec![wrong], ..bed.node.config().clone() };
    let Bed { dir: state, node } = bed;
    drop(node);
    let bed = Bed { dir: state, node: crate::support::Running::start(config) };
    assert_eq!((numbers(&bed), usable(&bed)), (vec![0, 2], 2));
    bed.until("it is told", told);
    goes_and_comes(&bed, "g");
}

/// With addresses or serial numbers of each other.
#[test]
fn drives_that_could_never_be_opened_are_looked_for_anew() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third, fourth] = ["A", "B", "C", "D"].map(|name| Hall::new(dir.path(), name));
    let bed = bed(&[first.section(2)]);
    let with_serials_exchanged = |mut section: AttachedLibrary| {
        let [one, other] = &mut section.drives[..] else { panic!("two drives") };
        std::mem::swap(&mut one.serial, &mut other.serial);
        section
    };
    let by_serial = |mut section: AttachedLibrary| {
        section.drives.iter_mut().for_each(|drive| drive.element = None);
        section
    };
    let reversed = |mut section: AttachedLibrary| {
        section.drives.reverse();
        section
    };
    // The library says that they are elsewhere: it has no place for either.
    let mut libraries = vec![first.section(2), with_serials_exchanged(second.section(2))];
    assert_eq!(change(&bed, &libraries), (true, false));
    bed.until("it is told", |b| warned(b, "library B cannot be used") && warned(b, "BD00 in element 1"));
    libraries[1] = second.section(2);
    assert_eq!(change(&bed, &libraries), (true, false));
    bed.until("they are in use", |b| usable(b) == 4);
    // It says where they are, and there are others at these addresses: then the addresses are mended ...
    libraries.push(by_serial(with_serials_exchanged(third.section(2))));
    assert_eq!(change(&bed, &libraries), (true, false));
    bed.until("they are tried", |b| b.drives().len() == 6 && warned(b, "its serial number is CD00"));
    assert_eq!(usable(&bed), 4);
    libraries[2] = by_serial(reversed(third.section(2)));
    changed_in_the_end(&bed, &libraries);
    (4..6).for_each(|n| set(&bed, n, true).unwrap());
    assert_eq!([4, 5].map(|n| bed.drives()[n].serial.clone()), ["CD01", "CD00"]);
    // ... or the serial numbers, and they have the elements of each other.
    libraries.push(by_serial(with_serials_exchanged(fourth.section(2))));
    assert_eq!(change(&bed, &libraries), (true, false));
    bed.until("they are tried", |b| b.drives().len() == 8 && warned(b, "its serial number is DD00"));
    libraries[3] = by_serial(fourth.section(2));
    changed_in_the_end(&bed, &libraries);
    bed.until("they are in use", |b| usable(b) == 8);
    assert_eq!([6, 7].map(|n| bed.drives()[n].serial.clone()), ["DD00", "DD01"]);
    let change = PoolChange { library: Some("D".into()), ..PoolChange::default() };
    bed.call(Call::SetPool { name: PoolName::from("primary"), create: false, change });
    goes_and_comes(&bed, "f");
    assert!(fourth.loads() > 0);
    // They have been opened: what would make them each other's waits for the next start.
    libraries[3] = by_serial(with_serials_exchanged(fourth.section(2)));
    assert_eq!(self::change(&bed, &libraries), (false, true));
}

#[test]
fn a_drive_that_takes_the_place_of_another_one_is_used_once_the_configuration_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let hall = Hall::new(dir.path(), "A");
    let bed = bed(&[hall.section(2)]);
    goes_and_comes(&bed, "f");
    (0..2).for_each(|n| down(&bed, n));
    let hall = hall.replace_drives();
    // The connection to the robot has ended with the power, as the first command notices.
    let _ = bed.try_call(Call::Inventory { library: None, audit: false });
    let why = set(&bed, 0, true).unwrap_err().message;
    assert!(why.contains("its serial number is NEWD00, and the configuration says AD00"), "{why}");
    let _other_way = serve(hall.library.clone(), &hall.dir.join("other")).unwrap();
    let mut now = hall.section(2);
    // The library says that this one is in the other element.
    now.drives[0] = AttachedDrive { element: Some(1), ..hall.drive(1, "other", "NEW") };
    assert_eq!(change(&bed, &[now.clone()]), (true, false));
    let why = set(&bed, 0, true).unwrap_err().message;
    assert!(why.contains("NEWD00 in element 1, not serial number NEWD01"), "{why}");
    for n in 0..2 {
        now.drives[n] = hall.drive(n as u16, "sockets", "NEW");
        assert_eq!(change(&bed, &[now.clone()]), (true, false));
    }
    (0..2).for_each(|n| set(&bed, n, true).unwrap());
    assert_eq!(bed.drives()[1].serial, "NEWD01");
    goes_and_comes(&bed, "g");
    assert!(hall.loads() > 0);
}

#[test]
fn what_would_change_numbers_waits_for_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Hall::new(dir.path(), "A"), Hall::new(dir.path(), "B"));
    let bed = bed(&[first.section(2)]);
    let swapped = |mut section: AttachedLibrary| {
        section.drives.reverse();
        section
    };
    let other_place = |mut section: AttachedLibrary| {
        section.drives[0].element = Some(9);
        section
    };
    for libraries in [
        vec![swapped(first.section(2))],
        vec![first.section(1)],
        vec![second.section(2), first.section(2)],
        vec![AttachedLibrary { name: "hall".into(), ..first.section(2) }, second.section(2)],
        vec![other_place(first.section(2))],
        vec![],
    ] {
        assert_eq!(change(&bed, &libraries), (false, true), "{libraries:?}");
    }
    assert_eq!(bed.drives().len(), 2);
    // A part counts now.
    assert_eq!(change(&bed, &[other_place(first.section(2)), second.section(1)]), (true, true));
    bed.until("the other library is in use", |b| usable(b) == 3);
    goes_and_comes(&bed, "f");
}

#[test]
fn a_drive_at_work_does_not_notice() {
    let dir = tempfile::tempdir().unwrap();
    let hall = Hall::with(dir.path(), "A", SLOW);
    let _other_way = serve(hall.library.clone(), &hall.dir.join("other")).unwrap();
    let bed = bed(&[hall.section(1)]);
    let data = pattern(32 << 20, 3);
    let ino = bed.write("f", &data);
    let is = |b: &Bed, status: DriveStatus| b.drives()[0].status == status;
    let elsewhere = |drives: u16, serial: &str| {
        let mut section = hall.section(drives);
        section.drives[0] = hall.drive(0, "other", serial);
        section
    };
    let request = bed.begin(Call::Migrate(bed.all())).request.id;
    bed.until("it writes", |b| is(b, DriveStatus::Migrating));
    // Another address, another drive, and one more.
    assert_eq!(change(&bed, &[elsewhere(1, "XX")]), (true, false));
    assert_eq!(change(&bed, &[elsewhere(2, "A")]), (true, false));
    bed.until("the other one is there", |b| b.drives().len() == 2);
    assert!(is(&bed, DriveStatus::Migrating), "{:?}", bed.drives());
    assert!(device(&bed, 0).contains("/sockets/"));
    assert_eq!(bed.wait(request).state, RequestState::Done);
    bed.act(Call::Purge(bed.all()));
    down(&bed, 1);
    let back = std::thread::scope(|scope| {
        let reading = scope.spawn(|| bed.read(ino));
        bed.until("it reads", |b| is(b, DriveStatus::Recalling));
        assert_eq!(change(&bed, &[elsewhere(2, "XX")]), (true, false));
        reading.join().unwrap()
    });
    assert!(back == data);
    assert!(bed.drives().iter().all(|drive| drive.errors == 0), "{:?}", bed.drives());
    // From its next opening on it is the one of the configuration.
    down(&bed, 0);
    let why = set(&bed, 0, true).unwrap_err().message;
    assert!(why.contains("AD00 in element 1, not serial number XXD00"), "{why}");
    assert_eq!(change(&bed, &[elsewhere(2, "A")]), (true, false));
    set(&bed, 0, true).unwrap();
    assert!(device(&bed, 0).contains("/other/"));
    assert!(bed.read(ino) == data);
}
