//! Cartridge memory: attributes, coherency, volume change reference, session mark. Both decoders of attributes (the
//! format's and SCSI's) agree.

use format::ltfs::mam::{self, Attribute, Coherency, HostInfo, host_attributes};
use scsi::mam as device;

pub(super) fn run(bytes: &[u8]) {
    let _ = mam::decode_vcr(bytes);
    if let Ok(found) = Coherency::decode(bytes) {
        let again = found.encode().expect("a uuid that was accepted");
        assert_eq!(Coherency::decode(&again.value), Ok(found));
    }
    let one = Attribute::decode(bytes);
    match device::Attribute::decode(bytes) {
        Ok((theirs, length)) => {
            let (ours, rest) = one.expect("SCSI understands it");
            assert_eq!(rest.len() + length, bytes.len());
            assert_eq!(ours.encode(), theirs.encode());
            assert_eq!((ours.id, &ours.value, ours.read_only), (theirs.id, &theirs.value, theirs.read_only));
        }
        Err(_) => assert!(one.is_err(), "SCSI does not understand it"),
    }
    if let Ok(all) = Attribute::decode_all(bytes) {
        let again: Vec<u8> = all.iter().flat_map(Attribute::encode).collect();
        assert_eq!(Attribute::decode_all(&again), Ok(all));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let uuid = "30a91a08-daae-48d1-ae75-69804e61d2ea".to_owned();
    let coherency = Coherency { vcr: 9, generation: 2, block: 5, uuid }.encode().expect("a good uuid");
    let info = HostInfo { program_version: "0.1", barcode: "TC0001L9", text_label: "é", pool: "p", lock: 0 };
    let host: Vec<u8> = host_attributes(&info).iter().flat_map(Attribute::encode).collect();
    vec![coherency.value.clone(), coherency.encode(), host, vec![0, 0, 0, 7]]
}
