//! Where a mount differs from ext4 on purpose: each difference is stated in `docs/SEMANTICS.md`, "The mount".

use crate::suite::Exception;

/// Of the gateway, whatever is behind it.
pub const MOUNT: &[Exception] = &[
    Exception {
        case: "names: a directory that was removed",
        call: "stat @D nlink",
        got: "ENOENT",
        why: "attributes of a removed directory are not kept for those who have it open",
    },
    Exception {
        case: "rename: what is replaced lives on while open",
        call: "stat @Y nlink",
        got: "ENOENT",
        why: "attributes of a replaced directory are not kept for those who have it open",
    },
    Exception {
        case: "rename: whiteouts [root]",
        call: "rename2 a b whiteout",
        got: "EINVAL",
        why: "whiteouts are for upper layers of overlayfs",
    },
    Exception {
        case: "attributes: writing clears set-id bits [root]",
        call: "stat f mode",
        got: "2767",
        why: "FUSE keeps set-group-id on a file that its group may not execute, where it gives no rights",
    },
    Exception {
        case: "data: fallocate that moves bytes",
        call: "fallocate A collapse 4096 4096",
        got: "EOPNOTSUPP",
        why: "the kernel's FUSE does not pass it on",
    },
    Exception {
        case: "data: fallocate that moves bytes",
        call: "fallocate A insert 4096 4096",
        got: "EOPNOTSUPP",
        why: "the kernel's FUSE does not pass it on",
    },
    Exception {
        case: "data: large offsets",
        call: "seek A set 9223372036854775807",
        got: "9223372036854775807",
        why: "the longest file is longer than on ext4",
    },
    Exception {
        case: "times: owners [root]",
        call: "seen f",
        got: "f:",
        why: "a chown(2) that names neither user nor group changes nothing, not even the change time",
    },
    Exception {
        case: "xattr: access control lists",
        call: "getxattr f system.posix_acl_access 100",
        got: "EOPNOTSUPP",
        why: "stored but not enforced they would deceive",
    },
    Exception {
        case: "xattr: access control lists",
        call: "setxattr f system.posix_acl_access \"\\x02\\x00\\x00\\x00\\x01\\x00\\x06\\x00\\xff\\xff\\xff\\xff\\x04\\x00\\x04\\x00\\xff\\xff\\xff\\xff\\x20\\x00\\x04\\x00\\xff\\xff\\xff\\xff\"",
        got: "EOPNOTSUPP",
        why: "stored but not enforced they would deceive",
    },
    Exception {
        case: "xattr: access control lists",
        call: "getxattr d system.posix_acl_default 100",
        got: "EOPNOTSUPP",
        why: "stored but not enforced they would deceive",
    },
];

/// Of a mount on another host than that of the node that holds the namespace, besides: the kernel remembers nothing there, and asks each time.
pub const HOST: &[Exception] = &[
    Exception {
        case: "names: a directory that was removed",
        call: "stat .. type",
        got: "ENOENT",
        why: "attributes of a removed directory are not kept for those who are in it",
    },
    Exception {
        case: "xattr: capabilities go when content changes [root]",
        call: "getxattr f security.capability 0",
        got: "20",
        why: "capabilities of programs stay when somebody writes there; the mount does not honour them (nosuid)",
    },
];

/// Of the node besides.
pub const NODE: &[Exception] = &[
    Exception {
        case: "times: access times",
        call: "seen d",
        got: "d:",
        why: "access times of directories are not kept",
    },
    Exception {
        case: "times: access times",
        call: "seen s",
        got: "s:",
        why: "access times of symlinks are not kept",
    },
];
