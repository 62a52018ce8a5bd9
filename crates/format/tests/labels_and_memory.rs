//! Labels and cartridge memory: golden bytes, refusals, and input that must not panic.

mod common;

use common::UUID;
use format::ltfs::label::{self, LabelError, LtfsLabel, check_pair};
use format::ltfs::mam::{self, Attribute, Coherency, HostInfo, ValueFormat};
use format::ltfs::{Partition, vol1};
use proptest::prelude::*;
use types::Time;

fn sample() -> LtfsLabel {
    LtfsLabel::new("TC0001L9", UUID, Time::new(1_790_000_000, 7), 524_288, "Thermocline <0.1.0>").unwrap()
}

const GOLDEN: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ltfslabel version="2.4.0">
<creator>Thermocline &lt;0.1.0&gt;</creator>
<formattime>2026-09-21T14:13:20.000000007Z</formattime>
<volumeuuid>30a91a08-daae-48d1-ae75-69804e61d2ea</volumeuuid>
<location><partition>a</partition></location>
<partitions><index>a</index><data>b</data></partitions>
<blocksize>524288</blocksize>
<compression>true</compression>
</ltfslabel>
"#;

#[test]
fn label_golden_and_back() {
    assert_eq!(String::from_utf8(label::encode(&sample())).unwrap(), GOLDEN);
    let vol1 = vol1::encode("TC0001L9").unwrap();
    assert_eq!(label::decode(&vol1, GOLDEN.as_bytes()), Ok(sample()));
    let data = sample().on(Partition::DATA);
    assert_eq!(label::decode(&vol1, &label::encode(&data)).unwrap(), data);
}

#[test]
fn labels_of_a_volume_must_agree() {
    let (a, b) = (sample(), sample().on(Partition::DATA));
    assert_eq!(check_pair(&a, &b), Ok(()));
    let disagree = [
        a.clone(),
        LtfsLabel { serial: "OTHER".to_owned(), ..b.clone() },
        LtfsLabel { uuid: UUID.replace('3', "4"), ..b.clone() },
        LtfsLabel { format_time: Time::new(1, 0), ..b.clone() },
        LtfsLabel { block_size: 4096, ..b.clone() },
        LtfsLabel { compression: false, ..b.clone() },
        LtfsLabel { version: "2.2.0".to_owned(), ..b.clone() },
    ];
    for other in disagree {
        assert!(matches!(check_pair(&a, &other), Err(LabelError::Damaged { .. })), "{other:?}");
    }
}

#[test]
fn refusals_are_told_apart() {
    let vol1 = vol1::encode("TC0001L9").unwrap();
    assert_eq!(label::decode(b"", b""), Err(LabelError::Blank));
    let mut ansi = vol1;
    ansi[24..28].copy_from_slice(b"CTA ");
    assert!(
        matches!(label::decode(&ansi, b"HDR1"), Err(LabelError::Foreign { what }) if what.contains("CTA"))
    );
    for xml in ["", "garbage", "<other/>", "<ltfslabel version='2.4.0'>"] {
        assert!(matches!(label::decode(&vol1, xml.as_bytes()), Err(LabelError::Damaged { .. })), "{xml}");
    }
    let newer = GOLDEN.replace("2.4.0", "3.0.0");
    assert_eq!(
        label::decode(&vol1, newer.as_bytes()),
        Err(LabelError::Version { found: "3.0.0".to_owned() })
    );
    let broken = [
        ("<blocksize>524288", "<blocksize>512"),
        ("<index>a", "<index>b"),
        ("<location><partition>a", "<location><partition>c"),
        ("<compression>true</compression>", ""),
        ("30a91a08", "30a91a0"),
    ];
    for (good, bad) in broken {
        let xml = GOLDEN.replace(good, bad);
        assert!(matches!(label::decode(&vol1, xml.as_bytes()), Err(LabelError::Damaged { .. })), "{bad}");
    }
}

#[test]
fn coherency_golden() {
    let info = Coherency { vcr: 0x0102, generation: 3, block: 0x0405, uuid: UUID.to_owned() };
    let attribute = info.encode().unwrap();
    let mut bytes = vec![0x08, 0x0C, 0, 0, 70, 8];
    bytes.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4, 5, 0, 43]);
    bytes.extend(b"LTFS\x0030a91a08-daae-48d1-ae75-69804e61d2ea\x00\x01");
    assert_eq!(attribute.encode(), bytes);
    assert_eq!(Coherency::decode(&attribute.value), Ok(info.clone()));
    assert!(Coherency { uuid: "x".to_owned(), ..info }.encode().is_err());
    assert!(Coherency::decode(&attribute.value[..69]).is_err());
    let mut other = attribute.value;
    other[27] = b'X';
    assert!(Coherency::decode(&other).is_err());
}

#[test]
fn host_attributes_have_their_widths() {
    let pool = "ü".repeat(100);
    let info = HostInfo {
        program_version: "0.1.0",
        barcode: "TC0001L9",
        text_label: "TC0001",
        pool: &pool,
        lock: 0,
    };
    let all = mam::host_attributes(&info);
    let widths: Vec<_> = all.iter().map(|a| (a.id, a.value.len())).collect();
    let wanted = [(0x800, 8), (0x801, 32), (0x802, 8), (0x803, 160), (0x805, 1), (0x806, 32), (0x808, 160)];
    assert_eq!(widths[..7], wanted);
    assert_eq!(widths[7..], [(0x80B, 16), (0x1623, 1)]);
    assert_eq!(all[2].value, b"0.1.0   ");
    assert_eq!(all[4].value, [0x81]);
    assert_eq!(all[7].value, b"2.4.0           ");
    assert_eq!(all[6].format, ValueFormat::Text);
    assert_eq!(std::str::from_utf8(&all[6].value).unwrap(), "ü".repeat(80));
    let list: Vec<u8> = all.iter().flat_map(Attribute::encode).collect();
    assert_eq!(Attribute::decode_all(&list), Ok(all));
}

#[test]
fn volume_change_reference() {
    assert_eq!(mam::decode_vcr(&[0, 0, 1, 2]), Some(258));
    assert_eq!(mam::decode_vcr(&[0; 4]), Some(0));
    assert_eq!(mam::decode_vcr(&[0xff; 4]), None);
    assert_eq!(mam::decode_vcr(&[]), None);
    assert_eq!(mam::decode_vcr(&[1; 9]), None);
}

proptest! {
    #[test]
    fn any_bytes(vol1 in prop::collection::vec(any::<u8>(), 0..100), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let good = vol1::encode("A").unwrap();
        let _ = label::decode(&vol1, &bytes);
        let _ = label::decode(&good, &bytes);
        let _ = Attribute::decode_all(&bytes);
        let _ = Coherency::decode(&bytes);
        let _ = mam::decode_vcr(&bytes);
    }

    #[test]
    fn changed_label(at: prop::sample::Index, byte: u8) {
        let mut xml = GOLDEN.as_bytes().to_vec();
        let at = at.index(xml.len());
        xml[at] = byte;
        let _ = label::decode(&vol1::encode("TC0001L9").unwrap(), &xml);
    }
}
