//! Whoever is refused is in the log, but does not fill it, and is not listened to for a while. Honest clients notice nothing of it.

use crate::common::{CLUSTER, EPOCH, Served, capability, channel, key, now, read, secret};
use crate::refusals::{Raw, request, served};
use data::frame::{Op, REQUEST_LEN};
use data::hello::{ClientHello, HELLO_LEN};
use data::{Capability, CapabilityKey, Link, Refusal, Rights, TargetSecret};
use mover::{Peer, Secrets};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// Lines about an address at once, and refusals that it has free; the time in which it gets one back.
const FREE: usize = 10;
const BACK: Duration = Duration::from_secs(6);

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lines as an operator has them, of which this is a part. The log is that of all tests of this process, so each of them has addresses of its own.
fn lines(part: &str) -> Vec<String> {
    let log = LOG.lock().unwrap();
    let whole = String::from_utf8_lossy(&log).lines().map(|line| format!("{line} ")).collect::<Vec<_>>();
    whole.into_iter().filter(|line| line.contains(part)).collect()
}

/// A port of the mover at which whoever connects counts as one from that address.
fn door(served: &Served, from: &str) -> SocketAddr {
    door_of(served, Peer::at(SocketAddr::new(from.parse().unwrap(), 7)))
}

fn door_of(served: &Served, peer: Peer) -> SocketAddr {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mover = served.mover.clone();
    std::thread::spawn(move || {
        mover.listen(|| {
            let (stream, _) = listener.accept()?;
            Ok((Link::tcp(stream)?, peer.clone()))
        })
    });
    address
}

/// With a key that was made without the secret.
fn forge(address: SocketAddr, client: u64) -> Result<(), u8> {
    let bytes = capability(client).encode();
    let mut raw = Raw::to(address, client, 9).map_err(|_| 0)?;
    raw.attach(&bytes, &TargetSecret::new(&[8; 32]).key(&bytes))
}

/// Somebody with a good capability gets bytes.
fn reads(address: SocketAddr, number: u64) {
    let granted = capability(1);
    let channel = channel(address, 1, number);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    assert_eq!(read(&channel, &slot, 1, 0, 6), b"nobody");
}

/// Attached with a good capability.
fn attached(address: SocketAddr, granted: &Capability) -> (Raw, CapabilityKey) {
    let mut raw = Raw::to(address, granted.client, 8).unwrap();
    raw.attach(&granted.encode(), &key(granted)).unwrap();
    (raw, key(granted))
}

fn stat(raw: &Raw, key: &CapabilityKey, sequence: u64, slot: u16) -> [u8; REQUEST_LEN] {
    let mut request = request(Op::Stat, sequence, 1, 0, 0);
    request.slot = slot;
    request.encode(&raw.session, key, &[], &[])
}

/// The only line about an address.
#[track_caller]
fn told(from: &str, level: &str, parts: &[&str]) {
    let lines = lines(&format!("peer={from}:7 "));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains(level), "{line}");
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
}

