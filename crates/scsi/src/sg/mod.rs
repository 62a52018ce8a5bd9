//! Devices of this machine: Linux SCSI generic (`/dev/sgN`).

mod sys;

use crate::{CHECK_CONDITION, Data, GOOD, Reply, Transport, TransportError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Ended;

/// Oldest driver with the interface used here.
const SG_VERSION: i32 = 30_000;
/// Driver status: there is sense data.
const DRIVER_SENSE: u16 = 0x08;
/// Driver status: the time limit has passed.
const DRIVER_TIMEOUT: u16 = 0x06;
/// Host status: the time limit has passed.
const DID_TIME_OUT: u16 = 0x03;

/// A device behind `/dev/sgN`. It is opened at the first command, and anew after it was lost; the device then reports
/// what happened meanwhile by a unit attention.
pub struct SgTransport {
    path: PathBuf,
    name: String,
    open: Option<Open>,
}

struct Open {
    file: File,
    /// Most bytes in one command, where the driver says it.
    limit: Option<usize>,
    /// Size of the kernel's buffer that we asked for.
    reserved: usize,
}

impl SgTransport {
    /// A way to the device at `path`; nothing is opened yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), name: path.display().to_string(), open: None }
    }

    fn open(&self) -> Result<Open, TransportError> {
        // O_NONBLOCK: fail at once when another program has opened the device exclusively.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&self.path)
            .map_err(|e| self.cannot_open(&e))?;
        match sys::version(&file) {
            Ok(version) if version >= SG_VERSION => {}
            Ok(version) => return Err(self.refused(format!("its driver is too old (version {version})"))),
            Err(_) => {
                let hint = "it is no SCSI generic device; name /dev/sgN (`lsscsi -g` and `thermo library discover` list them)";
                return Err(self.refused(hint.into()));
            }
        }
        let limit = sys::max_transfer(&file);
        Ok(Open { file, limit, reserved: 0 })
    }

    fn cannot_open(&self, e: &io::Error) -> TransportError {
        match e.raw_os_error() {
            Some(libc::EBUSY) => self.refused("another program has opened it exclusively".into()),
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                self.refused(format!("cannot be opened: {e}; run as root or as a member of its group"))
            }
            _ => self.lost(format!("cannot be opened: {e}")),
        }
    }

    fn lost(&self, detail: String) -> TransportError {
        TransportError::Lost { device: self.name.clone(), detail }
    }

    fn refused(&self, detail: String) -> TransportError {
        TransportError::Refused { device: self.name.clone(), detail }
    }

    /// The system did not take the command.
    fn not_taken(&self, e: &io::Error, bytes: usize, limit: Option<usize>) -> TransportError {
        match e.raw_os_error() {
            Some(libc::EINVAL | libc::ENOMEM | libc::E2BIG) if bytes > 0 => {
                let most = limit.map_or(String::new(), |n| format!("; the host adapter carries {n}"));
                self.refused(format!("a command with {bytes} bytes of data was not taken ({e}){most}"))
            }
            Some(libc::EACCES | libc::EPERM) => {
                self.refused(format!("the command is not permitted ({e}); it needs CAP_SYS_RAWIO"))
            }
            _ => self.lost(e.to_string()),
        }
    }
}

impl Transport for SgTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        data.must_be_here(&self.name)?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let bytes = data.len();
        if bytes > open.reserved {
            sys::reserve(&open.file, bytes);
            open.reserved = bytes;
        }
        let ended = match sys::execute(&open.file, cdb, data, timeout) {
            Ok(ended) => ended,
            Err(e) => {
                let error = self.not_taken(&e, bytes, open.limit);
                if matches!(error, TransportError::Refused { .. }) {
                    self.open = Some(open);
                }
                return Err(error);
            }
        };
        let result = interpret(&self.name, ended, bytes, timeout);
        if !matches!(result, Err(TransportError::Lost { .. })) {
            self.open = Some(open);
        }
        result
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// What the kernel's report means: an answer of the device, or none.
fn interpret(name: &str, ended: Ended, bytes: usize, timeout: Duration) -> Result<Reply, TransportError> {
    let driver = ended.driver & 0x0F;
    let with_sense = driver == DRIVER_SENSE && !ended.sense.is_empty();
    if ended.host == DID_TIME_OUT || driver == DRIVER_TIMEOUT {
        return Err(TransportError::Timeout { device: name.into(), seconds: timeout.as_secs() });
    }
    if ended.host != 0 || (driver != 0 && driver != DRIVER_SENSE) {
        let what = host_status(ended.host);
        let (host, driver) = (ended.host, ended.driver);
        let detail = format!("{what} (host status {host:02X}h, driver status {driver:02X}h)");
        return Err(TransportError::Lost { device: name.into(), detail });
    }
    // Sense data that comes with status GOOD is a CHECK CONDITION that a host adapter's driver has hidden.
    let status = if ended.status == GOOD && with_sense { CHECK_CONDITION } else { ended.status };
    let sense = if status == CHECK_CONDITION { ended.sense } else { Vec::new() };
    Ok(Reply { status, transferred: bytes - ended.residual.min(bytes), sense })
}

