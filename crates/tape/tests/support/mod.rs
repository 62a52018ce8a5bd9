//! What the tests share: a virtual library with wires that can be cut, and a catalogue of one volume.
#![allow(dead_code)]

pub mod catalogue;
pub mod rig;
pub mod sections;
