//! Whoever has no right is refused, whatever he tries, and changes nothing.

use crate::common::{CLUSTER, Served, ask, capability, create, key, now, path, read, write};
use data::frame::{self, ANSWER_LEN, Answer, Op, REQUEST_LEN, Request, Session};
use data::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use data::{CAPABILITY_LEN, Capability, CapabilityKey, Refusal, Rights, TargetSecret, sum};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use types::TargetId;

const WRONG: Refusal = Refusal::Capability("");

/// A mover with object 1, which holds "nobody changes this".
pub fn served(dir: &std::path::Path) -> Served {
    let served = Served::new(dir);
    let channel = served.channel(1, 1);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..3);
    write(&channel, &slot, 1, 0, b"nobody changes this");
    served
}

/// A client without a library: it sends what it likes.
pub struct Raw {
    pub stream: TcpStream,
    pub session: Session,
}

impl Raw {
    fn connect(served: &Served, client: u64, channel: u64) -> Self {
        Self::to(served.address, client, channel).unwrap()
    }

    /// The same at another address; an error if the connection is ended at once.
    pub fn to(address: SocketAddr, client: u64, channel: u64) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let ours = ClientHello { version: frame::VERSION, client, channel, cluster: CLUSTER, nonce: [9; 16] };
        stream.write_all(&ours.encode())?;
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes)?;
        Ok(Self { stream, session: hello::session(&ours, &MoverHello::decode(&bytes).unwrap()) })
    }

    pub fn attach(&mut self, capability: &[u8; CAPABILITY_LEN], key: &CapabilityKey) -> Result<(), u8> {
        let request = request(Op::Attach, 0, 0, 0, CAPABILITY_LEN as u64);
        let header = request.encode(&self.session, key, &[], capability);
        self.send(&[&header, capability])
    }

    /// A write, and the bytes that it went out as.
    pub fn write(
        &mut self,
        key: &CapabilityKey,
        sequence: u64,
        offset: u64,
        bytes: &[u8],
    ) -> (Vec<u8>, Result<(), u8>) {
        let sums = frame::encode_sums(&sum::parts(offset, bytes));
        let mut request = request(Op::Write, sequence, 1, offset, bytes.len() as u64);
        request.sums = (sums.len() / 4) as u32;
        let header = request.encode(&self.session, key, &sums, &[]);
        let sent = [&header, &sums[..], bytes].concat();
        let answer = self.send(&[&sent]);
        (sent, answer)
    }

    /// Sends, and gives the code of a refusal. 0: the connection was ended instead.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), u8> {
        parts.iter().for_each(|part| self.stream.write_all(part).unwrap());
        let mut header = [0; ANSWER_LEN];
        self.stream.read_exact(&mut header).map_err(|_| 0)?;
        let answer = Answer::decode(&header).unwrap();
        let mut rest = vec![0; answer.sums as usize * 4 + answer.length as usize];
        self.stream.read_exact(&mut rest).unwrap();
        if answer.code == 0 { Ok(()) } else { Err(answer.code) }
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

pub fn request(op: Op, sequence: u64, object: u64, offset: u64, length: u64) -> Request {
    Request { op, flags: 0, slot: 0, sums: 0, sequence, object, offset, length }
}

#[test]
fn capabilities_that_are_not_what_the_service_gave_out_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let good = capability(1);
    let refused = |capability: &Capability, key: &CapabilityKey| {
        let mut raw = Raw::connect(&served, 1, 2);
        raw.attach(&capability.encode(), key).unwrap_err()
    };
    let changed = |change: fn(&mut Capability)| {
        let mut other = good.clone();
        change(&mut other);
        other
    };
    // Wider than given out, with the key of the narrow one.
    let narrow = changed(|c| c.rights = Rights::READ);
    assert_eq!(refused(&good, &key(&narrow)), Refusal::Signature.code());
    // Made without the secret.
    assert_eq!(refused(&good, &TargetSecret::new(&[8; 32]).key(&good.encode())), Refusal::Signature.code());
    // Overheard, without its key.
    assert_eq!(refused(&good, &CapabilityKey::from_secret([0; 32])), Refusal::Signature.code());
    // For somebody or something else.
    for other in [changed(|c| c.client = 2), changed(|c| c.cluster = *b"another cluster!")] {
        assert_eq!(refused(&other, &key(&other)), WRONG.code(), "{other:?}");
    }
    let other = changed(|c| c.target = TargetId(4));
    assert_eq!(refused(&other, &key(&other)), Refusal::Elsewhere(String::new()).code());
    for old in [changed(|c| c.expires = now()), changed(|c| c.epoch = 99)] {
        assert_eq!(refused(&old, &key(&old)), Refusal::Expired.code(), "{old:?}");
    }
    // Any byte changed on the way.
    let bytes = good.encode();
    for at in 0..CAPABILITY_LEN {
        let mut other = bytes;
        other[at] ^= 4;
        let mut raw = Raw::connect(&served, 1, 3);
        assert!(raw.attach(&other, &key(&good)).is_err(), "byte {at}");
        let mut raw = Raw::connect(&served, 1, 3);
        assert!(raw.attach(&other, &TargetSecret::new(&[1; 32]).key(&other)).is_err(), "byte {at}");
    }
    unchanged(&served, dir.path());
}

