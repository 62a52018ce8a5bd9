//! Headers of the data protocol, greetings and capabilities: what is understood is written as it was read.

use data::frame::{ANSWER_LEN, Answer, MAX_IO, MAX_SUMS, REQUEST_LEN, Request, Session};
use data::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use data::{CAPABILITY_LEN, Capability, CapabilityKey, MAX_MESSAGE, Rights, TargetSecret};
use types::{Ino, TargetId, Time};

/// What both ends of a connection have said: nothing of it is read here.
fn session() -> Session {
    let client = ClientHello { version: 1, client: 1, channel: 1, cluster: [2; 16], nonce: [3; 16] };
    let mover = MoverHello { version: 1, boot: 1, cluster: [2; 16], nonce: [4; 16] };
    hello::session(&client, &mover)
}

fn key() -> CapabilityKey {
    TargetSecret::new(&[5; 32]).key(&capability().encode())
}

fn capability() -> Capability {
    Capability {
        epoch: 1,
        cluster: [2; 16],
        target: TargetId(3),
        file: Ino(4),
        objects: 5..9,
        generation: 6,
        rights: Rights::READ.and(Rights::WRITE),
        range: 0..u64::MAX,
        user: 7,
        client: 8,
        issued: Time::from_nanos(1),
        expires: Time::from_nanos(i64::MAX),
    }
}

pub(super) fn run(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else { return };
    match what % 5 {
        0 => bytes.first_chunk().into_iter().for_each(request),
        1 => bytes.first_chunk().into_iter().for_each(answer),
        2 => bytes.first_chunk().into_iter().for_each(client),
        3 => bytes.first_chunk().into_iter().for_each(mover),
        _ => {
            let Some(Ok(read)) = bytes.first_chunk::<CAPABILITY_LEN>().map(Capability::decode) else {
                return;
            };
            // The second in which time begins has no form of its own; the digest is of the bytes as they came.
            let first = Time::from_nanos(i64::MIN).plus(std::time::Duration::from_secs(1));
            let odd = read.issued < first || read.expires < first;
            assert!(odd || bytes.starts_with(&read.encode()), "a capability has one form");
        }
    }
}

fn request(bytes: &[u8; REQUEST_LEN]) {
    let Ok(read) = Request::decode(bytes) else { return };
    assert!(read.payload() <= MAX_IO.max(CAPABILITY_LEN) && read.sums as usize <= MAX_SUMS);
    let again = read.encode(&session(), &key(), &[], &[]);
    assert_eq!(again[..40], bytes[..40], "a request has one form");
    // Only whoever has the key writes such a signature.
    assert_eq!(Request::verify(bytes, &session(), &key(), &[], &[]).is_ok(), again == *bytes);
}

fn answer(bytes: &[u8; ANSWER_LEN]) {
    let Ok(read) = Answer::decode(bytes) else { return };
    let most = if read.code == 0 { MAX_IO } else { MAX_MESSAGE };
    assert!(read.length <= most as u64 && read.sums as usize <= MAX_SUMS);
    let again = read.encode(&session(), Some(&key()), &[], &[]);
    assert_eq!(again[..32], bytes[..32], "an answer has one form");
    assert_eq!(Answer::verify(bytes, &session(), &key(), &[], &[]).is_ok(), again == *bytes);
}

fn client(bytes: &[u8; HELLO_LEN]) {
    let Ok(read) = ClientHello::decode(bytes) else { return };
    assert_eq!(ClientHello::decode(&read.encode()), Ok(read));
    let _ = hello::agree(read.version);
}

fn mover(bytes: &[u8; HELLO_LEN]) {
    let Ok(read) = MoverHello::decode(bytes) else { return };
    assert_eq!(MoverHello::decode(&read.encode()), Ok(read));
    let _ = hello::agree(read.version);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    use data::frame::Op;
    let request = |op, sums, sequence, length| {
        let request = Request { op, flags: 0, slot: 1, sums, sequence, object: 5, offset: 70_000, length };
        [&[0][..], &request.encode(&session(), &key(), &[], &[])].concat()
    };
    let answer = |code, length| {
        let answer = Answer { op: Op::Read, code, sums: 2, sequence: 9, value: 70_000, length };
        [&[1][..], &answer.encode(&session(), Some(&key()), &[], &[])].concat()
    };
    let client = ClientHello { version: 1, client: 1, channel: 2, cluster: [2; 16], nonce: [3; 16] };
    let mover = MoverHello { version: 1, boot: 7, cluster: [2; 16], nonce: [4; 16] };
    vec![
        request(Op::Attach, 0, 0, CAPABILITY_LEN as u64),
        request(Op::Read, 0, 1, 4096),
        request(Op::Write, 2, 2, 70_000),
        request(Op::Create, 0, 3, 4096),
        answer(0, 70_000),
        answer(7, 100),
        [&[2][..], &client.encode()].concat(),
        [&[3][..], &mover.encode()].concat(),
        [&[4][..], &capability().encode()].concat(),
    ]
}
