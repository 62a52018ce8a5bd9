//! What a node needs to serve a cluster and is not in the catalogue: the standby, or who waits for his turn with a database, gets it as it changes, keeps it
//! beside (`standby-kept` in the state directory), and puts it in its place when it takes over.

use crate::error::failure;
use crate::movers::MasterKey;
use crate::startup::io;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use types::ErrorClass;
use wire::{Failure, KeptFile};

/// Below the state directory: the key of the authority, who belongs to the cluster, who was removed, and what the secrets of targets follow from.
const FILES: [&str; 4] = ["cluster/authority-key.der", "cluster/roster", "cluster/removed", "targets.key"];
const KEPT: &str = "standby-kept";
/// Longest of them (bytes).
const LONGEST: usize = 8 << 20;

/// Secret from which those of targets follow.
const TARGETS: &str = FILES[3];
/// The signed list of members that were removed.
const REMOVED: &str = FILES[2];

/// Those that a subsystem needs: who belongs to the cluster is the first node's, which tells each member who was removed. It may be away when a turn begins.
fn of_subsystem(name: &str) -> bool {
    name == TARGETS || name == REMOVED
}

/// Takes out the list of members that were removed: a host that has one of its own looks which of the two is later.
pub(crate) fn take_removed(files: &mut Vec<KeptFile>) -> Option<Vec<u8>> {
    let at = files.iter().position(|file| file.name == REMOVED)?;
    Some(files.remove(at).bytes)
}

/// Those that there are, as they are now. What secrets of targets follow from is made first, if need be: no target shall know one that the standby does not.
pub(crate) fn gather(state: &Path, subsystem: bool) -> Result<Vec<KeptFile>, Failure> {
    MasterKey::open(state)?;
    let mut found = Vec::new();
    for name in FILES.into_iter().filter(|name| !subsystem || of_subsystem(name)) {
        match fs::read(state.join(name)) {
            Ok(bytes) => found.push(KeptFile { name: name.into(), bytes }),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(io(&state.join(name), &e)),
        }
    }
    Ok(found)
}

/// Keeps files beside; each is there as a whole when this returns.
pub(crate) fn keep(state: &Path, files: &[KeptFile]) -> Result<(), Failure> {
    for file in files {
        if !FILES.contains(&file.name.as_str()) || file.bytes.len() > LONGEST {
            let message = format!("a standby does not keep {:?} ({} bytes)", file.name, file.bytes.len());
            return Err(failure(ErrorClass::Invalid, message));
        }
    }
    let dir = state.join(KEPT);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir).and_then(|()| sync(state));
    made.map_err(|e| io(&dir, &e))?;
    for file in files {
        let path = dir.join(beside(&file.name));
        put(&path, &file.bytes).map_err(|e| io(&path, &e))?;
    }
    Ok(())
}

/// Whether all is kept that a node of a cluster cannot do without; what is kept last tells of what is kept before.
pub(crate) fn is_complete(state: &Path, subsystem: bool) -> bool {
    let needed = if subsystem { &[TARGETS][..] } else { &[FILES[0], TARGETS] };
    needed.iter().all(|name| state.join(KEPT).join(beside(name)).exists())
}

/// Whether a subsystem has had its turn here, or has got what it needs for that.
pub(crate) fn has_served(state: &Path) -> bool {
    state.join(TARGETS).exists()
}

/// Forgets what is kept: it is of another node.
pub(super) fn forget(state: &Path) -> Result<(), Failure> {
    let dir = state.join(KEPT);
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(io(&dir, &e)),
        _ => sync(state).map_err(|e| io(state, &e)),
    }
}

/// Puts what is kept in its place. Where a crash interrupts that, it is done again.
pub(crate) fn install(state: &Path) -> Result<(), Failure> {
    let dir = state.join(KEPT);
    for name in FILES {
        let (from, to) = (dir.join(beside(name)), state.join(name));
        match fs::read(&from) {
            Ok(bytes) => put(&to, &bytes).map_err(|e| io(&to, &e))?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(io(&from, &e)),
        }
    }
    forget(state)
}

fn beside(name: &str) -> String {
    name.replace('/', "-")
}

/// Replaces a file durably, for its owner alone to read.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        File::open(path)?.sync_all()?;
        return path.parent().map_or(Ok(()), sync);
    }
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(name: &str, bytes: &[u8]) -> KeptFile {
        KeptFile { name: name.into(), bytes: bytes.into() }
    }

    #[test]
    fn what_is_kept_gets_its_place_at_a_take_over_and_no_other_file_is_kept() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(here.path().join("cluster")).unwrap();
        fs::write(here.path().join("cluster/authority-key.der"), b"key").unwrap();
        let sent = gather(here.path(), false).unwrap();
        let secret = fs::read(here.path().join("targets.key")).unwrap();
        assert_eq!(sent, [file(FILES[0], b"key"), file(FILES[3], &secret)]);
        assert!(format!("{sent:?}").contains("32 bytes"), "not what is in it: {sent:?}");

        fs::create_dir(there.path().join("cluster")).unwrap();
        fs::write(there.path().join("targets.key"), b"its own").unwrap();
        keep(there.path(), &sent).unwrap();
        keep(there.path(), &[file(FILES[0], b"another")]).unwrap();
        assert!(is_complete(there.path(), false) && is_complete(there.path(), true));
        assert_eq!(
            gather(here.path(), true).unwrap(),
            [file(TARGETS, &secret)],
            "the keys of the cluster stay where they are"
        );
        for wrong in ["cluster/key.der", "../targets.key", "/etc/passwd", ""] {
            assert_eq!(keep(there.path(), &[file(wrong, b"x")]).unwrap_err().class, ErrorClass::Invalid);
        }
        assert_eq!(fs::read(there.path().join("targets.key")).unwrap(), b"its own", "not yet");
        install(there.path()).unwrap();
        install(there.path()).unwrap();
        assert_eq!(
            gather(there.path(), false).unwrap(),
            [file(FILES[0], b"another"), file(FILES[3], &secret)]
        );
        let mode = fs::metadata(there.path().join(FILES[0])).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!there.path().join(KEPT).exists());
    }
}
