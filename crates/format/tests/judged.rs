//! A cartridge made of our encodings, read by the independent reader in `tests/judges`, which shares no code with us.

use format::ltfs::file::to_index;
use format::ltfs::index::{DirMeta, IndexHeader, IndexWriter, Location};
use format::ltfs::label::{self, LtfsLabel};
use format::ltfs::mam::{Attribute, Coherency, HostInfo, host_attributes};
use format::ltfs::{Partition, name::tape_name, vol1};
use std::path::Path;
use std::process::Command;
use types::{ClassName, CopyNo, Extent, Ino, TapeFile, Time, Version};

const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";
const BLOCK: usize = 4096;
const NAMES: [&[u8]; 7] =
    [b"plain", b"colon:percent%20", b"new\nline", b"<&\"'>", b"\xff\xfe", "e\u{301}😀".as_bytes(), b"\x1f"];

/// Objects of a partition; None is a filemark.
type Objects = Vec<Option<Vec<u8>>>;

fn labelled(label: &LtfsLabel) -> Objects {
    let vol1 = vol1::encode("TC0001L9").unwrap();
    vec![Some(vol1.to_vec()), None, Some(label::encode(label)), None, None]
}

fn append(objects: &mut Objects, bytes: &[u8]) {
    objects.extend(bytes.chunks(BLOCK).map(|record| Some(record.to_vec())));
}

/// The bytes of the file of a number: some empty, some longer than a record.
fn content(number: usize) -> Vec<u8> {
    (0..number * 3000).map(|i| (i * 7 + number) as u8).collect()
}

fn tape_file(number: usize, at: usize) -> TapeFile {
    let length = content(number).len() as u64;
    let extent = Extent {
        file_offset: 0,
        start_block: 7 + (at / BLOCK) as u64,
        byte_offset: (at % BLOCK) as u32,
        byte_count: length,
    };
    TapeFile {
        uid: number as u64 + 2,
        ino: Ino(number as u64 + 100),
        version: Version(1),
        copy: CopyNo(1),
        file_size: length,
        segment_offset: 0,
        segment_length: length,
        extents: if length == 0 { Vec::new() } else { vec![extent] },
        path: [b"/dir/", NAMES[number]].concat(),
        mode: 0o100_600,
        uid_owner: 1,
        gid_owner: 2,
        times: [Time::new(-5, 6); 4],
        digest: None,
        xattrs: vec![(b"user.\xff name".to_vec(), vec![0, number as u8])],
        class: ClassName::from("standard"),
        written: Time::new(i64::MAX, 0),
        live: true,
        node: Default::default(),
    }
}

fn index(generation: u64, location: Location, previous: Option<Location>, files: &[TapeFile]) -> Vec<u8> {
    let mut writer = IndexWriter::new(Vec::new());
    let header = IndexHeader {
        creator: "Thermocline".to_owned(),
        comment: Some("a <comment>".to_owned()),
        volume_uuid: UUID.to_owned(),
        generation,
        update_time: Time::new(1, 2),
        location,
        previous,
        allow_policy_update: true,
        highest_file_uid: 100,
        unknown: Vec::new(),
    };
    writer.begin(&header).unwrap();
    writer.enter_dir(&DirMeta { uid: 1, ..DirMeta::default() }).unwrap();
    writer.enter_dir(&DirMeta { uid: 100, name: "dir".to_owned(), ..DirMeta::default() }).unwrap();
    for (file, name) in files.iter().zip(NAMES) {
        writer.file(&to_index(&tape_name(name), file).unwrap()).unwrap();
    }
    writer.leave_dir().unwrap();
    writer.leave_dir().unwrap();
    writer.finish().unwrap()
}

fn store(directory: &Path, sides: [&Objects; 2], attributes: [Vec<Attribute>; 2]) {
    for (side, (objects, attributes)) in sides.into_iter().zip(attributes).enumerate() {
        for (block, object) in objects.iter().enumerate() {
            let kind = if object.is_some() { "R" } else { "F" };
            std::fs::write(
                directory.join(format!("{side}_{block}_{kind}")),
                object.as_deref().unwrap_or_default(),
            )
            .unwrap();
        }
        std::fs::write(directory.join(format!("{side}_{}_E", objects.len())), "").unwrap();
        for attribute in attributes {
            std::fs::write(directory.join(format!("attr_{side}_{:x}", attribute.id)), attribute.encode())
                .unwrap();
        }
    }
}

#[test]
fn an_independent_reader_reads_every_file() {
    let label = LtfsLabel::new("TC0001L9", UUID, Time::new(1, 0), BLOCK as u32, "Thermocline").unwrap();
    let mut data = labelled(&label.on(Partition::DATA));
    let first = Location { partition: Partition::DATA, block: 5 };
    append(&mut data, &index(1, first, None, &[]));
    data.push(None);
    assert_eq!(data.len(), 7);
    let (mut bytes, mut files) = (Vec::new(), Vec::new());
    for number in 0..NAMES.len() {
        files.push(tape_file(number, bytes.len()));
        bytes.extend(content(number));
    }
    append(&mut data, &bytes);
    data.push(None);
    let second = Location { partition: Partition::DATA, block: data.len() as u64 };
    append(&mut data, &index(2, second, Some(first), &files));
    data.push(None);
    let mut front = labelled(&label);
    append(&mut front, &index(2, Location { partition: Partition::INDEX, block: 5 }, Some(second), &files));
    front.push(None);

    let coherency =
        |block| Coherency { vcr: 9, generation: 2, block, uuid: UUID.to_owned() }.encode().unwrap();
    let info = HostInfo { program_version: "0.1", barcode: "TC0001L9", text_label: "", pool: "p", lock: 0 };
    let host = [host_attributes(&info), vec![coherency(5)]].concat();
    let directory = tempfile::tempdir().unwrap();
    store(directory.path(), [&front, &data], [host, vec![coherency(second.block)]]);

    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges/ltfs_reader.py");
    let out = directory.path().join("out");
    let verdict = Command::new("python3")
        .arg(judge)
        .arg(directory.path())
        .args(["--require-memory", "--generation=2", &format!("--files={}", NAMES.len()), "--extract"])
        .arg(&out)
        .output()
        .expect("python3 is needed for this test");
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stderr));
    for (number, file) in files.iter().enumerate() {
        assert_eq!(std::fs::read(out.join(file.uid.to_string())).unwrap(), content(number), "file {number}");
    }
}
