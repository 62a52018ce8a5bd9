//! A tape library that is somebody else's: Debian's tgt, a SCSI target in user space that has changers and (simple)
//! drives, reached over iSCSI on the loopback interface.

#![allow(dead_code)] // each test uses a part

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the target.
pub const TARGET: &str = "iqn.2026-01.test:vtl";
/// Logical units of the drives.
pub const DRIVES: [u16; 2] = [1, 2];
/// Logical unit of the changer.
pub const CHANGER: u16 = 3;
/// First address of slots, import/export slots and drives.
pub const SLOT: u16 = 1000;
pub const IMPORT: u16 = 16;
pub const DRIVE: u16 = 256;
/// Cartridges, in the first slots.
pub const CARTRIDGES: u16 = 6;

/// Arguments that lead to our daemon: TGT_IPC_SOCKET names its socket, to which this number is added.
const CONTROL: [&str; 4] = ["-C", "1", "--lld", "iscsi"];

/// A running target; ends when dropped.
pub struct Tgt {
    dir: tempfile::TempDir,
    pub port: u16,
    daemon: Option<Child>,
}

fn barcode(n: u16) -> String {
    format!("VT{n:04}L8")
}

impl Tgt {
    /// Two drives, eight slots with six cartridges, two import/export slots. `order`: number of the drive in each drive
    /// element of the changer.
    pub fn start(order: [u16; 2]) -> Self {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut tgt = Self { dir: tempfile::tempdir().unwrap(), port, daemon: None };
        std::fs::write(tgt.path("smc"), [0; 1024]).unwrap();
        tgt.image("notape", 1);
        (1..=CARTRIDGES).for_each(|n| tgt.image(&barcode(n), 16));
        tgt.run(order);
        tgt
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self, name: &str, mib: u32) {
        let file = self.path(name);
        let size = mib.to_string();
        let args =
            ["--op", "new", "--device-type", "tape", "--barcode", name, "--size", &size, "--type", "data"];
        self.tool("tgtimg", &[&args[..], &["--file", &file.display().to_string()]].concat());
    }

    fn tool(&self, name: &str, args: &[&str]) {
        let text = self.try_tool(name, args);
        assert!(text.is_ok(), "{name} {args:?}: {}", text.unwrap_err());
    }

    fn try_tool(&self, name: &str, args: &[&str]) -> Result<(), String> {
        let done = command(name).args(args).env("TGT_IPC_SOCKET", self.path("ipc")).output();
        let done = done.unwrap_or_else(|e| panic!("{name}: {e}; install it: apt-get install tgt"));
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        if done.status.success() { Ok(()) } else { Err(text.into_owned()) }
    }

    fn admin(&self, args: &str) {
        let args: Vec<&str> = CONTROL.into_iter().chain(args.split(' ')).collect();
        self.tool("tgtadm", &args);
    }

    fn run(&mut self, order: [u16; 2]) {
        let log = std::fs::File::create(self.path("log")).unwrap();
        let daemon = command("tgtd")
            .args(["-f", "-C", "1", "--iscsi", &format!("portal=127.0.0.1:{}", self.port)])
            .env("TGT_IPC_SOCKET", self.path("ipc"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.daemon = Some(daemon.unwrap_or_else(|e| panic!("tgtd: {e}; install it: apt-get install tgt")));
        let end = Instant::now() + Duration::from_secs(20);
        let show = [&CONTROL[..], &["--op", "show", "--mode", "target"]].concat();
        while let Err(e) = self.try_tool("tgtadm", &show) {
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < end, "tgtd does not answer: {e}\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.set_up(order);
    }

    fn set_up(&self, order: [u16; 2]) {
        const UNIT: &str = "--mode logicalunit --tid 1";
        let dir = self.dir.path().display();
        self.admin(&format!("--op new --mode target --tid 1 -T {TARGET}"));
        for lun in DRIVES {
            self.admin(&format!("--op new {UNIT} --lun {lun} -b {dir}/notape --device-type=tape"));
            let name = format!(
                "vendor_id=IBM,product_id=ULT3580-TD8,product_rev=D8E4,scsi_sn=DRV000000{lun},removable=1"
            );
            self.admin(&format!("--op update {UNIT} --lun {lun} --params {name}"));
            self.admin(&format!("--op update {UNIT} --lun {lun} --params online=0"));
        }
        self.admin(&format!("--op new {UNIT} --lun {CHANGER} -b {dir}/smc --device-type=changer"));
        let update = |params: String| {
            self.admin(&format!("--op update {UNIT} --lun {CHANGER} --params {params}"));
        };
        update(format!(
            "vendor_id=TGT,product_id=VTL2x8,product_rev=0100,scsi_sn=LIB0000001,media_home={dir}"
        ));
        for (kind, first, count) in [(1, 1, 1), (2, SLOT, 8), (3, IMPORT, 2), (4, DRIVE, 2)] {
            update(format!("element_type={kind},start_address={first},quantity={count}"));
        }
        for (address, lun) in (DRIVE..).zip(order) {
            update(format!("element_type=4,address={address},tid=1,lun={lun}"));
        }
        for n in 1..=CARTRIDGES {
            update(format!("element_type=2,address={},barcode={},sides=1", SLOT + n - 1, barcode(n)));
        }
        self.admin("--op bind --mode target --tid 1 -I ALL");
    }

    /// From now on only who knows these secrets gets in, and learns that the target knows its own.
    pub fn ask_who_is_there(&self) {
        self.admin("--op new --mode account --user me --password minesecret12");
        self.admin("--op new --mode account --user you --password yourssecret3");
        self.admin("--op bind --mode account --tid 1 --user me");
        self.admin("--op bind --mode account --tid 1 --user you --outgoing");
    }

    /// Kills the target.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_file(self.path("ipc.1"));
    }

    /// Starts it again on the same port; all cartridges are in their slots.
    pub fn restart(&mut self) {
        self.kill();
        self.run(DRIVES);
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}
