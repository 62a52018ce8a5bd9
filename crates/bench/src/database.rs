//! Durable creates in a catalogue whose engine is a database, beside the embedded one.

use crate::catalogue::{all_durable, mkdir};
use crate::place::{self, timed};
use crate::{Figure, Plan, Target};
use anyhow::Result;
use catalog::Catalog;
use kv::{Aside, DatabaseOptions, Engine, LmdbEngine, LmdbOptions, Role};
use std::sync::Arc;
use types::Time;

/// Clients at a time.
const CLIENTS: [u64; 3] = [1, 16, 64];
/// Room for the embedded engine (bytes).
const ROOM: u64 = 256 << 20;

/// Measures both engines in turn.
pub(crate) fn measure(plan: &Plan, address: &str, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let place = place::make(&plan.dir, ROOM)?;
    let embedded = LmdbEngine::open(&place.path().join("catalogue"), LmdbOptions::default())?;
    let sides =
        [("embedded", catalogue(Arc::new(embedded))?), (kind(address), catalogue(database(address)?)?)];
    let mut figures = Vec::new();
    for clients in CLIENTS {
        let each = (plan.amount(320, 6400) / clients).max(5);
        let mut pair = sides.each_ref().map(|(engine, _)| {
            let s = if clients == 1 { "" } else { "s" };
            Figure::new(format!("engine {engine}: durable creates, {clients} client{s}"), "/s", Target::None)
        });
        for round in 0..plan.rounds as u64 {
            told(&format!("engines: creates of {clients} clients, round {}", round + 1));
            for (figure, (_, c)) in pair.iter_mut().zip(&sides) {
                let dir = mkdir(c, &format!("of-{clients}-{round}"))?;
                c.sync()?;
                // Numbers of objects that no other round uses.
                let base = (clients * 1_000 + round) << 20;
                let (secs, ()) = timed(|| all_durable(c, dir, clients, each, base))?;
                figure.values.push((clients * each) as f64 / secs);
            }
        }
        figures.extend(pair);
    }
    Ok(figures)
}

/// What people call it.
pub(crate) fn kind(address: &str) -> &'static str {
    if address.starts_with("tikv:") { "TiKV" } else { "PostgreSQL" }
}

fn catalogue(engine: Arc<dyn Engine>) -> Result<Catalog> {
    Ok(Catalog::open(engine, Time::new(1_700_000_000, 0))?)
}

/// Never the tables of a node, and never mistaken for them.
fn database(address: &str) -> Result<Arc<dyn Engine>> {
    let why = "it is what `thermo bench --database` has left: name another database, or remove what it holds"
        .into();
    let fill = Some(Aside { role: Role::Copy, id: "bench".into(), why });
    let options = DatabaseOptions { take_over: false, fill, ..DatabaseOptions::new("bench") };
    let engine: Box<dyn Engine> = kv::open_database(address, options)?;
    Ok(Arc::from(engine))
}
