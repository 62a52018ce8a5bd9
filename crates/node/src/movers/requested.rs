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
        let open = self.catalog.open_requests().map_err(fail)?;
        self.movers.forget_underway(&open);
        for request in open {
            if !kinds.contains(&request.kind) {
                continue;
            }
            if request.started.is_none() {
                self.catalog.begin_request(request.id, crate::now()).map_err(fail)?;
            }
            let (mut after, mut waits) = (Ino(0), false);
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
                            self.movers.note_copied(request.id, 0);
                            // Of several the first, which is the same the next time.
                            if !std::mem::replace(&mut waits, true) {
                                self.movers.note_wait(request.id, self.waiting(ino, &why));
                            }
                            // It may be for what is to be removed.
                            self.movers.wake();
                            continue;
                        }
                        Err(Stop::Failed(why)) => (ItemState::Failed(why), 0),
                    };
                    let _ending = self.steady.ends();
                    let ended =
                        self.catalog.finish_item(request.id, ino, state, bytes, (begun, crate::now()));
                    self.movers.note_copied(request.id, 0);
                    ended.map_err(fail)?;
                }
            }
            if !waits {
                self.movers.note_wait(request.id, String::new());
            }
            over(&request).map_err(fail)?;
        }
        Ok(())
    }

    fn waiting(&self, ino: Ino, why: &str) -> String {
        match self.catalog.path_of(ino) {
            Ok(path) => format!("{} waits: {why}", escape(&path)),
            Err(_) => format!("inode {ino} waits: {why}"),
        }
    }

    pub(super) fn is_open_request(&self, id: RequestId) -> bool {
        // While the engine does not answer, nobody knows that it was withdrawn.
        self.catalog.request(id).map_or(true, |request| {
            request.is_some_and(|r| matches!(r.state, RequestState::Queued | RequestState::Active))
        })
    }
}
