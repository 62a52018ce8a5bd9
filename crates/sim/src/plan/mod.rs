//! "What if": a system of any size under a workload, for weeks to years, with the scheduler and the policy of the node.
//!
//! Deterministic: the same specification, trace and seed give the same report.

mod arrivals;
mod data;
mod draw;
mod figures;
mod jobs;
mod report;
mod spec;
mod ticks;
mod vary;
mod world;

pub use arrivals::{Line, Op, is_trace, length_days, parse as parse_trace};
pub use draw::{html, picture};
pub use figures::{Figures, Sample, Waits};
pub use report::{Row, rows, summary, table};
pub use spec::{Library, Spec};
pub use vary::keys as variable;

use crate::dice::Dice;
use arrivals::Stream;

/// What was planned and what came of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Which variant, for people: `drives=8`; empty if there is one only.
    pub name: String,
    /// What was simulated.
    pub spec: Spec,
    /// What happened.
    pub figures: Figures,
}

/// Simulates one system. With a trace the users of the specification do what it says besides.
///
/// # Errors
/// The specification makes no sense.
pub fn run(name: &str, spec: &Spec, trace: &[Line]) -> Result<Planned, String> {
    spec.check()?;
    let mut dice = Dice::new(spec.seed);
    let mut streams = Stream::all(spec, &mut dice);
    let mut world = world::World::new(spec, dice)?;
    world.run(&mut streams, trace);
    Ok(Planned { name: name.to_owned(), spec: spec.clone(), figures: world.figures })
}
