//! Our own transport to SCSI generic devices, through the preload library in `shim/` that gives a machine without SCSI
//! such devices. The library works only from the start of a process on, so each test starts itself again in it.

use scsi::sg::SgTransport;
use scsi::{Data, ElementType, ReadOutcome, SenseKey, Smc, Ssc, Transport, TransportError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vtl::{Library, VtlConfig, serve};

/// Set in the inner process: directory of the sockets.
const INSIDE: &str = "THERMO_TEST_SG";

fn build_shim(dir: &Path) -> PathBuf {
    let out = dir.join("sgshim.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/sgshim.c");
    let compiler =
        Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&out).args([source, "-ldl"]).output();
    let done = compiler.expect("a C compiler is needed: apt-get install gcc libc6-dev");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

/// Runs `test` again in a process that sees /dev/sg0 (changer) to /dev/sg2 (drives) of a new library; there, gives true.
fn inside(test: &str, shim_settings: &[(&str, &str)]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let shim = build_shim(dir.path());
    let library = Library::open(VtlConfig { cartridges: 3, slots: 4, ..VtlConfig::new(dir.path()) }).unwrap();
    let sockets = dir.path().join("s");
    let server = serve(library, &sockets).unwrap();
    let map = ["changer", "drive0", "drive1"].iter().enumerate();
    let map: Vec<String> =
        map.map(|(n, name)| format!("/dev/sg{n}={}/{name}.sock", sockets.display())).collect();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, &sockets)
        .env("SGSHIM", map.join(";"))
        .env("LD_PRELOAD", shim)
        .envs(shim_settings.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    drop(server);
    false
}

fn device(n: u8) -> Box<dyn Transport> {
    Box::new(SgTransport::new(Path::new(&format!("/dev/sg{n}"))))
}

/// The first command after power on is answered with a unit attention.
fn attention(error: scsi::ScsiError) {
    assert_eq!(error.sense().map(|s| (s.key, s.asc)), Some((SenseKey::UnitAttention, 0x29)), "{error}");
}

#[test]
fn changer_and_drive_work_through_sg_io() {
    if !inside("changer_and_drive_work_through_sg_io", &[]) {
        return;
    }
    let mut changer = Smc::new(device(0));
    attention(changer.test_unit_ready().unwrap_err());
    assert_eq!(changer.inquiry().unwrap().device_type, 8);
    let elements = changer.read_all_elements().unwrap();
    let drive = elements.iter().find(|e| e.kind == ElementType::DataTransfer).unwrap();
    let slot = elements.iter().find(|e| e.barcode.as_deref() == Some("TC0002L9")).unwrap();
    changer.move_medium(slot.address, drive.address).unwrap();

    let mut ssc = Ssc::new(device(1));
    attention(ssc.test_unit_ready().unwrap_err());
    assert_eq!(ssc.unit_serial().unwrap(), "TCVTL001D00");
    while ssc.test_unit_ready().is_err() {}
    // Records of odd sizes and of the largest that fits into one command come back as they were written.
    let record = |n: usize| -> Vec<u8> { (0..n).map(|i| (i * 7 + n) as u8).collect() };
    let sizes = [1, 511, 80, 512 << 10, 4 << 20];
    for n in sizes {
        ssc.write(&record(n)).unwrap();
    }
    ssc.write_filemarks(1, false).unwrap();
    ssc.rewind().unwrap();
    let mut buffer = vec![0xEE; 4 << 20];
    for n in sizes {
        assert_eq!(ssc.read(&mut buffer).unwrap(), ReadOutcome::Record { bytes: n });
        assert!(buffer[..n] == record(n)[..], "record of {n} bytes");
    }
    assert_eq!(ssc.read(&mut buffer).unwrap(), ReadOutcome::Filemark);
    assert_eq!(ssc.read(&mut buffer).unwrap(), ReadOutcome::EndOfData);
    assert_eq!(ssc.read_position().unwrap().block, sizes.len() as u64 + 1);
    assert!(!ssc.read_attributes(0).unwrap().is_empty());
    // Sense of a refused move arrives whole.
    let error = changer.move_medium(slot.address, drive.address).unwrap_err();
    assert_eq!(error.sense().map(|s| (s.key, s.asc, s.ascq)), Some((SenseKey::IllegalRequest, 0x3B, 0x0E)));
}

#[test]
fn too_much_data_for_the_adapter_is_said_with_its_limit() {
    if !inside("too_much_data_for_the_adapter_is_said_with_its_limit", &[("SGSHIM_LIMIT", "65536")]) {
        return;
    }
    let mut drive = device(1);
    let mut room = vec![0; 65537];
    let read = [8, 0, 1, 0, 1, 0];
    let error = drive.execute(&read, Data::In(&mut room), Duration::from_secs(9)).unwrap_err();
    assert!(matches!(error, TransportError::Refused { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["/dev/sg1", "65537 bytes", "carries 65536"] {
        assert!(text.contains(part), "`{part}` is missing in {text}");
    }
    // The device is not lost by this.
    let reply =
        drive.execute(&[0x12, 0, 0, 0, 96, 0], Data::In(&mut room[..96]), Duration::from_secs(9)).unwrap();
    assert_eq!((reply.status, reply.transferred, room[0]), (0, 96, 1));
}

#[test]
fn a_device_that_went_away_is_lost_and_comes_back() {
    if !inside("a_device_that_went_away_is_lost_and_comes_back", &[]) {
        return;
    }
    // The outer process serves the library; here, the socket is hidden for a while.
    let socket = Path::new(&std::env::var_os(INSIDE).unwrap()).join("drive0.sock");
    let hidden = socket.with_extension("away");
    std::fs::rename(&socket, &hidden).unwrap();
    let mut ssc = Ssc::new(device(1));
    let error = ssc.inquiry().unwrap_err().to_string();
    assert!(error.starts_with("/dev/sg1: cannot be opened: "), "{error}");
    std::fs::rename(&hidden, &socket).unwrap();
    assert_eq!(ssc.inquiry().unwrap().device_type, 1);
}
