//! Every target over its corpus, its seeds, and seeded changes of both. A failure names the input and how to try it
//! again; the input that shows a defect belongs into the corpus as `regression-<what>`.

use fuzz::mutate::{Random, mutate};
use fuzz::{TARGETS, Target, corpus};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// No input takes as long as this; it takes milliseconds, on a slow machine too.
const ENDLESS: Duration = Duration::from_secs(120);

/// What is being tried, so that an input that never ends can be told.
type Attempts = Sender<(String, Vec<u8>)>;

/// Ends the process when nothing new is tried for a long time.
fn watch(target: &'static Target) -> Attempts {
    let (sender, attempts) = channel::<(String, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut last = (String::new(), Vec::new());
        loop {
            match attempts.recv_timeout(ENDLESS) {
                Ok(next) => last = next,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    tell(target, &last.0, "does not end", &last.1);
                    std::process::abort();
                }
            }
        }
    });
    sender
}

/// Keeps an input and says where.
fn tell(target: &Target, what: &str, problem: &str, input: &[u8]) {
    let kept = std::env::temp_dir().join(format!("fuzz-{}-{}", target.name, std::process::id()));
    let place = match std::fs::write(&kept, input) {
        Ok(()) => kept.display().to_string(),
        Err(error) => format!("nowhere ({error})"),
    };
    eprintln!("{}: {what} {problem}; the input of {} bytes is kept in {place}", target.name, input.len());
}

fn attempt(target: &Target, attempts: &Attempts, what: &str, input: &[u8]) {
    let _ = attempts.send((what.to_owned(), input.to_vec()));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target.check(input))) {
        tell(target, what, "broke a promise", input);
        resume_unwind(panic);
    }
}

fn replay(name: &str) {
    let target = Target::named(name).expect("a target of this name");
    let inputs = corpus::inputs(target).expect("a corpus that can be read");
    let attempts = watch(target);
    for (what, input) in &inputs {
        attempt(target, &attempts, what, input);
    }
    let seed = std::env::var("FUZZ_SEED").map_or(1, |text| text.parse().expect("FUZZ_SEED is a number"));
    let mut random = Random::new(seed);
    for round in 0..target.rounds {
        let input = &inputs[random.below(inputs.len())].1;
        let other = &inputs[random.below(inputs.len())].1;
        let changed = mutate(&mut random, input, other, target.longest);
        attempt(target, &attempts, &format!("round {round} of FUZZ_SEED={seed}"), &changed);
    }
}

macro_rules! replays {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })+

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

replays! {
    label index index_names cartridge_memory ansi_label section archive record
    scsi_reply scsi_device scsi_frame
    wire_frame wire_channel
    vtl_command vtl_files cartridge engine catalogue disk config
    ident ident_handshake
    data_frame data_connection mover_target stripe_record
}
