//! Creates files and nothing else, for counting instructions:
//! `valgrind --tool=callgrind target/release/examples/create_cost 20000 flush|overlay`. With `overlay` nothing reaches
//! the store before the end, so the difference of two runs with different numbers is what a create costs in memory.

use catalog::{Catalog, New};
use kv::{LmdbEngine, LmdbOptions};
use std::sync::Arc;
use std::time::Duration;
use types::*;

fn main() {
    let mut args = std::env::args().skip(1);
    let files: u64 = args.next().map_or(20_000, |a| a.parse().expect("a number of files"));
    let overlay = args.next().is_some_and(|a| a == "overlay");
    let dir = tempfile::tempdir_in(".").expect("temp dir");
    let mut options = LmdbOptions { map_bytes: 16 << 30, ..LmdbOptions::default() };
    if overlay {
        (options.flush_interval, options.overlay_bytes) = (Duration::from_secs(3600), 4 << 30);
    }
    let engine = Arc::new(LmdbEngine::open(dir.path(), options).expect("engine"));
    let c = Catalog::open(engine, Time::new(1_700_000_000, 0)).expect("catalogue");
    let mut cx = Cx::admin(Time::new(1_700_000_000, 0));
    for n in 0..files {
        cx.now = Time::new(1_700_000_000 + (n / 50_000) as i64, (n % 50_000) as u32 * 20_000);
        let new = New { object: Some(ObjectId(n + 1)), ..New::node(FileKind::File, 0o644) };
        c.create(&cx, Ino::ROOT, format!("file-{n:08}.dat").as_bytes(), &new).expect("create");
    }
    if overlay {
        std::process::exit(0); // not flushed: the directory stays, in the present directory
    }
}
