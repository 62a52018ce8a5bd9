//! The drive's own access order against ours, by the drive's own clock.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use sched::{Layout, Mechanics, RecallItem, Wraps, recall_order};
use scsi::{Sense, SenseKey};
use std::ops::ControlFlow;
use tape::Mounted;
use types::Extent;

const BLOCK: u32 = 4096;
const CAPACITY: u64 = 16 << 20;
/// LTO-9, and a hundred thousand times as fast.
const FASTER: f64 = 1e-5;

/// A volume with so many files of a few blocks each, in drive 0.
fn volume(rig: &Rig, files: usize) -> (tape::Drive, Vec<Extent>) {
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    let batch: Vec<Vec<u8>> = (0..files).map(|n| vec![n as u8; 3 * BLOCK as usize]).collect();
    catalogue.append(&mut mounted, &batch).unwrap();
    mounted.unload().unwrap();
    rig.empty_drive();
    let extents = catalogue.files.iter().flat_map(|file| file.extents.clone()).collect();
    drop(drive);
    (rig.load(BARCODE, 0), extents)
}

fn stretches(extents: &[Extent]) -> Vec<(u64, u64)> {
    let last = |e: &Extent| e.start_block + (e.byte_count - 1) / u64::from(BLOCK);
    extents.iter().map(|e| (e.start_block, last(e))).collect()
}

/// Time that the drive spends on its way, reading in this order from the beginning of the data.
fn way_s(rig: &Rig, mounted: &mut Mounted<'_>, extents: &[Extent], order: &[usize]) -> f64 {
    let read = |mounted: &mut Mounted<'_>, n: usize| {
        let _ = mounted.read(&extents[n], &mut |_, _| ControlFlow::Continue(())).unwrap();
    };
    read(mounted, 0);
    let before = rig.library.stats(0).unwrap().positioning;
    order.iter().for_each(|n| read(mounted, *n));
    (rig.library.stats(0).unwrap().positioning - before).as_secs_f64() / FASTER
}

/// Our own order, by the same mechanics: both partitions lie one behind the other on 280 wraps, and the labels before block
/// `base` hold next to nothing.
fn ours(extents: &[Extent], base: u64, from: u64) -> Vec<usize> {
    let wraps = Wraps {
        wrap_blocks: (2 * CAPACITY / u64::from(BLOCK)) as f64 / 280.0,
        count: 140,
        length_s: 124.0,
        change_s: 6.69,
        turn_s: 5.22,
    };
    let model = Mechanics {
        locate_s: 4.29,
        rate: 400e6 * FASTER,
        block_bytes: u64::from(BLOCK),
        layout: Layout::Wraps(wraps),
        ..Mechanics::default()
    };
    let item = |(id, e): (u64, &Extent)| RecallItem {
        id,
        block: e.start_block - base,
        bytes: e.byte_count,
        ..RecallItem::default()
    };
    let items: Vec<RecallItem> = (0..).zip(extents).map(item).collect();
    recall_order(&model, from - base, &items).into_iter().map(|item| item.id as usize).collect()
}

#[test]
fn the_drives_order_is_no_longer_than_ours_and_much_shorter_than_that_of_blocks() {
    let mechanics = vtl::Mechanics::LTO9.scaled(FASTER);
    let rig = Rig::with_mechanics(CAPACITY, 1 << 20, mechanics);
    let (mut drive, all) = volume(&rig, 1000);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    // One in nine, in an order that is none.
    let some: Vec<Extent> = (0..1000).filter(|n| n * 7 % 9 == 1).map(|n| all[n]).collect();
    assert_eq!(mounted.read(&some[0], &mut |_, _| ControlFlow::Continue(())), Ok(ControlFlow::Continue(())));
    let order = mounted.recommended_order(&stretches(&some)).expect("the drive has it");
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let forward: Vec<usize> = (0..some.len()).collect();
    assert_eq!(sorted, forward, "each once");
    let ours = ours(&some, all[0].start_block, mounted.reads_from());
    let [drives, ours, blocks] = [order, ours, forward].map(|order| way_s(&rig, &mut mounted, &some, &order));
    println!("drive {drives:.0} s, ours {ours:.0} s, blocks {blocks:.0} s");
    assert!(drives < 0.6 * blocks, "{drives} s, in order of blocks {blocks} s");
    assert!(drives <= 1.05 * ours, "{drives} s, ours {ours} s");
}

#[test]
fn a_drive_that_has_no_order_or_refuses_is_not_asked_again_and_reads_all_the_same() {
    let rig = Rig::new(CAPACITY, 1 << 20);
    let (mut drive, extents) = volume(&rig, 10);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let wanted = stretches(&extents);
    assert_eq!(mounted.recommended_order(&wanted), Some((0..10).collect()), "all ways take no time: forward");
    for opcode in [0xA3, 0xA4] {
        rig.wire().answer = Some((opcode, Sense::new(SenseKey::IllegalRequest, 0x20, 0x00)));
        assert_eq!(mounted.recommended_order(&wanted), None);
    }
    assert_eq!(mounted.recommended_order(&[(0, 1), (5, 1 << 40)]), None, "beyond the data");
    assert_eq!(mounted.recommended_order(&vec![(0, 0); 1001]), None, "too many");
    let _ = mounted.read(&extents[3], &mut |_, _| ControlFlow::Continue(())).unwrap();
}
