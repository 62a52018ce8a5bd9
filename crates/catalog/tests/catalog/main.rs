//! One program for the tests of the catalogue over an engine in memory, so that what they share is compiled and linked once.

#[path = "../common/mod.rs"]
mod common;

mod adoption;
mod archive;
mod cluster;
mod damage;
mod keep;
mod layouts;
mod namespace;
mod nodes;
mod rebuilt;
mod sections;
mod target_pools;
mod targets;
mod volume_pages;
mod volume_states;
mod widen;
mod words;
