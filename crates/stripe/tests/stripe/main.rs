//! One program for all tests of files over several movers, so that what they share is compiled and linked once.

mod common;
mod compared;

mod coded;
mod degraded;
mod gathered;
mod grown;
mod quiet;
mod relocated;
mod striped;
mod together;