#[test]
fn whoever_may_be_an_attacker_is_in_the_log_with_what_he_wanted_and_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let signature = Err(Refusal::Signature.code());
    // Nothing was presented.
    let nobody = CapabilityKey::from_secret([0; 32]);
    let mut raw = Raw::to(door(&served, "192.0.2.1"), 5, 1).unwrap();
    let header = stat(&raw, &nobody, 1, 0);
    raw.send(&[&header]).unwrap_err();
    told("192.0.2.1", "WARN", &["client=5 ", "object=1 ", "none was presented"]);
    // Nothing was presented in this slot.
    let (mut raw, good) = attached(door(&served, "192.0.2.2"), &capability(5));
    let header = stat(&raw, &good, 1, 3);
    raw.send(&[&header]).unwrap_err();
    told("192.0.2.2", "WARN", &["client=5 ", "object=1 ", "none was presented"]);
    assert_eq!(forge(door(&served, "192.0.2.3"), 6), signature);
    told("192.0.2.3", "WARN", &["client=6 ", "user=1000 ", "target=3 ", "file=77 ", "signature"]);
    // Wider than granted.
    let reader = Capability { rights: Rights::READ, ..capability(7) };
    let (mut raw, key_of_reader) = attached(door(&served, "192.0.2.4"), &reader);
    raw.write(&key_of_reader, 1, 0, b"bad").1.unwrap_err();
    told("192.0.2.4", "WARN", &["client=7 ", "target=3 ", "file=77 ", "object=1 ", "this right"]);
    // Somebody else's, with its key: an honest client may have another number by now.
    let mut raw = Raw::to(door(&served, "192.0.2.5"), 5, 1).unwrap();
    raw.attach(&reader.encode(), &key_of_reader).unwrap_err();
    told("192.0.2.5", "INFO", &["client=5 ", "target=3 ", "for another client"]);
    // What was overheard, on the same connection and on another one.
    let (mut raw, good) = attached(door(&served, "192.0.2.6"), &capability(5));
    let header = stat(&raw, &good, 1, 0);
    raw.send(&[&header]).unwrap();
    raw.send(&[&header]).unwrap_err();
    told("192.0.2.6", "WARN", &["client=5 ", "object=1 ", "twice"]);
    let (mut raw, _) = attached(door(&served, "192.0.2.7"), &capability(5));
    assert_eq!(raw.send(&[&header]), signature);
    told("192.0.2.7", "WARN", &["client=5 ", "file=77 ", "object=1 ", "signature"]);
    // Another protocol.
    let mut stream = TcpStream::connect(door(&served, "192.0.2.8")).unwrap();
    stream.write_all(&[b'G'; HELLO_LEN]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    told("192.0.2.8", "WARN", &["not the data protocol"]);
}

#[test]
fn a_thousand_refusals_are_a_few_lines_and_only_their_address_waits() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let (bad, good) = (door(&served, "198.51.100.1"), door(&served, "198.51.100.2"));
    // From the same address, connected before.
    let granted = capability(1);
    let before = channel(bad, 1, 20);
    let slot = before.attach(&granted, key(&granted)).unwrap();
    assert_eq!(read(&before, &slot, 1, 0, 6), b"nobody");
    let begin = Instant::now();
    let answered = (0..1000).filter(|_| forge(bad, 6).unwrap_err() != 0).count();
    let most = FREE + (begin.elapsed().as_secs() / BACK.as_secs()) as usize;
    assert!((FREE..=most).contains(&answered), "{answered} of {most}");
    let told = lines("peer=198.51.100.1:7 ");
    assert!((FREE..=most).contains(&told.len()), "{told:?}");
    assert!(told.iter().any(|line| line.contains("nobody there is listened to")), "{told:?}");
    // Others, and who was there before, notice nothing.
    reads(good, 21);
    assert_eq!(read(&before, &slot, 1, 0, 6), b"nobody");
    // The address is let in again, and honest clients there have waited.
    reads(bad, 22);
    assert!(begin.elapsed() >= BACK);
}

#[test]
fn whoever_wants_more_than_he_may_again_and_again_loses_his_connection() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let reader = Capability { rights: Rights::READ, ..capability(7) };
    let address = door(&served, "198.51.100.11");
    let (mut raw, key) = attached(address, &reader);
    let codes: Vec<u8> = (1..=1000)
        .map_while(|sequence| {
            let header = request(Op::Sync, sequence, 1, 0, 0).encode(&raw.session, &key, &[], &[]);
            raw.stream.write_all(&header).ok()?;
            raw.send(&[]).err().filter(|code| *code != 0)
        })
        .collect();
    assert!(codes.len() >= FREE && codes.len() < 2 * FREE, "{codes:?}");
    assert!(Raw::to(address, 7, 9).is_err());
}

