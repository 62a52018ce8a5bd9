//! `rank PATH RANK RANKS PROGRESS [SOCKET]`: one of several programs, on any host, that write one file at once, as checkpoints of parallel programs are written: through a mount, or, with
//! the socket of a node, by the native library and the path in the namespace. Record
//! `n` of the file is that of rank `n` modulo `RANKS`; its bytes follow from `n` and from how often it was written. Each rank writes its records again and again,
//! syncs, and reads back what it wrote, until its standard input ends. PROGRESS says how many were synced, also to the next one that goes on as this rank.

use client::native::{self, OpenOptions as Open, Options, Session};
use e2e::record::{RECORD, RECORDS, SYNC, bytes, last_pass};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rank, ranks, progress, socket @ ..] = &arguments[..] else {
        panic!("rank PATH RANK RANKS PROGRESS [SOCKET]")
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        stopped.store(true, Ordering::Release);
    });
    let file = Shared::open(path, socket.first());
    let rank = Rank { file, rank: rank.parse().unwrap(), ranks: ranks.parse().unwrap() };
    let mut written = fs::read_to_string(progress).map_or(0, |text| text.parse().unwrap());
    rank.goes_on(written);
    // Of those that the one before has begun to write anew nobody knows what is there.
    let least = RECORDS.max(written + SYNC);
    while written < least || written % SYNC != 0 || !stop.load(Ordering::Acquire) {
        rank.write(written);
        written += 1;
        if written % SYNC == 0 {
            rank.sync();
            say(Path::new(progress), written);
            // One of those just synced, and one that was written long ago.
            rank.is_there((written - 1) % RECORDS, written);
            rank.is_there((written + RECORDS / 2) % RECORDS, written);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Replaced as a whole: this program may be killed.
fn say(progress: &Path, written: u64) {
    let new = progress.with_extension("new");
    fs::write(&new, written.to_string()).unwrap();
    fs::rename(new, progress).unwrap();
}

/// The file, open for reading and writing.
enum Shared {
    Mount(File),
    Library(Box<native::File>),
}

impl Shared {
    fn open(path: &str, socket: Option<&String>) -> Self {
        let Some(socket) = socket else {
            return Self::Mount(OpenOptions::new().read(true).write(true).open(path).unwrap());
        };
        // Whatever happens to the node.
        let options = Options { patience: Duration::from_secs(600), ..Options::default() };
        let session = Session::connect_with(Path::new(socket), options).unwrap();
        Self::Library(Box::new(session.open(path, Open::new().read(true).write(true)).unwrap()))
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.write_all_at(bytes, at),
            Self::Library(file) => Ok(file.write_at(bytes, at)?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.sync_all(),
            Self::Library(file) => Ok(file.sync()?),
        }
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.read_exact_at(bytes, at),
            Self::Library(file) => match file.read_at(bytes, at)? {
                read if read == bytes.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        }
    }
}

struct Rank {
    file: Shared,
    rank: u64,
    ranks: u64,
}

impl Rank {
    /// Place of one of its records.
    fn number(&self, k: u64) -> u64 {
        k * self.ranks + self.rank
    }

    fn write(&self, written: u64) {
        let n = self.number(written % RECORDS);
        let wrote = self.file.write(&bytes(n, written / RECORDS), n * RECORD);
        wrote.unwrap_or_else(|e| panic!("rank {}, record {n}: {e}", self.rank));
    }

    fn sync(&self) {
        self.file.sync().unwrap_or_else(|e| panic!("rank {}, fsync: {e}", self.rank));
    }

    /// It is what was written last, when so many were.
    fn is_there(&self, k: u64, written: u64) {
        let Some(pass) = last_pass(k, written) else { return };
        let n = self.number(k);
        let mut read = vec![0; RECORD as usize];
        let got = self.file.read(&mut read, n * RECORD);
        got.unwrap_or_else(|e| panic!("rank {}, reading record {n}: {e}", self.rank));
        assert!(read == bytes(n, pass), "rank {}: record {n} is not what it wrote in pass {pass}", self.rank);
    }

    /// One was killed when so many were synced: these are there, but for those that it may have been writing anew.
    fn goes_on(&self, synced: u64) {
        let begun = |k: u64| (k + RECORDS - synced % RECORDS) % RECORDS < SYNC;
        (0..RECORDS).filter(|k| !begun(*k)).for_each(|k| self.is_there(k, synced));
    }
}
