//! What a case sees: a directory of its own, descriptors by name, marks of times.

use crate::users::User;
use crate::{calls, errors};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What can be done to the content of a file behind its back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tape {
    /// Copied to tape.
    Migrate,
    /// Removed from disk, if it is on tape and nobody has it open.
    Purge,
    /// Brought back.
    Stage,
}

/// What the tested file system offers beyond calls.
pub trait Host: Sync {
    /// Does something to the content of a regular file, where there is such a thing.
    fn tape(&self, _act: Tape, _path: &Path) {}
}

/// State of one case; belongs to the thread that runs it.
pub struct World<'a> {
    /// The file system.
    pub host: &'a dyn Host,
    /// Directory of the case; also the working directory.
    pub dir: PathBuf,
    /// Open descriptors.
    pub files: BTreeMap<Vec<u8>, OwnedFd>,
    /// Change times at the last `mark`.
    pub marks: BTreeMap<Vec<u8>, (i64, i64)>,
    /// Bound and connected sockets.
    pub sockets: Vec<OwnedFd>,
    /// Whether this thread has mounts of its own.
    pub own_mounts: bool,
}

/// What came of a call: text, or the name of an error.
pub type Outcome = Result<String, Errno>;

impl<'a> World<'a> {
    /// Makes this thread live in `dir`: working directory and umask (0) are its own from now on.
    pub fn enter(host: &'a dyn Host, dir: &Path) -> Self {
        // SAFETY: only the working directory, root and umask of this thread part from those of its process; nothing that
        // memory safety rests on is shared that way.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
            .expect("a working directory of one's own");
        rustix::process::chdir(dir).expect("enter the directory of the case");
        rustix::process::umask(rustix::fs::Mode::empty());
        let (files, marks, sockets) = Default::default();
        Self { host, dir: dir.to_owned(), files, marks, sockets, own_mounts: false }
    }

    /// Makes a call and says what came of it in the form in which scripts expect it.
    pub fn call(&mut self, user: User, words: &[Vec<u8>]) -> String {
        if crate::users::is_root() || user != User::Root {
            user.enter();
        }
        let outcome = calls::call(self, words);
        if user != User::Root {
            User::Root.enter();
        }
        match outcome {
            Ok(text) => text,
            Err(errno) => errors::name(errno),
        }
    }

    /// The descriptor that a word names, with or without its `@`.
    pub fn fd(&self, name: &[u8]) -> &OwnedFd {
        let name = name.strip_prefix(b"@").unwrap_or(name);
        self.files.get(name).unwrap_or_else(|| panic!("no descriptor {}", String::from_utf8_lossy(name)))
    }
}

/// A word as text.
pub fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).expect("this argument is text")
}

/// A word as a number; `k`, `M`, `G` multiply by powers of 1024.
pub fn number<T: TryFrom<i128>>(word: &[u8]) -> T {
    let word = text(word);
    let (digits, factor) = match word.chars().last() {
        Some('k') => (&word[..word.len() - 1], 1i128 << 10),
        Some('M') => (&word[..word.len() - 1], 1 << 20),
        Some('G') => (&word[..word.len() - 1], 1 << 30),
        Some('T') => (&word[..word.len() - 1], 1 << 40),
        _ => (word, 1),
    };
    let number = digits.parse::<i128>().unwrap_or_else(|e| panic!("{word}: {e}")) * factor;
    T::try_from(number).unwrap_or_else(|_| panic!("{word} does not fit"))
}

/// A word as permission bits.
pub fn mode(word: &[u8]) -> rustix::fs::Mode {
    let bits = u32::from_str_radix(text(word), 8).unwrap_or_else(|e| panic!("mode {}: {e}", text(word)));
    rustix::fs::Mode::from_raw_mode(bits)
}

/// Bytes as scripts expect them: text as it is, anything else in hexadecimal.
pub fn show(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_graphic() || *b == b' ';
    if !bytes.is_empty() && bytes.iter().all(plain) && bytes.len() <= 200 {
        return format!("{:?}", String::from_utf8_lossy(bytes));
    }
    if bytes.len() <= 64 {
        let shown =
            bytes.iter().map(|b| if plain(b) { (*b as char).to_string() } else { format!("\\x{b:02x}") });
        return format!("\"{}\"", shown.collect::<String>());
    }
    let zeros = if bytes.iter().all(|b| *b == 0) { " zero" } else { "" };
    format!("{}{zeros} bytes", bytes.len())
}
