//! Crash trials of the real program: it is killed, or its disk loses power, at random moments under a random load, and
//! what is there afterwards is compared with what was promised. `docs/design/0004-crash-testing.md` says what that is.

pub mod content;
pub mod device;
pub mod dice;
pub mod disk;
pub mod history;
pub mod judge;
pub mod kill;
pub mod load;
mod mapped;
pub mod names;
pub mod operator;
pub mod power;
pub mod rig;
pub mod worker;
