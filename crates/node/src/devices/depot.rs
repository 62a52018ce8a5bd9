//! Depots: memory beside a device of this host, for the stream of bytes that another node has its drive write. What lies on disk targets comes
//! straight from their movers, with rights that the other node gives, and its digests are made here: it does not pass through that node.

use super::{Given, GivenDevice};
use crate::archive::FileHash;
use crate::error::failure;
use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use std::sync::Arc;
use stripe::{Machines, Striped, Ways, generation_of, layout_of, redundancy};
use types::{ErrorClass, MemberId};
use wire::{
    DepotCall, DepotDigests, DepotFile, Failure, LentLayout, MAX_DEPOT, MAX_DIGESTS, MAX_FETCH, MAX_STORE,
    Reply,
};

/// Bytes of a record's sum.
const SUM: usize = 4;
/// No more zeros than these are hashed in one call (bytes): whoever asks waits for it for seconds only. A file that has a larger hole gets no digest here.
const MOST_ZEROS: u64 = 1 << 30;
/// A file is read in pieces of this size (bytes), from all its columns at once, one piece ahead.
const AHEAD: u64 = 4 << 20;

/// The newest bytes of a stream.
struct Ring {
    bytes: Vec<u8>,
    /// The stream is there from here ...
    from: u64,
    /// ... to here.
    end: u64,
}

impl Ring {
    fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok().filter(|n| (1..=MAX_DEPOT as usize).contains(n))?;
        Some(Self { bytes: vec![0; bytes], from: 0, end: 0 })
    }

    /// Bytes at a place behind or within what is there.
    fn put(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = at.checked_add(bytes.len() as u64);
        let Some(end) =
            end.filter(|_| (self.from..=self.end).contains(&at) && bytes.len() <= self.bytes.len())
        else {
            return false;
        };
        let size = self.bytes.len();
        let start = (at % size as u64) as usize;
        let (now, wrapped) = bytes.split_at(bytes.len().min(size - start));
        self.bytes[start..start + now.len()].copy_from_slice(now);
        self.bytes[..wrapped.len()].copy_from_slice(wrapped);
        (self.from, self.end) = (self.from.max(end.saturating_sub(size as u64)), end);
        true
    }

    /// Nothing goes in or out any more.
    fn end(&mut self) {
        *self = Self { bytes: Vec::new(), from: 1, end: 0 };
    }

    /// Bytes that are there; None: not all are.
    fn get(&self, at: u64, bytes: usize) -> Option<Vec<u8>> {
        at.checked_add(bytes as u64).filter(|end| self.from <= at && *end <= self.end)?;
        let size = self.bytes.len();
        let start = (at % size as u64) as usize;
        let now = bytes.min(size - start);
        Some([&self.bytes[start..start + now], &self.bytes[..bytes - now]].concat())
    }
}

/// What lies beside a device.
pub(super) struct Depot {
    number: u64,
    /// Whose it is.
    pub(super) who: MemberId,
    ring: Mutex<Ring>,
}

impl Depot {
    /// Nothing goes in or out any more.
    pub(super) fn end(&self) {
        self.ring.lock().end();
    }
}

impl GivenDevice {
    /// Its depot, if that has this number.
    pub(super) fn depot_of(&self, number: u64) -> Result<Arc<Depot>, String> {
        let depot = self.depot.lock().clone().filter(|depot| depot.number == number);
        depot.ok_or_else(|| format!("depot {number:x} of device {} is gone", self.name))
    }

