//! The socket at which the mover of this node listens for programs of its host, and its names: one for each target that is served. Who finds the name of a
//! target need not go over the network, and may read by descriptors. Who does not, or is not answered there, goes as those of other hosts do.

use mover::Mover;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::TargetId;

/// What is listened at.
const SOCKET: &str = "mover.sock";

pub(super) struct Near {
    state: PathBuf,
    listener: UnixListener,
    thread: std::thread::JoinHandle<()>,
    named: BTreeSet<TargetId>,
}

impl Near {
    /// Listens. None: nobody can listen there, as the log says.
    pub(super) fn listen(state: &Path, mover: &Arc<Mover>) -> Option<Self> {
        Self::try_listen(state, mover).inspect_err(|e| cannot(&directory(state).join(SOCKET), e)).ok()
    }

    fn try_listen(state: &Path, mover: &Arc<Mover>) -> Result<Self> {
        let dir = directory(state);
        // Of an earlier run.
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => fs::create_dir(&dir)?,
        }
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let path = dir.join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        // Whoever connects shows a capability.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        let (accepting, mover) = (listener.try_clone()?, mover.clone());
        let thread = std::thread::Builder::new().name("mover-near".into()).spawn(move || {
            if let Err(e) = mover.listen_unix(&accepting) {
                cannot(&path, &e);
                // Nobody is to wait there.
                let _ = fs::remove_file(&path);
            }
        })?;
        Ok(Self { state: state.to_owned(), listener, thread, named: BTreeSet::new() })
    }

    /// A target is served from now on.
    pub(super) fn name(&mut self, target: TargetId) {
        if !self.named.insert(target) {
            return;
        }
        let name = stripe::socket(&self.state, target);
        let named = SocketAddr::from_pathname(&name).and_then(|_| symlink(SOCKET, &name));
        if let Err(e) = named {
            cannot(&name, &e);
        }
    }

    /// Whoever comes from now on goes over TCP.
    pub(super) fn hide(&self) {
        if let Err(e) = fs::remove_dir_all(directory(&self.state)) {
            tracing::debug!("{}: {e}", directory(&self.state).display());
        }
    }

    /// Listens no longer; the mover has been stopped.
    pub(super) fn end(self) {
        // It wakes up by this; if not, it has ended.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        // A panic of it was reported when it happened.
        let _ = self.thread.join();
    }
}

fn directory(state: &Path) -> PathBuf {
    stripe::socket(state, TargetId(0)).parent().map_or_else(PathBuf::new, Path::to_owned)
}

fn cannot(path: &Path, e: &Error) {
    tracing::warn!(
        "{}: {e}; programs of this host read and write its targets over TCP, which takes longer",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn names_are_there_while_somebody_listens_and_those_of_earlier_runs_go() {
        let dir = tempfile::tempdir().unwrap();
        let mover = Mover::new([1; 16], [], Box::new(crate::now)).unwrap();
        let [first, second] = [1, 2].map(|id| stripe::socket(dir.path(), TargetId(id)));
        fs::create_dir(first.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&first).unwrap());
        let mut near = Near::listen(dir.path(), &mover).unwrap();
        assert!(!first.exists());
        [1, 2, 2].iter().for_each(|id| near.name(TargetId(*id)));
        [&first, &second].iter().for_each(|path| drop(UnixStream::connect(path).unwrap()));
        let mode = fs::metadata(&first).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        near.hide();
        assert!(!second.exists());
        mover.stop().unwrap();
        near.end();
    }

    #[test]
    fn where_the_path_is_too_long_nobody_listens_and_nothing_else_happens() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("l".repeat(120));
        fs::create_dir(&long).unwrap();
        let mover = Mover::new([1; 16], [], Box::new(crate::now)).unwrap();
        assert!(Near::listen(&long, &mover).is_none());
    }
}
