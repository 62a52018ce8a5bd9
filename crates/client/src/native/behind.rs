//! Write-behind: small writes that follow each other become pieces, and pieces go over all connections of the file. What fails is said
//! by the next write, flush or close, once.

use super::port::Ports;
use super::{Done, PIECE};
use crate::ClientError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;

/// What was written and has not reached the node.
#[derive(Debug)]
pub struct Behind {
    most: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    gathered: Option<(u64, Vec<u8>)>,
    /// How many pieces there were.
    pieces: u64,
    /// Those that are not done, in their order.
    under_way: Vec<Piece>,
    failed: Option<ClientError>,
}

/// A piece that is to be written, or is being written.
#[derive(Debug)]
struct Piece {
    number: u64,
    range: Range<u64>,
    sent: bool,
}

impl State {
    /// Whether a piece has to wait: for one before it that is not sent or has some of the same bytes, or for room.
    fn waits(&self, number: u64, range: &Range<u64>, most: usize) -> bool {
        let touches = |other: &Piece| other.range.start < range.end && range.start < other.range.end;
        let before = |other: &Piece| other.number < number;
        let held = self.under_way.iter().any(|other| before(other) && (!other.sent || touches(other)));
        let sent = self.under_way.iter().filter(|other| other.sent);
        let bytes: u64 = sent.map(|other| other.range.end - other.range.start).sum();
        held || (bytes > 0 && bytes + (range.end - range.start) > most as u64)
    }

    fn is_done(&self, upto: u64) -> bool {
        self.under_way.iter().all(|piece| piece.number >= upto)
    }

    fn done(&mut self, number: u64) {
        self.under_way.retain(|piece| piece.number != number);
    }
}

impl Behind {
    /// At most so many bytes; 0: every write is done when it returns.
    pub fn new(most: usize) -> Self {
        Self { most, shared: Arc::default() }
    }

    /// Takes bytes to be written.
    pub fn write(&self, ports: &Ports, offset: u64, data: &[u8]) -> Done<()> {
        if self.most == 0 {
            return ports.first().write(offset, data);
        }
        let mut at = offset;
        for part in data.chunks(PIECE) {
            let mut state = self.shared.state.lock();
            if let Some(failed) = state.failed.take() {
                return Err(failed);
            }
            let fits = |state: &State| {
                state.gathered.as_ref().is_none_or(|(start, bytes)| {
                    start + bytes.len() as u64 == at && bytes.len() + part.len() <= PIECE
                })
            };
            // Another thread may have gathered something while this one waited.
            while !fits(&state) {
                self.send(&mut state, ports)?;
            }
            let (_, bytes) = state.gathered.get_or_insert_with(|| (at, Vec::new()));
            bytes.extend_from_slice(part);
            if bytes.len() == PIECE {
                self.send(&mut state, ports)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Everything that was written has reached the node, or why not.
    pub fn flush(&self, ports: &Ports) -> Done<()> {
        let mut state = self.shared.state.lock();
        let sent = self.send(&mut state, ports);
        self.wait(&mut state);
        sent?;
        state.failed.take().map_or(Ok(()), Err)
    }

    /// The same for who wants to read: failures stay for the writer.
    pub fn settle(&self, ports: &Ports) -> Done<()> {
        let mut state = self.shared.state.lock();
        self.send(&mut state, ports)?;
        self.wait(&mut state);
        Ok(())
    }

    /// Waits until all pieces of before are done.
    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        let upto = state.pieces;
        while !state.is_done(upto) {
            self.shared.done.wait(state);
        }
    }

    /// Sends what is gathered, when there is room for it, and after everything before it that it overlaps. Others may gather something meanwhile.
    fn send(&self, state: &mut MutexGuard<'_, State>, ports: &Ports) -> Done<()> {
        let Some((offset, bytes)) = state.gathered.take() else { return Ok(()) };
        let range = offset..offset + bytes.len() as u64;
        let number = state.pieces;
        state.pieces += 1;
        // From now on whoever flushes waits for it.
        state.under_way.push(Piece { number, range: range.clone(), sent: false });
        while state.waits(number, &range, self.most) {
            self.shared.done.wait(state);
        }
        state.under_way.iter_mut().filter(|piece| piece.number == number).for_each(|piece| piece.sent = true);
        self.shared.done.notify_all();
        let shared = self.shared.clone();
        let submitted = ports.submit(Box::new(move |port| {
            let written = port.write(offset, &bytes);
            let mut state = shared.state.lock();
            state.done(number);
            if let Err(e) = written {
                state.failed.get_or_insert(e);
            }
            shared.done.notify_all();
        }));
        if submitted.is_err() {
            state.done(number);
            self.shared.done.notify_all();
        }
        submitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::port::Port;
    use std::os::unix::fs::FileExt;

    const PART: usize = 1_500_000;

    fn ports(file: &std::fs::File) -> Ports {
        Ports::new(Port::Object(Arc::new(file.try_clone().unwrap())), None, 1)
    }

    /// Each thread writes a part of its own, and again what it has just written; all of it is there behind its flush.
    #[test]
    fn threads_that_write_one_file_write_what_they_mean() {
        let file = tempfile::tempfile().unwrap();
        let (ports, behind) = (ports(&file), Behind::new(PIECE));
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (file, ports, behind) = (&file, &ports, &behind);
                scope.spawn(move || {
                    for round in 0..20_u8 {
                        let base = thread * PART;
                        for (k, at) in (base..base + PART).step_by(70_000).enumerate() {
                            let length = 70_000.min(base + PART - at);
                            let byte = (thread as u8) << 6 | round ^ k as u8;
                            behind.write(ports, at as u64, &vec![!byte; length]).unwrap();
                            behind.write(ports, at as u64, &vec![byte; length]).unwrap();
                        }
                        behind.flush(ports).unwrap();
                        let mut found = vec![0; PART];
                        file.read_exact_at(&mut found, base as u64).unwrap();
                        for (k, part) in found.chunks(70_000).enumerate() {
                            let byte = (thread as u8) << 6 | round ^ k as u8;
                            assert!(part.iter().all(|found| *found == byte), "thread {thread}, part {k}");
                        }
                    }
                });
            }
        });
        ports.close().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 * PART as u64);
    }
}
