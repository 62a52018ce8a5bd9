//! What a rebuild of the catalogue costs per cartridge: a full LTO-9 cartridge is read by a node that knows nothing of it.
//!
//! Nobody writes 18 TB for this. Small files are written, then the records that hold nothing but their data are made
//! longer ([`stretch`]) until the cartridge is full: its index, lists and labels are what a node writes for so many files,
//! and lie where they would lie. A scan that read data would take hours, or fail.

mod stretch;

use crate::bed::{self, Bed};
use crate::place::{self, timed};
use crate::{Figure, Plan, Target};
use anyhow::{Result, ensure};
use node::{Config, Size};
use std::path::Path;
use std::time::Duration;
use types::api::{FileApi, OpenFlags};
use types::{FormatRule, Ino};
use wire::Call;

/// What the cartridge holds (bytes): LTO-9.
const CAPACITY: u64 = 18_000_000_000_000;
/// What is written, of which whole records are stretched (bytes).
const WRITTEN: u64 = 240 << 20;
/// Records (bytes): the smallest there are.
const RECORD: u64 = 4 << 10;
/// The content of all files.
const FILL: u8 = 0x77;
/// So much faster than real the mechanics run; times are reckoned back.
const SPEED: f64 = 1000.0;
/// What is left to labels, indexes and the catalogue (bytes).
const SPARE: u64 = 512 << 20;
/// File system in memory, where the cartridge lies if there is room.
const MEMORY: &str = "/dev/shm";

/// How the cartridge was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// With an index of everything.
    Closed,
    /// The node died just before the next index was due.
    Cut,
}

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let files = plan.amount(400, 10_000);
    let each = plan.amount(WRITTEN / 10, WRITTEN) / files;
    let cases = [
        (FormatRule::Ltfs, Left::Closed),
        (FormatRule::AnsiTar, Left::Closed),
        (FormatRule::Ltfs, Left::Cut),
        (FormatRule::AnsiTar, Left::Cut),
    ];
    cases.into_iter().map(|(format, left)| case(plan, (files, each), format, left, told)).collect()
}

fn case(
    plan: &Plan,
    (files, each): (u64, u64),
    format: FormatRule,
    left: Left,
    told: &dyn Fn(&str),
) -> Result<Figure> {
    let (kind, how) = match (format, left) {
        (FormatRule::AnsiTar, Left::Closed) => ("ANSI labels and tar", ""),
        (FormatRule::AnsiTar, Left::Cut) => ("ANSI labels and tar", ", the node died before its last index"),
        (_, Left::Closed) => ("LTFS", ""),
        (_, Left::Cut) => ("LTFS", ", the node died before its last index"),
    };
    let target = if left == Left::Closed { Target::AtMost(120.0) } else { Target::None };
    let mut figure =
        Figure::new(format!("rebuild: a full LTO-9 cartridge of {kind}, {files} files{how}"), "s", target);
    told(&format!("rebuild: {files} files to a cartridge of {kind}{how}"));
    let shelf = place::make(Path::new(MEMORY), SPARE + files * each * 3)
        .or_else(|_| place::make(&plan.dir, SPARE + files * each * 3))?;
    let place = place::make(&plan.dir, SPARE + files * each * 2)?;
    let library = shelf.path().join("library");
    let config = |state: &str| config(&place.path().join(state), &library, format);
    fill(config("written"), files, each, left)?;
    stretch::stretch(&library.join("cartridges"), FILL, RECORD, CAPACITY)?;
    let (mut heard, mut moved) = (0, 0.0);
    for round in 0..plan.rounds {
        told(&format!("rebuild: reading a cartridge of {kind}{how}, round {}", round + 1));
        let scan = scan(config(&format!("rebuilt-{round}")), files, left)?;
        figure.values.push(scan.seconds);
        (heard, moved) = (scan.bytes, scan.positioning);
    }
    figure.note = format!(
        "of one drive, with 16 s to load and 56 s to unload; {moved:.0} s of it are locates, {:.1} MB are read at 400 MB/s while \
         the catalogue takes them in; LTO-9 mechanics in simulated time, 18 TB on the cartridge",
        heard as f64 / 1e6
    );
    Ok(figure)
}

/// Bytes of a file when it is stretched.
fn stretched(files: u64) -> u64 {
    CAPACITY / files
}

fn config(state: &Path, library: &Path, format: FormatRule) -> Config {
    let mut config = bed::config(state, &["primary"]);
    config.library.path = Some(library.to_owned());
    (config.library.drives, config.library.slots, config.library.cartridges) = (1, 4, 1);
    config.tape.block_size = Size(RECORD);
    config.tape.format = format;
    config
}

/// Writes the files. What no index tells of lies in as many sections as it would if the files were as long as they seem.
fn fill(mut config: Config, files: u64, each: u64, left: Left) -> Result<()> {
    let names: Vec<String> = (0..files).map(|n| format!("directory-{:03}/file-{n:06}", n % 500)).collect();
    let last = (config.tape.index_every.0 / stretched(files)).clamp(1, files / 2);
    let cut = if left == Left::Closed { files } else { files - last } as usize;
    for (part, graceful) in [(&names[..cut], true), (&names[cut..], false)] {
        if !part.is_empty() {
            if !graceful {
                let of_section = config.tape.flush_every.0 / stretched(files);
                config.tape.flush_files = of_section.clamp(1, 5000) as u32;
            }
            let mut bed = Bed::start(config.clone())?;
            bed.graceful = graceful;
            part.iter().try_for_each(|name| put(&bed, name, each))?;
            bed.act(Call::Migrate, part)?;
        }
    }
    Ok(())
}

/// Without waiting for the disk for each of them.
fn put(bed: &Bed, name: &str, bytes: u64) -> Result<()> {
    let (dir, name) = name.split_once('/').unwrap_or_default();
    let cx = bed::cx();
    let parent = match bed.node.lookup(&cx, Ino::ROOT, dir.as_bytes()) {
        Ok(found) => found.ino,
        Err(_) => bed.node.mkdir(&cx, Ino::ROOT, dir.as_bytes(), 0o755)?.ino,
    };
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    let opened = bed.node.create(&cx, parent, name.as_bytes(), 0o644, write)?;
    bed.node.write(opened.handle, 0, &vec![FILL; bytes as usize])?;
    bed.node.release(opened.handle);
    Ok(())
}

struct Scan {
    seconds: f64,
    positioning: f64,
    bytes: u64,
}

/// Rebuilds an empty catalogue from it.
fn scan(mut config: Config, files: u64, left: Left) -> Result<Scan> {
    (config.library.mechanics, config.library.speed) = ("lto9".into(), SPEED);
    let real = vtl::Mechanics::LTO9;
    let mut bed = Bed::start(config)?;
    bed.graceful = false;
    let (wall, ()) = timed(|| bed.ask(Call::Rebuild))?;
    let (stats, volumes) = (bed.stats(0), bed.volumes()?);
    let found: u64 = volumes.iter().map(|v| v.live_files).sum();
    // Of LTFS, files behind the last index are not found.
    ensure!(
        found == files || (left == Left::Cut && found > files / 2),
        "{found} of {files} files were found"
    );
    let positioning = (stats.positioning.as_secs_f64()) * SPEED;
    let once: Duration = real.load + real.unload;
    Ok(Scan { seconds: once.as_secs_f64() + positioning + wall, positioning, bytes: stats.bytes_read })
}
