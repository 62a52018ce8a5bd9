//! Volumes that end long before they should, several at once: every file that fits somewhere gets its copies, and what does
//! not fit is named.

use crate::support::medium::counted_copies_are_there;
use crate::support::{Bed, pattern};
use node::Size;
use types::*;
use vtl::Fault;
use wire::Call;

const MIB: u64 = 1 << 20;
/// Nominal capacity of a cartridge.
const CAPACITY: u64 = 24 * MIB;

struct Files(Vec<(Ino, String, Vec<u8>)>);

impl Files {
    fn write(bed: &Bed, sizes: &[usize]) -> Self {
        let one = |(n, size): (usize, &usize)| {
            let (name, data) = (format!("f{n}"), pattern(*size, n as u64));
            (bed.write(&name, &data), format!("/{name}"), data)
        };
        Self(sizes.iter().enumerate().map(one).collect())
    }

    fn are_on_tape_and_come_back(&self, bed: &Bed, copies: usize) {
        for (_, path, data) in &self.0 {
            assert_eq!(counted_copies_are_there(bed, path, data), copies, "{path}");
        }
        let purged = bed.act(Call::Purge(bed.all()));
        assert_eq!(purged.state, RequestState::Done, "{:?}", bed.items(purged.id));
        for (ino, path, data) in &self.0 {
            assert!(bed.read(*ino) == *data, "{path} is not what was written");
        }
        bed.settle();
        assert_eq!(bed.check(false).findings, []);
    }
}

fn barcode(n: usize) -> String {
    format!("TC{n:04}L9")
}

/// All volumes are labelled, so that everybody believes in their nominal capacity; then it turns out that each ends after
/// so many bytes (0: where it should).
fn bed(copies: usize, ends: &[u64]) -> Bed {
    let bed = Bed::in_memory(|c| {
        c.library.cartridges = ends.len() as u16;
        c.library.slots = ends.len() as u16;
        c.library.cartridge_capacity = Size(CAPACITY);
        c.classes[0].copies.truncate(copies);
        c.tape.block_size = Size(64 << 10);
        c.tape.idle_unmount_s = 0;
        c.tape.flush_files = 4;
    });
    let volumes = (1..=ends.len()).map(|n| Barcode::from(barcode(n).as_str())).collect();
    let label = Call::Label { volumes, pool: None, force: false, key: None };
    assert_eq!(bed.act(label).state, RequestState::Done);
    for (n, bytes) in ends.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        bed.node.virtual_library().inject(Fault::EarlyEnd { barcode: barcode(n + 1), bytes: *bytes });
    }
    bed
}

fn migrates(copies: usize, ends: &[u64], sizes: &[usize]) {
    let bed = bed(copies, ends);
    let files = Files::write(&bed, sizes);
    let request = bed.begin(Call::Migrate(bed.all())).request.id;
    let ended = bed.wait(request);
    assert_eq!(
        ended.state,
        RequestState::Done,
        "copies {copies}, ends {ends:?}, sizes {sizes:?}: {:?} {:#?} {:?}",
        bed.items(request),
        bed.status(),
        bed.volumes()
    );
    files.are_on_tape_and_come_back(&bed, copies);
    bed.node.stop(true);
}

/// None of these volumes can take the file as a whole (2 MiB and a bit are kept for the index), and nobody knows before.
#[test]
fn a_file_that_no_volume_takes_as_a_whole_is_split() {
    let five = 5 * MIB as usize;
    migrates(1, &[6 * MIB; 5], &[five, 1000, five]);
}

/// After the first volume has ended early it is clear that the others cannot take the rest of the file: it is named, and the
/// room that is left goes to a file that fits. Both end early, because either may be the first.
#[test]
fn what_does_not_fit_is_named_and_the_rest_is_copied() {
    let bed = bed(1, &[6 * MIB; 2]);
    let files = Files::write(&bed, &[28 * MIB as usize, 1000]);
    let large = bed.act(Call::Migrate(bed.one("/f0")));
    assert_eq!(large.state, RequestState::Failed);
    let [ItemState::Failed(why)] = &bed.items(large.id)[..] else { panic!("no reason") };
    assert!(why.contains("more bytes, but the volumes of pool primary take only"), "{why}");
    assert!(bed.status().warnings.iter().any(|w| w.contains("/f0")), "{:?}", bed.status().warnings);
    assert_eq!(bed.act(Call::Migrate(bed.one("/f1"))).state, RequestState::Done);
    let (_, path, data) = &files.0[1];
    assert_eq!(counted_copies_are_there(&bed, path, data), 1);
    bed.node.stop(true);
}

/// Random ends and sizes, of which all fit.
#[test]
fn every_file_that_fits_gets_its_copies() {
    for seed in 1..4u64 {
        let mut state = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let copies = 1 + below(2) as usize;
        let ends: Vec<u64> = (0..12).map(|_| if below(5) == 0 { 0 } else { (5 + below(8)) * MIB }).collect();
        // Kept for the index, rounding of the drive's own estimate, and pools with a volume each that is not full.
        let data = |end: &u64| if *end == 0 { CAPACITY / 2 } else { *end - 4 * MIB };
        let room: u64 = ends.iter().map(data).sum();
        let (mut sizes, mut total) = (Vec::new(), 0);
        loop {
            let size = match below(4) {
                0 => below(8 * MIB),
                1 => below(5 * MIB),
                _ => below(400_000),
            };
            total += size * copies as u64;
            if total > room / 2 {
                break;
            }
            sizes.push(size as usize);
        }
        println!("seed {seed}: {} files", sizes.len());
        migrates(copies, &ends, &sizes);
    }
}
