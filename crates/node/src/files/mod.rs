//! Files: names and bytes of the namespace, residency, space.

#[cfg(test)]
mod anew;
mod back;
mod behind;
mod closing;
mod copied;
mod far;
mod fresh;
mod handed;
mod io;
mod leaving;
mod lengths;
mod making;
mod names;
mod objects;
mod open;
mod opening;
mod quota;
mod ranges;
mod reach;
mod recall;
mod returned;
mod space;
mod spares;
mod staging;
mod steady;
mod truncate;
mod vattr;

pub(crate) use back::{Again, GoesOn, Unstored};
pub(crate) use behind::{Behind, Writer};
pub(crate) use closing::Closings;
pub(crate) use copied::Copy;
pub(crate) use far::FarFile;
pub(crate) use fresh::{Fresh, Unfinished};
pub(crate) use leaving::Leaving;
pub(crate) use names::{past_damage, unknown};
pub use objects::ObjectPool;
pub use open::OpenTable;
pub(crate) use open::{Backing, Content, OpenInode};
pub use quota::Quotas;
pub(crate) use recall::{Joined, Wish};
pub(crate) use returned::Returning;
pub use space::Space;
pub use staging::{Outcome, Ready, Staging, StagingTable};
pub use steady::Steady;
pub use vattr::percent;