    /// Bytes from its depot, with their sum behind them if that is wanted.
    pub(super) fn get_from_depot(&self, there: &wire::ScsiThere) -> Result<Vec<u8>, String> {
        let found = self.depot_of(there.depot)?.ring.lock().get(there.at, there.bytes as usize);
        let mut bytes = found
            .ok_or_else(|| format!("bytes at {} are not in the depot of device {}", there.at, self.name))?;
        if there.sealed {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        Ok(bytes)
    }

    /// Puts what the device gave into a depot of it, without its sum; false if that is wrong.
    pub(super) fn put_into_depot(
        &self,
        depot: &Depot,
        keep: &wire::ScsiThere,
        given: &[u8],
    ) -> Result<bool, String> {
        let record = match (keep.sealed && !given.is_empty(), given.split_last_chunk::<SUM>()) {
            (false, _) => given,
            (true, Some((record, sum))) if crc32c::crc32c(record).to_le_bytes() == *sum => record,
            (true, _) => return Ok(false),
        };
        let put = depot.ring.lock().put(keep.at, record);
        let gap = || format!("bytes at {} do not follow what the depot of device {} has", keep.at, self.name);
        put.then_some(true).ok_or_else(gap)
    }
}

/// Bytes that a command has the device give.
pub(super) fn length(keep: &wire::ScsiThere) -> usize {
    keep.bytes as usize + if keep.sealed { SUM } else { 0 }
}

/// Where the stream of one connection comes from.
pub(crate) struct Filling {
    device: Arc<GivenDevice>,
    depot: Arc<Depot>,
    ways: Ways,
    file: Option<Reading>,
    back: Option<Writing>,
}

/// A file that is written at its targets.
struct Writing {
    striped: Striped,
    /// Of the rights with which it was opened.
    generation: u64,
    /// Which have something of it.
    machines: Machines,
    sums: Sums,
}

/// Digests of a file that comes in ascending pieces.
struct Sums {
    length: u64,
    /// None: there was a hole too large to be hashed.
    hash: Option<FileHash>,
}

impl Sums {
    fn new(file: &DepotFile) -> Self {
        let parts = file.parts.iter().copied();
        let hash = if file.whole { FileHash::new().with_parts(parts) } else { FileHash::of_parts(parts) };
        Self { length: file.lent.length, hash: Some(hash) }
    }

    /// Whether the file has so many bytes there.
    fn has(&self, offset: u64, bytes: usize) -> Result<(), Failure> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.length);
        end.map(drop).ok_or_else(|| failure(ErrorClass::Invalid, "bytes behind the end of the file"))
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.hash = self.hash.take().filter(|hash| hash.gap(offset) <= MOST_ZEROS);
        if let Some(hash) = &mut self.hash {
            hash.add(offset, bytes);
        }
    }

    fn finish(self) -> DepotDigests {
        let Some(mut hash) = self.hash.filter(|hash| hash.gap(self.length) <= MOST_ZEROS) else {
            return DepotDigests { whole: None, parts: Vec::new() };
        };
        let parts = hash.take_parts().into_iter().map(|((at, length), digest)| (at, length, digest));
        DepotDigests { parts: parts.collect(), whole: hash.finish(self.length) }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut depot = self.device.depot.lock();
        if depot.as_ref().is_some_and(|depot| Arc::ptr_eq(depot, &self.depot)) {
            *depot = None;
        }
    }
}

/// A file that is read from its targets.
struct Reading {
    striped: Arc<Striped>,
    length: u64,
    sums: Sums,
    ahead: Option<Ahead>,
}

/// What was read of a file before it was asked for.
struct Ahead {
    /// Offset of the piece that is being handed out.
    at: u64,
    piece: Vec<u8>,
    /// Pieces with their offsets. None follows one that could not be read.
    next: Receiver<(u64, Result<Vec<u8>, String>)>,
}

impl Ahead {
    /// Reads a file of that length from here on, by pieces from an offset.
    fn begin(
        read: impl Fn(u64) -> Result<Vec<u8>, String> + Send + 'static,
        from: u64,
        length: u64,
    ) -> Result<Self, String> {
        let (give, next) = bounded(1);
        if length.saturating_sub(from) <= AHEAD {
            return Ok(Self { at: from, piece: read(from)?, next });
        }
        let read = move || {
            let mut at = from;
            while at < length {
                let found = read(at);
                let failed = found.is_err();
                if give.send((at, found)).is_err() || failed {
                    break;
                }
                at += AHEAD;
            }
        };
        std::thread::Builder::new().name("depot-ahead".into()).spawn(read).map_err(|e| e.to_string())?;
        Ok(Self { at: from, piece: Vec::new(), next })
    }

    /// Bytes at this offset, as far as the piece goes; None: they are not what comes next.
    fn take(&mut self, offset: u64, most: usize) -> Result<Option<&[u8]>, String> {
        if offset == self.at + self.piece.len() as u64
            && let Ok((at, piece)) = self.next.recv()
        {
            (self.at, self.piece) = (at, piece?);
        }
        let Some(start) = offset.checked_sub(self.at).filter(|start| *start < self.piece.len() as u64) else {
            return Ok(None);
        };
        let rest = &self.piece[start as usize..];
        Ok(Some(&rest[..rest.len().min(most)]))
    }
}

