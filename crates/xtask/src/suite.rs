//! `cargo xtask test`: every test of the workspace, built once with one set of features (so that no crate is compiled twice), its
//! programs beside each other. What fails is repeated alone: a test that passes then depends on the speed of this machine.

use crate::room::Room;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// The crate whose programs of tests start nodes and wait for them: these go first.
const STARTS_NODES: &str = "e2e";
/// Of these programs, those with so many tests that more of them run at a time.
const MANY_TESTS: &[&str] = &["e2e"];
/// Of these programs, the one that takes longest next to that: it goes before the others, so that nothing waits for it alone.
const WAITS_LONGEST: &str = "targets";
/// The program that takes longest among those of other crates: it goes first of them, so that nothing waits for it alone.
const LONGEST: &str = "node";
/// More failed tests than this are no accident: none is repeated.
const ACCIDENTS: usize = 4;

/// A program of tests.
#[derive(Debug, PartialEq)]
struct Program {
    /// Crate and target.
    name: String,
    /// What runs.
    executable: PathBuf,
    /// Directory of the crate, in which it runs.
    dir: PathBuf,
    /// What its tests do most of the time.
    pace: Pace,
}

/// What tests do most of the time, in the order in which their programs are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    /// They wait, and there are very many.
    Patient,
    /// They wait, and for longer than those that follow.
    WaitsLong,
    /// They wait: for nodes, drives, and time to pass.
    Waits,
    /// They compute.
    Works,
    /// They do both, and there are very many.
    WorksLong,
}

impl Pace {
    /// Tests of one program that run at a time.
    fn threads(self, cores: usize) -> usize {
        match self {
            Self::Patient => 2 * cores + 1,
            Self::WorksLong => 2 * cores,
            Self::WaitsLong | Self::Waits | Self::Works => cores,
        }
    }
}

/// What programs of tests are given.
struct Place {
    /// The program that the end-to-end tests start.
    thermo: PathBuf,
    /// Where to write; None: where all programs do.
    temporary: Option<PathBuf>,
}

/// What one program has done.
struct Run {
    said: String,
    passed: bool,
    seconds: f64,
}

/// Builds all, with these features (as cargo is given them), and runs it; gives one line per failure.
pub fn run(root: &Path, features: &[&str]) -> Result<Vec<String>> {
    let (mut programs, thermo) = build(root, features)?;
    let room = Room::new();
    if let Err(why) = &room {
        println!("tests write to the directory for temporary files, which takes longer: {why:#}");
    }
    let place = Place { thermo, temporary: room.as_ref().ok().map(|room| room.path().to_owned()) };
    programs.sort_by_key(|program| program.pace);
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    let waiting = Mutex::new(programs.iter().collect::<VecDeque<_>>());
    let failed = Mutex::new(Vec::new());
    let worker = |end: End| -> Result<()> {
        while let Some(program) = waiting.lock().ok().and_then(|mut programs| end.take(&mut programs)) {
            let run = execute(program, &place, program.pace.threads(cores), &[])?;
            print(program, &run)?;
            if let (false, Ok(mut failed)) = (run.passed, failed.lock()) {
                failed.push((program, failures(&run.said)));
            }
        }
        Ok(())
    };
    let (documented, ended): (_, Vec<Result<()>>) = thread::scope(|scope| {
        let worker = &worker;
        let documented = scope.spawn(|| documented(root, features));
        let threads: Vec<_> = ends(cores).map(|end| scope.spawn(move || worker(end))).collect();
        let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a panic"))));
        let ended = ended.collect();
        (documented.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a panic"))), ended)
    });
    ended.into_iter().collect::<Result<()>>()?;
    let failed = failed.into_inner().unwrap_or_default();
    let mut problems = repeat(&failed, &place)?;
    problems.extend(documented?);
    Ok(problems)
}

/// Runs the examples in the documentation, beside all else: rustdoc waits for one crate after the other.
fn documented(root: &Path, features: &[&str]) -> Result<Option<String>> {
    let run = crate::cargo(root)
        .args(["test", "--locked", "--workspace", "--doc"])
        .args(features)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if run.status.success() {
        return Ok(None);
    }
    Ok(Some(format!("tests in the documentation:\n{}", String::from_utf8_lossy(&run.stdout))))
}

/// From which end of the list of programs one is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// What waits most.
    Front,
    /// What computes most.
    Back,
}

