//! Quotas of owners.

use crate::support::{Bed, cx, pattern};
use types::api::{FileApi, FsResult, OpenFlags};
use types::*;
use wire::{Call, QuotaChange, Reply};

const MB: usize = 1 << 20;
const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, nonblock: false };

struct User(u32);

impl User {
    fn cx(&self) -> Cx {
        Cx { uid: self.0, gid: self.0, ..cx() }
    }

    fn put(&self, bed: &Bed, name: &str, bytes: usize) -> FsResult<Ino> {
        let opened = bed.node.create(&self.cx(), Ino::ROOT, name.as_bytes(), 0o644, WRITE)?;
        rustix::io::pwrite(opened.backing.expect("given out directly"), &pattern(bytes, 1), 0).unwrap();
        bed.node.release(opened.handle);
        Ok(opened.attr.ino)
    }

    fn open(&self, bed: &Bed, ino: Ino, flags: OpenFlags) -> FsResult<()> {
        bed.node.open(&self.cx(), ino, flags).map(|opened| bed.node.release(opened.handle))
    }

    fn resize(&self, bed: &Bed, ino: Ino, size: u64) -> FsResult<Attr> {
        bed.node.setattr(&self.cx(), ino, &SetAttr { size: Some(size), ..SetAttr::default() })
    }
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.node.setattr(&cx(), Ino::ROOT, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    bed
}

fn limit(bed: &Bed, uid: Option<u32>, change: QuotaChange) {
    bed.call(Call::SetQuota { uid, change: Some(change) });
}

#[test]
fn who_holds_as_many_bytes_as_he_may_writes_no_more_until_he_has_made_room() {
    let (bed, ann, bob) = (bed(), User(1001), User(1002));
    limit(&bed, Some(1001), QuotaChange { bytes: Some(3 * MB as u64), ..QuotaChange::default() });
    let first = ann.put(&bed, "a", 2 * MB).unwrap();
    let second = ann.put(&bed, "b", 2 * MB).unwrap();
    bed.until("it is seen", |b| ann.open(b, first, WRITE) == Err(FsError::Quota));
    assert_eq!(ann.put(&bed, "c", 1), Err(FsError::Quota));
    assert_eq!(ann.resize(&bed, second, 9 * MB as u64), Err(FsError::Quota));
    assert!(ann.open(&bed, first, OpenFlags { write: false, ..WRITE }).is_ok(), "reading goes on");
    assert!(bob.put(&bed, "bob", 4 * MB).is_ok(), "others are not concerned");
    assert!(bed.node.open(&cx(), first, WRITE).map(|o| bed.node.release(o.handle)).is_ok(), "nor is root");
    assert_eq!(
        ann.resize(&bed, second, MB as u64 / 2).unwrap().size,
        MB as u64 / 2,
        "less is always possible"
    );
    bed.until("there is room again", |b| ann.open(b, first, WRITE).is_ok());
    assert!(ann.put(&bed, "c", 1).is_ok());
}

#[test]
fn copies_on_tape_and_numbers_of_files_are_limited_too_and_others_share_a_default() {
    let (bed, ann, bob) = (bed(), User(1001), User(1002));
    limit(&bed, None, QuotaChange { tape_bytes: Some(3 * MB as u64), ..QuotaChange::default() });
    limit(&bed, Some(1002), QuotaChange { files: Some(2), ..QuotaChange::default() });
    let file = ann.put(&bed, "a", 2 * MB).unwrap();
    assert!(bob.put(&bed, "b", 9 * MB).is_ok(), "he has limits of his own");
    bed.node.mkdir(&bob.cx(), Ino::ROOT, b"dir", 0o755).unwrap();
    bed.until("the second is the last", |b| {
        b.node.mkdir(&bob.cx(), Ino::ROOT, b"another", 0o755).map(drop) == Err(FsError::Quota)
    });
    assert!(ann.open(&bed, file, WRITE).is_ok(), "nothing is on tape");
    assert_eq!(bed.act(Call::Migrate(bed.one("/a"))).state, RequestState::Done);
    let held = |owner, class: Option<&str>| {
        let Reply::Holdings(held) = bed.call(Call::Holdings { owner, class: class.map(ClassName::from) })
        else {
            panic!("no holdings")
        };
        held.iter().map(|h| (h.pool.clone().unwrap().0, h.files, h.bytes)).collect::<Vec<_>>()
    };
    let both = [("primary".to_owned(), 1, 2 * MB as u64), ("second".to_owned(), 1, 2 * MB as u64)];
    let sorted = |mut held: Vec<(String, u64, u64)>| {
        held.sort();
        held
    };
    assert_eq!(sorted(held(Some(1001), None)), both, "one copy in each pool");
    assert_eq!(sorted(held(None, Some("default"))), both);
    assert!(held(Some(1002), None).is_empty() && held(Some(1001), Some("other")).is_empty());
    bed.until("two copies are 4 MiB", |b| ann.open(b, file, WRITE) == Err(FsError::Quota));
    let Reply::Quotas(views) = bed.call(Call::Quotas) else { panic!("no quotas") };
    let held: Vec<_> = views.iter().map(|v| (v.quota.uid, v.usage.as_ref().map(|u| u.tape_bytes))).collect();
    assert_eq!(held, [(Some(1001), Some(4 * MB as u64)), (Some(1002), Some(0)), (None, None)]);
    bed.call(Call::SetQuota { uid: None, change: None });
    assert!(ann.open(&bed, file, WRITE).is_ok());
    let gone = bed.try_call(Call::SetQuota { uid: Some(1001), change: None }).unwrap_err();
    assert_eq!(gone.class, ErrorClass::NotFound, "{gone:?}");
}
