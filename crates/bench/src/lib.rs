//! What `thermo bench` measures: the mount against the file systems below it, the catalogue in process, and tape against
//! what virtual drives and their mechanics allow, the scheduler in simulated time. Every figure is printed next to its target; figures that depend on the
//! machine are ratios taken in the same run. Results are kept with all their rounds; tables and pictures are made from
//! them, never by hand.
#![deny(unsafe_code)]

mod bare;
mod bed;
mod catalogue;
mod cluster;
mod compare;
mod curve;
mod database;
mod figure;
/// The floor that mounts are compared with; also an example of the mount gateway, to be looked at by hand.
#[path = "../../fuse/examples/floor/empty.rs"]
mod floor;
mod image;
mod library;
mod machine;
mod memory;
mod metadata;
mod migrate;
mod mount;
mod movers;
mod peer;
mod place;
mod plot;
mod rebuild;
mod repack;
mod report;
mod results;
mod schedule;
mod shelf;
mod sides;
mod stripes;
mod tape;

pub use compare::{Base, Better, Comparison, Kind, Series, Side};
pub use curve::Curve;
pub use figure::{Figure, Target};
pub use machine::Machine;
pub use plot::pictures;
pub use report::{markdown, rewrite};
pub use results::{Measured, Results};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::api::FileApi;

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Reading and writing one large file.
    Data,
    /// Making small files.
    Create,
    /// Listing a large directory and looking at its files.
    List,
    /// The catalogue in process.
    Catalogue,
    /// The whole node with a large catalogue.
    Memory,
    /// Migration and recall with virtual drives.
    Tape,
    /// The scheduler in simulated time, and what it costs.
    Schedule,
    /// A half-dead cartridge is emptied.
    Repack,
    /// Both copies of files go to tape with more and more drives.
    Migrate,
    /// A node that knows nothing reads a full cartridge.
    Rebuild,
    /// Bytes of objects over the network.
    Movers,
    /// Files over more and more targets.
    Stripes,
    /// The same calls through GlusterFS.
    Peer,
    /// The native library and the preload library.
    Library,
    /// Names over the network.
    Metadata,
}

impl Group {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 15] = [
        Self::Data,
        Self::Create,
        Self::List,
        Self::Catalogue,
        Self::Memory,
        Self::Tape,
        Self::Schedule,
        Self::Repack,
        Self::Migrate,
        Self::Rebuild,
        Self::Movers,
        Self::Stripes,
        Self::Peer,
        Self::Library,
        Self::Metadata,
    ];

    /// Its name in files and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Create => "create",
            Self::List => "list",
            Self::Catalogue => "catalogue",
            Self::Memory => "memory",
            Self::Tape => "tape",
            Self::Schedule => "schedule",
            Self::Repack => "repack",
            Self::Migrate => "migrate",
            Self::Rebuild => "rebuild",
            Self::Movers => "movers",
            Self::Stripes => "stripes",
            Self::Peer => "peer",
            Self::Library => "library",
            Self::Metadata => "metadata",
        }
    }
}

/// A mount; ends when dropped.
pub type Mounted = Box<dyn Send>;

/// Mounts a file interface at an empty directory, with passthrough where there is any or without, so that this room need not know of the
/// mount gateway.
pub type MountFn<'a> = &'a dyn Fn(Arc<dyn FileApi>, &Path, bool) -> Result<Mounted>;

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
    /// Addresses of empty databases, to be measured as the catalogue's engine.
    pub databases: Vec<String>,
    /// What is to be kept with the results, as the revision that was built.
    pub remark: String,
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
pub fn run(plan: &Plan, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<Results> {
    let mut results = Results::begin(plan)?;
    for &group in &plan.groups {
        let mut curves = Vec::new();
        let (figures, comparisons) = match group {
            Group::Data | Group::Create | Group::List => {
                (Vec::new(), mount::measure(plan, group, mount, told)?)
            }
            Group::Catalogue => (catalogue::measure(plan, told)?, Vec::new()),
            Group::Memory => (memory::measure(plan, told)?, Vec::new()),
            Group::Tape => (tape::measure(plan, told)?, Vec::new()),
            Group::Schedule => (schedule::measure(plan, told)?, Vec::new()),
            Group::Repack => (repack::measure(plan, told)?, Vec::new()),
            Group::Migrate => (migrate::measure(plan, told)?, Vec::new()),
            Group::Rebuild => (rebuild::measure(plan, told)?, Vec::new()),
            Group::Movers => (movers::measure(plan, told)?, Vec::new()),
            Group::Stripes => (stripes::measure(plan, told)?, Vec::new()),
            Group::Peer => (peer::measure(plan, told)?, Vec::new()),
            Group::Metadata => (metadata::measure(plan, told)?, Vec::new()),
            Group::Library => {
                let (figures, drawn) = library::measure(plan, mount, told)?;
                curves = drawn;
                (figures, Vec::new())
            }
        };
        results.groups.push(Measured { group, figures, comparisons, curves });
    }
    Ok(results)
}
