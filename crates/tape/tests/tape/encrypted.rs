//! Volumes that the drive encrypts: read with their key only, and nothing of them lies in plain on the cartridge.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use crate::support::row;
use scsi::{SenseKey, Ssc};
use std::collections::BTreeMap;
use std::sync::Arc;
use tape::policy::Then;
use tape::{Blame, Drive, Fault, Key, KeySource, Keys, LabelState, Overwrite};

const MIB: u64 = 1 << 20;
const SECRET: &[u8] = b"nobody reads this without the key";

struct Ring(BTreeMap<String, [u8; 32]>);

impl Keys for Ring {
    fn key(&self, name: &str) -> Result<Key, String> {
        let bytes = self.0.get(name).ok_or("the ring has no such key")?;
        Key::new(name, *bytes).ok_or("its name is bad".into())
    }
}

fn ring(keys: &[(&str, u8)]) -> Option<KeySource> {
    let all = keys.iter().map(|(name, byte)| ((*name).to_owned(), [*byte; 32]));
    Some(Arc::new(Ring(all.collect())))
}

fn key(name: &str, byte: u8) -> Key {
    Key::new(name, [byte; 32]).unwrap()
}

/// A volume encrypted with `k1`, with two files and an index, in drive 0, unloaded.
fn volume(rig: &Rig) -> Catalogue {
    let mut drive = rig.load(BARCODE, 0).with_keys(ring(&[]));
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format_with(&mut mounted, 4096, Some(&key("k1", 1))).unwrap();
    assert_eq!(mounted.key(), Some("k1"));
    catalogue.append(&mut mounted, &[SECRET.repeat(300), vec![8; 100]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    mounted.unload().unwrap();
    catalogue
}

fn drive(rig: &Rig, keys: &[(&str, u8)]) -> Drive {
    rig.drive(0).with_keys(ring(keys))
}

#[test]
fn an_encrypted_volume_is_read_and_written_with_its_key() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut catalogue = volume(&rig);
    let mut drive = drive(&rig, &[("k0", 9), ("k1", 1)]);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    assert_eq!(mounted.key(), Some("k1"));
    catalogue.verify(&mut mounted);
    catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
    mounted.unload().unwrap();
    let objects = rig.objects(BARCODE);
    let plain: Vec<&String> = objects.keys().filter(|name| name.ends_with("_R")).collect();
    assert!(plain.is_empty(), "records in plain: {plain:?}");
    let contains = |what: &[u8]| objects.values().any(|bytes| bytes.windows(what.len()).any(|w| w == what));
    assert!(!contains(SECRET) && !contains(b"ltfsindex") && !contains(b"VOL1"));
    assert!(contains(b"k1"), "the key's name lies beside the records");
}

#[test]
fn without_its_key_it_says_which_key_is_missing() {
    let rig = Rig::new(16 * MIB, MIB);
    volume(&rig);
    for keys in [ring(&[("k2", 1)]), None] {
        let mut drive = rig.drive(0).with_keys(keys);
        let e = drive.mount(Some(&barcode())).map(drop).unwrap_err();
        assert_eq!((e.fault, e.blame), (Fault::Key, Blame::Us), "{e}");
        assert_eq!(row(&e), ("TC-U052", Then::ReadOnly));
        assert!(e.to_string().contains("TC0001L9") && e.to_string().contains("key `k1`"), "{e}");
        drive.unload().unwrap();
    }
}

#[test]
fn with_a_wrong_key_nothing_is_read_and_nothing_is_blamed_on_the_medium() {
    let rig = Rig::new(16 * MIB, MIB);
    volume(&rig);
    let mut drive = drive(&rig, &[("k1", 2)]);
    let e = drive.mount(Some(&barcode())).map(drop).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::Key, Blame::Us), "{e}");
    let text = e.to_string();
    assert!(text.contains("7/74/03") && text.contains("TC0001L9") && text.contains("key `k1`"), "{e}");
    assert!(!format!("{:?}", key("k1", 2)).contains('2'), "keys are never printed");
}

