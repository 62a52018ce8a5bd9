//! A section of tar: members, records, holes, and the list at its front. The list is a list when written again.

use format::tar::index::{self, SectionHead};
use format::tar::padding;
use format::tar::plan::{Place, Plan};
use format::tar::read::Reader;
use types::{ClassName, CopyNo, Digest, Extent, Ino, TapeFile, Time, Version};

const PLACE: Place = Place { first_block: 7, block_size: 4096 };

pub(super) fn run(bytes: &[u8]) {
    list(bytes);
    let mut reader = Reader::new(bytes);
    let mut behind = 0;
    while let Ok(Some(member)) = reader.next() {
        assert!(member.offset >= behind && member.data > member.offset);
        behind = member.data + member.stored;
        let _ = (member.file(), member.name());
        if member.is_sparse() {
            let _ = reader.read_map(&member);
        } else if member.is_index()
            && let Ok(text) = reader.read_data(&member, u64::MAX)
        {
            list(&text);
        }
    }
}

fn list(text: &[u8]) {
    let Ok((head, entries)) = index::decode(text, PLACE) else { return };
    let again = index::encode(&head, &entries);
    let (head_again, entries_again) = index::decode(&again, PLACE).expect("a list that was written");
    assert_eq!(head_again, head);
    assert_eq!(entries_again, entries);
}

fn file(number: u64, path: &[u8], pieces: &[(u64, u64)], length: u64) -> TapeFile {
    let extent =
        |&(file_offset, byte_count)| Extent { file_offset, start_block: 0, byte_offset: 0, byte_count };
    TapeFile {
        uid: number,
        ino: Ino(number),
        version: Version(2),
        copy: CopyNo(1),
        file_size: length,
        segment_offset: 0,
        segment_length: length,
        extents: pieces.iter().map(extent).collect(),
        path: path.to_vec(),
        mode: 0o100_644,
        uid_owner: 1000,
        gid_owner: 3_000_000,
        times: [Time::new(-2, 5), Time::new(1, 0), Time::new(3, 0), Time::new(4, 0)],
        digest: Some(Digest([7; 32])),
        xattrs: vec![(b"user.a".to_vec(), b"b".to_vec()), (b"user.=".to_vec(), b"\0".to_vec())],
        class: ClassName("c".to_owned()),
        written: Time::new(5, 6),
        live: false,
        node: Default::default(),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let head = SectionHead {
        section: 1,
        volume: "30a91a08-daae-48d1-ae75-69804e61d2ea".to_owned(),
        begun: Time::new(1_790_000_000, 5),
        sums: 0,
        attributes: vec![("pool".to_owned(), b"p\n%".to_vec())],
    };
    let mut part = file(4, b"/part", &[(0, 9)], 9);
    part.file_size = 20;
    let files = vec![
        file(1, b"/a\xff", &[(0, 5)], 5),
        file(2, b"/s", &[(0, 10), (2000, 10)], 5000),
        file(3, b"/..", &[], 0),
        part,
    ];
    let plan = Plan::new(head, files, PLACE).expect("files that fit");
    let mut section = plan.front().to_vec();
    for entry in plan.entries() {
        section.extend(plan.head(entry));
        let held: u64 = entry.file.extents.iter().map(|extent| extent.byte_count).sum();
        section.resize(section.len() + (held + padding(held)) as usize, 1);
    }
    section.extend(plan.back(&[]));
    let list = index::encode(
        &SectionHead {
            section: 2,
            volume: "30a91a08-daae-48d1-ae75-69804e61d2ea".to_owned(),
            begun: Time::new(0, 0),
            sums: 0,
            attributes: Vec::new(),
        },
        plan.entries(),
    );
    vec![section, list]
}
