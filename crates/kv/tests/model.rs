//! Random operations against an ordered map, on the engines of this machine, with flushes and reopening in between. A failure
//! prints the seed (`PROPTEST_RNG_SEED`) and the shrunk operations.

use std::time::Duration;

use kv::{Engine, LmdbEngine, LmdbOptions, MemoryEngine};
use proptest::prelude::*;

#[path = "common/model.rs"]
mod model;

use model::{op, run};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn memory_equals_the_model(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, Box::new(MemoryEngine::new()), &|engine| engine);
    }

    #[test]
    fn lmdb_equals_the_model(ops in prop::collection::vec(op(), 1..60), interval in 0..4u64) {
        let dir = tempfile::tempdir().unwrap();
        let open = || -> Box<dyn Engine> {
            let options = LmdbOptions { flush_interval: Duration::from_millis(interval), ..Default::default() };
            Box::new(LmdbEngine::open(dir.path(), options).unwrap())
        };
        run(&ops, open(), &|engine| {
            drop(engine);
            open()
        });
    }
}
