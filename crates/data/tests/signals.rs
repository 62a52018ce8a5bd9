//! A program that gets signals all the time waits for a mover no longer than another one.

use data::Link;
use rustix::process::{Signal, kill_process};
use rustix::thread::gettid;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn signals_do_not_make_anybody_wait_for_longer() {
    let disturbed = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::ALARM.as_raw(), disturbed.clone()).unwrap();
    let (one, mut other) = UnixStream::pair().unwrap();
    let (mut link, begun) = (Link::unix(one), Instant::now());
    // By the number of this thread it comes to this thread, if that does not block it.
    let (thread, end) = (gettid(), 20 * PATIENCE);
    std::thread::spawn(move || {
        while begun.elapsed() < end {
            std::thread::sleep(PATIENCE / 20);
            kill_process(thread, Signal::ALARM).unwrap();
        }
    });
    let mut some = [0; 64];
    link.incoming.set_patience(Some(PATIENCE)).unwrap();
    let silent = link.incoming.receive(&mut some).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::WouldBlock);
    other.write_all(&[7; 10]).unwrap();
    let stuck = link.incoming.receive(&mut some).unwrap_err();
    assert_eq!(stuck.kind(), ErrorKind::TimedOut);
    assert!(disturbed.load(Ordering::SeqCst));
    assert!(begun.elapsed() < end, "it waited for as long as signals came");
}
