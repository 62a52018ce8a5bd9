//! ANSI labels of a volume and around a section. What is understood says the same when written again.

use crate::input::{Input, piece};
use format::ansi::{AnsiLabel, Ending, SectionLabel, Trailer};
use types::Time;

const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let records: [&[u8]; 4] = std::array::from_fn(|_| input.piece());
    if let Ok(label) = AnsiLabel::decode(records[0], records[1]) {
        let [vol1, uvl1] = label.encode();
        assert_eq!(AnsiLabel::decode(&vol1, &uvl1), Ok(label));
    }
    if let Ok(label) = SectionLabel::decode_header(&records) {
        assert_eq!(label.header().expect("what was read fits"), records);
    }
    if let Ok((label, trailer)) = SectionLabel::decode_trailer(&records) {
        assert_eq!(label.trailer(&trailer).expect("what was read fits"), records);
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let begun = Time::new(1_790_000_000, 5);
    let volume = AnsiLabel::new("TC0001L4", UUID, begun, 524_288).expect("a good barcode").encode();
    let section = |block_size| SectionLabel {
        set: "TC0001".to_owned(),
        section: 17,
        part: 1,
        first_block: 42,
        block_size,
        volume: UUID.to_owned(),
        begun,
    };
    let (large, small) = (section(524_288), section(4096));
    let end = |ending| Trailer { ending, blocks: 3, bytes: 2 * 4096 + 512 };
    let groups = [
        large.header(),
        small.header(),
        small.trailer(&end(Ending::Section)),
        small.trailer(&end(Ending::Volume)),
        small.trailer(&Trailer { ending: Ending::Void, blocks: 3, bytes: 0 }),
    ];
    let records = groups.into_iter().map(|group| group.expect("a good label").to_vec());
    let all = records.chain([volume.to_vec()]);
    all.map(|records| records.iter().flat_map(|record| piece(record)).collect()).collect()
}
