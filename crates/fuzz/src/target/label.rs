//! Record 0 of a partition and the XML label behind it. A label that is understood says the same when written again.

use crate::input::{Input, piece};
use format::ltfs::{Partition, label, label::LtfsLabel, vol1};
use types::Time;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (record, xml) = (input.piece(), input.rest());
    let Ok(found) = label::decode(record, xml) else { return };
    let again = label::encode(&found);
    assert_eq!(label::decode(record, &again).as_ref(), Ok(&found), "{}", String::from_utf8_lossy(&again));
    assert_ne!(found.index_partition, found.data_partition);
    assert!(found.block_size >= label::MIN_BLOCK_SIZE);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let uuid = "30a91a08-daae-48d1-ae75-69804e61d2ea";
    let made = LtfsLabel::new("TC0001L9", uuid, Time::new(1_790_000_000, 5), 524_288, "Thermocline <&>");
    let made = made.expect("a good barcode");
    let record = piece(&vol1::encode("TC0001L9").expect("a good barcode"));
    let both = [made.clone(), made.on(Partition::DATA)];
    let mut seeds: Vec<_> = both.iter().map(|l| [record.clone(), label::encode(l)].concat()).collect();
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    seeds.extend([piece(&tar), piece(b"VOL1"), piece(b"HDR1"), piece(b"")]);
    seeds
}
