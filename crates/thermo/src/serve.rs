//! The node as a process: wiring of node, control socket and mount gateway, until told to stop.

use crate::exit::Exit;
use crate::gateway::Gateway;
use anyhow::{Context, Result, anyhow};
use node::{Config, Followed, Mounter, Node, Waited};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two looks whether the turn of this node is over.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait for others to let go of a node that has stopped.
const PARTING: Duration = Duration::from_secs(3);

/// Runs a node until `thermo down`, SIGTERM or SIGINT.
pub fn run(mut config: Config) -> Result<Exit> {
    log();
    let signals = Signals::new([SIGTERM, SIGINT]).context("catching signals")?;
    let stopped = stopped()?;
    if config.takes_turns() {
        return take_turns(config, signals, &stopped);
    }
    if node::is_standby(&config)? {
        match node::follow(&config, &stopped)? {
            Followed::Stopped => return Ok(Exit::OK),
            // The other node is gone, and holds its reservations still.
            Followed::TookOver => config.preempt = true,
        }
    }
    serve(Node::start(config)?, signals, &stopped)?;
    Ok(Exit::OK)
}

/// Serves when it is this node's turn. Whatever is in the way of that then, the others have to know that nobody serves, and this node waits for the next one:
/// nobody is there who would start it again.
fn take_turns(mut config: Config, signals: Signals, stopped: &Arc<AtomicBool>) -> Result<Exit> {
    let turn = match node::wait_for_turn(&config, stopped)? {
        Waited::Stopped => return Ok(Exit::OK),
        Waited::Turn(turn) => turn,
    };
    // Whoever had its turn before is gone, and may hold reservations still. Where nobody had one, whoever holds them is somebody else.
    config.preempt |= turn.follows();
    let served = Node::start_in_turn(config, turn).map_err(Into::into);
    let Err(e) = served.and_then(|node| serve(node, signals, stopped)) else { return Ok(Exit::OK) };
    tracing::error!("this node cannot take its turn, and waits for the next one: {e:#}");
    let end = Instant::now() + PARTING;
    while !stopped.load(Ordering::Acquire) && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    Err(if stopped.load(Ordering::Acquire) { e } else { begin_anew() })
}

/// Serves with a node until that is to stop; whatever prevents it ends the node in order, which gives its lease in a database back. `stopped` says then whether
/// it was told to stop as well.
fn serve(node: Arc<Node>, signals: Signals, stopped: &Arc<AtomicBool>) -> Result<()> {
    let gateway = Gateway::new(&node);
    let services = begin(&node, &gateway, signals, stopped);
    let graceful = match &services {
        Ok(_) => {
            tracing::info!("ready");
            node.wait_for_stop()
        }
        Err(_) => true,
    };
    stopped.fetch_or(node.is_stopping(), Ordering::AcqRel);
    gateway.unmount_all();
    // As long as its own targets take it.
    node.end_behind();
    let ended = services.map(drop);
    node.stop(graceful);
    if node.config().takes_turns() {
        node.keep_reached();
    }
    close(node);
    tracing::info!("stopped");
    ended
}

/// Begins all that serves others; it ends when it is dropped.
fn begin(
    node: &Arc<Node>,
    gateway: &Arc<Gateway>,
    mut signals: Signals,
    stopped: &Arc<AtomicBool>,
) -> Result<impl Sized + use<>> {
    node.set_mounter(gateway.clone());
    let turns = node.config().takes_turns();
    if turns {
        let (held, gateway, stopped) = (Arc::downgrade(node), gateway.clone(), stopped.clone());
        let watch = move || watch_turn(&held, &gateway, &stopped);
        std::thread::Builder::new().name("turn".into()).spawn(watch)?;
    }
    // Weak: with the last one the engine is closed, which gives its lease in a database back.
    let waker = Arc::downgrade(node);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!("signal {signal}: stopping");
            let Some(node) = waker.upgrade() else { return };
            node.request_stop(true);
        }
    })?;
    let server = node::serve(node.clone())?;
    let remote = node::serve_cluster(node.clone())?;
    let keeper = node::keep_cluster(node)?;
    let targets = node::serve_targets(node)?;
    gateway.keep_junctions()?;
    let mounted = node.config().mount.as_ref().map_or(Ok(()), |path| gateway.mount(path, None));
    match mounted {
        Err(e) if turns => tracing::error!(
            "{e}; this node serves without it, as no other one does: when that is mended, `thermo mount` mounts"
        ),
        mounted => mounted?,
    }
    Ok((server, remote, keeper, targets))
}

/// With the node its engine is closed, which gives its lease in a database back. Connections that were cut still have a part in it for a moment.
fn close(mut node: Arc<Node>) {
    let end = Instant::now() + PARTING;
    while Instant::now() < end {
        node = match Arc::try_unwrap(node) {
            Ok(last) => return drop(last),
            Err(shared) => shared,
        };
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether this process was told to stop.
fn stopped() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stopped.clone()).context("catching signals")?;
    }
    Ok(stopped)
}

/// Ends a node whose turn is over, as a crash would: nothing of it may be done or answered any more, and everything is made for that.
fn watch_turn(node: &Weak<Node>, gateway: &Gateway, stopped: &AtomicBool) {
    let mut kept = false;
    while let Some(held) = node.upgrade() {
        // Also if it is killed: the next start must not take what is there for all there was.
        if !kept && held.database_is_behind() {
            held.keep_reached();
            kept = true;
        }
        if let Some(e) = held.turn_is_over() {
            tracing::error!("the turn of this node is over: {e}");
            // Whoever has them now may wait for the engine; they end with this process.
            gateway.detach_all();
            held.keep_reached();
            let told = stopped.load(Ordering::Acquire);
            let why = if told { anyhow!("it was told to stop") } else { begin_anew() };
            tracing::error!("this process ends: {why}");
            std::process::exit(1);
        }
        drop(held);
        std::thread::sleep(LOOK);
    }
}

/// This process begins anew, and waits for its turn; what an operator ordered for one start is done. Why it cannot, if it returns.
fn begin_anew() -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => "/proc/self/exe".into(), // another release was put in its place meanwhile
    };
    let orders = ["--preempt", "--new-disk-tier"];
    let arguments = std::env::args_os().skip(1).filter(|word| orders.iter().all(|order| word != order));
    std::process::Command::new(program).args(arguments).exec().into()
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
