//! Programs that can still write to a file after they closed it: a mapping outlives its descriptor. Here a descriptor of the
//! object plays its part; the kernel sees no difference.

use crate::support::{Bed, cx};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::Call;

#[test]
fn what_a_mapping_writes_after_close_is_never_lost() {
    let bed = Bed::new();
    let flags = OpenFlags { write: true, read: true, ..OpenFlags::default() };
    let opened = bed.node.create(&cx(), Ino::ROOT, b"mapped", 0o644, flags).unwrap();
    let (ino, mapping) = (opened.attr.ino, opened.backing.unwrap());
    rustix::io::pwrite(&mapping, b"before", 0).unwrap();
    bed.node.release(opened.handle);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);

    let refused = bed.act(Call::Purge(bed.all()));
    assert_eq!(refused.state, RequestState::Failed);
    assert!(refused.message.contains("mapped for writing"), "{refused:?}");

    rustix::io::pwrite(&mapping, b"after!", 0).unwrap();
    drop(mapping);
    let refused = bed.act(Call::Purge(bed.all()));
    assert!(refused.message.contains("content changed"), "{refused:?}");

    bed.migrate_and_purge();
    assert_eq!(bed.read(ino), b"after!");
}
