//! Decoders survive any bytes, and what is encoded comes back.

use proptest::prelude::*;
use scsi::socket::{REPLY_BYTES, REQUEST_BYTES, ReplyHead, RequestHead};
use scsi::{Attribute, Sense, SenseKey, element, inquiry, log, mam, mode, position};

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Sense::decode(&raw);
        let _ = element::decode(&raw);
        let mut completed = raw.clone();
        element::complete(&mut completed);
        assert!(completed.starts_with(&raw[..5.min(raw.len())]) && completed.len() <= raw.len() + 8);
        let _ = inquiry::decode(&raw);
        let _ = inquiry::decode_page(&raw, 0x80);
        let _ = inquiry::decode_designators(&raw);
        let _ = log::decode(&raw, 0x2E, 0);
        let _ = mam::decode_list(&raw);
        let _ = mam::decode_prefix(&raw);
        let _ = mode::decode(&raw);
        let _ = mode::PartitionPage::decode(&raw);
        let _ = mode::DataProtection::decode(&raw);
        let _ = position::decode_long(&raw);
        let _ = position::decode_short(&raw);
        let _ = scsi::reserve::decode_keys(&raw);
        let _ = scsi::encrypt::decode_algorithms(&raw);
        let _ = scsi::encrypt::decode_next_block(&raw);
        let _ = scsi::reserve::decode_full_status(&raw);
        let _ = scsi::reserve::decode_reservation(&raw);
        let _ = scsi::ElementAssignment::decode(&raw);
        let _ = scsi::decode_densities(&raw);
        let _ = scsi::decode_block_limits(&raw);
    }

    #[test]
    fn attributes_come_back(id in any::<u16>(), value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let a = Attribute::binary(id, value);
        prop_assert_eq!(mam::decode_list(&mam::encode_list(&[a.clone(), a.clone()])).unwrap(), vec![a.clone(), a]);
    }

    #[test]
    fn data_protection_comes_back(method in any::<u8>(), length in 0u8..64, on_write in any::<bool>(), on_read in any::<bool>(), rest in any::<u8>()) {
        let wanted = mode::DataProtection { method, length, on_write, on_read };
        prop_assert_eq!(mode::DataProtection::decode(&wanted.encode()).unwrap(), wanted);
        // a drive's own page keeps what is not ours
        let mut page = mode::DataProtection::OFF.encode();
        (page[0], page[5], page[6], page[31]) = (page[0] | 0x80, rest & 0xC0, rest & 0x3F, rest);
        wanted.put(&mut page).unwrap();
        prop_assert_eq!(mode::DataProtection::decode(&page).unwrap(), wanted);
        prop_assert_eq!((page[5] & 0xC0, page[6] & 0x3F, page[31]), (rest & 0xC0, rest & 0x3F, rest));
    }

    #[test]
    fn frames_come_back(cdb in proptest::collection::vec(any::<u8>(), 1..17), out in 0usize..1 << 25, room in 0usize..1 << 25) {
        let head = RequestHead::new(&cdb, out, room).unwrap();
        let again = RequestHead::decode(&head.encode()).unwrap();
        prop_assert_eq!(again.cdb(), &cdb[..]);
        prop_assert_eq!(again, head);
    }

    #[test]
    fn wild_frames_are_refused_or_understood(raw in any::<[u8; REQUEST_BYTES]>(), bytes in proptest::collection::vec(any::<u8>(), REPLY_BYTES)) {
        let _ = RequestHead::decode(&raw);
        let _ = ReplyHead::decode(&bytes.try_into().unwrap());
    }
}

#[test]
fn sense_in_both_formats() {
    let mut sense = Sense::new(SenseKey::NoSense, 0x00, 0x01);
    (sense.filemark, sense.information) = (true, Some(-5));
    assert_eq!(Sense::decode(&sense.encode()), Some(sense));
    let raw = [0x73, 0x03, 0x0C, 0x00, 0, 0, 0, 4, 0x04, 0x02, 0, 0x60];
    let s = Sense::decode(&raw).unwrap();
    assert!(s.deferred && s.eom && s.ili && !s.filemark && s.is(SenseKey::MediumError, 0x0C, 0));
    assert_eq!(
        Sense::new(SenseKey::UnitAttention, 0x28, 0).to_string(),
        "unit attention 6/28/00 (not ready to ready change, medium may have changed)"
    );
    assert_eq!(Sense::decode(&[0x70]), None);
    assert!(RequestHead::new(&[0; 17], 0, 0).is_err() && RequestHead::new(&[], 0, 0).is_err());
}

/// As tgt sends it: the last descriptor lacks eight reserved bytes. Anything else that is cut stays cut.
#[test]
fn a_changer_that_counts_eight_bytes_too_few_is_completed() {
    let descriptor = |address: u8| {
        let mut raw = vec![0, address, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        raw.extend(format!("{:32}", format!("VT000{address}L8")).bytes());
        raw.resize(52, 0);
        raw
    };
    let mut raw = vec![0, 1, 0, 2, 0, 0, 0, 104, 2, 0x80, 0, 52, 0, 0, 0, 104];
    raw.extend([descriptor(1), descriptor(2)].concat());
    let whole = element::decode(&[&raw[..7], &[112], &raw[8..]].concat()).unwrap();
    assert_eq!(whole.len(), 2);
    let mut cut = raw[..raw.len() - 8].to_vec();
    assert_eq!(element::decode(&cut).unwrap().len(), 1);
    element::complete(&mut cut);
    assert_eq!(element::decode(&cut).unwrap(), whole);
    for more in [7, 9, 20, 60] {
        let mut other = raw[..raw.len() - more].to_vec();
        element::complete(&mut other);
        assert_eq!(other.len(), raw.len() - more, "{more} bytes are missing");
    }

    // An identifier that reaches into what was not sent is no identifier.
    let mut drive = vec![0, 1, 0, 1, 0, 0, 0, 90, 4, 0x80, 0, 82, 0, 0, 0, 82];
    drive.extend([0, 1, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    drive.extend(format!("{:32}", "VT0001L8").bytes().chain([0; 4]));
    drive.extend([2, 1, 0, 30].into_iter().chain(format!("{:20}", "IBM").bytes()).chain(*b"SERIAL0001"));
    assert_eq!(element::decode(&drive).unwrap()[0].device.as_deref(), Some("IBM                 SERIAL0001"));
    drive.truncate(drive.len() - 8);
    element::complete(&mut drive);
    let cut = &element::decode(&drive).unwrap()[0];
    assert_eq!((cut.barcode.as_deref(), cut.device.as_deref()), (Some("VT0001L8"), None));
}
