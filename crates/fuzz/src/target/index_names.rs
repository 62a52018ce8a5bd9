//! From bytes of names, attributes and extents to an index, and back through our reader and through another one.

use super::index::{Part, read, write};
use crate::input::{Input, piece};
use format::ltfs::file::{from_index, to_index};
use format::ltfs::index::{
    Content, DirMeta, EntryTimes, IndexFile, IndexHeader, Location, WriteError, Xattr,
};
use format::ltfs::{Partition, name, time};
use types::{ClassName, CopyNo, Digest, Extent, Ino, TapeFile, Time, Version};

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut parts =
        vec![Part::Header(header(&mut input)), Part::Enter(DirMeta { uid: 1, ..DirMeta::default() })];
    let mut depth = 1;
    while !input.is_empty() && depth > 0 {
        match input.u8() % 4 {
            0 => parts.push(Part::File(plain(&mut input))),
            1 => parts.extend(ours(&mut input).map(Part::File)),
            2 => {
                let name = name::tape_name(input.piece());
                let times = times(&mut input);
                parts.push(Part::Enter(DirMeta { name, uid: 2, times, ..DirMeta::default() }));
                depth += 1;
            }
            _ if depth > 1 => {
                parts.push(Part::Leave);
                depth -= 1;
            }
            _ => {}
        }
    }
    parts.extend((0..depth).map(|_| Part::Leave));
    match write(&parts) {
        Ok(written) => returned(&written, &parts),
        Err(WriteError::Value { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn header(input: &mut Input<'_>) -> IndexHeader {
    let location = Location { partition: Partition::DATA, block: input.u64() };
    let comment = String::from_utf8_lossy(input.piece()).into_owned();
    IndexHeader {
        creator: String::from_utf8_lossy(input.piece()).into_owned(),
        comment: Some(comment).filter(|c| !c.is_empty()),
        volume_uuid: "30a91a08-daae-48d1-ae75-69804e61d2ea".to_owned(),
        generation: input.u64(),
        update_time: any_time(input),
        location,
        previous: (input.u8() & 1 == 1).then_some(location),
        allow_policy_update: true,
        highest_file_uid: u64::MAX,
        unknown: Vec::new(),
    }
}

/// A time that the format can express.
fn any_time(input: &mut Input<'_>) -> Time {
    time::clamp(Time::new(input.u64() as i64, input.u32()))
}

fn times(input: &mut Input<'_>) -> EntryTimes {
    let time = any_time(input);
    EntryTimes { creation: time, change: time, modify: any_time(input), access: time, backup: time }
}

/// A file of somebody else: names and attributes as they come.
fn plain(input: &mut Input<'_>) -> IndexFile {
    let text = |input: &mut Input<'_>| String::from_utf8_lossy(input.piece()).into_owned();
    let name = text(input);
    let link = text(input);
    IndexFile {
        name,
        uid: input.u64(),
        length: input.u64(),
        readonly: input.u8() & 1 == 1,
        times: times(input),
        xattrs: (0..input.u8() % 4)
            .map(|_| Xattr { key: text(input), value: input.piece().to_vec() })
            .collect(),
        content: if link.is_empty() { Content::Extents(Vec::new()) } else { Content::Symlink(link) },
        unknown: Vec::new(),
    }
}

/// A segment of ours, which returns from its LTFS file unchanged; None if it cannot exist.
fn ours(input: &mut Input<'_>) -> Option<IndexFile> {
    let mut time = || Time::new(input.u64() as i64, input.u32() % 1_000_000_000);
    let times = [time(), time(), time(), time()];
    let (segment_offset, segment_length) = (input.u64(), input.u64());
    let extent = Extent {
        file_offset: segment_offset.wrapping_add(input.u64()),
        start_block: input.u64(),
        byte_offset: input.u32(),
        byte_count: input.u64(),
    };
    let segment = TapeFile {
        uid: input.u64(),
        ino: Ino(input.u64()),
        version: Version(input.u32()),
        copy: CopyNo(input.u8()),
        file_size: input.u64(),
        segment_offset,
        segment_length,
        extents: if input.u8() & 1 == 1 { vec![extent] } else { Vec::new() },
        path: input.piece().to_vec(),
        mode: input.u32(),
        uid_owner: input.u32(),
        gid_owner: input.u32(),
        times,
        digest: (input.u8() & 1 == 1).then_some(Digest([input.u8(); 32])),
        xattrs: (0..input.u8() % 4)
            .map(|_| (input.piece().iter().copied().filter(|b| *b != 0).collect(), input.piece().to_vec()))
            .collect(),
        class: ClassName(String::from_utf8_lossy(input.piece()).into_owned()),
        written: times[0],
        live: input.u8() & 1 == 1,
        node: Default::default(),
    };
    let name = name::tape_name(segment.path.rsplit(|b| *b == b'/').next().unwrap_or_default());
    let file = to_index(&name, &segment).ok()?;
    let end = segment.segment_offset.checked_add(segment.segment_length)?;
    let inside = |e: &Extent| e.file_offset.checked_add(e.byte_count).is_some_and(|stop| stop <= end);
    if end > segment.file_size || !segment.extents.iter().all(inside) {
        return Some(on_tape(file));
    }
    assert_eq!(from_index(&file).as_ref(), Ok(&Some(segment.clone())));
    let file = on_tape(file);
    assert_eq!(from_index(&file).as_ref(), Ok(&Some(segment)), "where LTFS cannot express a time");
    Some(file)
}

/// The file with its times as LTFS can express them.
fn on_tape(file: IndexFile) -> IndexFile {
    let EntryTimes { creation, change, modify, access, backup } = file.times;
    let [creation, change, modify, access, backup] =
        [creation, change, modify, access, backup].map(time::clamp);
    IndexFile { times: EntryTimes { creation, change, modify, access, backup }, ..file }
}

fn returned(written: &[u8], parts: &[Part]) {
    let shown = || String::from_utf8_lossy(written).into_owned();
    let (again, result) = read(written);
    assert_eq!(result, Ok(()), "{}", shown());
    assert_eq!(again, parts, "{}", shown());
    let text = std::str::from_utf8(written).expect("an index is UTF-8");
    let document = match roxmltree::Document::parse(text) {
        Ok(document) => document,
        Err(error) => panic!("other readers refuse what we write: {error}\n{text}"),
    };
    let files = document.descendants().filter(|n| n.has_tag_name("file"));
    let theirs: Vec<_> = files.map(|n| field(n, "name")).collect();
    let ours = parts.iter().filter_map(|p| if let Part::File(f) = p { Some(f.name.clone()) } else { None });
    assert_eq!(theirs, ours.collect::<Vec<_>>(), "other readers see other names\n{text}");
}

/// Text of a child as another reader decodes it.
fn field(node: roxmltree::Node<'_, '_>, tag: &str) -> String {
    let child = node.children().find(|c| c.has_tag_name(tag)).expect("every file has a name");
    let text = child.text().unwrap_or_default();
    match child.attribute("percentencoded") {
        Some("true") => String::from_utf8(percent(text.as_bytes())).expect("names are UTF-8"),
        _ => text.to_owned(),
    }
}

/// Percent decoding after RFC 3986, written here again to be independent.
fn percent(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let hex = text.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) if text[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let head = [vec![0; 8], piece(b"a comment"), piece(b"Thermocline"), vec![0; 21]].concat();
    let names: [&[u8]; 7] =
        [b"plain", b"a:b%20", b"<&\"'>", b"new\nline", b"\xff\xfe", "e\u{301}😀".as_bytes(), b"\x1f\r"];
    let dir = |name: &[u8]| [vec![2], piece(name), vec![0; 24]].concat();
    let file = |name: &[u8]| {
        let fixed = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 1].to_vec();
        let xattr = [piece(b"user.k"), piece(name)].concat();
        [vec![0], piece(name), piece(b""), fixed, vec![0; 24], vec![1], xattr].concat()
    };
    let own = |path: &[u8]| {
        let place = [
            vec![1],
            vec![0; 48 + 16 + 8 + 8 + 4 + 8],
            3u64.to_be_bytes().to_vec(),
            vec![0; 8 + 4 + 1 + 8 + 1],
        ];
        [
            place.concat(),
            piece(path),
            vec![0; 12],
            vec![1, 7, 1],
            piece(b"user.x"),
            piece(b"v"),
            piece(b"standard"),
            vec![1],
        ]
        .concat()
    };
    names.iter().map(|name| [head.clone(), dir(name), file(name), own(name), vec![3]].concat()).collect()
}