impl End {
    fn take<T>(self, programs: &mut VecDeque<T>) -> Option<T> {
        match self {
            Self::Front => programs.pop_front(),
            Self::Back => programs.pop_back(),
        }
    }
}

/// Where those take their programs that run beside each other. One more than there are cores, because what waits leaves them idle;
/// and not only what waits is run first, nor only what computes last.
fn ends(cores: usize) -> impl Iterator<Item = End> {
    let working = cores.div_ceil(2);
    (0..=cores).map(move |n| if n < working { End::Back } else { End::Front })
}

/// All programs of tests, and the program that the end-to-end tests start.
fn build(root: &Path, features: &[&str]) -> Result<(Vec<Program>, PathBuf)> {
    let options = ["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let built = crate::cargo(root)
        .args(options)
        .args(features)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo could not be started")?;
    ensure!(built.status.success(), "the tests could not be built");
    let said = String::from_utf8_lossy(&built.stdout).into_owned();
    let messages: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let programs: Vec<Program> = messages.iter().filter_map(program).collect();
    ensure!(!programs.is_empty(), "cargo names no programs of tests");
    let is_thermo = |m: &&Value| m["target"]["name"] == "thermo" && m["profile"]["test"] == false;
    let thermo = messages.iter().filter(is_thermo).find_map(|m| m["executable"].as_str());
    let thermo = thermo.context("cargo has not built thermo")?;
    Ok((programs, thermo.into()))
}

/// What a message of cargo says of a program of tests.
fn program(message: &Value) -> Option<Program> {
    let executable = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let (package, target) = (dir.file_name()?.to_str()?, message["target"]["name"].as_str()?);
    let inside = message["target"]["kind"].as_array().is_some_and(|kinds| !kinds.iter().any(|k| k == "test"));
    let name = if inside { format!("{package} (in its sources)") } else { format!("{package} {target}") };
    let pace = match package == STARTS_NODES && !inside {
        true if MANY_TESTS.contains(&target) => Pace::Patient,
        true if target == WAITS_LONGEST => Pace::WaitsLong,
        true => Pace::Waits,
        false if (package, target, inside) == (LONGEST, LONGEST, false) => Pace::WorksLong,
        false => Pace::Works,
    };
    Some(Program { name, executable: executable.into(), dir: dir.into(), pace })
}

/// Runs a program, or only those of its tests that are named. What it says goes into a file beside it: a pipe would stay open as
/// long as anything that it has left behind, and a file can be looked at meanwhile.
fn execute(program: &Program, place: &Place, threads: usize, only: &[String]) -> Result<Run> {
    let path = program.executable.with_extension("said");
    let said = File::create(&path).with_context(|| path.display().to_string())?;
    let begun = Instant::now();
    let mut command = Command::new(&program.executable);
    command.env("RUST_TEST_THREADS", threads.to_string()).env("THERMO_PROGRAM", &place.thermo);
    command.envs(place.temporary.iter().map(|dir| ("TMPDIR", dir)));
    command.env("CARGO_MANIFEST_DIR", &program.dir).current_dir(&program.dir);
    if !only.is_empty() {
        command.arg("--exact").args(only);
    }
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let status =
        command.status().with_context(|| format!("{} could not be started", program.executable.display()))?;
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if !status.success() {
        text.push_str(&format!("{}: {status}\n", program.name));
    }
    Ok(Run { said: text, passed: status.success(), seconds: begun.elapsed().as_secs_f64() })
}

/// All at once, so that programs that end at the same time are not mixed.
fn print(program: &Program, run: &Run) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "==> {}: {:.1} s\n{}", program.name, run.seconds, run.said.trim_end())?;
    Ok(out.flush()?)
}

