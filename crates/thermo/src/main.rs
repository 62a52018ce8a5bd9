//! Thermocline.
fn main() {}
