//! Bytes of files in stripes go straight to and from the movers, as for a host that mounts the namespace ([`crate::ClusterFiles`]).

use super::Done;
use super::lanes::{Held, Lanes};
use super::told::Told;
use crate::ClientError;
use crate::cluster::striped;
use crate::length::Asked;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stripe::{Authority, Columns, StripeError, Striped};
use types::{ErrorClass, FsError};
use wire::{Failure, FileLayout};

/// Where bytes go through the node, it is asked again so much later: a column that was moving lies somewhere then.
const AGAIN: Duration = Duration::from_secs(2);
/// How often a file may have moved while one request of it is under way.
const MOVES: usize = 16;

/// The way to the movers of an open file.
pub struct Direct {
    told: Arc<Told>,
    way: Mutex<Way>,
}

/// How bytes go now.
#[derive(Clone)]
enum Way {
    /// The node is to be asked.
    Unknown,
    /// Through the node, which said so then.
    Served(Instant),
    /// To and from movers.
    Movers(Arc<Striped>),
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("held", &self.told.held).finish_non_exhaustive()
    }
}

/// Asks the node for another right when one has ended.
struct Renewal {
    told: Weak<Told>,
    layout: FileLayout,
}

impl Authority for Renewal {
    fn leave_out(&self, _: usize, _: u16, why: &data::DataError) -> Result<Columns, String> {
        Err(format!("only the node that holds the namespace leaves columns out ({why})"))
    }

    fn renew(&self) -> Result<Columns, String> {
        let told = self.told.upgrade().ok_or("the file is closed")?;
        let asked = told.length.asks();
        match told.lanes.layout(&told.held) {
            Ok(Some(layout)) if layout.same_place(&self.layout) => {
                // Rights end also because somebody makes the file shorter.
                told.length.found(asked, layout.length, layout.cuts);
                told.lanes.columns(&told.held, &layout)
            }
            Ok(_) => Err("the file lies elsewhere now".into()),
            Err(e) => Err(format!("there is no new right: {e}")),
        }
    }
}

fn failed(error: &StripeError) -> ClientError {
    let full = error.class() == ErrorClass::NoSpace;
    let fs = if full { FsError::NoSpace } else { FsError::Io };
    ClientError::Refused(Failure {
        class: error.class(),
        fs: Some(fs),
        message: format!("the targets of an open file: {error}"),
    })
}

impl Direct {
    /// For a file that lies on movers; None: its bytes go through the node.
    pub fn open(lanes: &Arc<Lanes>, held: &Arc<Held>) -> Done<Option<Arc<Self>>> {
        let told = Told::new(lanes, held);
        let asked = told.length.asks();
        let Some(layout) = lanes.layout(held)? else { return Ok(None) };
        let direct = Self { told: Arc::new(told), way: Mutex::new(Way::Unknown) };
        let way = direct.movers(asked, &layout)?;
        *direct.way.lock() = way;
        Ok(Some(Arc::new(direct)))
    }

    fn movers(&self, asked: Asked, layout: &FileLayout) -> Done<Way> {
        let told = |e: String| {
            ClientError::Refused(Failure { class: ErrorClass::Retry, fs: Some(FsError::Io), message: e })
        };
        let Told { lanes, held, length, .. } = &*self.told;
        let columns = lanes.columns(held, layout).map_err(told)?;
        let renewal = Renewal { told: Arc::downgrade(&self.told), layout: layout.clone() };
        let striped = striped(layout, columns, Some(Arc::new(renewal))).map_err(|e| failed(&e))?;
        length.found(asked, layout.length, layout.cuts);
        Ok(Way::Movers(Arc::new(striped)))
    }

    /// How bytes go now.
    fn way(&self) -> Done<Way> {
        let mut way = self.way.lock();
        let asks = match &*way {
            Way::Unknown => true,
            Way::Served(since) => since.elapsed() >= AGAIN,
            Way::Movers(_) => false,
        };
        if asks {
            let asked = self.told.length.asks();
            *way = match self.told.lanes.layout(&self.told.held)? {
                None => Way::Served(Instant::now()),
                Some(layout) => self.movers(asked, &layout)?,
            };
        }
        Ok(way.clone())
    }

    /// Does something at the movers; again if the file may lie elsewhere now. None: it goes through the node.
    fn at_movers<T>(&self, act: impl Fn(&Striped) -> Result<T, StripeError>) -> Done<Option<T>> {
        let mut times = 0;
        loop {
            let Way::Movers(striped) = self.way()? else { return Ok(None) };
            match act(&striped) {
                Ok(done) => return Ok(Some(done)),
                Err(e) if e.class() == ErrorClass::NoSpace => {
                    // The node has it move to where there is room.
                    *self.way.lock() = Way::Served(Instant::now());
                    return Ok(None);
                }
                // The node has it get more, and says then where that is.
                Err(StripeError::Beyond(_)) => {
                    *self.way.lock() = Way::Unknown;
                    return Ok(None);
                }
                // Its columns may be moved one after the other.
                Err(e) if times == 0 || (times < MOVES && matches!(e, StripeError::Authority { .. })) => {
                    tracing::debug!("the targets of an open file: {e}; the node is asked where it lies");
                    times += 1;
                    *self.way.lock() = Way::Unknown;
                }
                Err(e) => return Err(failed(&e)),
            }
        }
    }

    /// Reads; fewer bytes than asked for: the file ends there. None: the node reads.
    pub fn read(&self, offset: u64, len: usize) -> Done<Option<Vec<u8>>> {
        self.at_movers(|striped| {
            let mut bytes = vec![0; len];
            let got = striped.read_at(offset, &mut bytes)?;
            bytes.truncate(got);
            Ok(bytes)
        })
    }

    /// Writes all of it; false: the node writes.
    pub fn write(&self, offset: u64, data: &[u8]) -> Done<bool> {
        // It says how often the length was set.
        self.way()?;
        self.told.writing(offset.checked_add(data.len() as u64), || {
            let written = self.at_movers(|striped| self.told.length.put(striped, &[(offset, data)]))?;
            Ok(written.is_some())
        })
    }

    /// What the node is told of it.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// The length was set through the node: it is asked how long the file is when bytes go next.
    pub fn cut(&self) {
        *self.way.lock() = Way::Unknown;
    }
}
