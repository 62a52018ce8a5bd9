//! The library's devices on unix sockets, for other programs (wire format: `scsi::socket`).

use crate::error::{Result, io};
use crate::library::Library;
use crate::transport::LibraryTransport;
use parking_lot::Mutex;
use scsi::socket::{REQUEST_BYTES, ReplyHead, RequestHead};
use scsi::{Data, Transport};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections per device; more are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// Running servers; dropping it closes sockets and connections and removes the socket files.
pub struct Server {
    listeners: Vec<Listening>,
}

struct Listening {
    path: PathBuf,
    listener: UnixListener,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    next: AtomicU64,
    connections: Mutex<BTreeMap<u64, UnixStream>>,
}

/// Listens on `<dir>/drive0.sock` ... and `<dir>/changer.sock`, readable and writable by this user only. Whatever comes
/// through the sockets of one directory comes from one host; another directory is another host.
pub fn serve(library: Arc<Library>, dir: &Path) -> Result<Server> {
    fs::create_dir_all(dir).map_err(io(dir, "create"))?;
    let host = library.hosts.fetch_add(1, Ordering::Relaxed);
    let mut server = Server { listeners: Vec::new() };
    for n in 0..library.drives() {
        let library = library.clone();
        server.listen(dir.join(format!("drive{n}.sock")), move || library.drive_as(n, host))?;
    }
    server.listen(dir.join("changer.sock"), move || library.changer_as(host))?;
    Ok(server)
}

impl Server {
    fn listen(
        &mut self,
        path: PathBuf,
        device: impl Fn() -> LibraryTransport + Send + 'static,
    ) -> Result<()> {
        // A socket file of an earlier run: the library's lock says that nobody serves it any more.
        if path.exists() {
            fs::remove_file(&path).map_err(io(&path, "remove"))?;
        }
        let listener = UnixListener::bind(&path).map_err(io(&path, "listen"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io(&path, "set permissions"))?;
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        let accepted = listener.try_clone().map_err(io(&path, "listen"))?;
        let thread = std::thread::Builder::new()
            .name("vtl-accept".into())
            .spawn(move || accept(&accepted, &accepting, device))
            .map_err(io(&path, "start a thread"))?;
        self.listeners.push(Listening { path, listener, shared, thread: Some(thread) });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for l in &mut self.listeners {
            l.shared.stop.store(true, Ordering::SeqCst);
            // Ends the accepting thread's wait, whether or not the socket file still exists.
            let stopped = rustix::net::shutdown(&l.listener, rustix::net::Shutdown::Both);
            for connection in l.shared.connections.lock().values() {
                let _ = connection.shutdown(Shutdown::Both);
            }
            if let (Ok(()), Some(thread)) = (stopped, l.thread.take()) {
                let _ = thread.join();
            }
            let _ = fs::remove_file(&l.path);
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, device: impl Fn() -> LibraryTransport) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100)); // out of descriptors: give others time
            continue;
        };
        let Ok(handle) = stream.try_clone() else { continue };
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let mut connections = shared.connections.lock();
        if connections.len() >= MAX_CONNECTIONS {
            continue;
        }
        connections.insert(id, handle);
        drop(connections);
        let (device, owner) = (device(), shared.clone());
        let started = std::thread::Builder::new().name("vtl-connection".into()).spawn(move || {
            // A connection ends when its peer goes away, breaks the format, or the device does not answer.
            let _ = converse(stream, device);
            owner.connections.lock().remove(&id);
        });
        if started.is_err() {
            shared.connections.lock().remove(&id);
        }
    }
}

fn converse(mut stream: UnixStream, mut device: LibraryTransport) -> std::io::Result<()> {
    let (mut out, mut room) = (Vec::new(), Vec::new());
    loop {
        let mut raw = [0u8; REQUEST_BYTES];
        stream.read_exact(&mut raw)?;
        let request = RequestHead::decode(&raw).map_err(std::io::Error::other)?;
        out.resize(request.out_len as usize, 0);
        stream.read_exact(&mut out)?;
        room.resize(request.in_alloc as usize, 0);
        let data = match (out.is_empty(), room.is_empty()) {
            (false, _) => Data::Out(&out),
            (true, false) => Data::In(&mut room),
            (true, true) => Data::None,
        };
        let reply = device.execute(request.cdb(), data, Duration::MAX).map_err(std::io::Error::other)?;
        let data_len = if out.is_empty() { reply.transferred.min(room.len()) } else { 0 };
        let head = ReplyHead { status: reply.status, data_len: data_len as u32, sense: reply.sense };
        stream.write_all(&head.encode())?;
        stream.write_all(&room[..data_len])?;
    }
}
