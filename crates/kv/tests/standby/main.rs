//! A standby has what was acknowledged, whatever is stopped when.

mod bed;
mod crash;
mod follows;
mod waits;
