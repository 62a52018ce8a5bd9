//! Prints how many files a second go into an index and come out of it on one core:
//! `cargo run --release -p format --example index_speed -- [files]`.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use format::ltfs::file::{from_index, to_index};
use format::ltfs::index::{DirMeta, EntryTimes, IndexEvent, IndexHeader, IndexWriter, Location, parse};
use format::ltfs::{Partition, name::tape_name};
use std::ops::ControlFlow;
use std::time::Instant;
use types::{ClassName, CopyNo, Digest, Extent, Ino, TapeFile, Time, Version};

fn sample(uid: u64) -> TapeFile {
    let time = Time::new(1_790_000_000 + uid as i64, 123_456_789);
    TapeFile {
        uid,
        ino: Ino(uid),
        version: Version(1),
        copy: CopyNo(1),
        file_size: 20_000,
        segment_offset: 0,
        segment_length: 20_000,
        extents: vec![Extent {
            file_offset: 0,
            start_block: uid / 26,
            byte_offset: (uid % 26 * 20_000) as u32,
            byte_count: 20_000,
        }],
        path: format!("/projects/climate/run-{}/output-{uid:08}.nc", uid / 1000).into_bytes(),
        mode: 0o100_644,
        uid_owner: 1000,
        gid_owner: 1000,
        times: [time; 4],
        digest: Some(Digest([uid as u8; 32])),
        xattrs: Vec::new(),
        class: ClassName::from("standard"),
        written: time,
        live: true,
        node: Default::default(),
    }
}

fn main() {
    let files: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(300_000);
    let tape_files: Vec<TapeFile> = (2..files + 2).map(sample).collect();
    let rate = |since: Instant| files as f64 / since.elapsed().as_secs_f64();

    let start = Instant::now();
    let mut writer = IndexWriter::new(Vec::new());
    let header = IndexHeader {
        creator: "speed".to_owned(),
        comment: None,
        volume_uuid: "30a91a08-daae-48d1-ae75-69804e61d2ea".to_owned(),
        generation: 1,
        update_time: Time::default(),
        location: Location { partition: Partition::DATA, block: 5 },
        previous: None,
        allow_policy_update: true,
        highest_file_uid: files + 1,
        unknown: Vec::new(),
    };
    writer.begin(&header).expect("begin");
    let root = DirMeta { uid: 1, times: EntryTimes::default(), ..DirMeta::default() };
    writer.enter_dir(&root).expect("root");
    for file in &tape_files {
        let name = file.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        writer.file(&to_index(&tape_name(name), file).expect("map")).expect("write");
    }
    writer.leave_dir().expect("leave");
    let index = writer.finish().expect("finish");
    println!("written: {:.0} files/s, {} bytes of index per file", rate(start), index.len() as u64 / files);

    let start = Instant::now();
    let mut seen = 0;
    let parsed = parse(&index[..], &mut |event| {
        if let IndexEvent::File(file) = event {
            seen += u64::from(from_index(file).is_ok_and(|file| file.is_some()));
        }
        ControlFlow::Continue(())
    });
    parsed.map(|_| ()).expect("parse");
    assert_eq!(seen, files);
    println!("parsed:  {:.0} files/s", rate(start));
}