#[test]
fn what_happens_to_honest_clients_locks_nobody_out_and_does_not_fill_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let many = 300;
    let mut revoked = capability(5);
    revoked.issued = types::Time::new(1, 0);
    served.target.revoke(5, now()).unwrap();
    let old = |change: fn(&mut Capability)| {
        let mut old = capability(1);
        change(&mut old);
        old
    };
    let cases = [
        ("203.0.113.1", old(|c| c.expires = now()), 1, "expired"),
        ("203.0.113.2", old(|c| c.epoch = 0), 1, "expired"),
        ("203.0.113.3", revoked, 1, "revoked"),
        // Not told at all.
        ("203.0.113.4", old(|c| c.epoch = data::epoch::of(9, 1)), 0, ""),
        ("203.0.113.5", old(|c| c.target = types::TargetId(4)), 0, ""),
    ];
    for (n, (from, old, least, why)) in cases.into_iter().enumerate() {
        let (address, begin) = (door(&served, from), Instant::now());
        let mut raw = Raw::to(address, old.client, 9).unwrap();
        for _ in 0..many {
            assert!(raw.attach(&old.encode(), &key(&old)).is_err_and(|code| code != 0));
        }
        reads(address, 30 + n as u64);
        let told = lines(&format!("peer={from}:7 "));
        let most = (FREE + (begin.elapsed().as_secs() / BACK.as_secs()) as usize) * least;
        assert!((least..=most).contains(&told.len()), "{told:?}");
        assert!(told.iter().all(|line| line.contains("INFO") && line.contains(why)), "{told:?}");
    }
    // Those without a line of their own were counted.
    served.mover.stop().unwrap();
    let summed = lines("address=203.0.113.1 ");
    let count = many - lines("peer=203.0.113.1:7 ").len();
    assert!(summed.len() == 1 && summed[0].contains(&format!("count={count}")), "{summed:?}");
}

#[test]
fn other_releases_other_clusters_and_connections_that_are_cut_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let (address, silent) = (door(&served, "203.0.113.11"), door(&served, "203.0.113.12"));
    let hello = ClientHello { version: 1, client: 1, channel: 1, cluster: CLUSTER, nonce: [0; 16] };
    let (older, elsewhere) = (ClientHello { version: 0, ..hello }, ClientHello { cluster: [0; 16], ..hello });
    for _ in 0..2 * FREE {
        for hello in [older, elsewhere] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&hello.encode()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
        // A capability of a later version, and a request that only a later release knows.
        let granted = capability(1);
        let mut raw = Raw::to(address, 1, 2).unwrap();
        let mut later = granted.encode();
        later[0] += 1;
        assert_eq!(raw.attach(&later, &key(&granted)), Err(Refusal::Capability("").code()));
        assert_eq!(raw.send(&[&[0xff; REQUEST_LEN]]), Err(Refusal::Malformed("").code()));
        // Who looks whether somebody listens.
        for some in [0, 1, HELLO_LEN - 1] {
            let mut stream = TcpStream::connect(silent).unwrap();
            stream.write_all(&hello.encode()[..some]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    reads(address, 40);
    reads(silent, 41);
    assert!(lines("peer=203.0.113.11:7 ").iter().all(|line| line.contains("INFO")));
    assert_eq!(lines("peer=203.0.113.12:7 "), [""; 0]);
}

#[test]
fn nobody_is_locked_out_because_secrets_were_lost_and_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let address = door(&served, "203.0.113.21");
    let patience = Duration::from_secs(60);
    // One more epoch, as every day: nothing is lost.
    let next = Secrets::from([(EPOCH, secret()), (EPOCH + 1, secret())]);
    served.target.set_secrets(next, patience).unwrap();
    let before = door(&served, "203.0.113.22");
    assert!((0..3 * FREE).any(|_| forge(before, 6) == Err(0)));
    let other = TargetSecret::new(&[9; 32]);
    served.target.set_secrets(Secrets::from([(EPOCH, other.clone())]), patience).unwrap();
    let granted = capability(1);
    for _ in 0..3 * FREE {
        let mut raw = Raw::to(address, 1, 2).unwrap();
        assert_eq!(raw.attach(&granted.encode(), &key(&granted)), Err(Refusal::Signature.code()));
    }
    let mut raw = Raw::to(address, 1, 3).unwrap();
    raw.attach(&granted.encode(), &other.key(&granted.encode())).unwrap();
}

#[test]
fn nobody_of_this_host_waits_for_what_another_one_there_did() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let (here, begin) = (door_of(&served, Peer::here()), Instant::now());
    for address in [here, served.address] {
        for _ in 0..100 {
            assert_eq!(forge(address, 6), Err(Refusal::Signature.code()));
        }
        reads(address, 50);
    }
    let told = lines("peer=this host ");
    let most = FREE + (begin.elapsed().as_secs() / BACK.as_secs()) as usize;
    assert!((FREE..=most).contains(&told.len()), "{told:?}");
    assert!(told.iter().all(|line| line.contains("WARN") && line.ends_with("file=77 ")), "{told:?}");
}
