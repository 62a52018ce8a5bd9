//! What of other `[[libraries]]` counts for a node that runs.

use super::{AttachedDrive, AttachedLibrary};
use types::DriveNo;

/// A drive as it is used.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub(crate) no: DriveNo,
    pub(crate) drive: AttachedDrive,
    /// It was opened, or just is. One that never was may turn out to be another one of its library.
    pub(crate) opened: bool,
}

/// The libraries that are in force once `new` ones were read: what of these counts at once, and the rest as it was. Drives are known by their numbers, which stay:
/// what is new comes behind all that is there, and nothing goes. `is_placed`: whether a drive has its element already, and that cannot be another one any more.
/// Those of a library that were never opened may be each other's.
pub(crate) fn in_force(
    old: &[AttachedLibrary],
    new: &[AttachedLibrary],
    is_placed: &dyn Fn(DriveNo) -> bool,
    used: &[Used],
) -> Vec<AttachedLibrary> {
    let is_opened = |no: u16| used.iter().any(|used| used.no.0 == no && used.opened);
    let mut now = old.to_vec();
    // Virtual ones until the next start.
    let Some(last) = now.len().checked_sub(1) else { return now };
    let (mut first, mut all) = (0, true);
    for (n, library) in now.iter_mut().enumerate() {
        let numbers = first..first + library.drives.len() as u16;
        first = numbers.end;
        let opened = |at: usize| is_opened(numbers.start + at as u16);
        let Some(new) = new.get(n).filter(|new| has_all_of(old, (n, &opened), new)) else {
            all = false;
            continue;
        };
        for (no, (drive, new)) in numbers.zip(library.drives.iter_mut().zip(&new.drives)) {
            let moves = matches!((drive.element, new.element), (Some(a), Some(b)) if a != b);
            if !moves || !is_placed(DriveNo(no)) {
                drive.clone_from(new);
            }
        }
    }
    if all {
        let known = now[last].drives.len();
        now[last].drives.extend(new[last].drives.iter().skip(known).cloned());
        now.extend(new.iter().skip(old.len()).cloned());
    }
    now
}

/// Whether one of these would be opened as a drive, or where a drive is, that another one is used as until it is opened anew. Within a library that concerns
/// drives that were opened: no two of it are opened as the same.
pub(crate) fn meet_used(libraries: &[AttachedLibrary], used: &[Used]) -> bool {
    let numbered =
        libraries.iter().enumerate().flat_map(|(n, one)| one.drives.iter().map(move |drive| (n, drive)));
    let all: Vec<(DriveNo, usize, &AttachedDrive)> =
        (0..).map(DriveNo).zip(numbered).map(|(no, (n, drive))| (no, n, drive)).collect();
    let library_of = |no: DriveNo| all.iter().find(|(other, ..)| *other == no).map(|(_, n, _)| *n);
    let meets = |no: DriveNo, n: usize, drive: &AttachedDrive, used: &Used| {
        used.no != no && used.drive.meets(drive) && (used.opened || library_of(used.no) != Some(n))
    };
    all.iter().any(|(no, n, drive)| used.iter().any(|used| meets(*no, *n, drive, used)))
}

