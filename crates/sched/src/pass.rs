//! A drive on its way through the files that it was given: when each will be there, by what is still to be read.

use crate::calibration::{Calibration, Span, Timed};
use crate::{Mechanics, RecallItem, along};
use types::DriveNo;

/// Files that a drive reads in this order, and which of them it has come to. What lies behind it says nothing of what is to come:
/// a drive that is late does not make up for it, so that nothing is expected before what is still to be read can be read.
#[derive(Clone, Debug)]
pub struct Pass {
    drive: DriveNo,
    model: Mechanics,
    order: Vec<RecallItem>,
    /// Begin and end of each item from `first` on, counted from the begin of the way to that one.
    spans: Vec<(Span, Span)>,
    first: usize,
    /// The item that the drive goes to or reads.
    at: usize,
}

/// How the present item of a [`Pass`] stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stands {
    /// Since the drive began with the way to it (seconds).
    pub gone_s: f64,
    /// Bytes of it that have come.
    pub came: u64,
}

impl Pass {
    /// A drive that stands at block `from` begins with these.
    pub fn new(
        times: &Calibration,
        drive: DriveNo,
        model: Mechanics,
        from: u64,
        order: Vec<RecallItem>,
    ) -> Self {
        let spans = along(times, drive, &model, from, &order);
        Self { drive, model, order, spans, first: 0, at: 0 }
    }

    /// The drive begins with the way to item `n`.
    pub fn begin(&mut self, n: usize) {
        self.at = n.min(self.order.len());
    }

    /// What drives have taught meanwhile counts for what is still to be read.
    pub fn relearn(&mut self, times: &Calibration) {
        let before = self.at.checked_sub(1).and_then(|n| self.order.get(n));
        let from = match (before, self.order.get(self.at)) {
            (Some(before), _) => self.model.last_block(before.block, before.byte, before.bytes),
            (None, Some(_)) => return, // nothing has been read
            (None, None) => 0,
        };
        let rest = self.order.get(self.at..).unwrap_or_default();
        (self.spans, self.first) = (along(times, self.drive, &self.model, from, rest), self.at);
    }

    /// Until item `n` begins to come and is there: nothing if it has been read, None if there is no such item.
    pub fn left(&self, times: &Calibration, n: usize, stands: Stands) -> Option<(Span, Span)> {
        self.order.get(n)?;
        if n < self.at {
            return Some((Span::default(), Span::default()));
        }
        let (start, finish) = self.present(times, stands)?;
        if n == self.at {
            return Some((start, finish));
        }
        let (_, end) = self.spans.get(self.at.checked_sub(self.first)?)?;
        let (begins, ends) = self.spans.get(n.checked_sub(self.first)?)?;
        Some((finish + beyond(*begins, *end), finish + beyond(*ends, *end)))
    }

    /// Until the last item is there.
    pub fn end(&self, times: &Calibration, stands: Stands) -> Span {
        let last = self.order.len().checked_sub(1).and_then(|last| self.left(times, last, stands));
        last.map_or(Span::default(), |(_, finish)| finish)
    }

    /// Until the present item begins to come and is there.
    fn present(&self, times: &Calibration, stands: Stands) -> Option<(Span, Span)> {
        let item = self.order.get(self.at)?;
        let k = self.at.checked_sub(self.first)?;
        let before =
            k.checked_sub(1).and_then(|k| self.spans.get(k)).map_or(Span::default(), |(_, end)| *end);
        let (begins, ends) = self.spans.get(k)?;
        let (start, whole) = (beyond(*begins, before), beyond(*ends, before));
        let unread = self.model.transfer(item.bytes.saturating_sub(stands.came));
        let unread = times.span(self.drive, Timed::Read, unread);
        if stands.came > 0 {
            return Some((Span::default(), unread));
        }
        let start = less(start, stands.gone_s);
        let finish = less(whole, stands.gone_s);
        // Late: it may come any moment, but no faster than the drive reads.
        Some((start, if finish.mean_s < unread.mean_s { unread } else { finish }))
    }
}

/// What of `whole` comes after `part`, which is its beginning.
fn beyond(whole: Span, part: Span) -> Span {
    Span {
        mean_s: (whole.mean_s - part.mean_s).max(0.0),
        variance: (whole.variance - part.variance).max(0.0),
    }
}

/// What is left of a time of which so much has gone: as uncertain as its share of the whole.
fn less(whole: Span, gone_s: f64) -> Span {
    let mean_s = (whole.mean_s - gone_s).max(0.0);
    let share = if whole.mean_s > 0.0 { mean_s / whole.mean_s } else { 0.0 };
    Span { mean_s, variance: whole.variance * share * share }
}
