//! Keys of volumes that drives encrypt: read from a file or asked of a program each time one is needed, so that a new key
//! counts at once, and never kept, logged or recorded. The catalogue knows their names only.

use crate::clock;
use crate::config::{EncryptionConfig, KeySource};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;
use tape::{Key, Keys};
use types::PoolName;

/// Longest wait for the program that gives keys.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most of its answer that is looked at (bytes).
const ANSWER: u64 = 4096;

/// Keys of the node's volumes.
pub(crate) struct NodeKeys {
    source: KeySource,
    pools: Vec<String>,
}

impl NodeKeys {
    /// As configured; None: no volume is encrypted.
    pub(crate) fn of(config: &EncryptionConfig) -> Result<Option<Self>, String> {
        let source = config.source()?;
        Ok(source.map(|source| Self { source, pools: config.pools.clone() }))
    }

    /// Whether new volumes of a pool are encrypted.
    pub(crate) fn encrypts(&self, pool: &PoolName) -> bool {
        self.pools.iter().any(|p| p == pool.as_str())
    }

    /// The key for a new volume of a pool; None: it is not encrypted.
    pub(crate) fn for_pool(&self, pool: &PoolName) -> Result<Option<Key>, String> {
        if !self.encrypts(pool) {
            return Ok(None);
        }
        let name = match &self.source {
            KeySource::File(path) => {
                let lines = lines(path)?;
                let current =
                    lines.iter().rev().find(|l| l.pools.iter().any(|p| p == pool.as_str() || p == "*"));
                current.map(|l| l.name.clone()).ok_or_else(|| {
                    format!(
                        "{} names no key for pool {pool}: write its name (or *) behind a key",
                        path.display()
                    )
                })?
            }
            KeySource::Command(program) => ask(program, &["current", pool.as_str()])?,
        };
        self.key(&name).map(Some)
    }
}

impl Keys for NodeKeys {
    fn key(&self, name: &str) -> Result<Key, String> {
        let (hex, from) = match &self.source {
            KeySource::File(path) => {
                let found = lines(path)?.into_iter().find(|l| l.name == name);
                let found = found.ok_or_else(|| format!("{} has no key of this name", path.display()))?;
                (found.key, path)
            }
            KeySource::Command(program) => (ask(program, &["get", name])?, program),
        };
        let bytes = bytes(&hex).ok_or_else(|| {
            format!("{}: key `{name}` is not 64 hexadecimal digits (32 bytes)", from.display())
        })?;
        Key::new(name, bytes).ok_or_else(|| {
            format!("{}: `{name}` is no name of a key: up to 32 printable characters", from.display())
        })
    }
}

/// A line of a key file.
struct Line {
    name: String,
    key: String,
    pools: Vec<String>,
}

fn lines(path: &Path) -> Result<Vec<Line>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!(
            "{path} can be read by others than its owner (mode {:o}): chmod 600 {path}",
            mode & 0o777
        ));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let used =
        text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    used.map(|(n, line)| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(name), Some(key)) = (words.next(), words.next()) else {
            return Err(format!("{}, line {}: write NAME KEY [POOL ...]", path.display(), n + 1));
        };
        Ok(Line { name, key, pools: words.collect() })
    })
    .collect()
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(key)
}

/// First word that the program prints. What else it says, and that it failed, is in the error; the answer never is.
fn ask(program: &Path, args: &[&str]) -> Result<String, String> {
    let begun = clock::Moment::now();
    ask_until(program, args, || begun.elapsed() > PATIENCE)
}

fn ask_until(program: &Path, args: &[&str], over: impl Fn() -> bool) -> Result<String, String> {
    let failed = |what: String| format!("`{} {}`: {what}", program.display(), args.join(" "));
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|e| failed(format!("cannot be run: {e}")))?;
    let out = child.stdout.take();
    let status = loop {
        match child.try_wait().map_err(|e| failed(e.to_string()))? {
            Some(status) => break status,
            None if over() => {
                // With all that it started and waits for; it may have ended just now.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                return Err(failed(format!("it gave no answer within {} s", PATIENCE.as_secs())));
            }
            None => clock::sleep(Duration::from_millis(10)),
        }
    };
    if !status.success() {
        return Err(failed(format!("it failed ({status}); see its messages in the log")));
    }
    let answer = out.map_or(Ok(String::new()), printed).map_err(|e| failed(e.to_string()))?;
    answer.split_whitespace().next().map(str::to_owned).ok_or_else(|| failed("it printed nothing".into()))
}