/// A piece of a file of that length. Behind what the targets have, it is a hole.
fn piece(striped: &Striped, from: u64, length: u64) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; (length - from).min(AHEAD) as usize];
    let got = striped.read_at(from, &mut bytes).map_err(|e| e.to_string())?;
    bytes[got..].fill(0);
    Ok(bytes)
}

impl Reading {
    fn new(ways: &Ways, file: &DepotFile) -> Result<Self, String> {
        let (striped, length) = (opened_to_read(ways, &file.lent)?, file.lent.length);
        Ok(Self { striped, length, sums: Sums::new(file), ahead: None })
    }

    /// Hands `to` the bytes at an offset, and hashes them.
    fn fetch(
        &mut self,
        offset: u64,
        most: usize,
        to: impl FnOnce(&[u8]) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let fail =
            |why: String| failure(ErrorClass::Retry, format!("reading the file from its targets: {why}"));
        if offset >= self.length {
            return Ok(0);
        }
        let mut kept = self.ahead.take();
        let follows = kept.as_mut().map(|ahead| ahead.take(offset, most).map(|found| found.is_some()));
        let follows = follows.transpose().map_err(fail)?.unwrap_or(false);
        let mut ahead = match kept.filter(|_| follows) {
            Some(ahead) => ahead,
            None => {
                let (striped, length) = (self.striped.clone(), self.length);
                Ahead::begin(move |at| piece(&striped, at, length), offset, length).map_err(fail)?
            }
        };
        let Some(bytes) = ahead.take(offset, most).map_err(fail)? else {
            return Err(fail("nothing came".into()));
        };
        to(bytes)?;
        self.sums.add(offset, bytes);
        let got = bytes.len() as u64;
        // What failed is not kept: it is read anew, if it is asked for again.
        self.ahead = Some(ahead);
        Ok(got)
    }
}

/// A file at its targets, to be written.
fn opened(ways: &Ways, lent: &LentLayout) -> Result<Striped, String> {
    let columns = ways.columns(lent.parts.iter().map(|part| &part.access))?;
    let layout = layout_of(lent.parts.iter().map(|part| (&part.access, redundancy(part))));
    Striped::open_with(layout, columns, None).map_err(|e| e.to_string())
}

/// The same, and of which generation its rights are. It is known which machines have its columns before anything is written there.
fn opened_to_write(ways: &Ways, lent: &LentLayout) -> Result<(Striped, u64), String> {
    let (striped, generation) = (opened(ways, lent)?, generation_of(&lent.parts)?);
    striped.meet();
    Ok((striped, generation))
}

/// The same, to be read while nobody writes.
fn opened_to_read(ways: &Ways, lent: &LentLayout) -> Result<Arc<Striped>, String> {
    let striped = opened(ways, lent)?.quiet();
    for ((component, column), way) in striped.ways() {
        if way.channel.is_away() {
            striped.put_aside(component, column);
        }
    }
    Ok(Arc::new(striped))
}

impl Writing {
    fn new(ways: &Ways, file: &DepotFile) -> Result<Self, String> {
        let (striped, generation) = opened_to_write(ways, &file.lent)?;
        Ok(Self { striped, generation, machines: Machines::default(), sums: Sums::new(file) })
    }

    /// Goes on with other rights. Whoever writes the log of a file opens it anew where others may have written meanwhile.
    fn renew(&mut self, ways: &Ways, lent: &LentLayout) -> Result<(), String> {
        match ways.renewal(&self.striped, self.generation, &lent.parts)? {
            Some(renewal) => renewal.begin(),
            None => (self.striped, self.generation) = opened_to_write(ways, lent)?,
        }
        Ok(())
    }

    /// Writes bytes, and hashes them; machines that have what was written.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<Vec<u64>, Failure> {
        self.machines.note(&self.striped);
        self.sums.has(offset, bytes.len())?;
        let written = self.striped.write_pieces(&[(offset, bytes)]);
        let lost = self.machines.note(&self.striped);
        written.map_err(|e| failure(e.class(), format!("writing the file at its targets: {e}")))?;
        if !lost.is_empty() {
            let why = "a machine with one of its targets was started anew while it was written";
            return Err(failure(ErrorClass::Retry, why));
        }
        self.sums.add(offset, bytes);
        Ok(self.machines.known())
    }
}

