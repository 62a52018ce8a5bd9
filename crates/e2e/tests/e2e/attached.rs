//! The program with a library that is not its own: found, written into the configuration, used. A virtual library in this
//! process plays it, behind unix sockets and, through the preload library of `vtl`, behind /dev/sgN and SG_IO.

use e2e::{Bed, noise};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use vtl::{Library, Server, VtlConfig, serve};

/// Copies only on request; drives that are not used are emptied soon.
const CONFIG: &str = "# ours\n[tape]\nidle_unmount_s = 1\n\n[[classes]]\nname = \"default\"\n\
                      copies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n";

struct Hall {
    bed: Bed,
    sockets: PathBuf,
    library: Arc<Library>,
    _server: Server,
}

impl Hall {
    fn new() -> Self {
        let bed = Bed::new(CONFIG);
        let serial = "HALLA001".into();
        let config = VtlConfig { capacity_bytes: 64 << 20, serial, ..VtlConfig::new(bed.path("hall")) };
        let library = Library::open(config).unwrap();
        let sockets = bed.path("sockets");
        let server = serve(library.clone(), &sockets).unwrap();
        Self { bed, sockets, library, _server: server }
    }

    fn unix(&self) -> OsString {
        format!("unix:{}", self.sockets.display()).into()
    }

    fn config(&self) -> String {
        fs::read_to_string(self.bed.state().join("config.toml")).unwrap()
    }

    /// A file goes to two cartridges of the library, leaves the disk and comes back.
    fn archive_and_recall(&self, run: impl Fn(&[&str]) -> String) {
        let data = noise(7, 3_000_000);
        fs::write(self.bed.path("file"), &data).unwrap();
        let (file, back) = (self.bed.path("file"), self.bed.path("back"));
        run(&["put", file.to_str().unwrap(), "tc:/file"]);
        run(&["migrate", "--wait", "tc:/file"]);
        run(&["purge", "tc:/file"]);
        run(&["get", "tc:/file", back.to_str().unwrap()]);
        assert!(fs::read(back).unwrap() == data);
        let check: Value = serde_json::from_str(&run(&["check", "--tapes", "--json"])).unwrap();
        assert!(!check.is_null());
    }
}

#[test]
fn a_library_is_found_written_down_and_used() {
    let hall = Hall::new();
    let found =
        hall.bed.json(["library".into(), "discover".into(), "--only".into(), hall.unix(), "--write".into()]);
    let drives = found["libraries"][0]["drives"].as_array().unwrap();
    let serials: Vec<&str> = drives.iter().map(|d| d["serial"].as_str().unwrap()).collect();
    assert_eq!(serials, ["HALLA001D00", "HALLA001D01"], "{found:#}");
    let config = hall.config();
    assert!(config.starts_with("# ours\n") && config.contains("HALLA001D01"), "{config}");
    // Once more finds the same and changes nothing; as a table, too.
    let table =
        hall.bed.ok(["library".into(), "discover".into(), "--only".into(), hall.unix(), "--write".into()]);
    assert!(table.contains("IBM 3573-TL 1.90 with serial number HALLA001LL0"), "{table}");
    assert_eq!(hall.config(), config);

    hall.bed.up();
    let shown = hall.bed.json(["library", "show"]);
    assert_eq!(shown[0]["name"], "HALLA001LL0");
    hall.archive_and_recall(|arguments| hall.bed.ok(arguments));
    assert!(
        hall.library.stats(0).unwrap().loads + hall.library.stats(1).unwrap().loads > 0,
        "its drives were used"
    );
    let (code, error) = hall.bed.fails(["library".into(), "discover".into(), "--only".into(), hall.unix()]);
    assert!(code == 6 && error.contains("thermo down"), "{code}: {error}");
    hall.bed.ok(["down"]);
}

