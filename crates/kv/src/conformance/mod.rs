//! What every engine must do. A check panics with the reason when an engine does not.

use std::ops::ControlFlow;

use crate::{Durability, Engine, KvError, Reader, Result, read, write};

mod basics;
mod scans;
mod threads;

/// Runs every check, each on a new empty engine from `make`.
///
/// # Panics
/// When the engine breaks a promise of the trait.
pub fn check_engine(make: &dyn Fn() -> Box<dyn Engine>) {
    for check in basics::ALL.iter().chain(scans::ALL).chain(threads::ALL) {
        check(&*make());
    }
}

type Check = fn(&dyn Engine);
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn put(engine: &dyn Engine, durability: Durability, key: &[u8], value: &[u8]) {
    write::<_, KvError>(engine, durability, |w| w.put(key, value)).expect("put");
}

fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    read::<_, KvError>(engine, |r| r.get(key)).expect("get")
}

/// All pairs of a range, ascending.
fn up(r: &(impl Reader + ?Sized), from: &[u8], to: &[u8]) -> Result<Pairs> {
    let mut out = Pairs::new();
    r.scan(from, to, &mut |k, v| {
        out.push((k.to_vec(), v.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(out)
}

/// All pairs of a range, descending.
fn down(r: &(impl Reader + ?Sized), from: &[u8], to: &[u8]) -> Result<Pairs> {
    let mut out = Pairs::new();
    r.scan_back(from, to, &mut |k, v| {
        out.push((k.to_vec(), v.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(out)
}
