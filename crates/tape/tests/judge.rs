//! The independent reader (`tests/judges/ltfs_reader.py`, no code shared) agrees with what was written.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::catalogue::{Catalogue, barcode};
use support::{Fake, Object};

fn judge(cartridge: &Path, arguments: &[&str]) -> Output {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges/ltfs_reader.py");
    Command::new("python3").arg(script).arg(cartridge).args(arguments).output().expect("python3 runs")
}

/// Saves the medium as a cartridge directory.
fn save(fake: &Fake, dir: &Path) {
    let s = fake.state();
    for (p, objects) in s.live.partitions.iter().enumerate() {
        for (b, object) in objects.iter().enumerate() {
            match object {
                Object::Record(bytes) => std::fs::write(dir.join(format!("{p}_{b}_R")), bytes),
                Object::Filemark => std::fs::write(dir.join(format!("{p}_{b}_F")), []),
            }
            .unwrap();
        }
        std::fs::write(dir.join(format!("{p}_{}_E", objects.len())), []).unwrap();
    }
    let vcr = scsi::Attribute::binary(9, s.live.vcr.to_be_bytes()).encode();
    for p in 0..2 {
        std::fs::write(dir.join(format!("attr_{p}_9")), &vcr).unwrap();
    }
    for ((p, id), (format, value)) in &s.live.memory {
        let mut raw = id.to_be_bytes().to_vec();
        raw.push(*format);
        raw.extend((value.len() as u16).to_be_bytes());
        raw.extend(value);
        std::fs::write(dir.join(format!("attr_{p}_{id:x}")), raw).unwrap();
    }
}

#[test]
fn the_judge_reads_every_file() {
    let fake = Fake::new(64 << 20);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, 4096).unwrap();
    for n in 0..5_usize {
        let batch: Vec<_> = (0..20).map(|i| vec![(n * 20 + i) as u8; (n * 20 + i) * 97]).collect();
        catalogue.append(&mut mounted, &batch).unwrap();
        if n % 2 == 0 {
            catalogue.index(&mut mounted).unwrap();
        }
    }
    mounted.unload().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cartridge, out) = (dir.path().join("TC0001L9"), dir.path().join("out"));
    std::fs::create_dir(&cartridge).unwrap();
    save(&fake, &cartridge);
    let generation = catalogue.point.generation.to_string();
    let arguments = [
        "--require-memory",
        "--generation",
        &generation,
        "--files",
        "100",
        "--extract",
        out.to_str().unwrap(),
    ];
    let verdict = judge(&cartridge, &arguments);
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stderr));
    for (file, uid) in catalogue.files.iter().zip(2..) {
        assert_eq!(std::fs::read(out.join(format!("{uid}"))).unwrap(), file.bytes, "{}", file.name);
    }
    // and it can say no: a byte less in the last record that holds data
    let block = catalogue.files[99].extents[0].start_block;
    let record = cartridge.join(format!("1_{block}_R"));
    let short = std::fs::read(&record).unwrap();
    std::fs::write(&record, &short[..short.len() - 1]).unwrap();
    assert_eq!(judge(&cartridge, &arguments).status.code(), Some(1));
}
