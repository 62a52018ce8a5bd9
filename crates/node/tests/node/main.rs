//! One program for all tests of a node in one process, so that what they share is compiled and linked once. Nothing that belongs
//! to the whole process may be changed here; what starts other programs while an engine is open (`crash`, `full`) is apart.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod ahead;
mod alerts;
mod attached;
mod changes;
mod cleaning;
mod comeback;
mod door;
mod encrypted;
mod ends;
mod export;
mod families;
mod faults;
mod generations;
mod hardware;
mod keep;
mod libraries;
mod life;
mod lifecycle;
mod mapped;
mod parts;
mod policy;
mod progress;
mod quotas;
mod recall;
mod reload;
mod requests;
mod reserved;
mod restored;
mod sets;
mod shares;
mod shown;
mod space;
mod storm;
mod tier;
mod volumes;
mod worm;
