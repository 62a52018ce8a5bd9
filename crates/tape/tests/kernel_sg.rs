//! Our SG_IO transport on the kernel's own sg driver. It runs inside user-mode Linux (`tests/uml/boot.sh`), with a library of
//! Debian's tgt that the kernel's own iSCSI initiator attaches. Downloads a kernel (41 MB) once, so it runs only when
//! asked for, as `./test` does: `cargo test -p tape --test kernel_sg -- --ignored`. Where that kernel cannot be had or does not boot
//! the test is left out and says so.

#![expect(
    clippy::disallowed_methods,
    reason = "the target is another process; a library may take time to start"
)]

#[path = "support/tgt.rs"]
mod tgt;

use scsi::{Address, Data, ReadOutcome, SenseKey, Ssc, TransportError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tape::discover::discover;
use tape::{Changer, Fault};
use tgt::{DRIVE, DRIVES, SLOT, TARGET, Tgt};

/// Exit code of `tests/uml/boot.sh` when the kernel did not come as far as the program.
const NOT_BOOTED: i32 = 99;
/// Set by `tests/uml/boot.sh`: program that has the kernel attach an iSCSI target.
const INSIDE: &str = "ISCSISTART";

#[test]
#[ignore = "downloads and boots a kernel; run it with --ignored"]
fn drives_and_changer_behind_the_kernels_sg_driver() {
    let Some(attach) = std::env::var_os(INSIDE) else { return boot() };
    let tgt = Tgt::start(DRIVES);
    let port = tgt.port.to_string();
    let names = ["-i", "iqn.2026-01.test:uml", "-t", TARGET, "-g", "1", "-a", "127.0.0.1", "-p", &port];
    assert!(Command::new(attach).args(names).status().unwrap().success());
    let found = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let found = scsi::sg::find(Path::new("/sys")).unwrap();
        (found.len() == 3 && found.iter().all(|f| f.path.exists())).then_some(found)
    });
    let found = found.expect("two drives and a changer come up");
    assert_eq!(found.iter().map(|f| f.device_type).collect::<Vec<_>>(), [1, 1, 8]);

    let addresses: Vec<Address> = found.into_iter().map(|f| Address::Sg(f.path)).collect();
    let library = discover(&addresses, &scsi::Alone, || Box::new(std::thread::sleep)).libraries.remove(0);
    assert_eq!(library.drives[0].1.serial, "DRV0000001");
    let mut changer =
        Changer::open(library.changer.address.transport(&scsi::Alone), Box::new(std::thread::sleep)).unwrap();
    assert_eq!(changer.inventory().unwrap().iter().filter(|e| e.full).count(), 6);
    changer.move_medium(SLOT, DRIVE).unwrap();
    let empty = changer.move_medium(SLOT, DRIVE + 1).unwrap_err();
    assert_eq!(empty.fault, Fault::SourceEmpty, "{empty}");
    records_pass(&library.drives[0].1.address);
}

fn records_pass(drive: &Address) {
    let mut ssc = Ssc::new(drive.transport(&scsi::Alone));
    let ready = (0..100).any(|_| match ssc.test_unit_ready() {
        Ok(()) => true,
        Err(e) => {
            assert!(e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention), "{e}");
            false
        }
    });
    assert!(ready);
    let record = |n: usize| -> Vec<u8> { (0..n).map(|i| (i * 31 + n) as u8).collect() };
    let sizes = [80, 4096, 65_536, 262_144, 80];
    for n in sizes {
        ssc.write(&record(n)).unwrap();
    }
    ssc.write_filemarks(1, false).unwrap();
    ssc.rewind().unwrap();
    for n in sizes {
        let mut buffer = vec![0; n];
        assert_eq!(ssc.read(&mut buffer).unwrap(), ReadOutcome::Record { bytes: n });
        assert!(buffer == record(n), "record of {n} bytes");
    }
    assert_eq!(ssc.read(&mut [0; 80]).unwrap(), ReadOutcome::Filemark);
    // More than any adapter carries: refused with the limit, and the drive is still there.
    let mut room = vec![0; 64 << 20];
    let mut transport = drive.transport(&scsi::Alone);
    let error =
        transport.execute(&[8, 0, 0, 0, 80, 0], Data::In(&mut room), Duration::from_secs(9)).unwrap_err();
    assert!(matches!(error, TransportError::Refused { .. }), "{error:?}");
    println!("{error}");
    assert_eq!(ssc.unit_serial().unwrap(), "DRV0000001");
}

/// Runs this test again under the other kernel.
fn boot() {
    let program = std::env::current_exe().unwrap();
    let keep: PathBuf = program.ancestors().nth(2).unwrap().join("uml");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/uml/boot.sh");
    let done = Command::new(script)
        .arg(keep)
        .arg(program)
        .args(["--ignored", "--nocapture"])
        .output()
        .expect("bash, apt-get, cc and depmod (kmod) are needed");
    let text = String::from_utf8_lossy(&done.stdout);
    if done.status.code() == Some(NOT_BOOTED) {
        eprintln!("LEFT OUT: user-mode Linux does not boot here: {}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    assert!(
        done.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    println!("{text}");
}
