//! Runs cases and reports.

use crate::script::{Case, Step, cases};
use crate::users::{User, is_root};
use crate::world::{Host, World};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Cases of any file system.
const GENERAL: &[(&str, &str)] = &[
    ("open", include_str!("../cases/open.txt")),
    ("names", include_str!("../cases/names.txt")),
    ("rename", include_str!("../cases/rename.txt")),
    ("attributes", include_str!("../cases/attributes.txt")),
    ("permissions", include_str!("../cases/permissions.txt")),
    ("data", include_str!("../cases/data.txt")),
    ("times", include_str!("../cases/times.txt")),
    ("xattr", include_str!("../cases/xattr.txt")),
    ("limits", include_str!("../cases/limits.txt")),
];
/// Cases with files whose content is not on disk.
const OFFLINE: &[(&str, &str)] = &[("offline", include_str!("../cases/offline.txt"))];

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything that needs no tape.
    General,
    /// Files that are offline; elsewhere they are ordinary files.
    Offline,
}

/// A call that did not do what was expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Title of the case.
    pub case: String,
    /// Line in its file.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What came of it.
    pub got: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {}): {}\n    got {}", self.case, self.line, self.text, self.got)
    }
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls whose outcome was compared.
    pub assertions: usize,
    /// Cases that were run.
    pub cases: usize,
    /// Cases left out because they need several users.
    pub left_out: usize,
    /// What was not as expected.
    pub failures: Vec<Failure>,
}

/// A difference that is meant: a call in the given case whose outcome differs, and why.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Title of the case.
    pub case: &'static str,
    /// The call, as written before `=>`.
    pub call: &'static str,
    /// What comes of it here.
    pub got: &'static str,
    /// Why that is right.
    pub why: &'static str,
}

/// Runs all cases of `part` in `dir`, each in a directory and thread of its own.
pub fn run(part: Part, dir: &Path, host: &dyn Host) -> Report {
    let files = match part {
        Part::General => GENERAL,
        Part::Offline => OFFLINE,
    };
    let mut report = Report::default();
    let only = std::env::var("POSIX_CASE").unwrap_or_default();
    for (number, case) in files.iter().flat_map(|(name, text)| cases(name, text)).enumerate() {
        if !case.name.contains(&only) {
            continue;
        }
        if !is_root() && needs_root(&case) {
            report.left_out += 1;
            continue;
        }
        let own = dir.join(format!("case-{number}"));
        std::fs::create_dir(&own).expect("a directory for the case");
        std::fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).expect("open to everybody");
        let started = std::time::Instant::now();
        let failures = std::thread::scope(|scope| {
            let case = &case;
            scope.spawn(move || run_case(case, &own, host)).join()
        });
        let failures =
            failures.unwrap_or_else(|_| panic!("this case is not written correctly: {}", case.name));
        if started.elapsed().as_secs() > 0 {
            println!("{} took {:.1} s", case.name, started.elapsed().as_secs_f64());
        }
        report.assertions += case.steps.len();
        report.cases += 1;
        report.failures.extend(failures);
    }
    report
}

fn needs_root(case: &Case) -> bool {
    case.name.ends_with("[root]") || case.steps.iter().any(|s| s.user != User::Root)
}

fn run_case(case: &Case, dir: &Path, host: &dyn Host) -> Vec<Failure> {
    let mut world = World::enter(host, dir);
    let mut failures = Vec::new();
    for step in &case.steps {
        let got = world.call(step.user, &step.words);
        if !as_wanted(step, &got) {
            let (case, line, text) = (case.name.clone(), step.line, step.text.clone());
            failures.push(Failure { case, line, text, got });
        }
    }
    rustix::process::chdir("/").expect("leave the directory of the case");
    failures
}

fn as_wanted(step: &Step, got: &str) -> bool {
    match &step.want {
        Some(want) => want == got,
        None => !is_error(got),
    }
}

fn is_error(outcome: &str) -> bool {
    outcome.starts_with("errno ")
        || (outcome.starts_with('E') && outcome.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()))
}

impl Report {
    /// Panics unless the failures are exactly those that are excepted.
    pub fn check(&self, what: &str, exceptions: &[Exception]) {
        let call = |f: &Failure| f.text.split(" => ").next().unwrap_or_default().to_owned();
        let excepts = |e: &&Exception, f: &&Failure| e.case == f.case && e.call == call(f) && e.got == f.got;
        let unexpected: Vec<String> = self
            .failures
            .iter()
            .filter(|f| !exceptions.iter().any(|e| excepts(&e, f)))
            .map(Failure::to_string)
            .collect();
        println!(
            "{what}: {} assertions in {} cases, {} differences of which {} are meant; {} cases left out",
            self.assertions,
            self.cases,
            self.failures.len(),
            self.failures.len() - unexpected.len(),
            self.left_out
        );
        if self.left_out > 0 {
            println!("LEFT OUT: cases with several users, devices or mounts need root");
        }
        assert!(unexpected.is_empty(), "{what}: {} surprises\n{}", unexpected.len(), unexpected.join("\n"));
        let partial = self.left_out > 0 || std::env::var_os("POSIX_CASE").is_some();
        let stale: Vec<&Exception> =
            exceptions.iter().filter(|e| !self.failures.iter().any(|f| excepts(e, &f))).collect();
        assert!(partial || stale.is_empty(), "{what}: these differences are no more: {stale:#?}");
    }
}