fn unchanged(served: &Served, dir: &std::path::Path) {
    let channel = served.channel(1, 1_000_000);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    assert_eq!(read(&channel, &slot, 1, 0, 100), b"nobody changes this");
    assert_eq!(std::fs::read(path(dir, 1)).unwrap(), b"nobody changes this");
}

#[test]
fn nothing_is_done_beyond_what_a_capability_allows() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let try_all = |channel: u64, narrow: &Capability| -> Vec<(Op, Option<u8>)> {
        let asks = [
            ask(Op::Read, 1, 0, 4),
            ask(Op::Write, 1, 0, 4),
            ask(Op::SetLength, 1, 0, 0),
            ask(Op::Sync, 1, 0, 0),
            ask(Op::Create, 100, 0, 1),
            ask(Op::Remove, 1, 0, 0),
            ask(Op::Fence, 1, 9, 0),
            ask(Op::Revoke, 1, u64::MAX / 4, 0),
        ];
        let client = served.channel(1, channel);
        let slot = client.attach(narrow, key(narrow)).unwrap();
        asks.into_iter()
            .map(|ask| {
                let buffer = if ask.op == Op::Write { b"bad!".to_vec() } else { vec![] };
                let code = match client.call(&slot, ask, buffer) {
                    Ok(_) => None,
                    Err(data::DataError::Refused { code, .. }) => Some(code),
                    Err(other) => panic!("{other}"),
                };
                (ask.op, code)
            })
            .collect()
    };
    let mut reader = capability(1);
    reader.rights = Rights::READ;
    let all = try_all(2, &reader);
    assert_eq!(all[0], (Op::Read, None));
    assert!(all[1..].iter().all(|(_, code)| *code == Some(WRONG.code())), "{all:?}");
    let mut elsewhere = capability(1);
    elsewhere.objects = 2..3;
    let all = try_all(3, &elsewhere);
    assert!(all.iter().all(|(_, code)| *code == Some(WRONG.code())), "{all:?}");
    let mut tail = capability(1);
    (tail.range, tail.rights) = (4..u64::MAX, Rights::READ.and(Rights::WRITE));
    let all = try_all(4, &tail);
    let refused = |op: Op| all.iter().any(|(tried, code)| *tried == op && *code == Some(WRONG.code()));
    assert!(refused(Op::Read) && refused(Op::Write) && refused(Op::SetLength), "{all:?}");
    // For some objects only: nobody is shut out with it.
    let mut some = capability(1);
    some.objects = 1..3;
    let channel = served.channel(1, 5);
    let slot = channel.attach(&some, key(&some)).unwrap();
    assert!(channel.call(&slot, ask(Op::Revoke, 1, 5, 0), vec![]).unwrap_err().is(&WRONG));
    unchanged(&served, dir.path());
}

#[test]
fn a_capability_ends_at_its_time_also_while_it_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let mut short = capability(1);
    short.expires = now().plus(Duration::from_millis(300));
    let channel = served.channel(1, 2);
    let slot = channel.attach(&short, key(&short)).unwrap();
    let until = std::time::Instant::now() + crate::common::PATIENCE;
    let ended = loop {
        assert!(std::time::Instant::now() < until);
        if let Err(ended) = channel.call(&slot, ask(Op::Read, 1, 0, 4), vec![]) {
            break ended;
        }
    };
    // Presented again after the connection broke, it is refused too, and renewed it works.
    assert!(ended.is(&Refusal::Expired), "{ended}");
    assert!(now() >= short.expires);
    let longer = capability(1);
    channel.renew(&slot, &longer, key(&longer));
    assert_eq!(read(&channel, &slot, 1, 0, 6), b"nobody");
}

