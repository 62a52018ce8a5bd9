//! Files that lie on several volumes: each part is compared alone when its volume is verified.

use crate::support::{Bed, Running, pattern};
use kv::{Durability, LmdbEngine, LmdbOptions};
use node::Size;
use std::ops::ControlFlow;
use types::*;
use wire::{Call, PoolChange, VolumeChoice};

const MIB: usize = 1 << 20;
/// Table of the catalogue with digests of parts.
const PART: u8 = 0x26;

/// Cartridges that a file of 40 MiB does not fit on, in this format.
fn bed(format: FormatRule) -> Bed {
    let bed = Bed::with(|c| {
        (c.library.cartridges, c.library.slots) = (10, 12);
        c.library.cartridge_capacity = Size::mib(24);
    });
    for pool in bed.node.config().classes[0].copies.clone() {
        let change = PoolChange { format: Some(format), ..PoolChange::default() };
        bed.call(Call::SetPool { name: PoolName(pool), create: false, change });
    }
    bed
}

fn verify(bed: &Bed, volume: &Barcode) -> Request {
    bed.act(Call::Verify(VolumeChoice::These(vec![volume.clone()])))
}

fn copies(bed: &Bed) -> usize {
    bed.stat("/large").file.unwrap().copies.len()
}

fn a_part_that_decayed_is_found(format: FormatRule) {
    let (bed, data) = (bed(format), pattern(40 * MIB, 1));
    let ino = bed.write("large", &data);
    bed.migrate_and_purge();
    let volumes = bed.volumes_of("/large");
    assert!(volumes.len() >= 4, "two copies in parts: {volumes:?}");
    for volume in &volumes {
        let good = verify(&bed, volume);
        assert_eq!((good.state, good.message.as_str()), (RequestState::Done, ""), "{volume}");
        assert!(bed.volume(volume).last_verified.is_some());
    }
    // The first part of one copy, later the last part of the other.
    let end = data.len() - 1000;
    for (volume, at) in [(&volumes[0], 1000), (volumes.last().unwrap(), end)] {
        bed.flip_a_bit_on(volume, &data[at..at + 32]);
        let found = verify(&bed, volume);
        assert_eq!(found.state, RequestState::Done, "{found:?}");
        assert!(found.message.contains("/large"), "{volume}: {found:?}");
        bed.until("the copy is there again", |bed| copies(bed) == 2);
        bed.until("it left the disk again", |b| b.stat("/large").residency == Some(Residency::Offline));
    }
    assert!(bed.read(ino) == data);
    let report = bed.check(false);
    assert_eq!(report.findings, [], "{report:?}");
}

#[test]
fn a_part_of_a_file_that_decayed_is_found_on_the_first_and_on_the_last_volume() {
    a_part_that_decayed_is_found(FormatRule::Auto);
}

#[test]
fn a_part_of_a_file_that_decayed_is_found_on_volumes_without_partitions() {
    a_part_that_decayed_is_found(FormatRule::AnsiTar);
}

#[test]
fn what_could_only_be_read_is_not_said_to_be_compared() {
    let bed = bed(FormatRule::Auto);
    bed.write("large", &pattern(40 * MIB, 1));
    bed.migrate_and_purge();
    let (volumes, config) = (bed.volumes_of("/large"), bed.node.config().clone());
    bed.node.stop(true);
    drop(bed.node);
    {
        // As an earlier release has left it.
        let engine = LmdbEngine::open(&config.state_dir.join("catalog"), LmdbOptions::default()).unwrap();
        let forget = |w: &mut dyn kv::Writer| {
            let mut keys = Vec::new();
            w.scan(&[PART], &[PART + 1], &mut |key, _| {
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            })?;
            assert!(keys.len() >= 2, "{keys:?}");
            keys.iter().try_for_each(|key| w.delete(key))
        };
        kv::Engine::write_dyn(&engine, Durability::Durable, &mut { forget }).unwrap();
    }
    let bed = Bed { dir: bed.dir, node: Running::start(config) };
    let read = verify(&bed, &volumes[0]);
    assert_eq!(read.state, RequestState::Done);
    let volume = &volumes[0];
    let told = format!("volume {volume}: 1 file or part of one read, but not compared: no digest is known");
    assert_eq!(read.message, told);
}
