//! Writes to two drives at once, each limited to 400 MB/s, and prints how busy they streamed: `vtl-rate DIR [GiB]`.

use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: vtl-rate DIR [GiB per drive]")?;
    let gib: u64 = std::env::args().nth(2).map_or(Ok(2), |n| n.parse())?;
    let mechanics = vtl::Mechanics::streaming(400_000_000);
    let config = vtl::VtlConfig { capacity_bytes: (gib + 1) << 30, mechanics, ..vtl::VtlConfig::new(dir) };
    let library = vtl::Library::open(config)?;
    let mut changer = scsi::Smc::new(Box::new(library.changer()));
    while changer.test_unit_ready().is_err() {}
    for n in 0..2u16 {
        changer.move_medium(1001 + n, 1 + n)?;
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..2u16 {
            let mut drive = scsi::Ssc::new(Box::new(library.drive(n)));
            scope.spawn(move || {
                while drive.test_unit_ready().is_err() {}
                let record = vec![0xA5u8; 512 << 10];
                for _ in 0..gib << 11 {
                    drive.write(&record).expect("write");
                }
                drive.write_filemarks(0, false).expect("flush");
            });
        }
    });
    let took = start.elapsed();
    for n in 0..2 {
        let s = library.stats(n).unwrap_or_default();
        let busy = s.streaming.as_secs_f64() / took.as_secs_f64();
        println!(
            "drive {n}: {:.0} MB/s, busy {busy:.3}, idle {:?}, flush {:?}",
            s.bytes_written as f64 / 1e6 / took.max(Duration::from_millis(1)).as_secs_f64(),
            s.idle,
            s.flush_time
        );
    }
    Ok(())
}