impl Given {
    /// Makes a depot beside a device that a node may use.
    pub fn open_depot(
        &self,
        who: MemberId,
        (name, epoch): (&str, u64),
        (depot, bytes): (u64, u64),
    ) -> Result<Filling, Failure> {
        let device = self.device(who, name)?;
        let ring = Ring::new(bytes).ok_or_else(|| {
            failure(ErrorClass::Invalid, format!("a depot has 1 to {MAX_DEPOT} bytes, not {bytes}"))
        })?;
        let depot = Arc::new(Depot { number: depot, who, ring: Mutex::new(ring) });
        let before = self.epochs.admit(name, epoch, || device.depot.lock().replace(depot.clone()))?;
        if let Some(before) = before {
            before.end();
        }
        // Whoever asks can read elsewhere if a mover does not answer here.
        let ways = Ways::default().beside(Some(&self.state)).quick();
        Ok(Filling { device, depot, ways, file: None, back: None })
    }
}

impl Filling {
    /// Does what is asked of a depot that is open.
    pub fn answer(&mut self, call: DepotCall) -> Result<Reply, Failure> {
        let invalid = |why: &str| failure(ErrorClass::Invalid, why);
        let fail = |why: String| failure(ErrorClass::Retry, why);
        let none = || failure(ErrorClass::Invalid, "no file is open");
        match call {
            DepotCall::Open { .. } => Err(invalid("this connection has a depot already")),
            DepotCall::Put { at, offset, bytes } => {
                if let Some(offset) = offset {
                    self.file.as_ref().ok_or_else(none)?.sums.has(offset, bytes.len())?;
                }
                if let Some(at) = at {
                    self.put(at, &bytes)?;
                }
                if let (Some(offset), Some(file)) = (offset, &mut self.file) {
                    file.sums.add(offset, &bytes);
                }
                Ok(Reply::Done)
            }
            DepotCall::File(file) => {
                self.begin(&file)?;
                self.file = Some(Reading::new(&self.ways, &file).map_err(fail)?);
                Ok(Reply::Done)
            }
            DepotCall::Rights(lent) => {
                match (&mut self.file, &mut self.back) {
                    (Some(file), _) => {
                        file.striped = opened_to_read(&self.ways, &lent).map_err(fail)?;
                        file.ahead = None;
                    }
                    (None, Some(back)) => back.renew(&self.ways, &lent).map_err(fail)?,
                    (None, None) => return Err(none()),
                }
                Ok(Reply::Done)
            }
            DepotCall::Get { at, bytes } => self.get(at, bytes, MAX_FETCH).map(Reply::Bytes),
            DepotCall::Back(file) => {
                self.begin(&file)?;
                self.back = Some(Writing::new(&self.ways, &file).map_err(fail)?);
                Ok(Reply::Done)
            }
            DepotCall::Store { at, bytes, offset } => {
                let bytes = self.get(at, bytes, MAX_STORE)?;
                self.back.as_mut().ok_or_else(none)?.store(offset, &bytes).map(Reply::Machines)
            }
            DepotCall::Fetch { at, offset, bytes } => {
                let most = Some(bytes as usize).filter(|n| (1..=MAX_FETCH).contains(n));
                let most = most.ok_or_else(|| invalid("a fetch of no or too many bytes"))?;
                let mut file = self.file.take().ok_or_else(none)?;
                let got = file.fetch(offset, most, |bytes| at.map_or(Ok(()), |at| self.put(at, bytes)));
                self.file = Some(file);
                got.map(Reply::Count)
            }
            DepotCall::Digests => {
                let read = self.file.take().map(|file| file.sums);
                let sums = read.or_else(|| self.back.take().map(|back| back.sums));
                Ok(Reply::Digests(Box::new(sums.ok_or_else(none)?.finish())))
            }
        }
    }

    /// Another file is read or written from now on.
    fn begin(&mut self, file: &DepotFile) -> Result<(), Failure> {
        (self.file, self.back) = (None, None);
        let length = file.lent.length;
        let within = |(at, of): &(u64, u64)| at.checked_add(*of).is_some_and(|end| end <= length);
        let fits = length <= i64::MAX as u64 && file.parts.len() <= MAX_DIGESTS;
        if fits && file.parts.iter().all(within) {
            return Ok(());
        }
        Err(failure(ErrorClass::Invalid, "a file that is too long, or parts that it does not have"))
    }

