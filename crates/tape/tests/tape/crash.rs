//! Power fails at every single command of a session, with any part of the drive's buffer lost: what was recorded stays
//! readable, an index stays whole, and work goes on without help.

use crate::support::catalogue::{Catalogue, File, barcode, indexed_files, read_file, spec};
use crate::support::rig::{BARCODE, Rig};
use format::ltfs::mam::Coherency;
use tape::{Drive, LabelState, Onto, Overwrite, Result};

const BLOCK: u32 = 4096;

fn batch(n: usize) -> Vec<Vec<u8>> {
    (0..4).map(|i| vec![(n * 16 + i) as u8; 1500 * (n + i)]).collect()
}

/// A session of everything; `catalogue` keeps what was recorded when the power fails.
fn session(drive: &mut Drive, catalogue: &mut Option<Catalogue>, indexed: &mut usize) -> Result<()> {
    let mut mounted = drive.mount(Some(&barcode()))?;
    let catalogue = catalogue.insert(Catalogue::format(&mut mounted, BLOCK)?);
    catalogue.append(&mut mounted, &batch(1))?;
    catalogue.index(&mut mounted)?;
    *indexed = catalogue.files.len();
    catalogue.append(&mut mounted, &batch(2))?;
    catalogue.index_onto(&mut mounted, Onto::Data)?;
    *indexed = catalogue.files.len();
    catalogue.append(&mut mounted, &batch(3))?;
    mounted.unload()?;
    let mut mounted = drive.mount(Some(&barcode()))?;
    catalogue.append(&mut mounted, &batch(4))?;
    catalogue.index(&mut mounted)?;
    *indexed = catalogue.files.len();
    mounted.unload()?;
    Ok(())
}

/// Everything in the newest index can be read, and it holds at least the first `at_least` files.
fn index_is_good(mounted: &mut tape::Mounted<'_>, files: &[File], at_least: usize) {
    let (_, _, found) = indexed_files(mounted);
    assert!(found.len() >= at_least, "{} of {at_least} files in the index", found.len());
    for ((name, length, extents), file) in found.iter().zip(files) {
        assert_eq!((name, *length), (&file.name, file.bytes.len() as u64));
        assert_eq!(read_file(mounted, *length as usize, extents), file.bytes);
    }
}

/// What cartridge memory says may be relied upon is so: other LTFS programs mount by it without looking further.
fn memory_tells_the_truth(rig: &Rig) {
    let mut raw = rig.raw(0);
    raw.set_data_protection(scsi::mode::DataProtection::OFF).unwrap();
    let vcr = raw.read_attribute(0, 9).unwrap().and_then(|a| a.number()).unwrap();
    let coherency = |a: Option<scsi::Attribute>| Coherency::decode(&a?.value).ok();
    let [index, data] = [0, 1].map(|p| coherency(raw.read_attribute(p, 0x080c).unwrap()));
    let (Some(index), Some(data)) = (index, data) else { return };
    if index.vcr != vcr || data.vcr != vcr {
        return;
    }
    for (partition, at) in [(0, index), (1, data)] {
        raw.locate(partition, at.block).unwrap();
        let mut record = vec![0; BLOCK as usize];
        let outcome = raw.read(&mut record).unwrap();
        assert!(matches!(outcome, scsi::ReadOutcome::Record { .. }), "{outcome:?}");
        let generation = format!("<generationnumber>{}</generationnumber>", at.generation);
        assert!(String::from_utf8_lossy(&record).contains(&generation));
    }
}

fn recover(rig: &Rig, drive: &mut Drive, mut catalogue: Catalogue, indexed: usize) {
    let mounted = drive.mount(Some(&barcode())).unwrap();
    assert!(matches!(mounted.label(), LabelState::Ltfs(_)), "{:?}", mounted.label());
    drop(mounted);
    memory_tells_the_truth(rig);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.verify(&mut mounted);
    index_is_good(&mut mounted, &catalogue.files, indexed);
    catalogue.append(&mut mounted, &batch(5)).unwrap();
    catalogue.verify(&mut mounted);
    index_is_good(&mut mounted, &catalogue.files, indexed);
    let all = catalogue.files.len();
    catalogue.index(&mut mounted).unwrap();
    mounted.unload().unwrap();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.verify(&mut mounted);
    let (generation, stale, _) = indexed_files(&mut mounted);
    assert_eq!((generation, stale), (catalogue.point.generation, false));
    index_is_good(&mut mounted, &catalogue.files, all);
}

