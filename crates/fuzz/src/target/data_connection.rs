//! Whoever connects to a mover: bytes as they come, and requests that are signed as they should be, with every field as the input has it.
//! Answers are answers, and without the right nothing is made, written or removed.

use super::bench::scratch;
use crate::input::Input;
use data::frame::{ANSWER_LEN, Answer, Op, REQUEST_LEN, Request, Session};
use data::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use data::{Capability, CapabilityKey, Incoming, Link, Outgoing, Rights, TargetSecret, sum};
use mover::{Mover, Peer, Secrets};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use types::{Ino, TargetId, Time};

const CLUSTER: [u8; 16] = [2; 16];
const TARGET: TargetId = TargetId(3);
/// Longest content that goes along with a request.
const CONTENT: usize = 300;

/// A mover with one target that has four objects.
struct World {
    mover: Arc<Mover>,
    _dir: tempfile::TempDir,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let dir = scratch();
        let secrets = Secrets::from([(1, secret())]);
        let target = mover::Target::open(TARGET, CLUSTER, dir.path(), secrets).expect("a new target");
        let clock = Box::new(|| Time::from_nanos(1_000));
        let mover = Mover::new(CLUSTER, [Arc::new(target)], clock).expect("the system knows when it started");
        World { mover, _dir: dir }
    })
}

fn secret() -> TargetSecret {
    TargetSecret::new(&[5; 32])
}

/// A capability whose rights the input chooses.
fn capability(rights: u8) -> (Capability, CapabilityKey) {
    let all = [Rights::READ, Rights::WRITE, Rights::MANAGE];
    let rights = (0..3).filter(|n| rights >> n & 1 == 1).fold(Rights::default(), |sum, n| sum.and(all[n]));
    let capability = Capability {
        epoch: 1,
        cluster: CLUSTER,
        target: TARGET,
        file: Ino(4),
        objects: 1..9,
        generation: 6,
        rights,
        range: 0..1 << 20,
        user: 7,
        client: 8,
        issued: Time::from_nanos(1),
        expires: Time::from_nanos(2_000),
    };
    let key = secret().key(&capability.encode());
    (capability, key)
}

/// What the mover sees and what it has said.
struct Caller {
    /// What comes as it is, and what is made of the rest once the mover has greeted.
    raw: Vec<u8>,
    made: Option<Vec<u8>>,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Incoming for Caller {
    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        if self.raw.len() < into.len()
            && let Some(input) = self.made.take()
        {
            let said = self.said.lock().expect("nobody panics");
            if let Some(Ok(theirs)) = said.first_chunk::<HELLO_LEN>().map(MoverHello::decode) {
                self.raw.extend(requests(&input, &hello::session(&greeting(), &theirs)));
            }
        }
        if self.raw.len() < into.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        into.copy_from_slice(&self.raw[..into.len()]);
        self.raw.drain(..into.len());
        Ok(())
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        None
    }

    fn has_ended(&mut self) -> bool {
        self.raw.is_empty() && self.made.is_none()
    }

    fn set_patience(&mut self, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
}

struct Listener {
    said: Arc<Mutex<Vec<u8>>>,
    /// It was announced that something follows, which the network waits for.
    more: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        assert!(!self.more || std::thread::panicking(), "what was announced has not followed");
    }
}

impl Outgoing for Listener {
    fn send(&mut self, parts: &[&[u8]], more: bool) -> Result<()> {
        self.more = more;
        let mut said = self.said.lock().expect("nobody panics");
        parts.iter().for_each(|part| said.extend_from_slice(part));
        Ok(())
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<()> {
        use std::os::unix::fs::FileExt;
        self.more &= length == 0;
        let mut bytes = vec![0; length];
        std::fs::File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, offset)?;
        self.said.lock().expect("nobody panics").extend_from_slice(&bytes);
        Ok(())
    }

    fn pass(&mut self, _: &[u8], _: BorrowedFd<'_>) -> Result<()> {
        Err(Error::other("nobody asked on the same host"))
    }

    fn finish(&mut self) {}

    fn is_local(&self) -> bool {
        false
    }
}

