//! Requests of users and their files. Durable, except for single items.

use super::Catalog;
use crate::Result;
use types::*;

impl Catalog {
    /// Enters a request; `request.id` and its sums of files and bytes are given by the catalogue. A request without items
    /// stays queued: add items, or end it with `update_request`.
    pub fn create_request(&self, request: &Request, items: &[(Ino, u64)]) -> Result<Request> {
        todo!()
    }

    /// Adds files (with their bytes) to an open request; files it has already are left alone.
    pub fn add_items(&self, id: RequestId, items: &[(Ino, u64)]) -> Result<Request> {
        todo!()
    }

    /// Ends one file of a request (again: no effect). With the last one the request is Done or Failed. Relaxed: a crash
    /// may make the item pending again, which repeats work that is done already and so costs nothing.
    pub fn finish_item(
        &self,
        id: RequestId,
        ino: Ino,
        state: ItemState,
        bytes: u64,
        now: Time,
    ) -> Result<Request> {
        todo!()
    }

    /// Changes a request in one transaction; `change` may run more than once. Ending it (Done, Failed, Cancelled) leaves
    /// its pending items as they are, but nothing waits for them any more.
    pub fn update_request(&self, id: RequestId, change: &mut dyn FnMut(&mut Request)) -> Result<Request> {
        todo!()
    }

    /// A request by id.
    pub fn request(&self, id: RequestId) -> Result<Option<Request>> {
        todo!()
    }

    /// Newest first, at most `limit`; only queued and active ones unless `all`.
    pub fn requests(&self, all: bool, limit: usize) -> Result<Vec<Request>> {
        todo!()
    }

    /// Queued and active requests, oldest first.
    pub fn open_requests(&self) -> Result<Vec<Request>> {
        todo!()
    }

    /// Open requests in which this inode is pending.
    pub fn requests_for(&self, ino: Ino) -> Result<Vec<RequestId>> {
        todo!()
    }

    /// Files of a request after `after` in order of inode: state and bytes.
    pub fn items(&self, id: RequestId, after: Ino, limit: usize) -> Result<Vec<(Ino, ItemState, u64)>> {
        todo!()
    }

    /// Forgets up to `limit` requests that ended before `ended_before`; returns how many.
    pub fn prune_requests(&self, ended_before: Time, limit: usize) -> Result<usize> {
        todo!()
    }
}