    fn get(&self, at: u64, bytes: u32, most: usize) -> Result<Vec<u8>, Failure> {
        let wanted = Some(bytes as usize).filter(|n| (1..=most).contains(n));
        let found = wanted.and_then(|wanted| self.depot.ring.lock().get(at, wanted));
        found.ok_or_else(|| {
            failure(ErrorClass::Invalid, format!("{bytes} bytes at {at} of a stream are not in the depot"))
        })
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        if self.depot.ring.lock().put(at, bytes) {
            return Ok(());
        }
        let why = format!("{} bytes at {at} of a stream do not follow what the depot has", bytes.len());
        Err(failure(ErrorClass::Invalid, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_the_newest_bytes_of_its_stream_and_gives_no_others() {
        let mut ring = Ring::new(10).unwrap();
        assert!(ring.put(0, b"01234567") && ring.put(8, b"89ab"));
        assert_eq!(ring.get(2, 10).unwrap(), b"23456789ab");
        assert!(ring.get(1, 2).is_none(), "it is overwritten");
        assert!(ring.get(11, 2).is_none(), "it has not come");
        assert!(ring.get(u64::MAX, 1).is_none() && !ring.put(u64::MAX, b"x"));
        assert!(!ring.put(13, b"x"), "a gap");
        assert!(!ring.put(1, b"x"), "it is gone");
        assert!(!ring.put(12, b"0123456789a"), "larger than it");
        // The end was taken back.
        assert!(ring.put(9, b"XY"));
        assert_eq!((ring.get(8, 3).unwrap().as_slice(), ring.get(8, 4)), (&b"8XY"[..], None));
        assert!(ring.get(2, 1).is_some(), "it was not overwritten");
        assert!(Ring::new(0).is_none() && Ring::new(MAX_DEPOT + 1).is_none());
    }

    #[test]
    fn of_a_file_with_a_hole_that_takes_too_long_there_is_no_digest_and_of_its_parts_there_is() {
        let parts = vec![(1 << 40, 5)];
        let lent = LentLayout { length: 2 << 40, term_ms: 0, parts: Vec::new() };
        let sums = |whole| Sums::new(&DepotFile { lent: lent.clone(), whole, parts: parts.clone() });
        let mut all = sums(true);
        all.add(0, b"begins");
        all.add(1 << 40, b"bytes");
        assert_eq!(all.finish(), DepotDigests { whole: None, parts: Vec::new() });
        let mut part = sums(false);
        part.add(1 << 40, b"bytes");
        let found = part.finish();
        let mut alone = FileHash::new();
        alone.add(0, b"bytes");
        assert_eq!(found, DepotDigests { whole: None, parts: vec![(1 << 40, 5, alone.finish(5).unwrap())] });
        let mut short = Sums::new(&DepotFile {
            lent: LentLayout { length: 8, term_ms: 0, parts: Vec::new() },
            whole: true,
            parts: Vec::new(),
        });
        short.add(2, b"bytes");
        let mut same = FileHash::new();
        same.add(0, b"\0\0bytes\0");
        assert_eq!(short.finish().whole, same.finish(8));
    }

    #[test]
    fn behind_a_piece_that_was_not_read_nothing_is_taken_for_it() {
        let length = 3 * AHEAD;
        let piece = |at: u64| vec![1 + (at / AHEAD) as u8; AHEAD as usize];
        for bad in 0..3 {
            let read = move |at: u64| if at == bad * AHEAD { Err("bad".to_owned()) } else { Ok(piece(at)) };
            let mut ahead = Ahead::begin(read, 0, length).unwrap();
            for at in (0..bad).map(|n| n * AHEAD) {
                assert_eq!(ahead.take(at, 10).unwrap(), Some(&piece(at)[..10]));
                assert_eq!(
                    ahead.take(at + 10, usize::MAX).unwrap().map(<[u8]>::len),
                    Some(AHEAD as usize - 10)
                );
            }
            assert!(ahead.take(bad * AHEAD, 10).is_err());
            // Whoever asks again gets nothing, and nothing of what lies behind it.
            for at in 0..3 {
                assert!(!matches!(ahead.take(at * AHEAD, 10), Ok(Some(bytes)) if bytes[0] != 1 + at as u8));
            }
            assert_eq!(ahead.take(bad * AHEAD, 10), Ok(None));
        }
        let mut last = Ahead::begin(move |at| Ok(piece(at)), 2 * AHEAD, length).unwrap();
        assert_eq!(last.take(2 * AHEAD + 5, 1), Ok(Some(&[3][..])));
        assert!(Ahead::begin(|_| Err("bad".to_owned()), 2 * AHEAD, length).is_err());
    }
}
