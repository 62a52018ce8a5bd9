//! Starting a node anew while files of its cluster are open here.

use crate::Bed;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// Starts a node from a process that was there before: each program that this one starts closes what is open here, and tells the node of what was
/// written, which is dead then.
pub struct Starter(Child);

impl Starter {
    /// It waits.
    pub fn of(bed: &Bed) -> Self {
        Self::waits(bed, Command::new("sh"), "")
    }

    /// The same of a machine of its own in its start of this number, as far as its node can see. In another one it has lost what was not synced, for all that anybody knows. The node
    /// can mount nothing.
    pub fn of_a_machine(bed: &Bed, number: u8) -> Self {
        let start = bed.path("start-of-the-machine");
        fs::write(&start, format!("0123456{number}-89ab-4cde-8f01-23456789abcd\n")).unwrap();
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "--propagation", "private", "sh"]);
        Self::waits(
            bed,
            apart,
            &format!("mount --bind {} /proc/sys/kernel/random/boot_id && ", start.display()),
        )
    }

    fn waits(bed: &Bed, mut starter: Command, first: &str) -> Self {
        let up = bed.command(["up"]);
        let script = format!("echo && read go && {first} exec \"$0\" \"$@\" >/dev/null");
        starter.args(["-c", &script]).arg(up.get_program()).args(up.get_args());
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
