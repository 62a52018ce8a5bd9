//! Answers are read by whoever waits for them, and by nobody else where nobody does.

use super::common::{Served, TARGET, ask, capability, channel, create, key, read, write};
use data::Ticket;
use data::frame::Op;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Neither the window of the channel nor the buffers of the network hold all that is asked before anything is waited for.
#[test]
fn what_nobody_waits_for_is_read_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let asking = served.channel(1, 1);
    let slot = asking.attach(&granted, key(&granted)).unwrap();
    create(&asking, &slot, 1..2);
    let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    write(&asking, &slot, 1, 0, &bytes);
    for length in [50_000, 300_000] {
        let reads: Vec<Ticket> = (0..200)
            .map(|n| asking.submit(&slot, ask(Op::Read, 1, n * 1000, length), vec![]).unwrap())
            .collect();
        // The last one first.
        for (n, read) in reads.into_iter().enumerate().rev() {
            assert!(read.wait().unwrap().bytes == bytes[n * 1000..][..length as usize]);
        }
    }
    (0..20_000).for_each(|n| drop(asking.submit(&slot, ask(Op::Write, 1, n, 1), vec![7]).unwrap()));
    assert_eq!(read(&asking, &slot, 1, 0, 20_000), vec![7; 20_000]);
    // Of whom nobody hears any more, either.
    let last = ask(Op::Write, 1, 50_000, 1);
    drop(asking.submit(&slot, last, vec![9]).unwrap());
    let other = served.channel(1, 2);
    let slot = other.attach(&granted, key(&granted)).unwrap();
    until("it is written", || read(&other, &slot, 1, 50_000, 1) == [9]);
}

/// One reads for all, and hands on to the next.
#[test]
fn many_who_wait_at_once_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let asking = served.channel(1, 1);
    let slot = asking.attach(&granted, key(&granted)).unwrap();
    create(&asking, &slot, 1..9);
    std::thread::scope(|scope| {
        for object in 1..9 {
            let (asking, slot) = (&asking, &slot);
            scope.spawn(move || {
                for n in 0..3_000_u64 {
                    let length = if n % 100 == object { 200_000 } else { 10 };
                    let bytes = vec![(n ^ object) as u8; length];
                    write(asking, slot, object, n, &bytes);
                    assert!(read(asking, slot, object, n, length as u64) == bytes);
                }
            });
        }
    });
}

#[test]
fn a_connection_that_ends_while_nothing_is_asked_is_known_to_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::of(TARGET, dir.path());
    let granted = capability(1);
    let asking = channel(served.address, 1, 1);
    let slot = asking.attach(&granted, key(&granted)).unwrap();
    create(&asking, &slot, 1..2);
    assert!(asking.boot().is_some());
    served.stop();
    // At once: what is written next may be served by another start of the machine.
    assert!(asking.boot().is_none());
    drop(slot);
}