/// Host status codes in words (`include/scsi/scsi_status.h` of Linux).
fn host_status(code: u16) -> &'static str {
    match code {
        0x00 => "the driver reports an error",
        0x01 | 0x04 => "the device cannot be reached",
        0x02 => "the bus is busy",
        0x05 => "the command was aborted",
        0x06 => "parity or checksum error on the way",
        0x08 => "the bus or device was reset",
        0x0E | 0x0F => "the transport is disrupted",
        _ => "the host adapter reports an error",
    }
}

/// A tape drive or changer that the kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Device file.
    pub path: PathBuf,
    /// Peripheral device type: 01h tape drive, 08h medium changer.
    pub device_type: u8,
}

/// Tape drives and changers among the SCSI generic devices, by number. `sysfs` is `/sys` outside of tests; a machine
/// without SCSI has none.
///
/// # Errors
/// The directory is there and cannot be read.
pub fn find(sysfs: &Path) -> io::Result<Vec<Found>> {
    let entries = match std::fs::read_dir(sysfs.join("class/scsi_generic")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|n| n.strip_prefix("sg")?.parse::<u32>().ok());
        // A device that goes away meanwhile is none.
        let kind = std::fs::read_to_string(entry.path().join("device/type"));
        let kind = kind.ok().and_then(|text| text.trim().parse::<u8>().ok());
        if let (Some(number), Some(device_type @ (0x01 | 0x08))) = (number, kind) {
            found.push((number, device_type));
        }
    }
    found.sort_unstable();
    let device = |(number, device_type)| Found { path: format!("/dev/sg{number}").into(), device_type };
    Ok(found.into_iter().map(device).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: u8, host: u16, driver: u16, sense: &[u8]) -> Ended {
        Ended { status, host, driver, residual: 0, sense: sense.to_vec() }
    }

    fn interpreted(ended: Ended) -> Result<Reply, TransportError> {
        interpret("/dev/sg7", ended, 100, Duration::from_secs(9))
    }

    #[test]
    fn what_the_kernel_reports_is_an_answer_or_a_lost_device() {
        let short = interpreted(Ended { residual: 30, ..Ended::default() }).unwrap();
        assert_eq!(short, Reply { status: GOOD, transferred: 70, sense: Vec::new() });
        let nonsense = interpreted(Ended { residual: 300, ..Ended::default() }).unwrap();
        assert_eq!(nonsense.transferred, 0);

        let check = interpreted(ended(CHECK_CONDITION, 0, DRIVER_SENSE, &[0x70, 0, 3])).unwrap();
        assert_eq!((check.status, check.sense), (CHECK_CONDITION, vec![0x70, 0, 3]));
        let hidden = interpreted(ended(GOOD, 0, DRIVER_SENSE, &[0x70, 0, 3])).unwrap();
        assert_eq!(hidden.status, CHECK_CONDITION, "sense is never dropped");
        let conflict = interpreted(ended(0x18, 0, 0, &[])).unwrap();
        assert_eq!(conflict.status, 0x18);

        for (host, driver) in [(DID_TIME_OUT, 0), (0, DRIVER_TIMEOUT)] {
            let error = interpreted(ended(GOOD, host, driver, &[])).unwrap_err();
            assert_eq!(error.to_string(), "/dev/sg7: no answer within 9 s");
        }
        for (host, driver, text) in [(1, 0, "cannot be reached"), (8, 0, "reset"), (0, 7, "driver")] {
            let error = interpreted(ended(GOOD, host, driver, &[])).unwrap_err().to_string();
            assert!(error.starts_with("/dev/sg7: ") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn only_tape_drives_and_changers_are_found() {
        let sysfs = tempfile::tempdir().unwrap();
        assert_eq!(find(sysfs.path()).unwrap(), [], "no SCSI at all");
        for (name, kind) in [("sg10", "8\n"), ("sg2", "1\n"), ("sg0", "0\n"), ("sg3", "13\n"), ("odd", "1\n")]
        {
            let device = sysfs.path().join("class/scsi_generic").join(name).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("type"), kind).unwrap();
        }
        let found = |path: &str, device_type| Found { path: path.into(), device_type };
        assert_eq!(find(sysfs.path()).unwrap(), [found("/dev/sg2", 1), found("/dev/sg10", 8)]);
    }

    #[test]
    fn a_path_that_is_no_such_device_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut transport = SgTransport::new(file.path());
        let error = transport.execute(&[0; 6], Data::None, Duration::from_secs(1)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&file.path().display().to_string()), "{text}");
        assert!(text.contains("no SCSI generic device"), "{text}");
        let mut missing = SgTransport::new(Path::new("/dev/sg-not-there"));
        let error = missing.execute(&[0; 6], Data::None, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, TransportError::Lost { .. }), "{error}");
    }
}
