//! What has no data as a member: links, directories, pipes and devices are what every tar makes of them.

use super::header::{FILE, Header};
use types::{FileKind, TapeFile};

/// A symbolic link.
pub const SYMLINK: u8 = b'2';
/// A character device.
pub const CHAR: u8 = b'3';
/// A block device.
pub const BLOCK_DEVICE: u8 = b'4';
/// A directory.
pub const DIRECTORY: u8 = b'5';
/// A named pipe.
pub const FIFO: u8 = b'6';

/// Kind of the member. Sockets, of which tar programs know nothing, words and removals are empty files among our own.
pub fn kind(file: &TapeFile) -> u8 {
    if file.node.gone || file.file_size > 0 {
        return FILE;
    }
    match file.kind() {
        Some(FileKind::Symlink) if !file.node.target.is_empty() => SYMLINK,
        Some(FileKind::CharDevice) => CHAR,
        Some(FileKind::BlockDevice) => BLOCK_DEVICE,
        Some(FileKind::Directory) => DIRECTORY,
        Some(FileKind::Fifo) => FIFO,
        _ => FILE,
    }
}

/// Whether the member has a name among our own because no program would make the node of it.
pub fn is_ours(file: &TapeFile) -> bool {
    file.node.gone || file.ino.is_word() || file.kind() == Some(FileKind::Socket)
}

/// The header of a member with what its kind needs.
pub fn header(file: &TapeFile, header: Header) -> Header {
    let kind = kind(file);
    let device = matches!(kind, CHAR | BLOCK_DEVICE);
    let device = if device { device_of(file.node.rdev) } else { (0, 0) };
    let link = if kind == SYMLINK { file.node.target.clone() } else { Vec::new() };
    Header { kind, link, device, ..header }
}

/// Major and minor number of a device as Linux encodes them in `st_rdev`.
fn device_of(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}
