//! A database server that takes what it is sent and does not answer, while changes are held back for a move of the catalogue.

use crate::server::Server;
use crate::support::newest;
use e2e::{Bed, make_files};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CONFIG: &str = "[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n";
/// What sets an engine aside: sent once by the engine that is left, in the middle of the pause.
const SET_ASIDE: &[u8] = b"SET format = $2";

/// A way to a server on which that statement stands still.
#[derive(Default)]
struct Way {
    stands_still: AtomicBool,
    /// It does.
    stood: AtomicBool,
}

impl Way {
    fn forward(&self, mut from: UnixStream, mut to: UnixStream) {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            if chunk[..n].windows(SET_ASIDE.len()).any(|w| w == SET_ASIDE) {
                while self.stands_still.load(Ordering::Acquire) {
                    self.stood.store(true, Ordering::Release);
                    thread::sleep(Duration::from_millis(5));
                }
            }
            if to.write_all(&chunk[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Serves at the socket that a client looks for in this directory.
    fn serve(self: &Arc<Self>, at: PathBuf, server: PathBuf) {
        let listener = UnixListener::bind(at).unwrap();
        let way = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(to) = UnixStream::connect(&server) else { continue };
                let (client_too, to_too) = (client.try_clone().unwrap(), to.try_clone().unwrap());
                let (there, back) = (way.clone(), way.clone());
                thread::spawn(move || there.forward(client, to));
                thread::spawn(move || back.forward(to_too, client_too));
            }
        });
    }

    fn set(&self, stands_still: bool) {
        self.stood.store(false, Ordering::Release);
        self.stands_still.store(stands_still, Ordering::Release);
    }
}

/// Moves away from the server, which falls silent meanwhile: changes go on all the same, and the move is given up.
fn gives_up(bed: &Bed, way: &Way, name: &str) {
    way.set(true);
    let (mut child, tree) =
        (bed.command(["engine", "move", "--wait", "--to", "embedded"]).spawn().unwrap(), bed.path("tree"));
    bed.wait("the silence", || way.stood.load(Ordering::Acquire));
    // It waits for the end of the pause; without one for ever.
    let mut put =
        bed.command(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), name.as_ref()]).spawn().unwrap();
    let mut ended = None;
    bed.wait("a change beside the silence", || {
        ended = put.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
    assert!(!child.wait().unwrap().success());
    assert!(way.stands_still.load(Ordering::Acquire));
    let request = newest(bed);
    let message = request["message"].as_str().unwrap_or_default();
    assert!(request["state"] == "failed" && message.contains("did not answer"), "{request}");
    let (_, busy) = bed.fails(["engine", "move", "--wait", "--to", "embedded"]);
    assert!(busy.contains("not quite over"), "{busy}");
}

#[test]
fn a_server_that_falls_silent_while_changes_are_held_back_ends_the_move_alone() {
    let (server, bed) = (Server::start(), Bed::new(CONFIG));
    let dir = tempfile::tempdir().unwrap();
    let way = Arc::new(Way::default());
    way.serve(dir.path().join(".s.PGSQL.5432"), server.socket());
    server.address("silent", "");
    let address = server.address_by(dir.path(), "silent", "&connections=4");
    make_files(&bed.path("tree"), 3, 1_000);
    bed.up();
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("tree").as_os_str(), "tc:/before".as_ref()]);
    bed.ok(["engine", "move", "--wait", "--to", address.as_str()]);

    gives_up(&bed, &way, "tc:/beside");
    // The server answers again, and what was asked of it is undone.
    way.set(false);
    let note = bed.state().join("engine-move");
    bed.wait("the undoing", || !note.exists());
    // Again, and the node ends meanwhile; its next start undoes it.
    gives_up(&bed, &way, "tc:/again");
    bed.ok(["down"]);
    assert!(way.stands_still.load(Ordering::Acquire) && note.exists());
    way.set(false);
    bed.up();
    assert!(!note.exists());
    for name in ["tc:/before", "tc:/beside", "tc:/again"] {
        bed.ok(["stat", name]);
    }
    bed.ok(["engine", "move", "--wait", "--to", "embedded"]);
    let config = fs::read_to_string(bed.state().join("config.toml")).unwrap();
    assert!(!config.contains("postgres://"), "{config}");
    bed.check();
    bed.ok(["down"]);
}