/// Runs the session with a power failure at command `at`, with a drive that drains its buffer when it holds `buffer`
/// bytes; false when the session ended before it.
fn crash(at: usize, buffer: u64) -> bool {
    let rig = Rig::new(16 << 20, buffer);
    let mut drive = rig.load(BARCODE, 0);
    let first = rig.wire().opcodes.len();
    rig.wire().cut_at = Some(first + at);
    let (mut catalogue, mut indexed) = (None, 0);
    let ended = session(&mut drive, &mut catalogue, &mut indexed).is_ok();
    rig.power_cycle();
    match catalogue {
        Some(catalogue) => recover(&rig, &mut drive, catalogue, indexed),
        None => {
            let mut mounted = drive.mount(Some(&barcode())).unwrap();
            assert!(!matches!(mounted.label(), LabelState::Foreign { .. }));
            mounted.format(&spec(&barcode(), BLOCK, Overwrite::Anything)).unwrap();
        }
    }
    !ended
}

#[test]
fn power_fails_at_every_command_and_the_whole_buffer_is_lost() {
    let commands = (0..).take_while(|&at| crash(at, 1 << 20)).count();
    assert!(commands > 100, "the session has only {commands} commands");
}

#[test]
fn power_fails_at_every_command_and_part_of_the_buffer_is_lost() {
    let commands = (0..).take_while(|&at| crash(at, 10_000)).count();
    assert!(commands > 100, "the session has only {commands} commands");
}

/// The power fails again while recovering.
#[test]
fn power_fails_while_recovering() {
    for first in (40..200).step_by(19) {
        for second in (0..60).step_by(7) {
            let rig = Rig::new(16 << 20, 10_000);
            let mut drive = rig.load(BARCODE, 0);
            rig.wire().cut_at = Some(first);
            let (mut catalogue, mut indexed) = (None, 0);
            let _ = session(&mut drive, &mut catalogue, &mut indexed);
            rig.power_cycle();
            let Some(mut catalogue) = catalogue else { continue };
            rig.wire().cut_at = Some(second);
            let again = |drive: &mut Drive, catalogue: &mut Catalogue| -> Result<usize> {
                let mut mounted = drive.mount(None)?;
                catalogue.append(&mut mounted, &batch(2))?;
                catalogue.index(&mut mounted)?;
                Ok(catalogue.files.len())
            };
            indexed = again(&mut drive, &mut catalogue).unwrap_or(indexed);
            rig.power_cycle();
            recover(&rig, &mut drive, catalogue, indexed);
        }
    }
}

/// We crash after an index was written and before the catalogue knows of it.
#[test]
fn an_index_that_was_not_recorded_is_kept() {
    for orderly in [true, false] {
        let rig = Rig::new(16 << 20, 1 << 20);
        let mut drive = rig.load(BARCODE, 0);
        let mut mounted = drive.mount(None).unwrap();
        let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
        catalogue.append(&mut mounted, &batch(1)).unwrap();
        let recorded = catalogue.clone();
        let lost = catalogue.index(&mut mounted).unwrap();
        match orderly {
            true => drop(mounted.unload().unwrap()),
            false => rig.power_cycle(),
        }
        let mut catalogue = recorded;
        let mut mounted = drive.mount(None).unwrap();
        let flushed = catalogue.append(&mut mounted, &batch(2)).unwrap();
        assert!(flushed.append_block > lost.append_block);
        assert_eq!(indexed_files(&mut mounted).0, lost.generation);
        mounted.unload().unwrap();
        // the catalogue still has the older generation, and that does not matter
        let mut mounted = drive.mount(None).unwrap();
        catalogue.append(&mut mounted, &batch(3)).unwrap();
        let next = catalogue.index(&mut mounted).unwrap();
        assert_eq!(next.generation, lost.generation + 1);
        catalogue.verify(&mut mounted);
        index_is_good(&mut mounted, &catalogue.files, catalogue.files.len());
        let old = &rig.objects(BARCODE)[&format!("1_{}_R", lost.index_block)];
        assert!(String::from_utf8_lossy(old).contains("<generationnumber>2</generationnumber>"));
    }
}
