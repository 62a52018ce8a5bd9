//! What the tests share: a virtual library with wires that can be cut, and a catalogue of one volume.
#![allow(dead_code)]

pub mod catalogue;
pub mod rig;
pub mod sections;

use tape::TapeError;
use tape::policy::Then;

/// What the table of errors says of it: its code, and what follows.
pub fn row(error: &TapeError) -> (&'static str, Then) {
    (error.code(), error.then())
}
