//! The node as a process: wiring of node, control socket and mount gateway, until told to stop.

use crate::exit::Exit;
use anyhow::{Context, Result};
use client::{ClientError, ClusterFiles, FileApi, Remote};
use fuse::{Mount, MountOptions};
use ident::{Credentials, Uuid};
use node::{Config, Followed, Mounter, Node};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use types::{ErrorClass, NonBlock};
use wire::Failure;

/// Runs a node until `thermo down`, SIGTERM or SIGINT.
pub fn run(config: Config) -> Result<Exit> {
    log();
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("catching signals")?;
    let mut config = config;
    if node::is_standby(&config)? {
        match follow(&config)? {
            Followed::Stopped => return Ok(Exit::OK),
            // The other node is gone, and holds its reservations still.
            Followed::TookOver => config.preempt = true,
        }
    }
    let mount = config.mount.clone();
    let node = Node::start(config)?;
    let gateway = Arc::new(Gateway { node: Arc::downgrade(&node), mounts: Mutex::default() });
    node.set_mounter(gateway.clone());
    let server = node::serve(node.clone())?;
    let remote = node::serve_cluster(node.clone());
    let keeper = node::keep_cluster(&node)?;
    let targets = node::serve_targets(&node);
    // Weak: with the last one the engine is closed, which gives its lease in a database back.
    let waker = Arc::downgrade(&node);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!("signal {signal}: stopping");
            let Some(node) = waker.upgrade() else { return };
            node.request_stop(true);
        }
    })?;
    let mounted = match (&remote, &targets) {
        (Ok(_), Ok(_)) => mount.map_or(Ok(()), |path| gateway.mount(&path, None)),
        (Err(e), _) | (_, Err(e)) => Err(e.clone()),
    };
    match &mounted {
        Ok(()) => tracing::info!("ready"),
        Err(_) => node.request_stop(true),
    }
    let graceful = node.wait_for_stop();
    gateway.unmount_all();
    // As long as its own targets take it.
    node.end_behind();
    drop((server, remote, keeper, targets));
    node.stop(graceful);
    drop(node);
    tracing::info!("stopped");
    mounted?;
    Ok(Exit::OK)
}

/// As a standby, until it is stopped or takes over.
fn follow(config: &Config) -> Result<Followed> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stopped.clone()).context("catching signals")?;
    }
    Ok(node::follow(config, &stopped)?)
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("THERMO_LOG");
    // The client of TiKV tells every connection that it makes.
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,tikv_client=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// The namespace of the cluster that this node has joined, whose credentials are in that directory.
fn elsewhere(member: PathBuf) -> Result<ClusterFiles, Failure> {
    let reach = move || {
        let told = |source| ClientError::Ident { node: member.display().to_string(), source };
        let own = Credentials::load(&member)
            .map_err(told)?
            .ok_or_else(|| told(ident::IdentError::NoCertificate))?;
        own.addresses.iter().map(|address| Remote::new(address, &own)).collect()
    };
    let files = ClusterFiles::new(Box::new(reach), Uuid::new_v4().as_u64_pair().0);
    files.probe().map_err(|e| {
        failure(
            e.class(),
            format!(
                "the namespace is that of the cluster that this node has joined, and cannot be had now: {e}"
            ),
        )
    })?;
    Ok(files)
}

/// Mounts of the namespace on this host.
struct Gateway {
    node: Weak<Node>,
    mounts: Mutex<Vec<Mount>>,
}

impl Gateway {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Mount>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Programs that still use a mount keep what they have open until this process ends.
    fn unmount_all(&self) {
        for mount in self.lock().drain(..) {
            if let Err(e) = mount.unmount() {
                tracing::warn!("{e}; it is detached");
                mount.detach();
            }
        }
    }
}

fn failure(class: ErrorClass, message: impl ToString) -> Failure {
    Failure { class, fs: None, message: message.to_string() }
}

impl Mounter for Gateway {
    fn mount(&self, path: &Path, nonblock: Option<NonBlock>) -> Result<(), Failure> {
        let node = self.node.upgrade().ok_or_else(|| failure(ErrorClass::Busy, "the node is stopping"))?;
        let nonblock = nonblock.unwrap_or(node.config().nonblock);
        let passthrough = node.config().passthrough;
        // Where no other host can come, the kernel alone keeps locks, without asking.
        let locks = node.config().cluster.listen.is_some();
        let mut options = MountOptions { nonblock, passthrough, locks, ..MountOptions::default() };
        if !rustix::process::geteuid().is_root() {
            options.allow_other = false;
        }
        let api: Arc<dyn FileApi> = match node.joined()? {
            None => node,
            Some(member) => {
                // Nobody tells what others change: the kernel asks each time. Its calls wait for the network, so there are several at once.
                options = MountOptions {
                    ttl: Duration::ZERO,
                    passthrough: false,
                    threads: 8,
                    locks: true,
                    ..options
                };
                Arc::new(elsewhere(member)?)
            }
        };
        let mount = fuse::mount(api, path, options).map_err(|e| failure(e.class(), e))?;
        tracing::info!(
            "mounted at {}, passthrough {}",
            path.display(),
            if mount.passthrough() { "on" } else { "off: data of resident files goes through this process" }
        );
        let mut mounts = self.lock();
        mounts.retain(Mount::is_alive);
        mounts.push(mount);
        Ok(())
    }

    fn unmount(&self, path: &Path) -> Result<(), Failure> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut mounts = self.lock();
        let at = mounts.iter().position(|m| m.mountpoint() == real).ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("{}: is not mounted by this node", path.display()))
        })?;
        mounts[at].unmount().map_err(|e| failure(e.class(), e))?;
        mounts.remove(at);
        Ok(())
    }

    fn mounts(&self) -> Vec<PathBuf> {
        self.lock().iter().filter(|m| m.is_alive()).map(|m| m.mountpoint().to_owned()).collect()
    }
}
