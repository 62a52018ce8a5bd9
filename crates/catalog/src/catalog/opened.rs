//! Which requests are open, by kind, without a look at all that are: of other kinds there may be very many.

use super::Catalog;
use crate::Result;
use crate::ops::request::is_open;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use types::*;

/// What is known of open requests.
#[derive(Default)]
pub(super) struct Open {
    /// Their kinds, once they were asked for.
    known: Mutex<Option<BTreeMap<RequestId, RequestKind>>>,
    /// Those that are just being entered: others may see them before who enters them is told that they are. Not held while the
    /// engine is asked, which may wait for a transaction that enters one.
    entering: Mutex<Vec<(RequestId, RequestKind)>>,
}

impl Catalog {
    /// Queued and active requests of a kind, oldest first: all that were committed before this was asked.
    pub fn open_requests_of(&self, kind: RequestKind) -> Result<Vec<Request>> {
        // These first: what is missing in both has not been committed yet.
        let entering = self.open.entering.lock().clone();
        let mut ids: BTreeMap<RequestId, bool> =
            entering.into_iter().filter(|(_, of)| *of == kind).map(|(id, _)| (id, false)).collect();
        self.with_open_kinds(|open| {
            ids.extend(open.iter().filter(|(_, of)| **of == kind).map(|(id, _)| (*id, true)));
        })?;
        let mut found = Vec::with_capacity(ids.len());
        for (id, known) in ids {
            match self.request(id)? {
                Some(request) if is_open(&request) && request.kind == kind => found.push(request),
                // It ended while somebody else took note of an earlier change.
                _ if known => {
                    self.with_open_kinds(|open| open.remove(&id))?;
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Open requests of a kind that came before this one.
    pub fn open_before(&self, kind: RequestKind, id: RequestId) -> Result<u64> {
        self.with_open_kinds(|open| open.range(..id).filter(|(_, of)| **of == kind).count() as u64)
    }

    /// Kinds of the open requests are read when they are first asked for, and kept from then on: each change is noted after
    /// it is committed, so that none is missed by a reading that began before.
    fn with_open_kinds<T>(&self, look: impl FnOnce(&mut BTreeMap<RequestId, RequestKind>) -> T) -> Result<T> {
        let mut known = self.open.known.lock();
        let open = match &mut *known {
            Some(open) => open,
            None => {
                let open = self.requests(false, usize::MAX)?;
                known.insert(open.into_iter().map(|r| (r.id, r.kind)).collect())
            }
        };
        Ok(look(open))
    }

    /// Enters a request by a transaction, which says what it is about to commit each time that it runs.
    pub(super) fn enter(
        &self,
        commit: impl FnOnce(&mut dyn FnMut(&Request)) -> Result<Request>,
    ) -> Result<Request> {
        let mut told = Vec::new();
        let made = commit(&mut |request| {
            told.push((request.id, request.kind));
            self.open.entering.lock().push((request.id, request.kind));
        });
        match &made {
            Ok(request) => self.note_open(request),
            // What was committed and is not known to be on stable storage is there all the same.
            Err(_) => {
                told.iter().filter_map(|(id, _)| self.request(*id).ok()?).for_each(|r| self.note_open(&r))
            }
        }
        let mut entering = self.open.entering.lock();
        for one in told {
            if let Some(at) = entering.iter().position(|other| *other == one) {
                entering.swap_remove(at);
            }
        }
        made
    }

    pub(super) fn note_open(&self, request: &Request) {
        if let Some(open) = &mut *self.open.known.lock() {
            if is_open(request) {
                open.insert(request.id, request.kind);
            } else {
                open.remove(&request.id);
            }
        }
    }
}
