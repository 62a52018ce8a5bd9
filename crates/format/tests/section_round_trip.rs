//! Sections return unchanged: from the list of members, and from the members themselves.

mod common;

use common::section::{PLACE, head, read_alone, write};
use common::{any_tape_file, any_time};
use format::tar::header::{Header, PAX};
use format::tar::index;
use format::tar::plan::Plan;
use format::tar::read::{Member, Reader};
use proptest::prelude::*;
use std::io::Read;
use types::{Extent, TapeFile, Time};

/// A file of at most 64 KiB with times that exist.
fn small_file() -> impl Strategy<Value = (TapeFile, Vec<u8>)> {
    (any_tape_file(), 0..40_000_u64, 0..20_000_u64, prop::collection::vec((0..9000_u64, 1..9000_u64), 0..5))
        .prop_map(|(mut file, size, offset, parts)| {
            (file.file_size, file.segment_offset) = (size, offset.min(size));
            file.segment_length =
                if offset % 3 == 0 { size - file.segment_offset } else { (size - file.segment_offset) / 2 };
            let (mut at, end) = (file.segment_offset, file.segment_offset + file.segment_length);
            file.extents.clear();
            for (gap, length) in parts {
                let from = (at + gap / 2 * (gap % 2)).min(end);
                let byte_count = length.min(end - from);
                file.extents.push(Extent { file_offset: from, start_block: 9, byte_offset: 9, byte_count });
                at = from + byte_count;
            }
            if offset % 2 == 0 {
                let (file_offset, byte_count) = (file.segment_offset, file.segment_length);
                file.extents = vec![Extent { file_offset, start_block: 0, byte_offset: 0, byte_count }];
            }
            for time in file.times.iter_mut().chain([&mut file.written]) {
                time.nanos %= 1_000_000_000;
            }
            file.xattrs.iter_mut().for_each(|(name, _)| name.retain(|&byte| byte != 0));
            let mut content = vec![0; size as usize];
            for extent in &file.extents {
                for at in extent.file_offset..extent.file_offset + extent.byte_count {
                    content[at as usize] = 1 + (at * 7 % 251) as u8;
                }
            }
            (file, content)
        })
}

