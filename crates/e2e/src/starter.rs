//! Starting a node anew while files of its cluster are open here.

use crate::Bed;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// Starts a node from a process that was there before: each program that this one starts closes what is open here, and tells the node of what was
/// written, which is dead then.
pub struct Starter(Child);

impl Starter {
    /// It waits.
    pub fn of(bed: &Bed) -> Self {
        let up = bed.command(["up"]);
        let mut starter = Command::new("sh");
        let script = "echo && read go && exec \"$0\" \"$@\" >/dev/null";
        starter.args(["-c", script]).arg(up.get_program()).args(up.get_args());
        starter.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut starter = starter.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has closed what is open here.
        starter.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Self(starter)
    }

    /// It starts the node.
    pub fn now(mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(self.0.wait().unwrap().success(), "the node does not start");
    }
}
