//! The simulator: the node's own services in a world whose time, robots, drives, users and faults come from a seed.
//!
//! [`world`] runs one seed and looks with checkers at what must always be true, [`many`] very many side by side; [`plan`] asks what a system of other
//! sizes would do. See `docs/design/0006-simulator.md`.
#![forbid(unsafe_code)]

pub mod dice;
pub mod many;
pub mod plan;
pub mod world;
