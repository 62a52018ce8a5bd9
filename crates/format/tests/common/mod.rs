//! Strategies and helpers shared by the tests.
#![allow(dead_code)]

pub mod section;

use format::ltfs::index::{IndexError, IndexEvent, IndexFile, IndexHeader, Location, parse};
use format::ltfs::{Partition, index::DirMeta};
use proptest::prelude::*;
use std::ops::ControlFlow;
use types::{ClassName, CopyNo, Digest, Extent, Ino, NodeFacts, TapeFile, Time, Version};

pub const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";

pub fn header() -> IndexHeader {
    IndexHeader {
        creator: "Thermocline 0.1.0 - Linux - thermo".to_owned(),
        comment: None,
        volume_uuid: UUID.to_owned(),
        generation: 3,
        update_time: Time::new(1_790_000_000, 5),
        location: Location { partition: Partition::DATA, block: 17 },
        previous: Some(Location { partition: Partition::DATA, block: 5 }),
        allow_policy_update: true,
        highest_file_uid: u64::MAX,
        unknown: Vec::new(),
    }
}

/// Everything that an index says, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Owned {
    Header(IndexHeader),
    Enter(DirMeta),
    File(IndexFile),
    Leave,
}

pub fn read(bytes: &[u8]) -> Result<Vec<Owned>, IndexError> {
    let mut events = Vec::new();
    let _ = parse(bytes, &mut |event| {
        events.push(match event {
            IndexEvent::Header(h) => Owned::Header(h.clone()),
            IndexEvent::EnterDir(d) => Owned::Enter(d.clone()),
            IndexEvent::File(f) => Owned::File(f.clone()),
            IndexEvent::LeaveDir => Owned::Leave,
        });
        ControlFlow::Continue(())
    })?;
    Ok(events)
}

pub fn any_time() -> impl Strategy<Value = Time> {
    prop_oneof![
        (any::<i64>(), any::<u32>()).prop_map(|(s, n)| Time::new(s, n)),
        (-70_000_000_000..300_000_000_000_i64, 0..1_000_000_000_u32).prop_map(|(s, n)| Time::new(s, n)),
    ]
}

/// Names as a hostile user makes them: any bytes, and mixtures of the characters that formats trip over.
pub fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"<".to_vec()),
        Just(b"&amp;".to_vec()),
        Just(b"\"'".to_vec()),
        Just(b"%41".to_vec()),
        Just(b":".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\t ".to_vec()),
        Just(b"]]>".to_vec()),
        Just("e\u{301}".as_bytes().to_vec()),
        Just("😀".as_bytes().to_vec()),
        Just("\u{fffe}\u{85}".as_bytes().to_vec()),
        Just(b"\x1f\xff\xc3".to_vec()),
        "[a-z.]{1,8}".prop_map(String::into_bytes),
        prop::collection::vec(1..=255_u8, 1..40),
    ];
    prop::collection::vec(piece, 1..30).prop_map(|pieces| {
        let mut name = pieces.concat();
        name.retain(|&b| b != b'/' && b != 0);
        name.truncate(255);
        if name.is_empty() { b"x".to_vec() } else { name }
    })
}

fn extents(segment: u64, length: u64) -> impl Strategy<Value = Vec<Extent>> {
    let cut = (0..=length, any::<u64>(), any::<u32>(), any::<bool>());
    prop::collection::vec(cut, 0..6).prop_map(move |mut cuts| {
        cuts.sort_by_key(|c| c.0);
        let ends: Vec<u64> = cuts.iter().skip(1).map(|c| c.0).chain([length]).collect();
        let kept = cuts.into_iter().zip(ends).filter(|(c, end)| c.3 && *end > c.0);
        kept.map(|((at, start_block, byte_offset, _), end)| Extent {
            file_offset: segment + at,
            start_block,
            byte_offset,
            byte_count: end - at,
        })
        .collect()
    })
}

fn place() -> impl Strategy<Value = (u64, u64, u64, Vec<Extent>)> {
    let size = prop_oneof![Just(0), 1..4_000_000_u64, 0..=u64::MAX];
    size.prop_flat_map(|size| {
        let whole = (Just(0), Just(size));
        let part = (0..=size).prop_flat_map(move |at| (Just(at), 0..=size - at));
        prop_oneof![whole.boxed(), part.boxed()]
            .prop_flat_map(move |(at, length)| (Just(size), Just(at), Just(length), extents(at, length)))
    })
}

pub fn any_tape_file() -> impl Strategy<Value = TapeFile> {
    let ids = (1..=u64::MAX, any::<u64>(), any::<u32>(), any::<u8>());
    let owner = (any::<u32>(), any::<u32>(), any::<u32>());
    let path = prop::collection::vec(any_name(), 1..8);
    let xattr = (prop::collection::vec(1..=255_u8, 1..255), prop::collection::vec(any::<u8>(), 0..80));
    let clean =
        ("user\\.[a-z]{1,12}".prop_map(String::into_bytes), "\\PC{0,60}".prop_map(String::into_bytes));
    let xattrs = prop::collection::vec(prop_oneof![xattr.boxed(), clean.boxed()], 0..4);
    let times = (any_time(), any_time(), any_time(), any_time(), any_time());
    let rest = (any::<Option<[u8; 32]>>(), "\\PC{1,20}", any::<bool>());
    let node = (prop::collection::vec((any::<u64>(), any_name()), 0..3), any::<u32>());
    (ids, owner, place(), path, xattrs, times, rest, node).prop_map(
        |(ids, owner, place, path, xattrs, times, rest, node)| TapeFile {
            uid: ids.0,
            ino: Ino(ids.1),
            version: Version(ids.2),
            copy: CopyNo(ids.3),
            file_size: place.0,
            segment_offset: place.1,
            segment_length: place.2,
            extents: place.3,
            path: [b"/".as_slice(), &path.join(&b'/')].concat(),
            mode: owner.0,
            uid_owner: owner.1,
            gid_owner: owner.2,
            times: [times.0, times.1, times.2, times.3],
            written: times.4,
            digest: rest.0.map(Digest),
            xattrs,
            class: ClassName(rest.1),
            live: rest.2,
            node: NodeFacts {
                names: node.0.into_iter().map(|(dir, name)| (Ino(dir), name)).collect(),
                beside: Version(node.1),
                ..NodeFacts::default()
            },
        },
    )
}