/// Names of the tests that failed, as a program lists them at its end.
fn failures(said: &str) -> Vec<String> {
    let list = said.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Repeats what failed, nothing beside it. A program that ended without a list of its failures is not repeated.
fn repeat(failed: &[(&Program, Vec<String>)], place: &Place) -> Result<Vec<String>> {
    let number: usize = failed.iter().map(|(_, tests)| tests.len()).sum();
    let unclear = failed.iter().any(|(_, tests)| tests.is_empty());
    let mut problems = Vec::new();
    for (program, tests) in failed {
        let what = format!("{}: {}", program.name, tests.join(", "));
        if unclear || number > ACCIDENTS {
            problems.push(what);
            continue;
        }
        println!("==> once more: {what}");
        let run = execute(program, place, 1, tests)?;
        print(program, &run)?;
        // Named in the summary, because it has to be mended, but it does not refuse the change.
        if run.passed {
            println!("FLAKY {what}: failed once, passed when repeated; see above, it has to be mended");
        } else {
            problems.push(what);
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_are_those_that_cargo_names() {
        let message = |package: &str, kind: &str, name: &str, test: bool| {
            json!({"manifest_path": format!("/x/crates/{package}/Cargo.toml"), "executable": "/t/p", "profile": {"test": test},
                "target": {"name": name, "kind": [kind]}})
        };
        let of =
            |package, kind, target| program(&message(package, kind, target, true)).map(|p| (p.name, p.pace));
        let name = |kind, target| of("e2e", kind, target);
        assert_eq!(name("test", "e2e"), Some(("e2e e2e".to_owned(), Pace::Patient)));
        assert_eq!(name("test", "targets"), Some(("e2e targets".to_owned(), Pace::WaitsLong)));
        assert_eq!(name("test", "room"), Some(("e2e room".to_owned(), Pace::Waits)));
        assert_eq!(name("lib", "e2e"), Some(("e2e (in its sources)".to_owned(), Pace::Works)));
        assert_eq!(of("node", "test", "node"), Some(("node node".to_owned(), Pace::WorksLong)));
        assert_eq!(of("node", "lib", "node"), Some(("node (in its sources)".to_owned(), Pace::Works)));
        assert_eq!(program(&message("thermo", "bin", "thermo", false)), None);
        assert_eq!(program(&json!({"reason": "build-finished", "success": true})), None);
    }

    #[test]
    fn what_waits_and_what_computes_run_beside_each_other() {
        let begun = |cores| {
            let mut programs =
                VecDeque::from(["waits", "waits too", "waits as well", "computes", "computes too"]);
            ends(cores).filter_map(|end| end.take(&mut programs)).collect::<Vec<_>>()
        };
        assert_eq!(begun(1), ["computes too", "waits"]);
        assert_eq!(begun(2), ["computes too", "waits", "waits too"]);
        assert_eq!(begun(4), ["computes too", "computes", "waits", "waits too", "waits as well"]);
    }

    #[test]
    fn failures_are_read_from_the_list_at_the_end() {
        let said = "running 3 tests\n\nfailures:\n\n---- a::one stdout ----\nfailures:\n    no name\n\n\nfailures:\n    \
                    a::one\n    two\n\ntest result: FAILED. 1 passed\n    not this\n";
        assert_eq!(failures(said), ["a::one", "two"]);
        assert_eq!(failures("killed in the middle\n"), Vec::<String>::new());
    }

    /// A program of tests whose only test `fails` fails as often as `times` says.
    fn sham(dir: &Path, script: &str) -> Program {
        let executable = dir.join("program");
        std::fs::write(&executable, format!("#!/bin/sh\n{script}")).unwrap();
        let done = Command::new("chmod").arg("+x").arg(&executable).status().unwrap();
        assert!(done.success());
        Program { name: "sham".to_owned(), executable, dir: dir.to_owned(), pace: Pace::Works }
    }

    #[test]
    fn only_what_fails_again_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { thermo: "thermo".into(), temporary: None };
        let once = "echo ran \"$@\" >>ran; [ -e failed ] && exit 0; touch failed; printf '\\nfailures:\\n    one\\n'; exit 101";
        let program = sham(dir.path(), once);
        let run = execute(&program, &place, 1, &[]).unwrap();
        assert!(!run.passed && failures(&run.said) == ["one"], "{}", run.said);
        let one = vec!["one".to_owned()];
        assert_eq!(repeat(&[(&program, one.clone())], &place).unwrap(), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "ran\nran --exact one\n");
        let always = sham(dir.path(), "exit 101");
        assert_eq!(repeat(&[(&always, one.clone())], &place).unwrap(), ["sham: one"]);
        // Too many, or a program that says nothing: not repeated, though it would pass.
        let many = vec!["one".to_owned(); ACCIDENTS + 1];
        assert_eq!(repeat(&[(&program, many)], &place).unwrap().len(), 1);
        assert_eq!(repeat(&[(&program, one), (&program, Vec::new())], &place).unwrap().len(), 2);
    }
}
