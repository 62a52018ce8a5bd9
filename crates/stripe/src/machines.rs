//! Which machines have what was written and is not known to be durable: one that was started anew meanwhile may have lost it.

use crate::Columns;
use data::Channel;
use parking_lot::Mutex;
use std::sync::Arc;

/// The machines of the columns of a file.
pub struct Machines(Vec<Machine>);

/// The way to a column, and the machine that was there when something was written that is not known to be durable.
struct Machine {
    component: usize,
    column: u16,
    channel: Arc<Channel>,
    boot: Mutex<Option<u64>>,
}

impl Machines {
    /// Nothing was written yet.
    pub fn new(columns: &Columns) -> Self {
        let all = columns.iter().enumerate().flat_map(|(component, columns)| {
            let numbered = (0..).zip(columns);
            numbered.filter_map(move |(column, way)| {
                let channel = way.as_ref()?.channel.clone();
                Some(Machine { component, column, channel, boot: Mutex::new(None) })
            })
        });
        Self(all.collect())
    }

    /// Notes which machines have what is written now; component and column of those whose machine was started anew since something was
    /// written there that was not durable: it may be gone.
    pub fn note(&self) -> Vec<(usize, u16)> {
        let changed = |machine: &&Machine| {
            let mut known = machine.boot.lock();
            let now = machine.channel.boot();
            if known.is_none() {
                *known = now;
            }
            now.is_some() && *known != now
        };
        self.0.iter().filter(changed).map(|machine| (machine.component, machine.column)).collect()
    }

    /// All that was written is durable, or is known to be lost.
    pub fn forget(&self) {
        self.0.iter().for_each(|machine| *machine.boot.lock() = None);
    }

    /// For each column the machine that was there; 0: nothing was written.
    pub fn known(&self) -> Vec<u64> {
        self.0.iter().map(|machine| machine.boot.lock().unwrap_or(0)).collect()
    }

    /// Takes over what another client that wrote the file knows; false if that was another machine than we know of.
    pub fn heard(&self, others: &[u64]) -> bool {
        let pairs = self.0.iter().zip(others).filter(|(_, heard)| **heard != 0);
        pairs.fold(true, |same, (machine, heard)| {
            same & (*machine.boot.lock().get_or_insert(*heard) == *heard)
        })
    }
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machines({:?})", self.known())
    }
}
