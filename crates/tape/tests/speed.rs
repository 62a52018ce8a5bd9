//! Speed of the session against a drive that takes and gives records at once: `cargo test -p tape --release --test speed -- --ignored --nocapture`

mod support;

use scsi::{Data, GOOD, Reply, Transport, TransportError};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::catalogue::{Catalogue, barcode};
use support::rig::{BARCODE, Rig};
use types::Extent;

const BLOCK: u32 = 512 << 10;
const TOTAL: usize = 1 << 30;

/// Once `fast`, records and positions are only counted; everything else goes to the virtual drive.
struct Null {
    inner: vtl::LibraryTransport,
    fast: Arc<AtomicBool>,
    block: u64,
    protected: bool,
    filled: bool,
}

impl Transport for Null {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let fast = self.fast.load(Ordering::Relaxed);
        let transferred = match (cdb[0], data) {
            (0x08, Data::In(buffer)) if fast => {
                if let Some((record, sum)) = buffer.split_last_chunk_mut::<4>().filter(|_| self.protected) {
                    if !self.filled {
                        *sum = crc32c::crc32c(record).to_le_bytes();
                    }
                    self.filled = true; // the buffer comes again as it was
                }
                buffer.len()
            }
            (0x0a, Data::Out(record)) if fast => record.len(),
            (0x10, _) if fast => 0,
            (0x34, Data::In(buffer)) if fast => {
                buffer.fill(0);
                buffer[7] = 1;
                buffer[8..16].copy_from_slice(&self.block.to_be_bytes());
                32
            }
            (0x92, data) => {
                self.block = u64::from_be_bytes(cdb[4..12].try_into().unwrap());
                return if fast { Ok(Reply::default()) } else { self.inner.execute(cdb, data, timeout) };
            }
            (_, data) => return self.inner.execute(cdb, data, timeout),
        };
        self.block += u64::from(matches!(cdb[0], 0x08 | 0x0a));
        Ok(Reply { status: GOOD, transferred, sense: Vec::new() })
    }

    fn name(&self) -> &str {
        "null0"
    }
}

#[expect(clippy::disallowed_methods, reason = "this measures")]
fn rate(what: &str, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    let rate = TOTAL as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{what}: {rate:.0} MB/s");
    rate
}

#[test]
#[ignore = "measures a release build"]
fn streams_faster_than_a_gigabyte_a_second() {
    streams(false);
    streams(true);
}

fn streams(protected: bool) {
    println!("block protection: {protected}");
    let rig = Rig::new(8 << 30, 1 << 20);
    drop(rig.load(BARCODE, 0));
    let fast = Arc::new(AtomicBool::new(false));
    let null = Null { inner: rig.library.drive(0), fast: fast.clone(), block: 0, protected, filled: false };
    let drive = tape::Drive::open(Box::new(null), Box::new(|_| {})).unwrap();
    let mut drive = drive.with(tape::Settings { block_protection: protected, ..Default::default() });
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    mounted.appender(&catalogue.point, 0).unwrap();
    fast.store(true, Ordering::Relaxed);
    let start_block = catalogue.point.block;
    for (what, chunk) in [("write in pieces of 4 MiB", 4 << 20), ("write in pieces of 20 KB", 20_000)] {
        let data = vec![0x5a; chunk];
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let got = rate(what, || {
            for _ in 0..TOTAL / chunk {
                appender.write(&data).unwrap();
            }
        });
        assert!(got > 1000.0);
        let flushed = appender.flush().unwrap();
        catalogue.record(flushed);
    }
    let extent = Extent { file_offset: 0, start_block, byte_offset: 0, byte_count: TOTAL as u64 };
    let mut sum = 0;
    let got = rate("read", || {
        let end = mounted.read(&extent, &mut |_, piece| {
            sum += piece.len();
            ControlFlow::Continue(())
        });
        assert!(end.unwrap().is_continue());
    });
    assert_eq!(sum, TOTAL);
    assert!(got > 1000.0);
}