fn greeting() -> ClientHello {
    ClientHello { version: 1, client: 8, channel: 1, cluster: CLUSTER, nonce: [3; 16] }
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let signed = input.u8() & 1 == 1;
    let rest = input.rest().to_vec();
    let rights = rest.first().copied().unwrap_or(0);
    let (raw, made) = if signed { (greeting().encode().to_vec(), Some(rest)) } else { (rest, None) };
    let said = Arc::new(Mutex::new(Vec::new()));
    let link = Link {
        incoming: Box::new(Caller { raw, made, said: said.clone() }),
        outgoing: Box::new(Listener { said: said.clone(), more: false }),
        hang_up: Arc::new(|| {}),
    };
    world().mover.serve(link, &Peer::here());
    let said = said.lock().expect("nobody panics");
    check(&said, if signed { rights } else { 0 });
}

/// What the input makes of capability and requests, all signed.
fn requests(bytes: &[u8], session: &Session) -> Vec<u8> {
    let mut input = Input::new(bytes);
    let (capability, key) = capability(input.u8());
    let body = capability.encode();
    let attach = Request {
        op: Op::Attach,
        flags: 0,
        slot: 0,
        sums: 0,
        sequence: 0,
        object: 0,
        offset: 0,
        length: 104,
    };
    let mut all = [&attach.encode(session, &key, &[], &body)[..], &body].concat();
    let mut sequence = 0;
    while !input.is_empty() {
        let Ok(op) = Op::try_from(input.u8() % 11 + 1) else { return all };
        sequence += u64::from(input.u8() % 8 != 7);
        let (object, offset) = (u64::from(input.u8() % 10), u64::from(input.u32()) << (input.u8() % 40));
        let content = if op == Op::Write { input.take(CONTENT) } else { &[] };
        let length = if op == Op::Write { content.len() as u64 } else { input.u16().into() };
        let Some(_) = offset.checked_add(length) else { continue };
        let sums = if op == Op::Write { sum::parts(offset, content) } else { Vec::new() };
        let request = Request {
            op,
            flags: input.u8(),
            slot: 0,
            sums: sums.len() as u32,
            sequence,
            object,
            offset,
            length,
        };
        let sums = data::frame::encode_sums(&sums);
        all.extend_from_slice(&request.encode(session, &key, &sums, content));
        all.extend([&sums, content].concat());
    }
    all
}

/// Everything that was said is answers, and those that say that something was done are to requests that were allowed.
fn check(said: &[u8], rights: u8) {
    let Some((_, mut left)) = said.split_first_chunk::<HELLO_LEN>() else { return };
    while let Some((header, body)) = left.split_first_chunk::<ANSWER_LEN>() {
        let answer = Answer::decode(header).expect("a mover answers as the protocol has it");
        let needs = match answer.op {
            Op::Read | Op::Descriptor => 1,
            Op::Write | Op::Sync | Op::SetLength => 2,
            Op::Create | Op::Remove | Op::Fence | Op::Revoke => 4,
            Op::Attach | Op::Stat => 0,
        };
        assert!(answer.code != 0 || rights & needs == needs, "{answer:?} with rights {rights}");
        assert!(answer.code != 0 || answer.op != Op::Revoke, "revoked with a capability for some objects");
        let follows = answer.sums as usize * 4 + answer.length as usize;
        assert!(follows <= body.len(), "an answer is whole: {answer:?}");
        left = &body[follows..];
    }
    assert!(left.is_empty(), "nothing follows the answers");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Rights, then: operation, step of the sequence, object, offset, shift, content or length, flags.
    let ask = |op: u8, object: u8, offset: u32, length: u16| {
        [&[op - 1, 0, object][..], &offset.to_be_bytes(), &[0], &length.to_be_bytes(), &[0]].concat()
    };
    let write = [&[2, 0, 1, 0, 0, 255, 255, 0][..], &[7; CONTENT], &[0]].concat();
    let create = ask(7, 1, 0, 4);
    let all: Vec<Vec<u8>> = (1..12).map(|op| ask(op, 1, 4, 100)).collect();
    vec![
        [&[1, 7][..], &create, &write, &ask(2, 1, 65_000, 1000), &ask(4, 1, 0, 0), &ask(6, 1, 0, 0)].concat(),
        [&[1, 7][..], &create, &all.concat()].concat(),
        [&[1, 1][..], &all.concat()].concat(),
        [&[1, 2][..], &all.concat(), &write].concat(),
        [&[1, 4][..], &ask(9, 1, 7, 0), &ask(2, 1, 0, 9)].concat(),
        [&[0][..], &greeting().encode(), &[0; REQUEST_LEN]].concat(),
    ]
}
