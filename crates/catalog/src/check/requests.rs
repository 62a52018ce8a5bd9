//! Requests against their items.

use super::Check;
use crate::Result;
use crate::keys::{self, req};
use crate::rec;
use types::*;

pub(super) fn requests(c: &mut Check<'_>) -> Result<()> {
    let mut waiting = 0u64;
    c.table(&[keys::REQUEST, req::RECORD], |c, (key, value)| {
        let id = RequestId(keys::number_at(&key, 2).unwrap_or(0));
        let r: Request = rec::decode("request", id, &value)?;
        let open = matches!(r.state, RequestState::Queued | RequestState::Active);
        let marked = c.has(&keys::open_request(id))?;
        c.expect(open == marked, || format!("request {id} is {:?}, open mark {marked}", r.state));
        let (mut files, mut done, mut failed, mut bytes) = (0, 0, 0, 0u64);
        let prefix = keys::items(id);
        c.table(&prefix, |c, (key, value)| {
            let item: rec::ItemRec = rec::decode("request item", id, &value)?;
            let ino = Ino(keys::number_at(&key, 10).unwrap_or(0));
            files += 1;
            bytes = bytes.saturating_add(item.bytes);
            done += u64::from(item.state != ItemState::Pending);
            failed += u64::from(matches!(item.state, ItemState::Failed(_)));
            let pending = open && item.state == ItemState::Pending;
            waiting += u64::from(pending);
            let linked = c.has(&keys::pending(ino, id))?;
            c.expect(linked == pending, || {
                format!("request {id}, inode {ino}: pending {pending}, linked {linked}")
            });
            Ok(())
        })?;
        let is = (r.files_total, r.files_done, r.files_failed, r.bytes_total);
        // A label request counts volumes, which are not items.
        let counted_otherwise = r.kind.is_of_volumes() || r.kind == RequestKind::MoveEngine;
        c.expect(counted_otherwise || is == (files, done, failed, bytes), || {
            format!("request {id} counts {is:?}, items make {:?}", (files, done, failed, bytes))
        });
        Ok(())
    })?;
    let mut linked = 0;
    c.table(&[keys::REQUEST, req::PENDING], |_, _| {
        linked += 1;
        Ok(())
    })?;
    c.expect(linked == waiting, || format!("{linked} links to pending items, {waiting} such items"));
    Ok(())
}
