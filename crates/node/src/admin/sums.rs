//! How far work is, by owner, class or pool; and what would leave the disk next.

use crate::Node;
use crate::error::{fs_failure, refused};
use crate::files::percent;
use std::collections::{BTreeMap, BTreeSet};
use types::*;
use wire::Failure;

/// Files looked at in one go.
const PAGE: usize = 5_000;

impl Node {
    /// Open requests that move files, summed up.
    pub(super) fn request_sums(&self, by: SumBy) -> Result<Vec<RequestSum>, Failure> {
        let open = self.catalog.open_requests().map_err(|e| refused("requests", &e))?;
        let mut sums: BTreeMap<(u8, String), (RequestSum, BTreeSet<RequestId>)> = BTreeMap::new();
        let mut add = |request: &Request, of: String, files: (u64, u64), bytes: (u64, u64)| {
            let key = (u8::from(request.kind == RequestKind::Migrate), of.clone());
            let (sum, ids) = sums.entry(key).or_insert_with(|| (empty(request.kind, of), BTreeSet::new()));
            ids.insert(request.id);
            sum.files_total += files.0;
            sum.files_done += files.1;
            sum.bytes_total = sum.bytes_total.saturating_add(bytes.0);
            sum.bytes_done = sum.bytes_done.saturating_add(bytes.1);
        };
        let moves = |r: &&Request| matches!(r.kind, RequestKind::Stage | RequestKind::Migrate);
        for request in open.iter().filter(moves) {
            if by == SumBy::Owner {
                let (files, bytes) = (request.files_total, request.bytes_total);
                let of = request.owner.to_string();
                add(request, of, (files, request.files_done), (bytes, request.bytes_done));
                continue;
            }
            self.each_item(request.id, &mut |ino, done, bytes| {
                let counts = |total: u64| (total, if done { total } else { 0 });
                for of in self.belongs_to(request.kind, ino, by) {
                    add(request, of, counts(1), counts(bytes));
                }
            })?;
        }
        let finish = |(mut sum, ids): (RequestSum, BTreeSet<RequestId>)| {
            sum.requests = ids.len() as u64;
            sum.percent = match sum.bytes_total {
                0 => percent(sum.files_done, sum.files_total.max(1)),
                total => percent(sum.bytes_done, total),
            };
            sum
        };
        Ok(sums.into_values().map(finish).collect())
    }

    fn each_item(&self, id: RequestId, each: &mut dyn FnMut(Ino, bool, u64)) -> Result<(), Failure> {
        let mut after = Ino(0);
        loop {
            let page = self.catalog.items(id, after, PAGE).map_err(|e| refused("request", &e))?;
            let Some(&(last, ..)) = page.last() else { return Ok(()) };
            after = last;
            page.into_iter().for_each(|(ino, state, bytes)| each(ino, state != ItemState::Pending, bytes));
        }
    }

    /// Class or pools that a file's part of a request counts for.
    fn belongs_to(&self, kind: RequestKind, ino: Ino, by: SumBy) -> Vec<String> {
        let Ok(Some(file)) = self.catalog.archived(ino) else {
            return vec!["(deleted)".into()];
        };
        let class = match by {
            SumBy::Pool => self.catalog.class(&file.class).ok().flatten(),
            _ => return vec![file.class.0],
        };
        let pools = class.map(|class| class.copies).unwrap_or_default();
        let most = if kind == RequestKind::Migrate { pools.len() } else { 1 };
        pools.into_iter().take(most).map(|pool| pool.0).collect()
    }

    /// Files on disk, least recently used first; those that stay too if `all`.
    pub(super) fn purge_list(&self, all: bool, limit: u32) -> Result<Vec<PurgeCandidateView>, Failure> {
        let failed = |e| fs_failure("purge list", e);
        let limit = limit.clamp(1, 10_000) as usize;
        let classes = self.class_map().map_err(failed)?;
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.catalog.purge_candidates(after, PAGE).map_err(|e| refused("purge list", &e))?;
            let Some(last) = page.found.last().map(|c| c.key) else { return Ok(found) };
            after = Some(last);
            for file in self.purge_page(&page.found).map_err(failed)? {
                let held = policy::held(&classes, &file);
                if held.is_some() && !all {
                    continue;
                }
                let path = self.catalog.path_of(file.ino).unwrap_or_default();
                found.push(PurgeCandidateView {
                    path: path.into(),
                    bytes: file.allocated,
                    last_use: file.last_access,
                    held: held.map(|held| held.to_string()),
                });
                if found.len() == limit {
                    return Ok(found);
                }
            }
        }
    }
}

fn empty(kind: RequestKind, of: String) -> RequestSum {
    RequestSum {
        kind,
        of,
        requests: 0,
        files_total: 0,
        files_done: 0,
        bytes_total: 0,
        bytes_done: 0,
        percent: 0,
    }
}
