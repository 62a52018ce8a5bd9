//! The kernel's SCSI generic interface, version 3 (`include/scsi/sg.h`): the unsafe part.
#![allow(unsafe_code)]

use crate::Data;
use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

const SG_IO: c_ulong = 0x2285;
const SG_GET_VERSION_NUM: c_ulong = 0x2282;
const SG_SET_RESERVED_SIZE: c_ulong = 0x2275;
/// On an sg device the answer is in bytes (on block devices in sectors).
const BLKSECTGET: c_ulong = 0x1267;
const DXFER_NONE: c_int = -1;
const DXFER_TO_DEV: c_int = -2;
const DXFER_FROM_DEV: c_int = -3;
/// Sense bytes taken; the standards allow no more than 252.
const SENSE_BYTES: usize = 252;

/// `struct sg_io_hdr`.
#[repr(C)]
struct Header {
    interface_id: c_int,
    dxfer_direction: c_int,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: c_uint,
    dxferp: *mut c_void,
    cmdp: *mut u8,
    sbp: *mut u8,
    timeout: c_uint,
    flags: c_uint,
    pack_id: c_int,
    usr_ptr: *mut c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: c_int,
    duration: c_uint,
    info: c_uint,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Header>() == 88, "sg.h: 88 bytes where pointers have 64 bits");

/// How a command ended, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// SCSI status byte.
    pub status: u8,
    /// Host adapter: 0 is fine.
    pub host: u16,
    /// Driver: the low four bits; 0 is fine, 8 says that there is sense data.
    pub driver: u16,
    /// Bytes of the buffer that were not transferred.
    pub residual: usize,
    /// Sense data.
    pub sense: Vec<u8>,
}

/// Version of the driver, e.g. 30536; an error for anything that is no SCSI generic device.
pub fn version(device: &File) -> io::Result<c_int> {
    let mut version: c_int = 0;
    // SAFETY: the request stores one int.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), SG_GET_VERSION_NUM as _, &raw mut version) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(version) }
}

/// Most bytes that the host adapter carries in one command; None: the driver does not say.
pub fn max_transfer(device: &File) -> Option<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the request stores one int.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), BLKSECTGET as _, &raw mut bytes) };
    usize::try_from(bytes).ok().filter(|&n| answer >= 0 && n > 0)
}

/// Asks for a buffer of the kernel that is kept between commands. The driver may give less: it allocates for each
/// command what is missing.
pub fn reserve(device: &File, bytes: usize) {
    let mut bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    // SAFETY: the request reads one int.
    unsafe { libc::ioctl(device.as_raw_fd(), SG_SET_RESERVED_SIZE as _, &raw mut bytes) };
}

/// Executes one command and waits for its end. `cdb` has at most 255 bytes.
pub fn execute(device: &File, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Ended> {
    let mut cdb = cdb.to_vec();
    let mut sense = [0u8; SENSE_BYTES];
    // The kernel only reads from the buffer of DXFER_TO_DEV, so the pointer's being mutable means nothing.
    let (direction, buffer, length): (c_int, *mut u8, usize) = match data {
        Data::None | Data::There(_) | Data::Keep(_) => (DXFER_NONE, ptr::null_mut(), 0),
        Data::In([]) | Data::Out([]) => (DXFER_NONE, ptr::null_mut(), 0),
        Data::In(room) => (DXFER_FROM_DEV, room.as_mut_ptr(), room.len()),
        Data::Out(bytes) => (DXFER_TO_DEV, bytes.as_ptr().cast_mut(), bytes.len()),
    };
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut header = Header {
        interface_id: c_int::from(b'S'),
        dxfer_direction: direction,
        cmd_len: u8::try_from(cdb.len()).map_err(too_long)?,
        mx_sb_len: SENSE_BYTES as u8,
        iovec_count: 0,
        dxfer_len: c_uint::try_from(length).map_err(too_long)?,
        dxferp: buffer.cast(),
        cmdp: cdb.as_mut_ptr(),
        sbp: sense.as_mut_ptr(),
        timeout: timeout.as_millis().clamp(1, i32::MAX as u128) as c_uint,
        flags: 0,
        pack_id: 0,
        usr_ptr: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        msg_status: 0,
        sb_len_wr: 0,
        host_status: 0,
        driver_status: 0,
        resid: 0,
        duration: 0,
        info: 0,
    };
    let quiet = Quiet::begin();
    // SAFETY: the header is that of sg.h, and what it points to (command, data, sense) lives until the call returns with
    // the lengths given; the kernel writes to nothing else. It keeps no pointer: the call returns only when the command
    // has ended, because no signal can interrupt it.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), SG_IO as _, &raw mut header) };
    let error = io::Error::last_os_error();
    drop(quiet);
    if answer < 0 {
        return Err(error);
    }
    Ok(Ended {
        status: header.status,
        host: header.host_status,
        driver: header.driver_status,
        residual: usize::try_from(header.resid).unwrap_or(0).min(length),
        sense: sense[..usize::from(header.sb_len_wr).min(SENSE_BYTES)].to_vec(),
    })
}

/// While it lives, this thread takes no signal. A signal ends the wait for a command but not the command; the system
/// would then send it *again*, and a record would be on the tape twice.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn begin() -> Self {
        // SAFETY: both sets are plain data, filled in by the calls; these fail only for an unknown `how`.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
