//! One file over many movers: where its bytes lie is computed from its layout (`layout`), and each mover is asked over its channel
//! (`data`), all of them at once.
//!
//! * Striping: a request is cut into what each column gets in one piece; the columns work in parallel.
//! * Mirrors: writes reach every copy before they count; a read takes the copy that its place in the file says, so that many readers use all of
//!   them, and another one if that mover does not answer or its bytes are damaged.
//! * Coded components: whole rows go to their columns at once with parity, everything else into a log that is folded later; what a lost
//!   column had is computed from the others ([design](../../../docs/design/0011-coded.md)).
//! * A column that fails is left out, if the metadata service says so ([`Authority`]), and what lies there is never read before it is rebuilt.
//!
//! The length of the file follows from the lengths of its objects, so nobody has to be told of a write.
#![forbid(unsafe_code)]

mod coded;
mod compare;
mod error;
mod file;
mod machines;
mod opened;
mod read;
mod relocate;
mod repair;
mod runs;
mod turns;
mod ways;
mod write;

pub use coded::{Extents, Room, record};
pub use compare::Compared;
pub use error::{Result, StripeError};
pub use file::Striped;
pub use machines::Machines;
pub use opened::{Authority, Column, Columns};
pub use repair::{Mended, Progress, STEP};
pub use ways::{Renewal, Ways, generation_of, layout_of, near, redundancy, socket};
