//! A private cluster for tests: TiKV's placement driver, and unistore in place of a store. `.ci/tikv` builds both.
// A server needs time to start.
#![allow(clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for a server on a slow machine.
const LONG: Duration = Duration::from_secs(120);

/// A cluster. Ends, and its directory goes, when it is dropped.
pub struct Cluster {
    dir: TempDir,
    driver_port: u16,
    store_ports: [u16; 2],
    driver: Mutex<Option<Child>>,
    store: Mutex<Option<Child>>,
}

static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// Where the programs are.
fn program(name: &str) -> PathBuf {
    let given = std::env::var_os("THERMO_TIKV").map(PathBuf::from);
    let dir = given.unwrap_or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        cache.unwrap_or_else(home).join("thermo-tikv")
    });
    let path = dir.join(name);
    assert!(path.exists(), "there is no {}: run .ci/tikv, which builds it", path.display());
    path
}

/// Ports that nobody uses now.
fn ports<const N: usize>() -> [u16; N] {
    let sockets = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

impl Cluster {
    /// One cluster for all tests of this process that run at the same time.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Self::start());
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }

    /// Makes and starts a cluster.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [driver_port, peer, store, status] = ports();
        let cluster = Self {
            dir,
            driver_port,
            store_ports: [store, status],
            driver: Mutex::default(),
            store: Mutex::default(),
        };
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let mut driver = cluster.command("pd-server");
        driver.args(["--name=pd", "--data-dir=pd", "--log-file=pd.log"]);
        driver.arg(format!("--client-urls={}", at(driver_port))).arg(format!("--peer-urls={}", at(peer)));
        *cluster.driver.lock().unwrap() = Some(driver.spawn().unwrap());
        cluster.wait("the placement driver", |c| c.asked("/pd/api/v1/health").contains("\"health\": true"));
        let config = format!(
            "[server]\npd-addr = \"127.0.0.1:{driver_port}\"\nstore-addr = \"127.0.0.1:{store}\"\nstatus-addr = \"127.0.0.1:{status}\"\n\
             log-level = \"warn\"\nregion-size = 67108864\nraft = false\n[engine]\ndb-path = \"data\"\n"
        );
        fs::write(cluster.dir.path().join("store.toml"), config).unwrap();
        fs::create_dir(cluster.dir.path().join("data")).unwrap();
        cluster.up();
        cluster
    }

    fn command(&self, name: &str) -> Command {
        let log = self.dir.path().join(format!("{name}.out"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(program(name));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(format!("{name}.out"))).unwrap_or_default()
    }

    /// What the placement driver answers.
    pub fn asked(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.driver_port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n"); // then there is no answer either
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    fn wait(&self, what: &str, ready: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LONG;
        while !ready(self) {
            assert!(
                Instant::now() < end,
                "{what} does not start: {}{}",
                self.log("pd-server"),
                self.log("unistore")
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the store and waits until it answers.
    fn up(&self) {
        let mut store = self.command("unistore");
        store.args(["-config", "store.toml"]).env("GOLANG_PROTOBUF_REGISTRATION_CONFLICT", "ignore");
        *self.store.lock().unwrap() = Some(store.spawn().unwrap());
        self.wait("the store", |c| {
            let ended = c.store.lock().unwrap().as_mut().is_some_and(|s| s.try_wait().unwrap().is_some());
            assert!(!ended, "the store ends at once: {}", c.log("unistore"));
            TcpStream::connect(("127.0.0.1", c.store_ports[0])).is_ok()
        });
    }

    /// The store does nothing for longer than its clients wait for an answer; what it was asked for meanwhile it does afterwards.
    ///
    /// It is not killed: without replication unistore keeps locks in memory, and with them values of transactions that are committed already.
    pub fn hang(&self) {
        let pid = self.store.lock().unwrap().as_ref().map(Pid::from_child).expect("it runs");
        kill_process(pid, Signal::STOP).unwrap();
        thread::sleep(Duration::from_secs(11));
        kill_process(pid, Signal::CONT).unwrap();
    }

    /// Address of the engine `name`.
    pub fn address(&self, name: &str) -> String {
        format!("tikv://127.0.0.1:{}/{name}", self.driver_port)
    }
}

fn end(process: &Mutex<Option<Child>>) {
    if let Some(mut child) = process.lock().unwrap_or_else(|e| e.into_inner()).take() {
        let _ = child.kill(); // it may have ended
        let _ = child.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&self.store);
        end(&self.driver);
    }
}
