//! The engine over TiKV, on a real placement driver and a store of the tests' own.
#![cfg(feature = "tikv")]

mod cluster;
#[path = "../common/model.rs"]
mod model;

mod crash;
mod engine;
