//! One program for the tests of volumes in virtual drives, so that what they share is compiled and linked once. Those that start
//! servers or measure are apart.

#[path = "../support/mod.rs"]
mod support;

mod append_only;
mod calibrating;
mod crash;
mod encrypted;
mod faults;
mod judge;
mod library;
mod order;
mod policy;
mod protection;
mod reserved;
mod scan;
mod sections;
mod tar;
mod volume;
mod worm;
