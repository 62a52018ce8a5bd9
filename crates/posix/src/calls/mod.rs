//! The calls that scripts can make, by name.

mod data;
mod listing;
mod meta;
mod names;
mod other;
mod xattr;

use crate::world::{Outcome, World};

type Words<'w> = &'w [Vec<u8>];
type Call = fn(&mut World<'_>, Words<'_>) -> Outcome;

/// Every call: name, number of arguments (at least), what it does.
const CALLS: &[(&str, usize, Call)] = &[
    ("create", 2, names::create),
    ("mkdir", 2, names::mkdir),
    ("rmdir", 1, names::rmdir),
    ("mknod", 3, names::mknod),
    ("mkfifo", 2, names::mkfifo),
    ("link", 2, names::link),
    ("linkat", 3, names::linkat),
    ("symlink", 2, names::symlink),
    ("readlink", 1, names::readlink),
    ("unlink", 1, names::unlink),
    ("rename", 2, names::rename),
    ("rename2", 3, names::rename2),
    ("ls", 1, names::ls),
    ("bind", 1, names::bind),
    ("connect", 1, names::connect),
    ("open", 3, data::open),
    ("close", 1, data::close),
    ("put", 2, data::put),
    ("cat", 1, data::cat),
    ("append", 2, data::append),
    ("read", 2, data::read),
    ("pread", 3, data::pread),
    ("write", 2, data::write),
    ("pwrite", 3, data::pwrite),
    ("seek", 3, data::seek),
    ("truncate", 2, data::truncate),
    ("ftruncate", 2, data::ftruncate),
    ("fallocate", 4, data::fallocate),
    ("copy", 5, data::copy),
    ("fsync", 1, data::fsync),
    ("fdatasync", 1, data::fdatasync),
    ("stat", 2, meta::stat),
    ("lstat", 2, meta::lstat),
    ("same", 2, meta::same),
    ("chmod", 2, meta::chmod),
    ("fchmod", 2, meta::fchmod),
    ("chown", 3, meta::chown),
    ("lchown", 3, meta::lchown),
    ("fchown", 3, meta::fchown),
    ("utimens", 3, meta::utimens),
    ("lutimens", 3, meta::lutimens),
    ("futimens", 3, meta::futimens),
    ("access", 2, meta::access),
    ("eaccess", 2, meta::eaccess),
    ("statvfs", 2, meta::statvfs),
    ("mark", 1, meta::mark),
    ("seen", 1, meta::seen),
    ("setxattr", 3, xattr::set),
    ("lsetxattr", 3, xattr::lset),
    ("fsetxattr", 3, xattr::fset),
    ("getxattr", 3, xattr::get),
    ("lgetxattr", 3, xattr::lget),
    ("listxattr", 2, xattr::list),
    ("removexattr", 2, xattr::remove),
    ("lremovexattr", 2, xattr::lremove),
    ("churn", 1, listing::churn),
    ("rewind", 1, listing::rewind),
    ("exec", 1, other::exec),
    ("cd", 1, other::cd),
    ("umask", 1, other::umask),
    ("mount", 1, other::mount),
    ("mountro", 1, other::mount_read_only),
    ("umount", 1, other::unmount),
    ("offline", 1, other::offline),
    ("tree", 1, other::tree),
    ("repeat", 3, other::repeat),
];

/// Makes one call. Panics if the script is wrong.
pub fn call(world: &mut World<'_>, words: Words<'_>) -> Outcome {
    let name = words.first().map(|w| crate::world::text(w)).unwrap_or_default();
    let found = CALLS.iter().find(|(known, _, _)| *known == name);
    let (_, arguments, call) = found.unwrap_or_else(|| panic!("no call named {name}"));
    assert!(words.len() > *arguments, "{name} takes {arguments} arguments");
    call(world, &words[1..])
}

/// Success without an answer.
fn done(result: rustix::io::Result<()>) -> Outcome {
    result.map(|()| "ok".to_owned())
}
