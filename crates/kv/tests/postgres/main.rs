//! The engine over PostgreSQL, on real servers of the tests' own.

#[path = "../common/model.rs"]
mod model;
mod server;

mod crash;
mod cuts;
mod engine;
mod tls;
mod turns;
