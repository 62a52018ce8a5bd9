//! Write-behind: small writes that follow each other become pieces, and pieces go over all connections of the file. What fails is said
//! by the next write, flush or close, once.

use super::port::Ports;
use super::{Done, PIECE};
use crate::ClientError;
use parking_lot::{Condvar, Mutex};
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
    under_way: Vec<Range<u64>>,
    failed: Option<ClientError>,
}

impl State {
    fn bytes(&self) -> u64 {
        self.under_way.iter().map(|range| range.end - range.start).sum()
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.under_way.iter().any(|other| other.start < range.end && range.start < other.end)
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
            let fits = state.gathered.as_ref().is_some_and(|(start, bytes)| {
                start + bytes.len() as u64 == at && bytes.len() + part.len() <= PIECE
            });
            if !fits {
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
        while !state.under_way.is_empty() {
            self.shared.done.wait(&mut state);
        }
        sent?;
        state.failed.take().map_or(Ok(()), Err)
    }

    /// The same for who wants to read: failures stay for the writer.
    pub fn settle(&self, ports: &Ports) -> Done<()> {
        let mut state = self.shared.state.lock();
        if state.gathered.is_some() {
            self.send(&mut state, ports)?;
        }
        while !state.under_way.is_empty() {
            self.shared.done.wait(&mut state);
        }
        Ok(())
    }

    /// Sends what is gathered, when there is room for it, and after everything that it overlaps.
    fn send(&self, state: &mut parking_lot::MutexGuard<'_, State>, ports: &Ports) -> Done<()> {
        let Some((offset, bytes)) = state.gathered.take() else { return Ok(()) };
        let range = offset..offset + bytes.len() as u64;
        while state.touches(&range)
            || (!state.under_way.is_empty() && state.bytes() + bytes.len() as u64 > self.most as u64)
        {
            self.shared.done.wait(state);
        }
        state.under_way.push(range.clone());
        let shared = self.shared.clone();
        let key = range.clone();
        let submitted = ports.submit(Box::new(move |port| {
            let written = port.write(offset, &bytes);
            let mut state = shared.state.lock();
            state.under_way.retain(|other| *other != range);
            if let Err(e) = written {
                state.failed.get_or_insert(e);
            }
            shared.done.notify_all();
        }));
        if submitted.is_err() {
            state.under_way.retain(|other| *other != key);
        }
        submitted
    }
}
