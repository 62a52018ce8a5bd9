//! Going over the files of requests that concern targets: one after the other, again and again until each is done or has failed.

use super::PAGE;
use crate::Node;
use crate::error::fs_error;
use std::time::Duration;
use types::*;

/// Why something is not done with a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its targets do not answer, or it is in use: again soon.
    Later(String),
    /// Until somebody does something about it.
    Failed(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Later(why)
    }
}

impl Node {
    /// Does something with each file of open requests of some kinds, and what comes after all of a request was gone over.
    pub(super) fn each_requested(
        &self,
        kinds: &[RequestKind],
        work: impl Fn(&Request, Ino) -> Result<(), Stop>,
        over: impl Fn(&Request) -> catalog::Result<()>,
    ) -> Result<(), FsError> {
        let fail = |e| fs_error("requests that concern targets", &e);
        for request in self.catalog.open_requests().map_err(fail)? {
            if !kinds.contains(&request.kind) {
                continue;
            }
            if request.started.is_none() {
                self.catalog.begin_request(request.id, crate::now()).map_err(fail)?;
            }
            let mut after = Ino(0);
            loop {
                let page = self.catalog.items(request.id, after, PAGE).map_err(fail)?;
                let Some((last, ..)) = page.last() else { break };
                after = *last;
                for (ino, _, bytes) in page.into_iter().filter(|(_, state, _)| *state == ItemState::Pending) {
                    if self.stops_within(Duration::ZERO) || !self.is_open_request(request.id) {
                        return Ok(());
                    }
                    let begun = crate::now();
                    let (state, bytes) = match work(&request, ino) {
                        Ok(()) => (ItemState::Done, bytes),
                        Err(Stop::Later(why)) => {
                            self.movers.note_wait(request.kind, format!("inode {ino} waits: {why}"));
                            // It may be for what is to be removed.
                            self.movers.wake();
                            continue;
                        }
                        Err(Stop::Failed(why)) => (ItemState::Failed(why), 0),
                    };
                    self.movers.note_wait(request.kind, String::new());
                    let ended =
                        self.catalog.finish_item(request.id, ino, state, bytes, (begun, crate::now()));
                    ended.map_err(fail)?;
                }
            }
            over(&request).map_err(fail)?;
        }
        Ok(())
    }

    pub(super) fn is_open_request(&self, id: RequestId) -> bool {
        // While the engine does not answer, nobody knows that it was withdrawn.
        self.catalog.request(id).map_or(true, |request| {
            request.is_some_and(|r| matches!(r.state, RequestState::Queued | RequestState::Active))
        })
    }
}
