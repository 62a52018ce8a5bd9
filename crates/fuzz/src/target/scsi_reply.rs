//! Every decoder of a reply by itself. The first byte chooses it.

use scsi::mode::{ModeData, PartitionPage};
use scsi::{
    Attribute, Element, ElementAssignment, Sense, SenseKey, element, inquiry, log, mam, mode, position,
};

pub(super) fn run(bytes: &[u8]) {
    let Some((kind, raw)) = bytes.split_first() else { return };
    match kind % 16 {
        0 => sense(raw),
        1 => elements(raw),
        2 => _ = inquiry::decode(raw),
        3 => _ = inquiry::decode_page(raw, inquiry::PAGE_SERIAL),
        4 => _ = inquiry::decode_designators(raw),
        5 => log_page(raw),
        6 => attributes(raw),
        7 => _ = mode::decode(raw).map(|data| data.encode_for_select()),
        8 => partitions(raw),
        9 => _ = position::decode_long(raw),
        10 => _ = position::decode_short(raw),
        11 => _ = ElementAssignment::decode(raw),
        12 => _ = scsi::decode_densities(raw),
        13 => _ = scsi::decode_block_limits(raw),
        14 => mode_returns(raw),
        _ => _ = scsi::describe(raw.first().copied().unwrap_or(0), raw.get(1).copied().unwrap_or(0)),
    }
}

fn sense(raw: &[u8]) {
    let Some(sense) = Sense::decode(raw) else { return };
    assert!(!sense.to_string().is_empty());
    let again = Sense::decode(&sense.encode()).expect("sense of ours");
    let fits = sense.information.is_none_or(|n| i32::try_from(n).is_ok());
    let information = if fits { sense.information } else { None };
    assert_eq!(again, Sense { information, ..sense });
}

fn elements(raw: &[u8]) {
    let Ok(list) = element::decode(raw) else { return };
    // each descriptor takes at least twelve bytes of the reply
    assert!(list.len() * 12 <= raw.len());
    let clean =
        |text: &Option<String>| text.as_ref().is_none_or(|t| t.bytes().all(|b| (0..0x7f).contains(&b)));
    assert!(list.iter().all(|Element { barcode, device, .. }| clean(barcode) && clean(device)), "{list:?}");
}

fn log_page(raw: &[u8]) {
    let page = raw.first().copied().unwrap_or(0);
    let Ok(parameters) = log::decode(raw, page, 0) else { return };
    assert!(log::tape_alerts(&parameters).iter().all(|flag| (1..=64).contains(flag)));
    let _ = (log::tape_capacity(&parameters), log::VolumeStatistics::from_parameters(&parameters));
}

fn attributes(raw: &[u8]) {
    let prefix = mam::decode_prefix(raw);
    let Ok(list) = mam::decode_list(raw) else { return };
    assert_eq!(prefix.as_ref(), Ok(&list), "a whole list is its own prefix");
    assert_eq!(mam::decode_list(&mam::encode_list(&list)), Ok(list));
}

fn partitions(raw: &[u8]) {
    let Ok(page) = PartitionPage::decode(raw) else { return };
    let again = PartitionPage::decode(&page.encode()).expect("a page of ours");
    let sizes = page.sizes[..page.sizes.len().min(123)].to_vec();
    assert_eq!(again, PartitionPage { sizes, ..page });
}

/// A parameter list for MODE SELECT is, but for its length field, a reply that means the same.
fn mode_returns(raw: &[u8]) {
    let Ok(data) = mode::decode(raw) else { return };
    let mut list = data.encode_for_select();
    let Ok(length) = u16::try_from(list.len() - 2) else { return };
    list[..2].copy_from_slice(&length.to_be_bytes());
    let mut expected = ModeData { write_protected: false, ..data };
    if let Some(first) = expected.pages.first_mut() {
        *first &= 0x7F;
    }
    assert_eq!(mode::decode(&list), Ok(expected));
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let with = |kind: u8, raw: &[u8]| [&[kind], raw].concat();
    let mut sense = Sense::new(SenseKey::NoSense, 0, 1);
    (sense.filemark, sense.information) = (true, Some(-5));
    let attributes =
        mam::encode_list(&[Attribute::binary(9, [0, 0, 0, 7]), Attribute::ascii(0x806, "TC1", 32)]);
    let page = PartitionPage {
        max_additional: 1,
        additional: 1,
        flags: 0x3C,
        recognition: 3,
        units: 9,
        sizes: vec![1, 0xFFFF],
    };
    let data = ModeData { block: Some(Default::default()), pages: page.encode(), ..ModeData::default() };
    let mut parameters = data.encode_for_select();
    parameters[1] = (parameters.len() - 2) as u8;
    let descriptor = [0x72, 3, 0x11, 0, 0, 0, 0, 16, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 9, 4, 2, 0, 0xE0];
    vec![
        with(0, &sense.encode()),
        with(0, &descriptor),
        with(5, &[0x2E, 0, 0, 10, 0, 3, 0, 1, 1, 0, 4, 0, 1, 0]),
        with(5, &[0x31, 0, 0, 16, 0, 1, 0, 4, 0, 0, 1, 0, 0, 3, 0, 4, 0, 0, 2, 0]),
        with(6, &attributes),
        with(7, &parameters),
        with(14, &parameters),
        with(8, &page.encode()),
    ]
}