#[test]
fn what_somebody_wrote_in_plain_behind_our_back_is_not_taken_for_ours() {
    let rig = Rig::new(16 * MIB, MIB);
    let catalogue = volume(&rig);
    let mut raw = rig.raw(0);
    let settled = |raw: &mut Ssc| {
        while raw
            .test_unit_ready()
            .is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
        {}
    };
    settled(&mut raw);
    raw.load().unwrap();
    settled(&mut raw);
    // The first file's first record is overwritten without the key.
    raw.clear_key().unwrap();
    raw.locate(1, catalogue.files[0].extents[0].start_block).unwrap();
    raw.write(&[b'x'; 4096]).unwrap();
    raw.unload().unwrap();
    let mut drive = drive(&rig, &[("k1", 1)]);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let read = mounted.read(&catalogue.files[0].extents[0], &mut |_, _| std::ops::ControlFlow::Continue(()));
    let e = read.unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::Key, Blame::Medium), "{e}");
    assert!(e.to_string().contains("7/74/02"), "{e}");
}

/// Another host's commands to drive 0, behind the unit attentions that wait for it.
fn other_host(rig: &Rig) -> Ssc {
    let mut raw = Ssc::new(Box::new(rig.library.drive_as(0, 7)));
    while raw.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention)) {}
    raw
}

/// Drives that are not reserved can be given, or made to forget, keys by other hosts.
#[test]
fn another_host_that_changes_the_drives_key_ends_the_session() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut catalogue = volume(&rig);
    let mut drive = drive(&rig, &[("k1", 1)]);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 20_000]]).unwrap();
    other_host(&rig).clear_key().unwrap();
    let e = catalogue.append(&mut mounted, &[SECRET.repeat(300)]).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::PositionLost, Blame::Drive), "{e}");
    assert!(e.to_string().contains("6/2A/11") && e.to_string().contains("encryption"), "{e}");
    assert_eq!(e.code(), "TC-D033");
    drop(mounted);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[SECRET.repeat(300)]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
    mounted.unload().unwrap();
    assert!(rig.objects(BARCODE).keys().all(|name| !name.ends_with("_R")), "a record in plain");
}

#[test]
fn a_plain_volume_is_not_written_with_another_hosts_key() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0).with_keys(ring(&[]));
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, 4096).unwrap();
    let mut other = other_host(&rig);
    let algorithm = other.encryption_algorithm().unwrap().unwrap();
    other.set_key(algorithm, &[3; 32], b"theirs").unwrap();
    let e = catalogue.append(&mut mounted, &[vec![9; 20_000]]).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::PositionLost, Blame::Drive), "{e}");
    drop(mounted);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 20_000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
    mounted.unload().unwrap();
    assert!(rig.objects(BARCODE).keys().all(|name| !name.ends_with("_X")), "written with their key");
}

#[test]
fn a_volume_labelled_anew_is_plain_or_has_another_key() {
    let rig = Rig::new(16 * MIB, MIB);
    volume(&rig);
    let mut drive = drive(&rig, &[("k1", 1), ("k2", 2)]);
    for new in [Some(key("k2", 2)), None] {
        let mut mounted = drive.mount(Some(&barcode())).unwrap();
        let mut catalogue =
            Catalogue::format_over(&mut mounted, 4096, new.as_ref(), Overwrite::Anything).unwrap();
        catalogue.append(&mut mounted, &[vec![5; 5000]]).unwrap();
        catalogue.index(&mut mounted).unwrap();
        mounted.unload().unwrap();
        let mounted = drive.mount(Some(&barcode())).unwrap();
        assert_eq!(mounted.key(), new.as_ref().map(Key::name));
        assert!(matches!(mounted.label(), LabelState::Ltfs(_)));
        mounted.unload().unwrap();
    }
    // The key of the volume before does not stay in the drive.
    let plain = rig.objects(BARCODE).keys().filter(|name| name.ends_with("_X")).count();
    assert_eq!(plain, 0);
}

#[test]
fn names_of_keys_fit_beside_a_record() {
    assert!(Key::new("", [0; 32]).is_none() && Key::new("a b", [0; 32]).is_none());
    assert!(Key::new(&"k".repeat(33), [0; 32]).is_none() && Key::new(&"k".repeat(32), [0; 32]).is_some());
}
