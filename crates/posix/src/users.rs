//! Who makes a call: threads take over users and groups for themselves, as the kernel allows (setresuid(2) as a system call
//! concerns one thread), so no process of another user is needed.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// The one who runs the tests; all privileges if that is root.
    Root,
    /// Group `alice`, also in `staff`.
    Alice,
    /// Group `bob`, also in `staff` and `guests`.
    Bob,
    /// Group `carol`, in no other.
    Carol,
}

/// Users by name, with their numbers.
pub const USERS: &[(&str, User, u32)] = &[
    ("root", User::Root, 0),
    ("alice", User::Alice, 61_001),
    ("bob", User::Bob, 61_002),
    ("carol", User::Carol, 61_003),
];
const STAFF: u32 = 62_001;
const GUESTS: u32 = 62_002;
/// Groups besides those of the users.
const GROUPS: &[(&str, u32)] = &[("staff", STAFF), ("guests", GUESTS)];

impl User {
    /// By name.
    pub fn named(name: &[u8]) -> Option<Self> {
        USERS.iter().find(|u| u.0.as_bytes() == name).map(|u| u.1)
    }

    /// Name.
    pub fn name(self) -> &'static str {
        USERS[self as usize].0
    }

    fn groups(self) -> &'static [u32] {
        match self {
            Self::Root | Self::Carol => &[],
            Self::Alice => &[STAFF],
            Self::Bob => &[GUESTS, STAFF],
        }
    }

    /// This thread acts as the user from now on; it keeps the right to become another one. (Saved ids stay root's: effective
    /// privileges go with the effective user, so the kernel treats the thread like any program of that user.)
    pub fn enter(self) {
        let root = (Uid::ROOT, Gid::ROOT);
        let number = USERS[self as usize].2;
        let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
        let groups: Vec<Gid> = self.groups().iter().map(|g| Gid::from_raw(*g)).collect();
        set_thread_res_uid(root.0, root.0, root.0).expect("back to root");
        set_thread_groups(&groups).expect("supplementary groups");
        set_thread_res_gid(gid, gid, root.1).expect("group");
        set_thread_res_uid(uid, uid, root.0).expect("user");
    }
}

/// Number of a user, or of a group if there is no such user.
pub fn number(name: &str) -> Option<u32> {
    let user = USERS.iter().find(|u| u.0 == name).map(|u| u.2);
    user.or_else(|| GROUPS.iter().find(|g| g.0 == name).map(|g| g.1)).or_else(|| name.parse().ok())
}

/// Name of a user or group number.
pub fn name(number: u32) -> String {
    let users = USERS.iter().map(|u| (u.0, u.2));
    let found = users.chain(GROUPS.iter().copied()).find(|(_, n)| *n == number);
    found.map_or_else(|| number.to_string(), |(name, _)| name.to_owned())
}

/// Whether tests can act as several users.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
