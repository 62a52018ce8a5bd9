//! Nodes that the program's files may be of. An attribute of every file on a mount names the node that serves it: the run of the node,
//! and its control socket. The node behind the socket must say the same, else its inodes are not those of the mount.

use crate::{log, own};
use client::native::{File, Options, Session};
use libc::c_int;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use types::Ino;
use types::api::OpenFlags;

const ATTRIBUTE: &std::ffi::CStr = c"user.thermo.node";
/// Longest value: a number and a path.
const LONGEST: usize = 4200;

/// Nodes by what their files say.
#[derive(Default)]
pub struct Nodes(Mutex<Vec<Known>>);

struct Known {
    /// What its files say.
    node: Vec<u8>,
    /// Who this program was when it connected: a node asks no more later.
    who: Who,
    /// None: not to be had.
    session: Option<Session>,
}

/// What becomes of a file.
pub enum Found {
    /// It goes past the mount.
    Past(Box<File>),
    /// It goes through the mount for now.
    Later,
    /// It stays with the mount.
    Stays,
}

/// Real and effective user and group.
type Who = (libc::uid_t, libc::uid_t, libc::gid_t, libc::gid_t);

fn who() -> Who {
    // SAFETY: they have no arguments and cannot fail.
    unsafe { (libc::getuid(), libc::geteuid(), libc::getgid(), libc::getegid()) }
}

/// What statfs(2) calls a mount of FUSE.
const FUSE: libc::c_long = 0x6573_5546;

/// What a file says of its node; None: it is on no mount of one. On other file systems users may set the attribute themselves.
fn node_of(fd: c_int) -> Option<Vec<u8>> {
    // SAFETY: a structure of numbers.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a structure that is filled.
    if unsafe { libc::fstatfs(fd, &mut system) } != 0 || system.f_type != FUSE {
        return None;
    }
    let mut value = vec![0; LONGEST];
    // SAFETY: a name and a buffer of this length.
    let length = unsafe { libc::fgetxattr(fd, ATTRIBUTE.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

impl Nodes {
    /// Opens the file of a descriptor beside the mount, of which `much` is moved at once, or little.
    pub fn open(&self, fd: c_int, ino: u64, flags: OpenFlags, much: bool) -> Found {
        self.look(fd, ino, flags, much).unwrap_or(Found::Stays)
    }

    fn look(&self, fd: c_int, ino: u64, flags: OpenFlags, much: bool) -> Option<Found> {
        let node = node_of(fd)?;
        let ino = Ino(ino);
        let stays =
            |why: &dyn std::fmt::Display| log::say(&format_args!("inode {ino} stays with the mount: {why}"));
        let session = self.session(&node, ino)?;
        match session.open_direct(ino, flags, much) {
            Ok(Some(file)) if much || file.has_object() => Some(Found::Past(Box::new(file))),
            Ok(Some(_)) => Some(Found::Later),
            // Where a right to read could be had it may be there later: somebody who writes it closes it, and others have asked, too.
            Ok(None) if !flags.write => Some(Found::Later),
            Ok(None) => {
                stays(&"its bytes are not at hand just now");
                None
            }
            Err(e) => {
                stays(&e);
                if e.no_node() {
                    self.0.lock().retain(|known| known.node != node);
                }
                None
            }
        }
    }

    /// Nobody is asked any more: connections that no file uses are closed.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }

    fn session(&self, node: &[u8], ino: Ino) -> Option<Session> {
        let who = who();
        let mut all = self.0.lock();
        if all.iter().any(|known| known.who != who) {
            // Rights that the program has given up, or has for somebody else, are not used.
            all.iter_mut().for_each(|known| known.session = None);
            log::say(&"this program is another user now: everything stays with the mount");
            return None;
        }
        if let Some(known) = all.iter().find(|known| known.node == node) {
            return known.session.clone();
        }
        let session = match connect(node, ino) {
            Ok(session) => Some(session),
            Err(why) => {
                log::say(&format_args!("everything stays with the mount: {why}"));
                None
            }
        };
        all.push(Known { node: node.to_owned(), who, session: session.clone() });
        session
    }
}

fn connect(node: &[u8], ino: Ino) -> Result<Session, String> {
    let space =
        node.iter().position(|b| *b == b' ').ok_or("its node says what this library does not understand")?;
    let socket = Path::new(OsStr::from_bytes(&node[space + 1..]));
    let options = Options { place: own::place, read_ahead: 0, write_behind: 0, ..Options::default() };
    let session = Session::connect_with(socket, options).map_err(|e| e.to_string())?;
    let name = session.xattr_of(ino, ATTRIBUTE.to_bytes()).map_err(|e| e.to_string())?;
    if name != node {
        return Err(format!("the node at {} is not the one that serves it", socket.display()));
    }
    Ok(session)
}