#[test]
fn fences_and_revocation_hold_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let manager = served.channel(7, 1);
    let managing = capability(7);
    let office = manager.attach(&managing, key(&managing)).unwrap();
    let old = capability(1);
    let channel = served.channel(1, 2);
    let slot = channel.attach(&old, key(&old)).unwrap();
    assert_eq!(read(&channel, &slot, 1, 0, 6), b"nobody");
    manager.call(&office, ask(Op::Fence, 1, 2, 0), vec![]).unwrap();
    for op in [Op::Read, Op::Write, Op::SetLength, Op::Stat] {
        let buffer = if op == Op::Write { vec![0; 4] } else { vec![] };
        let error = channel.call(&slot, ask(op, 1, 0, 4), buffer).unwrap_err();
        assert!(error.is(&Refusal::Fenced), "{op:?}: {error}");
    }
    let mut new = capability(1);
    new.generation = 2;
    channel.renew(&slot, &new, key(&new));
    assert_eq!(read(&channel, &slot, 1, 0, 6), b"nobody");

    manager.call(&office, ask(Op::Revoke, 1, now().as_nanos() as u64, 0), vec![]).unwrap();
    assert!(channel.call(&slot, ask(Op::Read, 1, 0, 4), vec![]).unwrap_err().is(&Refusal::Fenced));
    drop((slot, channel, office, manager));
    served.stop();

    let served = Served::new(dir.path());
    let channel = served.channel(1, 3);
    // Refused when it is presented, and so is what is asked in its slot.
    let slot = channel.attach(&new, key(&new)).unwrap();
    assert!(channel.call(&slot, ask(Op::Read, 1, 0, 4), vec![]).unwrap_err().is(&Refusal::Fenced));
    // Given out after the revocation, but for the old layout; then for the new one.
    let mut later = capability(1);
    later.generation = 1;
    channel.renew(&slot, &later, key(&later));
    assert!(channel.call(&slot, ask(Op::Read, 1, 0, 4), vec![]).unwrap_err().is(&Refusal::Fenced));
    later.generation = 2;
    channel.renew(&slot, &later, key(&later));
    assert_eq!(read(&channel, &slot, 1, 0, 6), b"nobody");
}

#[test]
fn what_was_overheard_cannot_be_played_again() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let granted = capability(1);
    let key = key(&granted);
    let mut raw = Raw::connect(&served, 1, 2);
    raw.attach(&granted.encode(), &key).unwrap();
    let (heard, done) = raw.write(&key, 1, 100, b"pay 100");
    assert_eq!(done, Ok(()));
    assert_eq!(raw.write(&key, 2, 100, b"changed").1, Ok(()));
    // On the same connection the number is not a new one; on another everything is signed for another session.
    assert_eq!(raw.send(&[&heard]), Err(Refusal::Malformed("").code()));
    assert!(raw.has_ended());
    let mut other = Raw::connect(&served, 1, 3);
    other.attach(&granted.encode(), &key).unwrap();
    assert_eq!(other.send(&[&heard]), Err(Refusal::Signature.code()));
    assert!(other.has_ended());
    // A header that was changed on the way, each byte of it.
    for at in 0..REQUEST_LEN {
        let mut raw = Raw::connect(&served, 1, 4 + at as u64);
        raw.attach(&granted.encode(), &key).unwrap();
        let request = request(Op::SetLength, 1, 1, 3, 0);
        let mut header = request.encode(&raw.session, &key, &[], &[]);
        header[at] ^= 1;
        // Of a request that seems to be longer than it is, nothing more comes.
        raw.stream.write_all(&header).unwrap();
        raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = [0; ANSWER_LEN];
        if raw.stream.read_exact(&mut answer).is_ok() {
            assert_ne!(Answer::decode(&answer).unwrap().code, 0, "byte {at}");
        }
    }
    let channel = served.channel(1, 1_000);
    let slot = channel.attach(&granted, key).unwrap();
    assert_eq!(read(&channel, &slot, 1, 100, 7), b"changed");
}

#[test]
fn bytes_that_were_damaged_on_the_way_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let granted = capability(1);
    let key = key(&granted);
    let mut raw = Raw::connect(&served, 1, 2);
    raw.attach(&granted.encode(), &key).unwrap();
    let sums = frame::encode_sums(&sum::parts(0, b"as it was made"));
    let mut request = request(Op::Write, 1, 1, 0, 14);
    request.sums = 1;
    let header = request.encode(&raw.session, &key, &sums, &[]);
    assert_eq!(raw.send(&[&header, &sums, b"as it was mace"]), Err(Refusal::Sums.code()));
    unchanged(&served, dir.path());
}

#[test]
fn another_protocol_another_cluster_and_nonsense_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let stranger = ClientHello { version: 1, client: 1, channel: 1, cluster: [0; 16], nonce: [0; 16] };
    let newest_only = ClientHello { version: 0, client: 1, channel: 1, cluster: CLUSTER, nonce: [0; 16] };
    for hello in [[b'G'; HELLO_LEN], stranger.encode(), newest_only.encode()] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.write_all(&hello).unwrap();
        // At most the greeting of the mover, then the end.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= HELLO_LEN);
    }
    let mut raw = Raw::connect(&served, 1, 2);
    assert_eq!(raw.send(&[&[0xff; REQUEST_LEN]]), Err(Refusal::Malformed("").code()));
    assert!(raw.has_ended());
    // Something asked before any capability was shown.
    let mut raw = Raw::connect(&served, 1, 3);
    let nobody = CapabilityKey::from_secret([0; 32]);
    let header = request(Op::Stat, 1, 1, 0, 0).encode(&raw.session, &nobody, &[], &[]);
    assert_eq!(raw.send(&[&header]), Err(WRONG.code()));
    assert!(raw.has_ended());
    unchanged(&served, dir.path());
}
