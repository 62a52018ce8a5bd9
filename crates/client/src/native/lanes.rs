//! Connections of a session. Calls of one connection are answered one after another, so what may wait for tape has connections of its own.

use super::Done;
use super::copies::Writers;
use super::locks::Waits;
use super::names::refused;
use super::served::Served;
use super::session::Options;
use super::spares::{Kept, Sparing};
use crate::connection::Life;
use crate::length::{Cuts, Length};
use crate::lent::Lent;
use crate::{ClientError, Connection, Remote};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stripe::Columns;
use stripe::Ways;
use types::api::OpenFlags;
use types::{Attr, FsError, Handle, Ino, Time};
use wire::{Call, FileCall, FileLayout, Reply};

/// A number that no other program chooses.
fn random() -> Done<u64> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        other => Err(ClientError::Local {
            doing: "cannot get",
            path: "a random number".into(),
            source: other.err().map_or_else(|| ErrorKind::UnexpectedEof.into(), Into::into),
        }),
    }
}

/// Between two attempts at a node that goes away again and again.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections for names and for opening, which never wait for tape.
const NAMES: usize = 4;

/// How the node is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// Over the socket of a node on this host.
    Socket(PathBuf),
    /// Over TLS.
    Remote(Remote),
}

impl Way {
    /// State directory of the node, if that is on this host: its socket is there.
    fn state(&self) -> Option<PathBuf> {
        match self {
            // Wherever the program goes.
            Self::Socket(socket) => std::path::absolute(socket).ok()?.parent().map(Path::to_owned),
            Self::Remote(_) => None,
        }
    }
}

/// A connection, and how many open files read and write over it.
pub struct Lane {
    connection: Mutex<Option<Connection>>,
    files: AtomicUsize,
    /// Connections to movers, in the name of this one.
    ways: Ways,
    /// The same, for what is lent.
    quick_ways: Ways,
}

/// All connections of a session.
#[derive(Debug)]
pub struct Lanes {
    way: Way,
    options: Options,
    /// Number of the session at the node, which all connections belong to.
    number: u64,
    /// Locks that are waited for.
    pub(super) waits: Arc<Waits>,
    names: Vec<Arc<Lane>>,
    next: AtomicUsize,
    served: Mutex<Vec<Arc<Lane>>>,
    /// How often the session has set the length of a file.
    pub(super) cuts: Arc<Cuts>,
    /// What it has open for writing.
    pub(super) writers: Writers,
    /// What it keeps of what the node has in memory.
    pub(super) spares: Sparing,
    /// Somebody has asked for a lock: what is open ends with the node.
    locks: AtomicBool,
}

/// A handle, and the connection that it belongs to.
#[derive(Debug)]
pub struct Held {
    lane: Arc<Lane>,
    now: Mutex<Place>,
    /// How often the file was opened again.
    lives: AtomicU64,
    /// How it is opened again by a node that was started anew, and when it was made; None: it is not.
    again: Option<(Ino, OpenFlags, Time)>,
    /// What was written through the node, by all handles of an open file.
    served: Arc<Served>,
    counted: bool,
    /// What is lent through it, if it is for reading.
    pub(super) lent: Lent,
}

/// What an open file is at the node. One that was started anew gives the same number to other files.
#[derive(Clone, Copy, Debug)]
struct Place {
    life: Life,
    handle: Handle,
}

/// An answer to an open call.
pub struct Opened {
    /// The handle.
    pub held: Held,
    /// Attributes at open.
    pub attr: Attr,
    /// Descriptor of the object.
    pub object: Option<std::fs::File>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Held {
    /// Whether the one is open as long as the other.
    pub fn lives_with(&self, other: &Self) -> bool {
        let (own, others) = (self.life(), other.life());
        match own {
            Life::Session(_) => own == others,
            // Each for itself.
            Life::Connection(_) => matches!(others, Life::Connection(_)),
        }
    }

