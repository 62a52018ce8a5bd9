//! Last step of a copy: one sync for many files, and only then their modification times, which mark them as complete.

use super::tree::Sink;
use super::worker::Shared;
use types::Attr;

/// A sync after so many files ...
const FILES: usize = 1000;
/// ... or so many bytes.
const BYTES: u64 = 2 << 30;

/// Entries whose content is written but not yet durable.
pub struct Batch<P> {
    entries: Vec<Entry<P>>,
    bytes: u64,
}

/// One of them.
pub struct Entry<P> {
    /// The copy.
    pub place: P,
    /// Attributes to be set.
    pub attr: Attr,
    /// Path of the source.
    pub path: Vec<u8>,
}

impl<P> Default for Batch<P> {
    fn default() -> Self {
        Self { entries: Vec::new(), bytes: 0 }
    }
}

impl<P: Clone + Send> Batch<P> {
    /// Adds an entry, and makes the batch durable when it is large enough.
    pub fn add(&mut self, entry: Entry<P>, sink: &mut impl Sink<Place = P>, shared: &Shared<'_, P>) {
        self.bytes += entry.attr.size;
        self.entries.push(entry);
        if self.entries.len() >= FILES || self.bytes >= BYTES {
            self.flush(sink, shared);
        }
    }

    /// Makes the batch durable, then its entries complete.
    pub fn flush(&mut self, sink: &mut impl Sink<Place = P>, shared: &Shared<'_, P>) {
        if self.entries.is_empty() {
            return;
        }
        let synced = sink.sync();
        for entry in self.entries.drain(..) {
            match &synced {
                Ok(()) => {
                    shared.complete(&entry, sink.finish(&entry.place, &entry.attr, shared.options.owner))
                }
                Err(e) => shared.refused(&entry.path, e),
            }
        }
        self.bytes = 0;
        if let Err(e) = synced {
            shared.fatal(e);
        }
    }
}
