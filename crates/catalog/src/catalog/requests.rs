//! Requests of users and their files. Durable, except for single items.

use super::Catalog;
use crate::Result;
use crate::ops::request;
use types::*;

impl Catalog {
    /// Enters a request; `request.id` and its sums of files and bytes are given by the catalogue. A request without items
    /// stays queued: add items, or end it with `update_request`. Relaxed: whoever promises it to a user calls
    /// [`Catalog::sync`] first; a reader that waits ends with the node anyway.
    pub fn create_request(&self, request: &Request, items: &[(Ino, u64)]) -> Result<Request> {
        self.enter(|entered| self.relaxed(|tx| request::create(tx, request, items).inspect(&mut *entered)))
    }

    /// Adds files (with their bytes) to an open request; files it has already are left alone.
    pub fn add_items(&self, id: RequestId, items: &[(Ino, u64)]) -> Result<Request> {
        self.durable(|tx| request::add_items(tx, id, items))
    }

    /// Ends one file of a request (again: no effect). With the last one the request is Done or Failed. Relaxed: a crash
    /// may make the item pending again, which repeats work that is done already and so costs nothing. `began` is when its first
    /// byte moved: the request has begun then, if nothing of it had before.
    pub fn finish_item(
        &self,
        id: RequestId,
        ino: Ino,
        state: ItemState,
        bytes: u64,
        (began, now): (Time, Time),
    ) -> Result<Request> {
        let told = self.relaxed(|tx| request::finish_item(tx, id, ino, state.clone(), bytes, (began, now)));
        told.inspect(|request| self.note_open(request))
    }

    /// The first byte of an open request moved at `began` (again: no effect): it is Active from then on. Relaxed: a crash may take
    /// it back, and then it begins again.
    pub fn begin_request(&self, id: RequestId, began: Time) -> Result<Request> {
        self.relaxed(|tx| request::begin(tx, id, began)).inspect(|request| self.note_open(request))
    }

    /// Changes a request in one transaction; `change` may run more than once. Ending it (Done, Failed, Cancelled) leaves
    /// its pending items as they are, but nothing waits for them any more.
    pub fn update_request(&self, id: RequestId, change: &mut dyn FnMut(&mut Request)) -> Result<Request> {
        self.durable(|tx| request::update(tx, id, change)).inspect(|request| self.note_open(request))
    }

    /// A request by id.
    pub fn request(&self, id: RequestId) -> Result<Option<Request>> {
        self.read(|v| request::request(v, id))
    }

    /// Newest first, at most `limit`; only queued and active ones unless `all`.
    pub fn requests(&self, all: bool, limit: usize) -> Result<Vec<Request>> {
        self.read(|v| request::requests(v, all, limit))
    }

    /// Queued and active requests, oldest first.
    pub fn open_requests(&self) -> Result<Vec<Request>> {
        let mut open = self.requests(false, usize::MAX)?;
        open.reverse();
        Ok(open)
    }

    /// Open requests in which this inode is pending.
    pub fn requests_for(&self, ino: Ino) -> Result<Vec<RequestId>> {
        self.read(|v| request::requests_for(v, ino))
    }

    /// Files of a request after `after` in order of inode: state and bytes.
    pub fn items(&self, id: RequestId, after: Ino, limit: usize) -> Result<Vec<(Ino, ItemState, u64)>> {
        self.read(|v| request::items(v, id, after, limit))
    }

    /// Forgets up to `limit` requests that ended before `ended_before`; returns how many.
    pub fn prune_requests(&self, ended_before: Time, limit: usize) -> Result<usize> {
        self.durable(|tx| request::prune(tx, ended_before, limit))
    }
}
