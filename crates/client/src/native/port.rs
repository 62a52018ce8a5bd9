//! What moves the bytes of one open file: its object, or handles on several connections, each with a thread of its own.

use super::copies::Alone;
use super::direct::Direct;
use super::lanes::{Held, Lanes};
use super::{Done, PIECE};
use crate::ClientError;
use crate::answer::Written;
use crate::spares::WHOLE;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use types::Ino;
use types::api::OpenFlags;
use wire::FileCall;

/// One way for bytes.
#[derive(Clone, Debug)]
pub enum Port {
    /// The object itself.
    Object(Arc<std::fs::File>),
    /// A handle of the node; how the file is written past it at times.
    Served(Arc<Lanes>, Arc<Held>, Option<Arc<Alone>>),
    /// The movers, as long as the file lies there; else a handle of the node.
    Movers(Arc<Direct>, Arc<Lanes>, Arc<Held>),
}

/// Work for whichever way is free.
pub type Job = Box<dyn FnOnce(&Port) + Send>;

impl Port {
    /// Fewer bytes than asked for: the file ends there.
    pub fn read(&self, offset: u64, len: usize) -> Done<Vec<u8>> {
        match self {
            Self::Object(object) => {
                let mut bytes = vec![0; len];
                let read = fill(object, &mut bytes, offset)?;
                bytes.truncate(read);
                Ok(bytes)
            }
            Self::Served(lanes, held, _) => read_served(lanes, held, offset, len),
            Self::Movers(direct, lanes, held) => match direct.read(offset, len)? {
                Some(bytes) => Ok(bytes),
                None => read_served(lanes, held, offset, len),
            },
        }
    }

    /// All of it, or an error.
    pub fn write(&self, offset: u64, data: &[u8]) -> Done<()> {
        match self {
            Self::Object(object) => object.write_all_at(data, offset).map_err(|e| of_object("write", e)),
            Self::Served(lanes, held, Some(alone)) => alone.write((lanes, held), offset, data),
            Self::Served(lanes, held, None) => write_served(lanes, held, offset, data),
            Self::Movers(direct, ..) if direct.write(offset, data)? => Ok(()),
            Self::Movers(_, lanes, held) => write_served(lanes, held, offset, data),
        }
    }

    /// Whether further handles make further ways.
    fn is_served(&self) -> bool {
        matches!(self, Self::Served(..))
    }
}

fn read_served(lanes: &Lanes, held: &Held, offset: u64, len: usize) -> Done<Vec<u8>> {
    if let Some(bytes) = lanes.read_lent(held, offset, len) {
        return Ok(bytes);
    }
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < len {
        let (at, want) = (offset + bytes.len() as u64, (len - bytes.len()).min(PIECE));
        let call = |handle| FileCall::Read { handle, offset: at, len: want as u32 };
        let part: Vec<u8> = lanes.call_again(held, call).0?;
        let short = part.len() < want;
        if bytes.is_empty() {
            bytes = part;
        } else {
            bytes.extend_from_slice(&part);
        }
        if short {
            break;
        }
    }
    held.lent.note_served(bytes.len());
    Ok(bytes)
}

/// Writes all of it through the node.
pub fn write_served(lanes: &Arc<Lanes>, held: &Held, offset: u64, data: &[u8]) -> Done<()> {
    let mut written = 0;
    while written < data.len() {
        let part = &data[written..data.len().min(written + PIECE)];
        let at = offset + written as u64;
        let taken = match lanes.write_spared(held, at, part)? {
            Some(taken) => taken,
            None => write_plain(lanes, held, at, part)?,
        };
        if taken == 0 || taken > part.len() as u64 {
            return Err(ClientError::WrongAnswer { asked: "Write" });
        }
        written += taken as usize;
    }
    Ok(())
}

