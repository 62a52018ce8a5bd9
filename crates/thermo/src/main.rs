//! `thermo`: the command line of Thermocline.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod context;
mod exit;
mod gateway;
mod out;
mod paths;
mod progress;
mod render;
mod serve;
mod units;

fn main() -> std::process::ExitCode {
    cli::run()
}