    /// One more of the same open file.
    pub fn beside(self, other: &Self) -> Self {
        Self { served: other.served.clone(), ..self }
    }

    /// A connection of another life may be one to a node that is gone, and nobody has noticed: it is made anew then.
    fn meet(&self, life: Life, connection: &mut Connection) -> Done<()> {
        let is_of_another = life != connection.life() || self.served.kept.is_behind(life);
        if let Some((ino, ..)) = self.again.filter(|_| is_of_another)
            && connection.file::<Attr>(FileCall::GetAttr(ino)).is_err_and(|e| e.is_away())
        {
            connection.mended()?;
        }
        Ok(())
    }

    /// For how long it is open.
    pub(super) fn life(&self) -> Life {
        self.now.lock().life
    }

    /// Its number at the node.
    pub(super) fn handle(&self) -> Handle {
        self.now.lock().handle
    }

    /// How often the file was opened again, by nodes that know nothing of what those before were told.
    pub(super) fn lives(&self) -> u64 {
        self.lives.load(Ordering::Acquire)
    }

    /// Something was written through the node, which had the file open for so long: who synced meanwhile does not know whether it is durable.
    pub(super) fn note_served(&self, life: Life) {
        self.served.note(life);
    }

    /// The same; `machines` have it, as the node says, if it does.
    pub(super) fn note_written(&self, life: Life, machines: &[u64]) {
        match machines.is_empty() {
            true => self.served.note(life),
            false => self.served.note_told(life, machines),
        }
    }

    /// The same of what is kept here until it is at the targets: it is not lost with the node.
    pub(super) fn note_spared(&self, life: Life, machines: &[u64]) {
        self.served.note_told(life, machines);
    }

    /// What is kept of the file.
    pub(super) fn kept(&self) -> &Kept {
        &self.served.kept
    }

    /// What is known of the open file, by whichever of its handles it is written.
    pub(super) fn length(&self) -> Arc<Length<()>> {
        self.served.length.clone()
    }

    /// Whether the node of another life than this handle's has told where it has written, since that was asked last.
    pub(super) fn was_told_elsewhere(&self) -> bool {
        self.served.was_told_elsewhere(self.life())
    }

    /// Whether something that is written may be written once more, by a node that was started anew.
    pub(super) fn can_repeat(&self) -> bool {
        self.again.is_some_and(|(_, flags, _)| !flags.append)
    }

