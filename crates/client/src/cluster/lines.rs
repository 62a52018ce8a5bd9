//! Connections to the node that holds the namespace, all of one session, and calls over them.
//!
//! A call whose connection breaks is made again over another one under the same number; the node does what must not be done twice once, also when it was
//! started anew meanwhile or another one has taken over: what was done to names is on record there.

use super::Reach;
use super::groups::{Groups, Kind, Used};
use super::silent::Silent;
use super::table::{OpenFile, Place};
use super::whose::{Names, Whose};
use crate::{ClientError, Remote};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::api::{FsResult, OpenFlags};
use types::{Cx, ErrorClass, FsError, Handle, LockOrder};
use wire::{Call, CallOrder, Channel, Failure, FileCall, FileOrder, Reply, Speaks};

/// How long a call waits for a node that does not answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(100);
/// After so many calls since the first one that is not answered the node is told which others are not: it keeps the answers to all that it is not told of.
const MANY: u64 = 256;
/// How long nobody asks whether this host is still refused.
const QUIET: Duration = Duration::from_secs(5);

/// Why an attempt came to nothing.
pub(super) enum Trouble {
    /// The node said no, or would.
    Refused(FsError),
    /// It cannot be reached; why, for the log.
    Lost(String),
    /// It has not done it, and another node may: why, for the log.
    Elsewhere(String),
    /// What the file's handles hold locked is to be claimed first.
    Later,
}

pub(super) type Tried<T> = Result<T, Trouble>;

/// A connection.
pub(super) struct Line {
    channel: Channel,
    socket: TcpStream,
    /// Where it leads to (`host:port`).
    address: String,
    /// Tells the session from one of the same number that has ended.
    pub(super) begun: u64,
}

/// All connections.
pub(super) struct Lines {
    reach: Reach,
    /// How connections join it.
    session: Call,
    whose: Whose,
    numbers: Mutex<Numbers>,
    groups: Groups<Line>,
    /// Whether the log knows that the node does not answer.
    away: Mutex<bool>,
    /// Where the last connection was made to (`host:port`).
    last: Mutex<Option<String>>,
    /// When this host was refused last, if it was since a node answered.
    refused: Mutex<Option<Instant>>,
    /// Session of the last connection.
    begun: Mutex<u64>,
    silent: Silent,
}

struct Numbers {
    next: u64,
    open: BTreeSet<u64>,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Below which number all calls before this one are answered, and, where that is long ago, which others are not.
    fn before(&self, number: u64) -> (u64, Vec<u64>) {
        let first = self.open.first().copied().unwrap_or(number).min(number);
        match number - first >= MANY {
            true => (first, self.open.range(..number).copied().collect()),
            false => (first, Vec::new()),
        }
    }
}

/// The number of a call, until it is dropped.
pub(super) struct Number<'l> {
    lines: &'l Lines,
    pub(super) value: u64,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.lines.finish(self.value);
    }
}

impl Line {
    /// Whether the other end has closed it while nobody looked.
    fn is_open(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let peeked = recv(&self.socket, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
    }

    /// `waits` returns when the answer is there to be read; false: it is not waited for any more.
    fn exchange(
        &mut self,
        id: u64,
        call: &Call,
        waits: impl FnOnce(&TcpStream) -> bool,
    ) -> Result<Result<Reply, Failure>, wire::WireError> {
        self.channel.send_call(id, call)?;
        if !waits(&self.socket) {
            return Err(wire::WireError::Closed);
        }
        let inbound = self.channel.receive_result()?;
        if inbound.id != id {
            return Err(wire::WireError::Closed);
        }
        Ok(inbound.result)
    }
}

impl Lines {
    pub(super) fn new(reach: Reach, session: u64, names: Names) -> Self {
        Self::that_begin(reach, Call::Session(session), names, 1)
    }

    /// The same for a session of its own kind, which begins with that call; `first`: number of the next one.
    pub(super) fn that_begin(reach: Reach, session: Call, names: Names, first: u64) -> Self {
        Self {
            reach,
            session,
            whose: Whose::new(names),
            numbers: Mutex::new(Numbers { next: first, open: BTreeSet::new() }),
            groups: Groups::new(),
            away: Mutex::new(false),
            last: Mutex::default(),
            refused: Mutex::default(),
            begun: Mutex::default(),
            silent: Silent::default(),
        }
    }