/// Whether a new library is the one of this number, with a drive in the place of each that it had: the same, one that is new, or another one of it where neither
/// was ever `opened`.
fn has_all_of(
    old: &[AttachedLibrary],
    (n, opened): (usize, &dyn Fn(usize) -> bool),
    new: &AttachedLibrary,
) -> bool {
    let library = &old[n];
    let same = (&library.name, &library.changer, &library.serial) == (&new.name, &new.changer, &new.serial);
    let places = |drive: &AttachedDrive| {
        let drives = old
            .iter()
            .enumerate()
            .flat_map(|(n, library)| library.drives.iter().enumerate().map(move |(at, one)| (n, at, one)));
        drives.filter(|(.., one)| one.is(drive)).map(|(n, at, _)| (n, at)).collect::<Vec<_>>()
    };
    let may_be_at = |place: (usize, usize), at: usize| {
        place == (n, at) || (place.0 == n && !opened(place.1) && !opened(at))
    };
    same && library.drives.len() <= new.drives.len()
        && new
            .drives
            .iter()
            .enumerate()
            .all(|(at, drive)| places(drive).iter().all(|place| may_be_at(*place, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn drive(device: &str, serial: &str, element: u16) -> String {
        format!(
            "[[libraries.drives]]\ndevice = \"unix:/{device}\"\nserial = \"{serial}\"\nelement = {element}\n"
        )
    }

    fn library(name: &str, drives: &[String]) -> String {
        format!("[[libraries]]\nname = \"{name}\"\nchanger = \"unix:/{name}\"\n{}", drives.concat())
    }

    fn read(text: &[String]) -> Vec<AttachedLibrary> {
        Config::parse(&text.concat()).unwrap().libraries
    }

    fn now(old: &[AttachedLibrary], new: &[AttachedLibrary]) -> Vec<AttachedLibrary> {
        in_force(old, new, &|_| true, &used(old))
    }

    /// All were opened.
    fn used(libraries: &[AttachedLibrary]) -> Vec<Used> {
        let all = (0..).map(DriveNo).zip(libraries.iter().flat_map(|one| one.drives.clone()));
        all.map(|(no, drive)| Used { no, drive, opened: true }).collect()
    }

    /// Two drives each.
    fn two() -> [[String; 2]; 2] {
        [["a", "b"], ["c", "d"]]
            .map(|names| [(names[0], 1), (names[1], 2)].map(|(name, at)| drive(name, name, at)))
    }

    #[test]
    fn what_is_new_counts_behind_what_is_there() {
        let [a, b] = two();
        let old = read(&[library("one", &a), library("two", &b)]);
        let longer = [&b[..], &[drive("e", "e", 3)]].concat();
        let new =
            read(&[library("one", &a), library("two", &longer), library("three", &[drive("f", "f", 1)])]);
        assert_eq!(now(&old, &new), new);
        // Numbers behind it would be others.
        let longer = [&a[..], &[drive("e", "e", 3)]].concat();
        let new = read(&[library("one", &longer), library("two", &b)]);
        assert_eq!(now(&old, &new), old);
        assert_eq!(now(&[], &new), [], "virtual ones are used");
        assert_eq!(now(&old, &[]), old);
    }

    #[test]
    fn another_drive_takes_the_place_of_one() {
        let [a, b] = two();
        let old = read(&[library("one", &a), library("two", &b)]);
        let new = read(&[
            library("one", &[a[0].clone(), drive("b", "x", 2)]),
            library("two", &[drive("y", "c", 1), b[1].clone()]),
        ]);
        assert_eq!(now(&old, &new), new);
        // Device names that were given to each other's drives.
        let new = read(&[library("one", &[drive("b", "a", 1), drive("a", "b", 2)]), library("two", &b)]);
        assert_eq!(now(&old, &new), new);
        let new = read(&[library("one", &[drive("a", "a", 7), drive("b", "x", 2)]), library("two", &b)]);
        let expected = read(&[library("one", &[a[0].clone(), drive("b", "x", 2)]), library("two", &b)]);
        assert_eq!(now(&old, &new), expected, "where cartridges are put for it stays");
        assert_eq!(in_force(&old, &new, &|_| false, &used(&old)), new, "nobody has put any there yet");
    }

    #[test]
    fn nothing_is_opened_where_another_drive_is_at_work() {
        let [a, b] = two();
        let old = read(&[library("one", &a), library("two", &b)]);
        let used = used(&old);
        assert!(!meet_used(&old, &used));
        let one = |at: &str, serial: &str| read(&[library("new", &[drive(at, serial, 2)])]);
        let replaced = |at: &str, serial: &str| {
            let mut libraries = old.clone();
            libraries[0].drives[1] = one(at, serial)[0].drives[0].clone();
            libraries
        };
        assert!(!meet_used(&replaced("x", "x"), &used) && !meet_used(&replaced("b", "x"), &used));
        assert!(meet_used(&replaced("a", "x"), &used) && meet_used(&replaced("x", "c"), &used));
        // It was replaced, and is still used as it was.
        let new = [("b", "y"), ("y", "b"), ("y", "y")]
            .map(|(at, serial)| meet_used(&[replaced("x", "x"), one(at, serial)].concat(), &used));
        assert_eq!(new, [true, true, false]);
    }

    #[test]
    fn drives_that_were_never_opened_may_be_each_others() {
        let [a, b] = two();
        let old = read(&[library("one", &a), library("two", &b)]);
        let exchanged =
            |first: &[String], second: &[String]| read(&[library("one", first), library("two", second)]);
        let serials = exchanged(&[drive("a", "b", 1), drive("b", "a", 2)], &b);
        let addresses = exchanged(&[drive("b", "a", 1), drive("a", "b", 2)], &b);
        let elements = exchanged(&[drive("a", "a", 2), drive("b", "b", 1)], &b);
        let mut used = used(&old);
        let taken = |new: &[AttachedLibrary], used: &[Used]| {
            let is_placed = |no: DriveNo| used.iter().any(|used| used.no == no && used.opened);
            let now = in_force(&old, new, &is_placed, used);
            now == new && !meet_used(&now, used)
        };
        for (opened, wanted) in [([true, true], false), ([true, false], false), ([false, false], true)] {
            for n in 0..2 {
                used[n].opened = opened[n];
            }
            let taken = [&serials, &addresses, &elements].map(|new| taken(new, &used));
            assert_eq!(taken, [wanted; 3], "{opened:?}");
        }
        // Those of another library are opened by others.
        used.iter_mut().for_each(|used| used.opened = false);
        let across = exchanged(&[drive("c", "c", 1), a[1].clone()], &[drive("a", "a", 1), b[1].clone()]);
        assert!(!taken(&across, &used));
        let device = exchanged(&[drive("x", "a", 1), a[1].clone()], &[drive("a", "c", 1), b[1].clone()]);
        assert!(!taken(&device, &used));
    }

    #[test]
    fn what_would_give_drives_other_numbers_waits_for_the_next_start() {
        let [a, b] = two();
        let old = read(&[library("one", &a), library("two", &b)]);
        let x = drive("x", "x", 3);
        let swapped = [a[1].clone(), a[0].clone()];
        for new in [
            vec![library("two", &b), library("one", &a)],
            vec![library("one", &swapped), library("two", &b)],
            vec![library("one", &[x.clone(), a[0].clone(), a[1].clone()]), library("two", &b)],
            vec![library("one", &a[1..]), library("two", &[&b[..], std::slice::from_ref(&x)].concat())],
            vec![library("one", &a), library("two", &b[..1])],
            vec![library("one", &a)],
            vec![library("other", &a), library("two", &b), library("three", &[x])],
        ] {
            let new = read(&new);
            assert_eq!(now(&old, &new), old, "{new:?}");
        }
    }
}