    /// Connections to movers, for what the node can read and write too if one does not answer.
    pub(super) fn quick_ways(&self) -> &Ways {
        &self.lane.quick_ways
    }
}

impl Lane {
    fn new(ways: Ways) -> Arc<Self> {
        let quick_ways = ways.quick();
        Arc::new(Self { connection: Mutex::new(None), files: AtomicUsize::new(0), ways, quick_ways })
    }
}

impl Lanes {
    /// Connects once, to see whether a node is there.
    pub fn new(way: Way, options: Options) -> Done<Self> {
        let beside = way.state().filter(|_| options.descriptors);
        let first = Lane::new(Ways::placed(options.place).beside(beside.as_deref()));
        let more = (1..NAMES).map(|_| Lane::new(first.ways.more())).collect::<Vec<_>>();
        let lanes = Self {
            way,
            options,
            number: random()?,
            waits: Arc::default(),
            names: std::iter::once(first).chain(more).collect(),
            next: AtomicUsize::new(0),
            served: Mutex::default(),
            cuts: Arc::default(),
            writers: Writers::default(),
            spares: Sparing::default(),
            locks: AtomicBool::new(false),
        };
        lanes.with(&lanes.names[0], |_| Ok(()))?;
        Ok(lanes)
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether descriptors can come.
    pub fn local(&self) -> bool {
        matches!(self.way, Way::Socket(_)) && self.options.descriptors
    }

    /// Runs calls on one of the connections for names.
    pub fn names<T>(&self, work: impl FnOnce(&mut Connection) -> Done<T>) -> Done<T> {
        self.with(&self.idle(), work)
    }

    /// The same for what changes an open file by its inode: not any more if that is open no longer, and somebody else may have locked it.
    pub fn names_of<T>(&self, held: &Held, work: impl FnOnce(&mut Connection) -> Done<T>) -> Done<T> {
        self.names(|connection| {
            if matches!(held.life(), Life::Session(_)) {
                self.opened(held, connection)?;
            }
            work(connection)
        })
    }

    /// Opens over a connection for names (`own: false`), or over one for bytes that may wait for tape.
    pub fn open(&self, call: FileCall, own: bool) -> Done<Opened> {
        let lane = if own { self.for_bytes() } else { self.idle() };
        let _cutting = call.cuts().map(|_| self.cuts.begin());
        let flags = match &call {
            FileCall::OpenAs { flags, .. } | FileCall::CreateAs { flags, .. } => Some(*flags),
            _ => None,
        };
        let ask = |call: FileCall| {
            self.bring_first(&lane, &call)?;
            self.with(&lane, |connection| match connection.call(&Call::File(call))? {
                (Reply::Opened { handle, attr, direct }, descriptor) if direct == descriptor.is_some() => {
                    Ok((handle, connection.life(), attr, descriptor))
                }
                _ => Err(ClientError::WrongAnswer { asked: "Opened" }),
            })
        };
        // One that was not answered stays open until the session ends.
        let opened = match &call {
            FileCall::OpenAs { flags, .. } if !flags.truncate => self.again(|| ask(call.clone())).0,
            _ => ask(call),
        };
        match opened {
            Ok((handle, life, attr, descriptor)) => {
                let object = descriptor.filter(|_| self.options.descriptors).map(self.options.place);
                let object = object.map(std::fs::File::from);
                // What goes on in the object while there is no node, the next one does not see.
                let again = flags.filter(|_| object.is_none());
                let again = again.map(|flags| OpenFlags { truncate: false, exclusive: false, ..flags });
                let held = Held {
                    lane,
                    now: Mutex::new(Place { life, handle }),
                    lives: AtomicU64::new(0),
                    again: again.map(|flags| (attr.ino, flags, attr.btime)),
                    served: Served::new(flags, &self.cuts, self.spares.of(attr.ino, life)),
                    counted: own,
                    lent: Lent::default(),
                };
                Ok(Opened { held, attr, object })
            }
            Err(e) => {
                lane.files.fetch_sub(usize::from(own), Ordering::Relaxed);
                Err(e)
            }
        }
    }

    /// What is kept of a file that is to be opened once more is returned before, if it is of an earlier session.
    fn bring_first(&self, lane: &Lane, call: &FileCall) -> Done<()> {
        let FileCall::OpenAs { ino, .. } = call else { return Ok(()) };
        let Some(kept) = self.spares.known(*ino) else { return Ok(()) };
        self.again(|| self.with(lane, |connection| kept.bring(connection))).0
    }

    /// A call about an open file.
    pub fn call<T: crate::FromReply>(&self, held: &Held, call: impl FnOnce(Handle) -> FileCall) -> Done<T> {
        self.with(&held.lane, |connection| self.ask(held, connection, call))
    }

    /// How a file is opened again by a node that knows nothing of it.
    ///
    /// # Errors
    /// ESTALE: that cannot be told from nothing having happened. Something was locked, and somebody else may have it by now; or something was written that may be lost with
    /// the machine of the node.
    fn goes_on(&self, held: &Held, life: Life) -> Done<(Ino, OpenFlags, Time)> {
        let safe = held.served.is_safe_in(life) && !self.locks.load(Ordering::Acquire);
        let again = held.again.filter(|_| safe);
        again.ok_or_else(|| refused(b"open file", FsError::Stale))
    }

    /// The handle in the session of this connection. In another one than before, since the node was started anew or another one took over, the file is opened again.
    fn opened(&self, held: &Held, connection: &mut Connection) -> Done<Handle> {
        let mut now = held.now.lock();
        held.meet(now.life, connection)?;
        let life = connection.life();
        // Before anybody opens it there.
        held.kept().bring(connection)?;
        if now.life == life {
            return Ok(now.handle);
        }
        let (ino, flags, made) = self.goes_on(held, life)?;
        match connection.call(&Call::File(FileCall::OpenAs { ino, flags })) {
            // The name of this one was lost with the node, before it was durable, and another file has its number.
            Ok((Reply::Opened { handle, attr, .. }, _)) if attr.btime != made => {
                let _ = connection.file::<()>(FileCall::Release { handle, sync: false });
                Err(refused(b"open file", FsError::Stale))
            }
            // A descriptor is of no use: who has had none goes on so.
            Ok((Reply::Opened { handle, .. }, _)) => {
                *now = Place { life, handle };
                held.lives.fetch_add(1, Ordering::AcqRel);
                Ok(handle)
            }
            Ok(_) => Err(ClientError::WrongAnswer { asked: "Opened" }),
            // What its targets do not give now they may give later.
            Err(ClientError::Refused(why)) if why.fs.is_some_and(|fs| fs != FsError::Io) => {
                Err(refused(b"open file", FsError::Stale))
            }
            Err(e) => Err(e),
        }
    }

    fn ask<T: crate::FromReply>(
        &self,
        held: &Held,
        connection: &mut Connection,
        call: impl FnOnce(Handle) -> FileCall,
    ) -> Done<T> {
        let handle = self.opened(held, connection)?;
        connection.file(call(handle))
    }

    /// A lock is asked for through it, now that it is open; from here on it ends with the node.
    pub fn locks(&self, held: &Held) -> Done<()> {
        self.again(|| self.names(|connection| held.kept().bring(connection))).0?;
        self.names(|connection| self.opened(held, connection).map(drop))?;
        self.locks.store(true, Ordering::Release);
        Ok(())
    }

    /// What was written before is durable.
    pub fn fsync(&self, held: &Held) -> Done<()> {
        let before = held.served.writes.load(Ordering::Acquire);
        let sync = || self.call_again(held, |handle| FileCall::Fsync { handle, data_only: false }).0;
        self.sync_spared(held, sync)?;
        held.served.synced.fetch_max(before, Ordering::AcqRel);
        Ok(())
    }

    /// A call that comes to the same when it is made twice; see [`Lanes::again`].
    pub fn call_again<T: crate::FromReply>(
        &self,
        held: &Held,
        call: impl Fn(Handle) -> FileCall,
    ) -> (Done<T>, bool) {
        self.again(|| self.call(held, &call))
    }

    /// Does what comes to the same when it is done twice; again while connections break over it, once or for as long as is waited for a node that is starting. And whether that was so.
    pub fn again<T>(&self, mut work: impl FnMut() -> Done<T>) -> (Done<T>, bool) {
        let end = Instant::now() + self.options.patience;
        let mut done = work();
        let away = |done: &Done<T>| done.as_ref().is_err_and(ClientError::is_away);
        if !away(&done) {
            return (done, false);
        }
        done = work();
        while away(&done) && Instant::now() < end {
            std::thread::sleep(PAUSE);
            done = work();
        }
        (done, true)
    }

    /// A call about an open file that is not kept waiting by reads of it.
    pub fn beside<T: crate::FromReply>(&self, held: &Held, call: impl FnOnce(Handle) -> FileCall) -> Done<T> {
        match held.life() {
            Life::Session(_) => self.names(|connection| self.ask(held, connection, call)),
            Life::Connection(_) => Err(refused(b"open file", FsError::NotSupported)),
        }
    }

    /// Where the bytes of an open file lie, with the right to read and write them there; None: they go through the node.
    pub fn layout(&self, held: &Held) -> Done<Option<FileLayout>> {
        self.call_again(held, FileCall::LayoutGet).0
    }

    /// The columns of a file.
    pub fn columns(&self, held: &Held, layout: &FileLayout) -> Result<Columns, String> {
        held.lane.ways.columns(&layout.parts)
    }

    /// Reads from the movers what nobody writes, if that is lent; None: the node is to read.
    pub fn read_lent(&self, held: &Held, offset: u64, len: usize) -> Option<Vec<u8>> {
        let ways = self.local().then(|| held.quick_ways())?;
        held.lent.read(ways, || self.call(held, FileCall::LayoutLend), offset, len)
    }

    /// Whether a file that nobody writes, of which much will be read, can be read from the movers now.
    pub fn is_lent(&self, held: &Held) -> bool {
        self.local() && held.lent.is_there(held.quick_ways(), || self.call(held, FileCall::LayoutLend))
    }

    /// Gives a handle back; to be called once. Over another connection if its own has broken: others of the session may keep it open, and what it has locked.
    pub fn release(&self, held: &Held) -> Done<()> {
        let release = || {
            self.with(&held.lane, |connection| {
                let Place { life, handle } = *held.now.lock();
                held.meet(life, connection)?;
                match life == connection.life() {
                    true => connection.file(FileCall::Release { handle, sync: false }),
                    // It was closed with the session in which it was open.
                    false => self.goes_on(held, connection.life()).map(drop),
                }
            })
        };
        let released = match release() {
            Err(e) if e.is_away() => match release() {
                Err(ClientError::Refused(why)) if why.fs == Some(FsError::BadHandle) => Ok(()),
                released => released,
            },
            released => released,
        };
        held.lane.files.fetch_sub(usize::from(held.counted), Ordering::Relaxed);
        released
    }

    /// A connection that has broken is made anew: what the session has open is so as long as any other one of it holds, and has to be given back.
    fn with<T>(&self, lane: &Lane, work: impl FnOnce(&mut Connection) -> Done<T>) -> Done<T> {
        let mut connection = lane.connection.lock();
        match &mut *connection {
            Some(connection) => work(connection.mended()?),
            none => work(none.insert(self.connect()?)),
        }
    }

    /// Another connection of the session.
    pub fn connect(&self) -> Done<Connection> {
        self.connect_within(self.options.patience)
    }

    /// The same where nobody waits for the node, now or later.
    pub(super) fn connect_at_once(&self) -> Done<Connection> {
        self.connect_within(Duration::ZERO)
    }

    fn connect_within(&self, patience: Duration) -> Done<Connection> {
        match &self.way {
            Way::Socket(socket) => Connection::open_placed(socket, patience, self.options.place),
            Way::Remote(remote) => Connection::open_remote(remote.clone(), patience),
        }?
        .joined(self.number)
    }

    /// One more of its own.
    fn lane(&self) -> Arc<Lane> {
        Lane::new(self.names[0].ways.more())
    }

    /// A connection for names that nobody uses just now, or the next.
    fn idle(&self) -> Arc<Lane> {
        let is_idle = |lane: &&Arc<Lane>| {
            lane.connection.try_lock().is_some_and(|c| c.as_ref().is_some_and(Connection::is_whole))
        };
        let idle = self.names.iter().find(is_idle);
        let next = || &self.names[self.next.fetch_add(1, Ordering::Relaxed) % NAMES];
        idle.unwrap_or_else(next).clone()
    }

    /// The connection for bytes that has the fewest files; a new one before any has two.
    fn for_bytes(&self) -> Arc<Lane> {
        let mut served = self.served.lock();
        let files = |lane: &&Arc<Lane>| lane.files.load(Ordering::Relaxed);
        let least = served.iter().min_by_key(files).cloned();
        let full = served.len() >= self.options.connections.max(1);
        let lane = match least {
            Some(lane) if full || files(&&lane) == 0 => lane,
            _ => {
                let lane = self.lane();
                served.push(lane.clone());
                lane
            }
        };
        lane.files.fetch_add(1, Ordering::Relaxed);
        lane
    }
}
