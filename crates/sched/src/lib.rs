//! Which drive does what next: a pure function from a view of drives, volumes, queues and time to a plan whose every
//! action says why. The node asks after each event; a simulator asks with simulated ones.
//!
//! Always true of a plan (property tests in `tests/`):
//! * a drive gets at most one action, and only when it is usable and not busy;
//! * a volume is in at most one drive, so it has at most one writer;
//! * recalls of one action go forward only, from the present position of the tape (elevator);
//! * a drive only gets volumes of its library, of media that it reads, or writes if they are to be written;
//! * one move of each robot at a time;
//! * whoever waits longer than [`Limits::starve_after`] comes before all who do not.
//!
//! Order of demands: starving, then writes while the disk is under pressure, then recalls (priority, then age), then
//! writes (oldest first), then maintenance. A demand may take a drive between two jobs from a mounted volume of a
//! lower order; among equals a mounted volume keeps its drive while it has work.
#![forbid(unsafe_code)]

mod account;
mod action;
mod ahead;
mod calibration;
mod copy;
mod demand;
mod eta;
mod fair;
mod fit;
mod heat;
mod mechanics;
mod order;
mod pass;
mod paths;
mod pick;
mod plan;
mod queue;
mod rest;
mod slots;
mod turns;
mod view;
mod volumes;
mod why;
mod wraps;

pub use account::{Account, AccountId, Accounts, Cap, Shares};
pub use action::{Action, Blocked, Job, Plan};
pub use calibration::{Calibration, Factors, Learnt, Span, Timed};
pub use copy::{CopyChoice, CopyPlace, CopyWhy, choose_copy};
pub use demand::{BACKGROUND, Want};
pub use eta::{Eta, Forecast, Quote, along, estimate, quote};
pub use fair::{FIRST, FairQueue, Holds, Limited, STINT, Waiting};
pub use fit::Reached;
pub use heat::Heat;
pub use mechanics::{Layout, Mechanics};
pub use order::{recall_order, way_s};
pub use pass::{Pass, Stands};
pub use plan::plan;
pub use queue::{RecallItem, RecallQueue, Share, first_part};
pub use view::{
    Backlog, Busy, Drive, DriveState, Limits, Loaded, Maintenance, MaintenanceKind, Place, SchedView, Tape,
    Work,
};
pub use why::{BlockedWhy, Why};
pub use wraps::{Facts, Wraps};
