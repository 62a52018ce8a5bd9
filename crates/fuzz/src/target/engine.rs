//! The directory of an embedded engine: its marker, and a data file that is not one or is cut. It is refused, or it
//! holds what was in it. Changed bytes inside pages are not tried: LMDB keeps no sums (`docs/formats/engine.md`).

use super::bench::scratch;
use crate::input::{Input, piece};
use kv::{Durability, Engine, LmdbEngine, LmdbOptions};
use std::fs::OpenOptions;
use std::path::Path;

const KEPT: (&[u8], &[u8]) = (b"key", b"value");

fn open(dir: &Path) -> kv::Result<LmdbEngine> {
    // A journal would cost each input 16 MiB; what is read of it has properties of its own (`kv`, `lmdb/journal/tests.rs`).
    LmdbEngine::open(dir, LmdbOptions { map_bytes: 64 << 20, journal: false, ..LmdbOptions::default() })
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let dir = scratch();
    let choice = input.u8();
    if choice & 1 == 1 {
        let engine = open(dir.path()).expect("a new engine");
        let put = engine.write_dyn(Durability::Durable, &mut |w| w.put(KEPT.0, KEPT.1));
        put.expect("it takes a pair");
    }
    let untouched = damage(dir.path(), choice, &mut input);
    let Ok(engine) = open(dir.path()) else {
        assert!(!untouched, "an undamaged engine is refused");
        return;
    };
    let found: kv::Result<_> = kv::read(&engine, |r| r.get(KEPT.0));
    let found = found.expect("it can be read");
    if choice & 1 == 1 {
        assert_eq!(found.as_deref(), Some(KEPT.1), "what was durable is gone");
    }
}

/// Changes files as the input says; true if nothing was.
fn damage(dir: &Path, choice: u8, input: &mut Input<'_>) -> bool {
    let data = dir.join("data.mdb");
    match choice >> 1 & 3 {
        0 => std::fs::write(dir.join("engine"), input.piece()).expect("the marker"),
        1 => std::fs::write(&data, input.piece()).expect("a data file"),
        2 => {
            let Ok(file) = OpenOptions::new().write(true).open(&data) else { return true };
            let length = file.metadata().expect("its length").len();
            let cut = u64::from(input.u32()) % (length + 1);
            file.set_len(cut).expect("it is cut");
            return cut == length;
        }
        _ => return true,
    }
    false
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let marker = [vec![1], piece(b"thermocline engine lmdb 1\n")].concat();
    let former = [vec![1], piece(b"thermocline engine lmdb 2\n")].concat();
    let present = [vec![1], piece(b"thermocline engine lmdb 3\n")].concat();
    let data = [vec![2], piece(&[0; 32])].concat();
    vec![marker, former, present, data, vec![5, 0, 0, 0x20, 0], vec![5, 0, 0, 1, 0], vec![7], vec![6]]
}
