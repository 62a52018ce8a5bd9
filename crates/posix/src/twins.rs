//! Random calls on names by several users, made twice: on the tested file system and on one that is known. Outcomes and the
//! trees that they leave must be the same. What fails is made as short as possible.

use crate::random::Random;
use crate::script;
use crate::users::{USERS, is_root};
use crate::world::{Host, World};
use std::fmt::Write as _;
use std::path::Path;

/// A look at the whole tree after this many calls.
const LOOK: usize = 25;

/// Calls that are made one after another.
pub fn calls(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random::new(seed);
    let users = if is_root() { USERS } else { &USERS[..1] };
    let one = |n: usize| match n % LOOK {
        0 => "tree .".to_owned(),
        _ => format!("{}: {}", random.of(users).0, call(&mut random)),
    };
    (1..=count).map(one).collect()
}

fn path(random: &mut Random) -> String {
    let dirs = ["", "", "d/", "e/", "d/e/", "d/d/", "s/", "a/"];
    let names = ["a", "b", "d", "e", "s"];
    // rarely what may not be removed
    let name = match random.below(60) {
        0 => "..",
        1 => ".",
        n => names[n % names.len()],
    };
    format!("{}{name}", random.of(&dirs))
}

fn call(random: &mut Random) -> String {
    let (p, q) = (path(random), path(random));
    let mode =
        *random.of(&["777", "755", "700", "1777", "2775", "644", "666", "4755", "6777", "0", "333", "555"]);
    let (user, group) =
        (*random.of(&["alice", "bob", "carol", "-"]), *random.of(&["staff", "guests", "bob", "root"]));
    match random.below(32) {
        0..3 => format!("create {p} {mode}"),
        3..6 => format!("mkdir {p} 777"),
        6 => format!("mkdir {p} {mode}"),
        7..9 => format!("put {p} text{}", random.below(100)),
        9 => format!("append {p} more"),
        10 => format!("cat {p}"),
        11 => format!("symlink {q} {p}"),
        12..14 => format!("link {p} {q}"),
        14..18 => format!("rename {p} {q}"),
        18 => format!("rename2 {p} {q} noreplace"),
        19 => format!("rename2 {p} {q} exchange"),
        20..22 => format!("unlink {p}"),
        22 => format!("rmdir {p}"),
        23..25 => format!("chmod {p} {mode}"),
        25 => format!("chown {p} {user} {group}"),
        26 => format!("lchown {p} {user} {group}"),
        27 => format!("truncate {p} {}", random.below(20)),
        28 => format!("setxattr {p} user.{} v{}", random.of(&["x", "y"]), random.below(9)),
        29 => format!("mknod {p} socket {mode}"), // opening a fifo would wait
        30 => format!("access {p} {}", random.of(&["r", "w", "x", "rwx", "f"])),
        _ => {
            format!("utimens {p} {} {}", random.of(&["now", "5", "omit"]), random.of(&["now", "omit", "7.5"]))
        }
    }
}

fn outcomes(host: &dyn Host, dir: &Path, lines: &[String]) -> Vec<String> {
    std::fs::create_dir(dir).expect("a fresh directory");
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("open to all");
    let run = || {
        let mut world = World::enter(host, dir);
        let steps = lines.iter().map(|line| script::step(line, 0).expect("a call"));
        let outcomes = steps.map(|step| world.call(step.user, &step.words)).collect();
        rustix::process::chdir("/").expect("leave the directory");
        outcomes
    };
    std::thread::scope(|scope| scope.spawn(run).join()).expect("calls that are well formed")
}

/// Where two file systems part.
pub struct Twins<'a> {
    /// The tested one, and a directory on it.
    pub tested: (&'a dyn Host, &'a Path),
    /// The known one, and a directory on it.
    pub known: (&'a dyn Host, &'a Path),
    /// Directories made so far.
    pub runs: usize,
}

impl Twins<'_> {
    /// Makes the calls on both; the first that differs, with both outcomes.
    fn differ(&mut self, lines: &[String]) -> Option<(usize, String, String)> {
        self.runs += 1;
        let name = format!("run-{}", self.runs);
        let tested = outcomes(self.tested.0, &self.tested.1.join(&name), lines);
        let known = outcomes(self.known.0, &self.known.1.join(&name), lines);
        let at = (0..lines.len()).find(|at| tested[*at] != known[*at])?;
        Some((at, tested[at].clone(), known[at].clone()))
    }

    /// Makes the calls on both; panics with as few calls as show the difference.
    pub fn compare(&mut self, lines: &[String]) {
        let Some((at, ..)) = self.differ(lines) else { return };
        let mut lines = lines[..=at].to_vec();
        let mut piece = (lines.len() / 2).max(1);
        loop {
            let mut from = 0;
            while from < lines.len() {
                let mut fewer = lines.clone();
                fewer.drain(from..(from + piece).min(lines.len()));
                match self.differ(&fewer) {
                    Some((at, ..)) => lines = fewer[..=at].to_vec(),
                    None => from += piece,
                }
            }
            match piece {
                1 => break,
                _ => piece /= 2,
            }
        }
        let mut story = String::new();
        if let Some((_, tested, known)) = self.differ(&lines) {
            let _ = write!(story, "\ntested: {tested}\nknown:  {known}");
        }
        panic!("these calls have different outcomes:\n{}{story}", lines.join("\n"));
    }
}
