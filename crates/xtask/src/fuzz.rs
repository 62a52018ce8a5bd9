//! `cargo xtask fuzz`: the targets of `crates/fuzz` under libFuzzer, with the toolchain at hand (stable is enough).

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// Seconds in all when none are given.
const SECONDS: u32 = 60;
/// Size of all corpora together that is worth keeping in the repository (bytes).
const CORPUS_BYTES: u64 = 2 << 20;

/// What to do.
#[derive(Debug, Default, PartialEq)]
struct Order {
    /// One target; all without.
    target: Option<String>,
    /// Time for all targets together.
    seconds: Option<u32>,
    /// Fixed seed, so that equal code gives equal runs.
    seed: Option<u32>,
    /// Take what was found into the repository's corpus, as few inputs as reach the same code.
    merge: bool,
}

/// Gives one line per target that found something.
pub fn run(root: &Path, words: &[&str]) -> Result<Vec<String>> {
    let order = order(words)?;
    let program = build(root)?;
    let names = names(&program)?;
    let wanted: Vec<&String> =
        names.iter().filter(|name| order.target.as_ref().is_none_or(|t| t == *name)).collect();
    ensure!(!wanted.is_empty(), "no such target; there are: {}", names.join(", "));
    let each = (order.seconds.unwrap_or(SECONDS) / wanted.len() as u32).max(1);
    let one = |name: &String| -> Result<Option<String>> {
        let places = Places::new(root, name)?;
        let defect = search(&program, name, &places, each, order.seed)?;
        if order.merge {
            merge(&program, name, &places)?;
        }
        Ok(defect)
    };
    // As many at a time as there are processors.
    let waiting = Mutex::new(wanted.into_iter());
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    let some =
        || std::iter::from_fn(next).filter_map(|name| one(name).transpose()).collect::<Result<Vec<_>>>();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let found: Vec<Result<Vec<String>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        threads.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("a panic"))).collect()
    });
    let mut problems = Vec::new();
    for some in found {
        problems.extend(some?);
    }
    problems.extend(too_large(root)?);
    Ok(problems)
}

fn order(words: &[&str]) -> Result<Order> {
    let mut order = Order::default();
    let mut words = words.iter();
    let number = |word: Option<&&str>| word.and_then(|w| w.parse().ok()).context("a number must follow");
    while let Some(word) = words.next() {
        match *word {
            "--seconds" => order.seconds = Some(number(words.next()).context("--seconds")?),
            "--seed" => order.seed = Some(number(words.next()).context("--seed")?),
            "--merge" => order.merge = true,
            name if !name.starts_with('-') && order.target.is_none() => order.target = Some(name.to_owned()),
            other => bail!("{other}: usage: cargo xtask fuzz [TARGET] [--seconds N] [--seed N] [--merge]"),
        }
    }
    Ok(order)
}

/// Only what is our own is instrumented, by a wrapper of the compiler: all else is what the tests have been built with, but for
/// what the fuzzer asks of a library that they do not.
fn build(root: &Path) -> Result<PathBuf> {
    let status = crate::cargo(root)
        .args(["build", "--locked", "--quiet", "--workspace", "--bin", "fuzz", "--features", "fuzz/guided"])
        .env("RUSTC_WORKSPACE_WRAPPER", root.canonicalize()?.join("crates/fuzz/instrument"))
        .status()
        .context("cargo build could not be started")?;
    ensure!(status.success(), "the fuzzer could not be built (it needs a C++ compiler)");
    Ok(crate::target_directory(root)?.join("debug/fuzz"))
}

/// The program lists its targets when none is named.
fn names(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program).env_remove("FUZZ_TARGET").output().context("the fuzzer")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect())
}

/// Directories of one target outside of the repository.
struct Places {
    /// What runs on this machine have found.
    found: PathBuf,
    /// What the repository has.
    inputs: PathBuf,
    /// Inputs that show a defect.
    defects: PathBuf,
}