fn members(section: &[u8]) -> Vec<Member> {
    let mut reader = Reader::new(section);
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

/// The list of members, found as a stranger finds it.
fn listed(section: &[u8]) -> (index::SectionHead, Vec<index::Entry>) {
    let mut reader = Reader::new(section);
    let first = reader.next().unwrap().unwrap();
    assert!(first.is_index());
    index::decode(&reader.read_data(&first, u64::MAX).unwrap(), PLACE).unwrap()
}

/// The same file, as far as planning may change it.
fn without_places(file: &TapeFile) -> TapeFile {
    TapeFile { extents: Vec::new(), ..file.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn files_return_from_the_list_and_from_the_members(files in prop::collection::vec(small_file(), 0..6)) {
        let (files, contents): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let plan = Plan::new(head(), files.clone(), PLACE).unwrap();
        let section = write(&plan, &contents);
        let (found, entries) = listed(&section);
        prop_assert_eq!(&found.attributes, &head().attributes);
        prop_assert_eq!(&entries[..], plan.entries());
        let members = members(&section);
        prop_assert_eq!(members.len(), files.len() + 2);
        prop_assert_eq!(members.last().unwrap().offset, found.sums);
        for (n, entry) in entries.iter().enumerate() {
            prop_assert_eq!(without_places(&entry.file), without_places(&files[n]));
            let file = &entry.file;
            let segment = &contents[n][file.segment_offset as usize..][..file.segment_length as usize];
            prop_assert_eq!(read_alone(&section, file), segment);
            let member = &members[n + 1];
            prop_assert_eq!((member.offset, member.data, member.stored), (entry.offset, entry.data, entry.stored));
            prop_assert_eq!(member.file().unwrap(), Some(without_places(file)));
            if member.is_sparse() {
                let mut reader = Reader::new(&section[member.offset as usize..]);
                let again = reader.next().unwrap().unwrap();
                let pieces: Vec<_> =
                    file.extents.iter().map(|e| (e.file_offset - file.segment_offset, e.byte_count)).collect();
                prop_assert_eq!(reader.read_map(&again).unwrap(), pieces);
            }
        }
    }

    #[test]
    fn any_file_is_planned_or_refused(file in any_tape_file(), time in any_time()) {
        if let Ok(plan) = Plan::new(head(), vec![TapeFile { written: time, ..file }], PLACE) {
            let (_, entries) = listed(plan.front());
            prop_assert_eq!(&entries[0].file.extents, &plan.entries()[0].file.extents);
        }
    }

    #[test]
    fn a_cut_or_changed_list_is_refused_or_reads_as_a_list(at: prop::sample::Index, byte: u8, cut: bool) {
        let file = TapeFile { path: b"/a".to_vec(), ..sample() };
        let plan = Plan::new(head(), vec![file.clone(), file], PLACE).unwrap();
        let mut list = index::encode(&head(), plan.entries());
        let at = at.index(list.len());
        if cut {
            prop_assert!(index::decode(&list[..at], PLACE).is_err());
        } else {
            list[at] = byte;
            let _ = index::decode(&list, PLACE);
        }
    }
}

fn sample() -> TapeFile {
    let time = Time::new(1, 2);
    TapeFile {
        uid: 2,
        ino: types::Ino(5),
        version: types::Version(6),
        copy: types::CopyNo(1),
        file_size: 10,
        segment_offset: 0,
        segment_length: 10,
        extents: vec![Extent { file_offset: 0, start_block: 0, byte_offset: 0, byte_count: 10 }],
        path: b"/f".to_vec(),
        mode: 0o100_644,
        uid_owner: 1,
        gid_owner: 2,
        times: [time; 4],
        digest: None,
        xattrs: Vec::new(),
        class: types::ClassName("default".to_owned()),
        written: time,
        live: true,
        node: Default::default(),
    }
}

#[test]
fn what_cannot_be_planned_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut TapeFile)| {
        let mut file = sample();
        change(&mut file);
        Plan::new(head(), vec![file], PLACE).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&|file| file.file_size = 9).contains("\"/f\""));
    assert!(refused(&|file| file.extents[0].byte_count = 11).contains("outside"));
    assert!(refused(&|file| file.extents.push(file.extents[0])).contains("overlap"));
    let huge = refused(&|file| {
        (file.file_size, file.segment_length) = (u64::MAX, u64::MAX);
        file.extents[0].byte_count = u64::MAX;
    });
    assert!(huge.contains("too long"), "{huge}");
}

#[test]
fn a_cut_section_is_noticed() {
    let plan = Plan::new(head(), vec![sample()], PLACE).unwrap();
    let section = write(&plan, &[vec![7; 10]]);
    for cut in [0, 511, 512, 2000, section.len() - 1024] {
        let mut reader = Reader::new(&section[..cut]);
        let end = std::iter::from_fn(|| reader.next().transpose()).find_map(Result::err);
        assert!(end.is_some_and(|e| e.to_string().contains("cut off")), "{cut}");
    }
}

#[test]
fn a_list_whose_members_overlap_is_damaged() {
    let plan = Plan::new(head(), vec![sample(), sample()], PLACE).unwrap();
    let mut entries = plan.entries().to_vec();
    assert!(index::decode(&index::encode(&head(), &entries), PLACE).is_ok());
    entries[1].offset = entries[0].offset;
    let overlapping = index::decode(&index::encode(&head(), &entries), PLACE).unwrap_err();
    assert!(overlapping.to_string().contains("overlap"), "{overlapping}");
}

#[test]
fn a_pax_header_of_any_length_is_not_taken_into_memory() {
    let size = (64 << 20) + 1;
    let header = Header { name: b"x".to_vec(), kind: PAX, size, ..Header::default() };
    let block = header.encode();
    let endless = (&block[..]).chain(std::io::repeat(b' '));
    let refused = Reader::new(endless).next().unwrap_err();
    assert!(refused.to_string().contains(&format!("a pax header of {size} bytes")), "{refused}");
}