/// Writes a part so that it is at the targets, or known to the node only, when it is answered.
fn write_plain(lanes: &Lanes, held: &Held, offset: u64, part: &[u8]) -> Done<u64> {
    let end = offset.saturating_add(part.len() as u64);
    // Where a file ends that is appended to only the node knows.
    let range = if held.can_repeat() { offset..end } else { WHOLE };
    let _apart = lanes.apart(held, range)?;
    let life = Cell::new(held.life());
    let call = || {
        lanes.call(held, |handle| {
            life.set(held.life());
            FileCall::Write { handle, offset, data: part.to_vec() }
        })
    };
    // The same bytes at the same place.
    let Written(taken, machines) = if held.can_repeat() { lanes.again(call).0 } else { call() }?;
    held.note_written(life.get(), &machines);
    lanes.note_plain(held);
    Ok(taken)
}

/// Reads until the buffer is full or the file ends.
pub fn fill(object: &std::fs::File, buffer: &mut [u8], offset: u64) -> Done<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match object.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(of_object("read", e)),
        }
    }
    Ok(read)
}

fn of_object(doing: &str, source: std::io::Error) -> ClientError {
    let doing = if doing == "read" { "cannot read" } else { "cannot write" };
    ClientError::Local { doing, path: "the disk object of an open file".into(), source }
}

/// Threads of one open file, started when there is work for more than one.
#[derive(Debug)]
pub struct Ports {
    first: Port,
    again: Option<(Ino, OpenFlags)>,
    streams: usize,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    jobs: Sender<Job>,
    threads: Vec<JoinHandle<Done<()>>>,
}

impl Ports {
    /// `again`: how further handles are opened; None: there is to be one way only.
    pub fn new(first: Port, again: Option<(Ino, OpenFlags)>, streams: usize) -> Self {
        Self { first, again, streams: streams.max(1), running: Mutex::default() }
    }

    /// The first way, for who works alone.
    pub fn first(&self) -> &Port {
        &self.first
    }

    /// Does the work on a thread.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn submit(&self, job: Job) -> Done<()> {
        let mut running = self.running.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(self.start()?),
        };
        running.jobs.send(job).map_err(|_| ClientError::WrongAnswer { asked: "file" })
    }

    fn start(&self) -> Done<Running> {
        let (jobs, todo) = unbounded();
        let mut threads = Vec::new();
        let many = self.again.is_some() || matches!(self.first, Port::Movers(..));
        for n in 0..if many { self.streams } else { 1 } {
            let (first, again, todo) =
                (self.first.clone(), self.again.filter(|_| n > 0 && self.first.is_served()), todo.clone());
            let thread = std::thread::Builder::new().name("thermo-file".into());
            match thread.spawn(move || work(first, again, &todo)) {
                Ok(thread) => threads.push(thread),
                Err(_) if n > 0 => break,
                Err(source) => {
                    return Err(ClientError::Local {
                        doing: "cannot start a thread for",
                        path: "an open file".into(),
                        source,
                    });
                }
            }
        }
        Ok(Running { jobs, threads })
    }

    /// Waits for all work, ends the threads and gives the handles back.
    pub fn close(&self) -> Done<()> {
        let mut result = Ok(());
        if let Some(Running { jobs, threads }) = self.running.lock().take() {
            drop(jobs);
            for thread in threads {
                result = result.and(thread.join().unwrap_or(Err(ClientError::WrongAnswer { asked: "file" })));
            }
        }
        result
    }
}

/// One thread. A further handle that cannot be had (its owner may write what he may not open again) is done without, and so is one of another session
/// of the node than the first: what was locked by the file may be somebody else's by then.
fn work(first: Port, again: Option<(Ino, OpenFlags)>, todo: &Receiver<Job>) -> Done<()> {
    let (Port::Served(lanes, of, alone), Some((ino, flags))) = (&first, again) else {
        todo.iter().for_each(|job| job(&first));
        return Ok(());
    };
    let Ok(opened) = lanes.open(FileCall::OpenAs { ino, flags }, true) else { return Ok(()) };
    if !opened.held.lives_with(of) {
        return lanes.release(&opened.held);
    }
    let held = Arc::new(opened.held.beside(of));
    let port = Port::Served(lanes.clone(), held.clone(), alone.clone());
    todo.iter().for_each(|job| job(&port));
    lanes.release(&held)
}
