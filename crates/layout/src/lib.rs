//! Where the bytes of a file lie: pure arithmetic from an offset in the file to a column, which is one object on one target, and an
//! offset in that object. No block map and no IO; `docs/design/0007-parallel.md` says why.
//!
//! A [`Layout`] is a list of [`Component`]s, each for a range of the file (progressive layouts: a small head on one target, wider as the
//! file grows). A component cuts its range into *units* of equal size and deals them out to its columns:
//!
//! * [`Redundancy::None`]: unit `u` lies in column `u mod w`, at object offset `(u / w) * unit`.
//! * [`Redundancy::Mirror`]: the same over groups of columns; all columns of a group hold the same bytes.
//! * [`Redundancy::Coded`]: `k` units and their `m` units of parity make a stripe, which takes one unit of each of the `n = k + m` columns.
//!   Data unit `d` of stripe `s` lies in column `(s*k + d) mod n`, parity `p` in `(s*k + k + p) mod n`, all at object offset
//!   `s * unit` (the left-symmetric arrangement of RAID 5, generalised): successive units go round all columns, so reads use all of them.
#![forbid(unsafe_code)]

mod component;
mod place;
mod prng;
mod shape;

pub use component::{Component, Piece, Stripe};
pub use place::{Candidate, PlaceError, Spread, place};
pub use prng::SplitMix64;
pub use shape::{Layout, LayoutError, MAX_COLUMNS, MAX_UNIT_BYTES, MIN_UNIT_BYTES, Redundancy};