impl Places {
    fn new(root: &Path, name: &str) -> Result<Self> {
        let work = crate::target_directory(root)?.join("fuzz-work").join(name);
        let places =
            Self { found: work.join("found"), inputs: work.join("inputs"), defects: work.join("defects") };
        let _ = fs::remove_dir_all(&places.inputs);
        for directory in [&places.found, &places.inputs, &places.defects] {
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        fs::create_dir_all(root.join("crates/fuzz/corpus").join(name)).context("crates/fuzz/corpus")?;
        Ok(places)
    }
}

fn command(program: &Path, name: &str, places: &Places) -> Command {
    let mut command = Command::new(program);
    let defects = format!("-artifact_prefix={}/", places.defects.display());
    command
        .env("FUZZ_TARGET", name)
        .env("FUZZ_INPUTS", &places.inputs)
        .args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", &defects])
        .stdin(Stdio::null());
    command
}

fn search(
    program: &Path,
    name: &str,
    places: &Places,
    seconds: u32,
    seed: Option<u32>,
) -> Result<Option<String>> {
    let output = command(program, name, places)
        .arg(format!("-max_total_time={seconds}"))
        .args(seed.map(|seed| format!("-seed={seed}")))
        .args([&places.found, &places.inputs])
        .output()
        .context("the fuzzer could not be started")?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let stat = |what: &str| report.lines().rev().find_map(|line| line.strip_prefix(what)).map(str::trim);
    let runs = stat("stat::number_of_executed_units:").unwrap_or("?");
    let reached = report.lines().rev().find_map(|line| line.split("cov: ").nth(1)?.split(' ').next());
    println!("{name}: {runs} inputs in {seconds} s, {} edges reached", reached.unwrap_or("?"));
    if output.status.success() {
        return Ok(None);
    }
    eprintln!("{report}");
    let kept =
        report.lines().find_map(|line| line.split("Test unit written to ").nth(1)).unwrap_or("nowhere");
    let copy = format!("crates/fuzz/corpus/{name}/regression-WHAT");
    Ok(Some(format!(
        "{name}: a defect was found, see above; the input is in {kept}: copy it to {copy}, then fix it"
    )))
}

/// Replaces what the repository has by as few inputs as reach the same code; named regressions stay.
fn merge(program: &Path, name: &str, places: &Places) -> Result<()> {
    let few = places.found.with_file_name("few");
    let _ = fs::remove_dir_all(&few);
    fs::create_dir_all(&few).with_context(|| few.display().to_string())?;
    let mut merging = command(program, name, places);
    merging.args(["-set_cover_merge=1", "-use_counters=0"]).args([&few, &places.found, &places.inputs]);
    let mut keeping = Command::new(program);
    keeping.env("FUZZ_TARGET", name).env("FUZZ_KEEP", &few);
    for command in [&mut merging, &mut keeping] {
        let output = command.output().context("merging")?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn too_large(root: &Path) -> Result<Option<String>> {
    let mut bytes = 0;
    for target in fs::read_dir(root.join("crates/fuzz/corpus"))? {
        for input in fs::read_dir(target?.path())? {
            bytes += input?.metadata()?.len();
        }
    }
    let problem =
        format!("crates/fuzz/corpus: {bytes} bytes, {CORPUS_BYTES} are allowed: leave large inputs out");
    Ok((bytes > CORPUS_BYTES).then_some(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_or_refused() {
        let all = order(&["label", "--seconds", "5", "--seed", "1", "--merge"]).unwrap();
        let expected = Order { target: Some("label".into()), seconds: Some(5), seed: Some(1), merge: true };
        assert_eq!(all, expected);
        assert_eq!(order(&[]).unwrap(), Order::default());
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["--what"], &["a", "b"]] {
            assert!(order(wrong).is_err(), "{wrong:?}");
        }
    }
}