    /// Whether a node answers.
    pub(super) fn probe(&self) -> Result<(), ClientError> {
        self.connect().map(drop)
    }

    /// Number of the next call.
    pub(super) fn number(&self) -> Number<'_> {
        self.number_with(|| ())
    }

    /// The same, and something that is done before there is a later one.
    fn number_with(&self, also: impl FnOnce()) -> Number<'_> {
        let mut numbers = self.numbers.lock();
        let value = numbers.next();
        numbers.open.insert(value);
        also();
        Number { lines: self, value }
    }

    /// The same for a call that may wait for long: the node keeps no answer of it, nor of all later calls because of it.
    pub(super) fn name(&self) -> u64 {
        self.numbers.lock().next()
    }

    /// From now on, until [`Lines::finish`], the node keeps the answer to the call of this name.
    pub(super) fn hold(&self, name: u64) {
        self.numbers.lock().open.insert(name);
    }

    /// The answer has come, or nobody waits for it.
    pub(super) fn finish(&self, number: u64) {
        self.numbers.lock().open.remove(&number);
    }

    /// Session of the last connection.
    pub(super) fn begun(&self) -> u64 {
        *self.begun.lock()
    }

    /// Makes a call.
    pub(super) fn ask(&self, kind: Kind, cx: &Cx, call: FileCall) -> FsResult<Reply> {
        let number = self.number();
        self.ask_unless(kind, cx, number.value, &|| Ok(call.clone()))
    }

    /// Makes a call, unless somebody does not want it any more.
    pub(super) fn ask_unless(
        &self,
        kind: Kind,
        cx: &Cx,
        number: u64,
        make: &dyn Fn() -> Tried<FileCall>,
    ) -> FsResult<Reply> {
        self.insist(kind, &speaks(cx), number, &|_| make()).map(|(reply, _)| reply)
    }

    /// Makes a call; gives the session too that has answered. `forget` is called when the call has its number, before it is made, and before any later call has a number: who changes something by
    /// such a one forgets it behind this.
    pub(super) fn open_forgetting(
        &self,
        kind: Kind,
        cx: &Cx,
        call: &FileCall,
        forget: impl FnOnce(),
    ) -> FsResult<(Reply, u64)> {
        let number = self.number_with(forget);
        self.insist(kind, &speaks(cx), number.value, &|_| Ok(call.clone()))
    }

    /// Makes a call about an open file, under a number of its own.
    pub(super) fn ask_open(
        &self,
        kind: Kind,
        file: &OpenFile,
        number: u64,
        build: &dyn Fn(Handle) -> Tried<FileCall>,
    ) -> FsResult<Reply> {
        self.ask_open_in(kind, file, number, build).map(|(reply, _)| reply)
    }

    /// The same; gives the session too that answered.
    pub(super) fn ask_open_in(
        &self,
        kind: Kind,
        file: &OpenFile,
        number: u64,
        build: &dyn Fn(Handle) -> Tried<FileCall>,
    ) -> FsResult<(Reply, u64)> {
        let made = |line: &mut Line| {
            if file.lost.load(Ordering::Acquire) {
                return Err(Trouble::Refused(FsError::Io));
            }
            let locked_in = file.inode.locked_in.load(Ordering::Acquire);
            if locked_in != 0 && locked_in != line.begun {
                return Err(Trouble::Later);
            }
            build(self.handle(file, line)?)
        };
        self.insist(kind, &file.who, number, &made)
    }

    /// Claims in this session a lock that was held in one before it, or gives it back.
    pub(super) fn claim(&self, file: &OpenFile, order: LockOrder, begun: u64) -> FsResult<()> {
        let made = |line: &mut Line| {
            if line.begun != begun {
                return Err(Trouble::Refused(FsError::Io));
            }
            let handle = self.handle(file, line)?;
            Ok(FileCall::Lock { handle, order, claimed: order.kind.is_some() })
        };
        self.insist(Kind::News, &file.who, self.name(), &made).map(drop)
    }

    /// Gives a handle back. What a session that has ended had open was released with it.
    pub(super) fn release(&self, file: &OpenFile, number: u64) -> FsResult<()> {
        let Place { begun, handle } = *file.place.lock();
        let made = |line: &mut Line| match line.begun == begun {
            true => Ok(FileCall::Release { handle, sync: false }),
            false => Err(Trouble::Refused(FsError::BadHandle)),
        };
        self.insist(Kind::Names, &file.who, number, &made).map(drop)
    }

    /// The handle of an open file in the session of this connection; the file is opened again if that is another one than it was opened in.
    /// Before, what was written through an earlier one and is kept here is returned.
    pub(super) fn handle(&self, file: &OpenFile, line: &mut Line) -> Tried<Handle> {
        self.return_kept(file.ino, &file.inode, line)?;
        let mut place = file.place.lock();
        if place.begun == line.begun {
            return Ok(place.handle);
        }
        let number = self.number();
        let flags = OpenFlags { truncate: false, exclusive: false, ..file.flags };
        let call = FileCall::OpenAs { ino: file.ino, flags };
        match self.exchange(line, &file.who, number.value, call) {
            Ok(Reply::Opened { handle, .. } | Reply::OpenedAt { handle, .. }) => {
                *place = Place { begun: line.begun, handle };
                file.inode.is_open_in(line.begun);
                Ok(handle)
            }
            Ok(_) => Err(Trouble::Refused(FsError::Io)),
            Err(Trouble::Refused(FsError::NotFound)) => Err(Trouble::Refused(FsError::Stale)),
            Err(e) => Err(e),
        }
    }

    /// Makes a call until there is an answer, for as long as is waited for the node.
    pub(super) fn insist(
        &self,
        kind: Kind,
        who: &Speaks,
        number: u64,
        make: &dyn Fn(&mut Line) -> Tried<FileCall>,
    ) -> FsResult<(Reply, u64)> {
        let end = Instant::now() + PATIENCE;
        let mut asked = None;
        loop {
            match self.attempt(kind, who, number, make, &mut asked) {
                Ok(answer) => {
                    if std::mem::take(&mut *self.away.lock()) {
                        tracing::info!("the node that holds the namespace answers again");
                    }
                    return Ok(answer);
                }
                Err(Trouble::Refused(e)) => return Err(e),
                Err(Trouble::Later) if Instant::now() < end => std::thread::sleep(PAUSE),
                Err(Trouble::Later) => {
                    tracing::error!(
                        "a file operation failed: for a minute its locks could not be claimed, or what this host has kept of it was not taken"
                    );
                    return Err(FsError::Io);
                }
                Err(Trouble::Lost(why) | Trouble::Elsewhere(why)) => {
                    if !std::mem::replace(&mut *self.away.lock(), true) {
                        tracing::warn!(
                            "the node that holds the namespace does not answer: {why}; calls wait for it"
                        );
                    }
                    if Instant::now() >= end {
                        tracing::error!("a file operation failed: for a minute nobody has answered: {why}");
                        return Err(FsError::Io);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    pub(super) fn attempt(
        &self,
        kind: Kind,
        who: &Speaks,
        number: u64,
        make: &dyn Fn(&mut Line) -> Tried<FileCall>,
        asked: &mut Option<u64>,
    ) -> Tried<(Reply, u64)> {
        let mut used = self.take(kind)?;
        let Some(mut line) = used.line.take() else { return Err(Trouble::Lost("no connection".into())) };
        let begun = line.begun;
        let call = match make(&mut line) {
            Err(e @ Trouble::Lost(_)) => return Err(e),
            Err(e) => {
                used.line = Some(line);
                return Err(e);
            }
            Ok(call) => call,
        };
        if asked.is_some_and(|before| before != begun) && !may_be_made_again(&call) {
            used.line = Some(line);
            tracing::error!(
                "the node was started anew while it was asked for {call:?}: whether that was done is not known"
            );
            return Err(Trouble::Refused(FsError::Io));
        }
        let before = asked.replace(begun);
        let answer = self.exchange(&mut line, who, number, call);
        if matches!(answer, Err(Trouble::Elsewhere(_))) {
            *asked = before;
        } else if !matches!(answer, Err(Trouble::Lost(_))) {
            used.line = Some(line);
        }
        Ok((answer?, begun))
    }

    /// Asks over this connection, and over no other one.
    pub(super) fn ask_over(
        &self,
        line: &mut Line,
        who: Speaks,
        number: u64,
        call: Call,
    ) -> Result<Result<Reply, Failure>, wire::WireError> {
        let call = match call {
            Call::File(call) => {
                let (answered, open) = self.numbers.lock().before(number);
                Call::FileFor(Box::new(FileOrder { who, number, answered, open, call }))
            }
            call => Call::For(Box::new(CallOrder::new(who, &call)?)),
        };
        let (address, begun) = (line.address.clone(), line.begun);
        let waits = |socket: &TcpStream| self.silent.wait(socket, || self.is_elsewhere(&address, begun));
        line.exchange(number, &call, waits)
    }

    pub(super) fn exchange(
        &self,
        line: &mut Line,
        who: &Speaks,
        number: u64,
        call: FileCall,
    ) -> Tried<Reply> {
        match self.ask_over(line, who.clone(), number, Call::File(call)) {
            Ok(Ok(reply)) => Ok(reply),
            // Another node has taken over from that one.
            Ok(Err(failure)) if failure.fs.is_none() && failure.class == ErrorClass::Retry => {
                Err(Trouble::Elsewhere(failure.to_string()))
            }
            Ok(Err(failure)) => {
                if failure.fs.is_none() {
                    tracing::warn!("the node that holds the namespace refuses: {failure}");
                }
                Err(Trouble::Refused(failure.fs.unwrap_or(FsError::Io)))
            }
            Err(e) => Err(Trouble::Lost(e.to_string())),
        }
    }

    /// A connection that nobody uses, or a new one if there may be one more.
    fn take(&self, kind: Kind) -> Tried<Used<'_, Line>> {
        // Those to a node that stands still are open, too.
        let is_good = |line: &Line| line.is_open() && *self.begun.lock() == line.begun;
        let mut used = self.groups.take(kind, is_good);
        if used.line.is_none() {
            used.line = Some(self.connect_unless_refused()?);
        }
        Ok(used)
    }

    /// Connects as [`Lines::connect_once`] does. Who is not believed tries once more: his certificate may have been replaced just when it was shown.
    pub(super) fn connect(&self) -> Result<Line, ClientError> {
        match self.connect_once() {
            Err(e) if e.class() == ErrorClass::Denied => {
                std::thread::sleep(PAUSE);
                self.connect_once()
            }
            other => other,
        }
    }

    /// Connects, unless this host was refused just now. Who is refused often is not even listened to: so nobody asks again for some seconds, and one who is not
    /// answered after he was refused is still refused.
    fn connect_unless_refused(&self) -> Tried<Line> {
        let refused = self.refused.lock().map(|at| at.elapsed());
        if refused.is_some_and(|ago| ago < QUIET) {
            return Err(Trouble::Refused(FsError::Io));
        }
        let connected = self.connect();
        match &connected {
            Ok(_) => *self.refused.lock() = None,
            Err(e) if e.class() == ErrorClass::Denied => *self.refused.lock() = Some(Instant::now()),
            Err(_) => {}
        }
        match connected.map_err(|e| unreached(&e)) {
            Err(Trouble::Lost(_)) if refused.is_some_and(|ago| ago < PATIENCE) => {
                Err(Trouble::Refused(FsError::Io))
            }
            connected => connected,
        }
    }

    /// Connects to the first node that answers, that of the last connection before others, and joins the session there. This host is believed no
    /// more if all of them say so.
    fn connect_once(&self) -> Result<Line, ClientError> {
        let (mut last, mut heard) = (ClientError::WrongAnswer { asked: "Session" }, false);
        let mut remotes = (self.reach)()?;
        let first = self.last.lock().clone();
        remotes.sort_by_key(|remote| Some(remote.address()) != first.as_deref());
        for remote in remotes {
            match self.connect_to(&remote) {
                Ok(line) => {
                    *self.last.lock() = Some(remote.address().to_owned());
                    *self.begun.lock() = line.begun;
                    return Ok(line);
                }
                Err(e) if e.class() != ErrorClass::Denied || !heard => (last, heard) = (e, true),
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// Whether another node has the namespace than the one that does not answer, at which this session was `begun`: a node may have several addresses, and
    /// by each of them it says the same.
    fn is_elsewhere(&self, address: &str, begun: u64) -> bool {
        if self.silent.is_due() {
            let remotes = (self.reach)().unwrap_or_default();
            let others = remotes.iter().filter(|remote| remote.address() != address);
            let lines = others.filter_map(|remote| self.connect_to(remote).ok());
            let found = lines.into_iter().find(|line| line.begun != begun);
            if let Some(other) = found {
                tracing::warn!(
                    "the node that held the namespace does not answer, and {} does",
                    other.address
                );
                *self.last.lock() = Some(other.address);
                *self.begun.lock() = other.begun;
            }
        }
        *self.begun.lock() != begun
    }

    fn connect_to(&self, remote: &Remote) -> Result<Line, ClientError> {
        let (channel, socket) = remote.channel_and_socket()?;
        let mut line = Line { channel, socket, address: remote.address().to_owned(), begun: 0 };
        let lost = |source| ClientError::Lost {
            socket: remote.address().into(),
            doing: "beginning a session",
            source,
        };
        if self.whose.is_asked() {
            match line.exchange(1, &Call::Subsystem, |_| true).map_err(lost)?? {
                Reply::Subsystem(found) => self.whose.check(&found)?,
                _ => return Err(ClientError::WrongAnswer { asked: "Subsystem" }),
            }
        }
        match line.exchange(2, &self.session, |_| true).map_err(lost)?? {
            Reply::Count(begun) => Ok(Line { begun, ..line }),
            _ => Err(ClientError::WrongAnswer { asked: "Session" }),
        }
    }
}

/// Whom no node believes (he was removed from the cluster) waits in vain.
fn unreached(error: &ClientError) -> Trouble {
    if error.class() == ErrorClass::Denied {
        tracing::error!("the namespace cannot be had any more: {error}");
        return Trouble::Refused(FsError::Io);
    }
    Trouble::Lost(error.to_string())
}

/// For whom a call is.
pub(super) fn speaks(cx: &Cx) -> Speaks {
    Speaks { uid: cx.uid, gid: cx.gid, groups: cx.groups.clone(), checked: cx.checked }
}

/// Whether a call may be made of a node that was started anew, although it may have been done before: the node has recorded that, or doing it twice comes to
/// the same.
fn may_be_made_again(call: &FileCall) -> bool {
    let idempotent = matches!(
        call,
        FileCall::SetAttr { .. }
            | FileCall::ClearSetId(_)
            | FileCall::OpenAs { .. }
            | FileCall::Release { .. }
            | FileCall::Fallocate { .. }
            | FileCall::Lock { .. }
            | FileCall::WriteSpared { .. }
    );
    idempotent || call.is_recorded() || !call.is_once()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_told_what_is_not_answered_when_one_call_waits_for_long() {
        let mut numbers = Numbers { next: 1, open: BTreeSet::new() };
        let call = |numbers: &mut Numbers| {
            let number = numbers.next();
            numbers.open.insert(number);
            number
        };
        let waits = call(&mut numbers);
        for _ in 1..MANY {
            let number = call(&mut numbers);
            assert_eq!(numbers.before(number), (waits, vec![]));
            numbers.open.remove(&number);
        }
        let [second, third] = [call(&mut numbers), call(&mut numbers)];
        assert_eq!(numbers.before(third), (waits, vec![waits, second]), "not itself");
        assert_eq!(numbers.before(second), (waits, vec![waits]), "none behind it");
        numbers.open.remove(&waits);
        assert_eq!(numbers.before(third), (second, vec![]));
        // One that is asked again under its old number, whatever came since.
        assert_eq!(numbers.before(waits), (waits, vec![]));
    }
}
