//! The guided fuzzer: libFuzzer around the target that `FUZZ_TARGET` names. `cargo xtask fuzz` builds and runs it.
//! With `FUZZ_INPUTS` it first writes all inputs of the repository into that directory; with `FUZZ_KEEP` it only takes
//! the files of that directory into the repository.
#![no_main]

use fuzz::{Target, corpus};
use std::path::Path;
use std::process::exit;
use std::sync::OnceLock;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some(target) = Target::named(&name) else {
        eprintln!("FUZZ_TARGET must be one of:");
        fuzz::TARGETS.iter().for_each(|target| eprintln!("  {}", target.name));
        exit(2);
    };
    if let Some(from) = std::env::var_os("FUZZ_KEEP") {
        done(corpus::keep(target, Path::new(&from)));
        exit(0);
    }
    if let Some(to) = std::env::var_os("FUZZ_INPUTS") {
        let write = |(name, bytes): &(String, Vec<u8>)| std::fs::write(Path::new(&to).join(name), bytes);
        done(corpus::inputs(target).and_then(|inputs| inputs.iter().try_for_each(write)));
    }
    let _ = TARGET.set(target);
}

fn done(result: std::io::Result<()>) {
    if let Err(error) = result {
        eprintln!("the corpus: {error}");
        exit(2);
    }
}

libfuzzer_sys::fuzz_target!(init: choose(), |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        target.check(input);
    }
});
