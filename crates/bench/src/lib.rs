//! What `thermo bench` measures: the mount against the file system below it, the catalogue in process, and tape against
//! what virtual drives and their mechanics allow. Every figure is printed next to its target; figures that depend on the
//! machine are ratios taken in the same run.
#![forbid(unsafe_code)]

mod bed;
mod catalogue;
mod figure;
mod memory;
mod mount;
mod place;
mod tape;

pub use figure::{Figure, Target, table};

use anyhow::Result;
use node::Node;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// Files through the mount against the directory beside it.
    Mount,
    /// The catalogue in process.
    Catalogue,
    /// The whole node with a large catalogue.
    Memory,
    /// Migration and recall with virtual drives.
    Tape,
}

/// A mount of a node; ends when dropped.
pub type Mounted = Box<dyn Send>;

/// Mounts a node at an empty directory, so that this room need not know of the mount gateway.
pub type MountFn<'a> = &'a dyn Fn(Arc<Node>, &Path) -> Result<Mounted>;

/// What to measure, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Groups.
    pub groups: Vec<Group>,
    /// Measures in a new directory in this one.
    pub dir: PathBuf,
    /// Values per figure.
    pub rounds: usize,
    /// Smaller amounts: minutes become seconds, values scatter more.
    pub quick: bool,
    /// Files of the catalogue whose memory is measured.
    pub files: u64,
}

impl Plan {
    /// One of two amounts.
    fn amount(&self, quick: u64, full: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

/// Measures. `told` hears what happens next.
///
/// # Errors
/// No space, or what an operation of the system under test said: a benchmark of something broken has no figures.
pub fn run(plan: &Plan, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for group in &plan.groups {
        figures.extend(match group {
            Group::Mount => mount::measure(plan, mount, told)?,
            Group::Catalogue => catalogue::measure(plan, told)?,
            Group::Memory => memory::measure(plan, told)?,
            Group::Tape => tape::measure(plan, told)?,
        });
    }
    Ok(figures)
}
