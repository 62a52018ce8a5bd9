//! One program for all tests of decisions, so that what they share is compiled and linked once.

mod world;

mod ahead;
mod fair;
mod forecast;
mod limits;
mod media;
mod order;
mod queue;
mod random;
mod rules;
mod shares;
