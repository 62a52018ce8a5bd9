//! Rates of the catalogue over the embedded engine: `cargo run --release -p catalog --example catalog_bench [files]`.

use catalog::{Catalog, New};
use kv::{LmdbEngine, LmdbOptions};
use std::sync::Arc;
use std::time::Instant;
use types::*;

fn cx(n: u64) -> Cx {
    Cx::admin(Time::new(1_700_000_000 + (n / 50_000) as i64, (n % 50_000) as u32 * 20_000))
}

fn create(c: &Catalog, dir: Ino, n: u64) -> Ino {
    let new = New { object: Some(ObjectId(n + 1)), ..New::node(FileKind::File, 0o644) };
    c.create(&cx(n), dir, format!("file-{n:08}.dat").as_bytes(), &new).expect("create").attr.ino
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn rate(what: &str, n: u64, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    let secs = begin.elapsed().as_secs_f64();
    println!("{what:<44} {n:>9} in {secs:7.3} s = {:>10.0}/s", n as f64 / secs);
}

fn durable(c: &Catalog, dir: Ino, clients: u64, each: u64, base: u64) {
    std::thread::scope(|s| {
        for client in 0..clients {
            s.spawn(move || {
                for i in 0..each {
                    create(c, dir, base + client * each + i);
                    c.sync().expect("sync");
                }
            });
        }
    });
}

fn list(c: &Catalog, dir: Ino, plus: bool) -> u64 {
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let last = if plus {
            let page = c.readdir_plus(dir, cookie, 4096).expect("list");
            seen += page.len() as u64;
            page.last().map(|(e, _)| e.cookie)
        } else {
            let page = c.readdir(dir, cookie, 4096).expect("list");
            seen += page.len() as u64;
            page.last().map(|e| e.cookie)
        };
        match last {
            Some(next) => cookie = next,
            None => return seen,
        }
    }
}

fn main() {
    let files: u64 = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().expect("a number of files"));
    let dir = tempfile::tempdir_in(".").expect("temp dir");
    let options = LmdbOptions { map_bytes: 16 << 30, ..LmdbOptions::default() };
    let engine = Arc::new(LmdbEngine::open(dir.path(), options).expect("engine"));
    let c = Catalog::open(engine.clone(), Time::new(1_700_000_000, 0)).expect("catalogue");
    let mkdir = |name: &str| {
        c.create(&cx(0), Ino::ROOT, name.as_bytes(), &New::node(FileKind::Directory, 0o755))
            .expect("mkdir")
            .attr
            .ino
    };
    let (one, many) = (mkdir("one"), mkdir("many"));
    let mut first = Ino(0);
    rate("create, relaxed, 1 thread, 1 directory", files, || {
        for n in 0..files {
            let ino = create(&c, one, n);
            if n == 0 {
                first = ino;
            }
        }
    });
    rate("  until on stable storage", files, || c.sync().expect("sync"));
    println!("bytes per file: {}", engine_bytes(&c) / files.max(1));
    rate("create, durable, 64 threads", 64 * 500, || durable(&c, many, 64, 500, files));
    rate("create, durable, 1 thread", 300, || durable(&c, many, 1, 300, files + 64 * 500));
    let lookups = files.min(300_000);
    rate("lookup, random", lookups, || {
        let mut n = 1u64;
        for _ in 0..lookups {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            c.lookup(one, format!("file-{:08}.dat", (n >> 33) % files).as_bytes()).expect("lookup");
        }
    });
    rate("readdir", files, || assert_eq!(list(&c, one, false), files));
    rate("readdir_plus", files, || assert_eq!(list(&c, one, true), files));
    let closes = files.min(200_000);
    rate("observe closed, relaxed", closes, || {
        for n in 0..closes {
            let t = cx(files + n);
            let stamp = ObjectStamp { size: 5000, allocated: 8192, mtime: t.now, ctime: t.now };
            let ino = Ino(first.0 + n);
            c.observe(&t, ino, ObjectId(n + 1), &stamp, true, kv::Durability::Relaxed).expect("observe");
        }
    });
}

fn engine_bytes(c: &Catalog) -> u64 {
    c.engine().stats().bytes
}
