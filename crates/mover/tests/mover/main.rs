//! One program for tests of a mover in this process, so that what they share is compiled and linked once. Those that change
//! limits of the process or start others are apart.

#[path = "../common/mod.rs"]
mod common;

mod content;
mod held;
mod limited;
mod reading;
mod refusals;
mod site;
mod turns;
