//! The files of a virtual library, as a damaged disk or another program leaves them: the library opens, or says which
//! file is wrong.

use super::bench::{BARCODE, Bench, config};
use crate::input::{Input, piece};
use std::path::{Path, PathBuf};
use vtl::Library;

pub(super) fn run(bytes: &[u8]) {
    let bench = Bench::new();
    drop(bench.library);
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let path = path(bench.dir.path(), &bench_cartridge(bench.dir.path()), &mut input);
        let content = input.piece();
        // a name that the file system does not take is no file
        let _ = std::fs::write(path, content);
    }
    let Ok(library) = Library::open(config(bench.dir.path())) else { return };
    let mut drive = scsi::Ssc::new(Box::new(library.drive(0)));
    for _ in 0..8 {
        let _ = drive.test_unit_ready();
    }
    let _ = (drive.read_attributes(0), drive.capacity(), drive.volume_statistics());
    let _ = (drive.space_to_end_of_data(), drive.write(b"record"), drive.rewind());
    let _ = (drive.read(&mut [0; 64]), drive.unload());
    let mut changer = scsi::Smc::new(Box::new(library.changer()));
    for _ in 0..3 {
        let _ = changer.test_unit_ready();
    }
    let _ = (changer.read_all_elements(), changer.move_medium(1, 1002));
}

fn bench_cartridge(library: &Path) -> PathBuf {
    library.join("cartridges").join(BARCODE)
}

/// Which file is written.
fn path(library: &Path, cartridge: &Path, input: &mut Input<'_>) -> PathBuf {
    match input.u8() % 4 {
        0 => library.join("elements"),
        1 => library.join(format!("cartridges/{BARCODE}.cartridge")),
        2 => cartridge.join(format!("attr_{}_{:x}", input.u8() % 3, input.u16())),
        _ => {
            let name: String = String::from_utf8_lossy(input.piece()).replace(['/', '\0'], "_");
            cartridge.join(if matches!(name.as_str(), "" | "." | "..") { "0_1_R" } else { &name })
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let elements = "thermocline virtual library 1\n1 TC0001L9 1001 robot\n";
    let meta = "thermocline virtual cartridge 1\nserial 01\ncapacity 16777216\npartition 16777216\n\
                protected 0\nloads 1\nwritten 2\nread 3\n";
    let attribute = scsi::Attribute::ascii(0x0806, BARCODE, 32).encode();
    let file = |name: &str, content: &[u8]| [vec![3], piece(name.as_bytes()), piece(content)].concat();
    vec![
        [vec![0], piece(elements.as_bytes())].concat(),
        [vec![1], piece(meta.as_bytes())].concat(),
        [vec![2, 0, 0x08, 0x06], piece(&attribute)].concat(),
        [file("0_0_R", b"record"), file("0_1_F", b""), file("0_2_E", b"")].concat(),
        [file("1_0_E", b""), file("0_0_E.tmp", b"x"), file("notes.txt", b"x")].concat(),
    ]
}
