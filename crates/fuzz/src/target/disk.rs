//! A disk target as somebody else left it: its marker file, and names among its objects.

use super::bench::scratch;
use crate::input::{Input, piece};
use disk::{DiskTarget, Found};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let dir = scratch();
    if input.u8() & 1 == 1 {
        std::fs::write(dir.path().join("target"), input.piece()).expect("the marker");
    }
    let Ok(target) = DiskTarget::open(dir.path()) else { return };
    let fan_out = format!("{:02x}", input.u8());
    let raw: Vec<u8> = input.piece().iter().copied().filter(|b| !matches!(b, 0 | b'/')).collect();
    let name = OsStr::from_bytes(&raw);
    let place = dir.path().join("objects").join(&fan_out);
    if std::fs::write(place.join(name), b"x").is_err() {
        return;
    }
    let mut all = Vec::new();
    let listed = target.list(&mut |found| {
        all.push(found);
        ControlFlow::Continue(())
    });
    listed.expect("the directories are there");
    // an object is a name that this target would give it, in the place where it would look for it
    let ours = name
        .to_str()
        .and_then(|n| u64::from_str_radix(n, 16).ok())
        .filter(|id| format!("{id:016x}").as_bytes() == raw && format!("{:02x}", id >> 8 & 0xff) == fan_out);
    match ours {
        Some(id) => {
            assert_eq!(all, [Found::Object(types::ObjectId(id))]);
            assert!(target.exists(types::ObjectId(id)).expect("it can be looked for"));
        }
        None => assert_eq!(all, [Found::Stray(place.join(name))]),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let marker = b"thermocline disk target\nformat 1\nuuid 30a91a08-daae-48d1-ae75-69804e61d2ea\n";
    let names: [&[u8]; 4] =
        [b"0000000000000102", b"0000000000000a02", b"0000000000000A02", b"+00000000000102"];
    let with = |name: &[u8]| [vec![1], piece(marker), vec![name[13] & 15], piece(name)].concat();
    names.iter().map(|name| with(name)).chain([vec![0, 0], [vec![1], piece(b"format 2")].concat()]).collect()
}
