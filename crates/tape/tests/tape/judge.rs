//! The independent reader (`tests/judges/ltfs_reader.py`, no code shared) agrees with what was written.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn judge(cartridge: &Path, arguments: &[&str]) -> Output {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges/ltfs_reader.py");
    Command::new("python3").arg(script).arg(cartridge).args(arguments).output().expect("python3 runs")
}

#[test]
fn the_judge_reads_every_file() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
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
    let (cartridge, out) = (rig.cartridge(BARCODE), rig.dir.path().join("out"));
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