/// One node, two attached libraries; one of them is dead when the node starts.
#[test]
fn two_libraries_are_used_and_a_dead_one_stops_only_itself() {
    let bed = Bed::new(&CONFIG.replace("idle_unmount_s = 1", "idle_unmount_s = 1\ndrive_retry_s = 1"));
    let hall = |name: &str, prefix: &str| {
        let (serial, prefix) = (format!("HALL{name}"), prefix.into());
        let dir = bed.path(&format!("hall-{name}"));
        Library::open(VtlConfig { capacity_bytes: 64 << 20, serial, prefix, ..VtlConfig::new(dir) }).unwrap()
    };
    let halls = [hall("A001", "TC"), hall("B001", "TD")];
    let sockets = ["a", "b"].map(|name| bed.path(&format!("sockets-{name}")));
    let open = |n: usize| serve(halls[n].clone(), &sockets[n]).unwrap();
    let mut servers = [Some(open(0)), Some(open(1))];
    let address = |n: usize| -> OsString { format!("unix:{}", sockets[n].display()).into() };
    let discover =
        ["library".into(), "discover".into(), "--write".into(), "--only".into(), address(0), address(1)];
    let found = bed.json(discover);
    assert_eq!(found["libraries"].as_array().unwrap().len(), 2, "{found:#}");
    bed.up();
    for (pool, library) in [("primary", "HALLA001LL0"), ("second", "HALLB001LL0")] {
        bed.ok(["pool", "set", pool, "--library", library]);
    }
    let data = noise(7, 3_000_000);
    fs::write(bed.path("file"), &data).unwrap();
    let get = |name: &str| {
        let back = bed.path(name);
        bed.ok(["get", "tc:/file", back.to_str().unwrap()]);
        assert!(fs::read(back).unwrap() == data);
        bed.ok(["purge", "tc:/file"]);
    };
    bed.ok(["put", bed.path("file").to_str().unwrap(), "tc:/file"]);
    bed.ok(["migrate", "--wait", "tc:/file"]);
    bed.ok(["purge", "tc:/file"]);
    let used = |n: usize| (0..2).map(|drive| halls[n].stats(drive).unwrap().loads).sum::<u64>();
    assert!(used(0) > 0 && used(1) > 0, "a copy in each");
    let drives = bed.json(["drive", "ls"]);
    let names: Vec<&str> =
        drives.as_array().unwrap().iter().map(|d| d["library"].as_str().unwrap()).collect();
    assert_eq!(names, ["HALLA001LL0", "HALLA001LL0", "HALLB001LL0", "HALLB001LL0"]);
    get("back");
    bed.ok(["down"]);

    for n in [0, 1] {
        servers[n] = None;
        bed.up();
        let list = bed.ok(["library", "ls"]);
        assert_eq!(list.matches("out of use: TC-P031").count(), 1, "{list}");
        get(&format!("back-{n}"));
        let (code, error) = bed.fails(["library", "inventory", ["HALLA001LL0", "HALLB001LL0"][n]]);
        assert!(code == 6 && error.contains("cannot be used now"), "{code}: {error}");
        servers[n] = Some(open(n));
        let back = || !bed.ok(["library", "ls"]).contains("out of use");
        assert!((0..600).any(|_| back() || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            false
        }));
        bed.ok(["check", "--tapes"]);
        bed.ok(["down"]);
    }
}

/// Names that moved on to another drive are noticed before anything is written.
#[test]
fn a_drive_that_is_another_one_is_not_used() {
    let hall = Hall::new();
    hall.bed.ok(["library".into(), "discover".into(), "--only".into(), hall.unix(), "--write".into()]);
    let swapped = hall.config().replace("drive0.sock", "drive?.sock").replace("drive1.sock", "drive0.sock");
    let swapped = swapped.replace("drive?.sock", "drive1.sock");
    fs::write(hall.bed.state().join("config.toml"), &swapped).unwrap();
    hall.bed.up();
    let drives = hall.bed.json(["drive", "ls"]).to_string();
    assert_eq!(drives.matches("its serial number is").count(), 2, "{drives}");
    assert!(drives.contains("thermo library discover --write"), "{drives}");
    hall.bed.ok(["down", "--now"]);

    let wrong = swapped.replace("element = 1\n", "element = 999\n");
    assert_ne!(wrong, swapped);
    fs::write(hall.bed.state().join("config.toml"), wrong).unwrap();
    hall.bed.up();
    let told = || hall.bed.json(["status"])["warnings"].to_string();
    hall.bed.wait("it is told", || {
        told().contains("no drive element 999") && told().contains("elements are 1, 2:")
    });
    // What puts both right counts at once.
    let right = swapped.replace("drive0.sock", "drive?.sock").replace("drive1.sock", "drive0.sock");
    fs::write(hall.bed.state().join("config.toml"), right.replace("drive?.sock", "drive1.sock")).unwrap();
    assert!(hall.bed.ok(["reload"]).contains("from now on: libraries"));
    hall.bed.wait("it is there", || hall.bed.json(["drive", "ls"]).as_array().unwrap().len() == 2);
    hall.bed.ok(["drive", "up", "1"]);
    let drives = hall.bed.json(["drive", "ls"]).to_string();
    assert!(!drives.contains("Suspect"), "{drives}");
}

fn build_shim(dir: &Path) -> PathBuf {
    let out = dir.join("sgshim.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../vtl/shim/sgshim.c");
    let compiler =
        Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&out).args([source, "-ldl"]).output();
    let done = compiler.expect("a C compiler is needed: apt-get install gcc libc6-dev");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

#[test]
fn a_library_behind_sg_io_is_used() {
    let hall = Hall::new();
    let shim = build_shim(hall.bed.dir.path());
    let map = [("sg4", "changer"), ("sg1", "drive1"), ("sg2", "drive0")];
    let map = map.map(|(sg, name)| format!("/dev/{sg}={}/{name}.sock", hall.sockets.display())).join(";");
    let run = |arguments: &[&str]| -> String {
        let mut command = hall.bed.command(arguments);
        let Output { status, stdout, stderr } =
            command.env("LD_PRELOAD", &shim).env("SGSHIM", &map).output().unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned();
        assert!(
            status.success(),
            "{arguments:?}: {status}\n{text}{}\n{}",
            String::from_utf8_lossy(&stderr),
            hall.bed.log()
        );
        text
    };
    let devices = ["sg:/dev/sg1", "sg:/dev/sg2", "sg:/dev/sg4"];
    run(&[&["library", "discover", "--write", "--only"], &devices[..]].concat());
    let config = hall.config();
    let place = |text: &str| config.find(text).unwrap_or_else(|| panic!("{text} is missing in\n{config}"));
    assert!(place("sg:/dev/sg4") < place("sg:/dev/sg2"), "{config}");
    assert!(place("sg:/dev/sg2") < place("HALLA001D00"), "{config}");
    assert!(place("HALLA001D00") < place("sg:/dev/sg1"), "{config}");
    run(&["up"]);
    hall.archive_and_recall(run);
    run(&["down"]);
}