/// What a program that has ended has printed. Nothing more is waited for: what it left running may keep the pipe open.
fn printed(out: ChildStdout) -> std::io::Result<String> {
    fcntl_setfl(&out, OFlags::NONBLOCK)?;
    let mut answer = Vec::new();
    match out.take(ANSWER).read_to_end(&mut answer) {
        Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// A program cannot be started while a process that is just being made has its file open for writing.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn keys(source: &str, pools: &[&str]) -> NodeKeys {
        let pools = pools.iter().map(ToString::to_string).collect();
        NodeKeys::of(&EncryptionConfig { keys: Some(source.into()), pools }).unwrap().unwrap()
    }

    #[test]
    fn keys_come_from_a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let source = format!("file:{}", path.display());
        let (one, two) = ("01".repeat(32), "ab".repeat(32));
        write(&path, &format!("# name key pools\nk1 {one} secret\n\nk2 {two} secret other\n"), 0o600);
        let ring = keys(&source, &["secret", "lonely"]);
        let current = |pool: &str| ring.for_pool(&PoolName(pool.into()));
        assert_eq!(
            current("secret").unwrap().map(|k| k.name().to_owned()),
            Some("k2".into()),
            "the last one"
        );
        assert_eq!(current("other").unwrap(), None, "the configuration does not name it");
        assert!(current("lonely").unwrap_err().contains("no key for pool lonely"));
        assert_eq!(ring.key("k1").unwrap(), Key::new("k1", [1; 32]).unwrap());
        assert!(ring.key("k3").unwrap_err().contains("no key of this name"));
        write(&path, &format!("k1 {} *", &one[1..]), 0o600);
        let e = current("secret").unwrap_err();
        assert!(e.contains("64 hexadecimal digits") && !e.contains("0101"), "{e}");
        write(&path, &format!("k1 {one} *"), 0o640);
        assert!(ring.key("k1").unwrap_err().contains("chmod 600"));
        std::fs::remove_file(&path).unwrap();
        assert!(ring.key("k1").unwrap_err().contains("No such file"));
    }

    #[test]
    fn keys_come_from_a_program() {
        let _alone = ONE_AT_A_TIME.lock();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let script = format!(
            "#!/bin/sh\ncase $1-$2 in current-*) echo k9;; get-k9) echo {};; *) exit 3;; esac\n",
            "0f".repeat(32)
        );
        write(&path, &script, 0o700);
        let ring = keys(&format!("command:{}", path.display()), &["p"]);
        let current = ring.for_pool(&PoolName("p".into())).unwrap();
        assert_eq!(current, Key::new("k9", [15; 32]));
        assert!(ring.key("other").unwrap_err().contains("it failed (exit status: 3)"));
    }

    #[test]
    fn what_a_program_leaves_running_keeps_nobody_waiting() {
        let _alone = ONE_AT_A_TIME.lock();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        // It ends, and something that it started keeps its output open.
        write(&path, "#!/bin/sh\nexec 2> /dev/null\nsleep 600 &\necho $! key\n", 0o700);
        let (told, answer) = std::sync::mpsc::channel();
        let program = path.clone();
        std::thread::spawn(move || told.send(ask(&program, &[])));
        let pid = answer.recv_timeout(Duration::from_secs(120)).expect("an answer comes").unwrap();
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }

    #[test]
    fn a_program_that_gives_no_answer_ends_with_all_that_it_started() {
        let _alone = ONE_AT_A_TIME.lock();
        let dir = tempfile::tempdir().unwrap();
        let (path, pid) = (dir.path().join("key"), dir.path().join("pid"));
        let script = format!(
            "#!/bin/sh\nexec 2> /dev/null\nsleep 600 &\necho $! > {0}.new; mv {0}.new {0}\nwait\n",
            pid.display()
        );
        write(&path, &script, 0o700);
        let e = ask_until(&path, &[], || pid.exists()).unwrap_err();
        assert!(e.contains("no answer"), "{e}");
        let started = std::fs::read_to_string(&pid).unwrap();
        let stat = format!("/proc/{}/stat", started.trim());
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let begun = std::time::Instant::now();
        while runs() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn only_hexadecimal_digits_are_a_key() {
        assert!(bytes(&"0f".repeat(32)).is_some());
        for wrong in ["+f", "-1", " f", "0x", "gg"] {
            assert_eq!(bytes(&wrong.repeat(32)), None, "{wrong}");
        }
    }

    #[test]
    fn a_bad_configuration_is_refused() {
        let of = |keys: Option<&str>, pools: &[&str]| {
            let pools = pools.iter().map(ToString::to_string).collect();
            NodeKeys::of(&EncryptionConfig { keys: keys.map(str::to_owned), pools }).map(|k| k.is_some())
        };
        assert_eq!(of(None, &[]), Ok(false));
        assert!(of(None, &["p"]).unwrap_err().contains("encryption.keys does not say"));
        assert!(of(Some("/etc/keys"), &[]).unwrap_err().contains("file:/path"));
        assert!(of(Some("file:keys"), &[]).unwrap_err().contains("not absolute"));
    }
}
