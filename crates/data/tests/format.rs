//! `docs/formats/data.md` says what the code does.

use data::frame::{Answer, Op, REQUEST_LEN, Request};
use data::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use data::{CAPABILITY_LEN, Capability, Refusal, Rights, TargetSecret, frame};
use proptest::prelude::*;
use types::{Ino, TargetId, Time};

const DOCUMENT: &str = include_str!("../../../docs/formats/data.md");

fn rows(between: (&str, &str)) -> Vec<(u8, String)> {
    let (from, to) = between;
    let section = DOCUMENT.split_once(from).unwrap().1.split_once(to).unwrap().0;
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let number = cells.next()?.parse().ok()?;
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
            Some((number, name))
        })
        .collect()
}

#[test]
fn the_tables_of_operations_and_refusals_are_those_of_the_code() {
    let operations: Vec<(u8, String)> = (0..=255)
        .filter_map(|number| Op::try_from(number).ok())
        .map(|op| (op as u8, format!("{op:?}")))
        .collect();
    assert_eq!(rows(("## Request", "## Answer")), operations);
    let text = String::new;
    let refusals = [
        Refusal::Malformed(""),
        Refusal::Signature,
        Refusal::Capability(""),
        Refusal::Expired,
        Refusal::Fenced,
        Refusal::Sums,
        Refusal::Corrupt(text()),
        Refusal::Missing(text()),
        Refusal::Exists(text()),
        Refusal::NoSpace(text()),
        Refusal::Disk(text()),
        Refusal::Busy(text()),
        Refusal::Elsewhere(text()),
    ];
    let named: Vec<(u8, String)> = refusals
        .iter()
        .map(|refusal| {
            let name: String = format!("{refusal:?}").chars().take_while(|c| c.is_alphabetic()).collect();
            (refusal.code(), name)
        })
        .collect();
    assert_eq!(rows(("## Answer", "## Capability")), named);
}

fn capability() -> Capability {
    Capability {
        epoch: 0x0403_0201,
        cluster: *b"0123456789abcdef",
        target: TargetId(7),
        file: Ino(9),
        objects: 0x100..0x104,
        generation: 5,
        rights: Rights::READ.and(Rights::WRITE),
        range: 0..u64::MAX,
        user: 1000,
        client: 12,
        issued: Time::new(1, 5),
        expires: Time::new(600, 0),
    }
}

/// The bytes that stand in the document as offsets; whoever writes another implementation begins here.
#[test]
fn bytes_are_where_the_document_says() {
    let bytes = capability().encode();
    assert_eq!(bytes[..8], [1, 0, 3, 0, 1, 2, 3, 4]);
    assert_eq!(bytes[8..24], *b"0123456789abcdef");
    assert_eq!(bytes[24..32], [7, 0, 0, 0, 0xe8, 3, 0, 0]);
    assert_eq!(bytes[40..48], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[88..96], 1_000_000_005_i64.to_le_bytes());
    assert_eq!(Capability::decode(&bytes), Ok(capability()));
    let key = TargetSecret::new(&[1; 32]).key(&bytes);
    let text = b"thermocline capability key 1\0";
    assert_eq!(text.len(), 29);
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[1; 32]);
    let expected = ring::hmac::sign(&secret, &[&text[..], &bytes].concat());
    assert_eq!(key.secret(), expected.as_ref());

    let client = ClientHello { version: 1, client: 2, channel: 3, cluster: [4; 16], nonce: [5; 16] };
    let mover = MoverHello { version: 1, boot: 6, cluster: [4; 16], nonce: [7; 16] };
    assert_eq!(client.encode()[..17], *b"THERMOD\n\x01\0\0\0\0\0\0\0\x02");
    let session = hello::session(&client, &mover);
    let request =
        Request { op: Op::Write, flags: 2, slot: 3, sums: 1, sequence: 4, object: 5, offset: 6, length: 7 };
    let header = request.encode(&session, &key, &[1, 2, 3, 4], b"ignored");
    assert_eq!(header[..12], [3, 2, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0]);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key.secret());
    let signed = [&[5; 16][..], &[7; 16], b"q", &header[..40], &[1, 2, 3, 4]].concat();
    assert_eq!(header[40..], *ring::hmac::sign(&key, &signed).as_ref());
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 256)) {
        // What a valid header may become by a change somewhere is tried too: the first byte decides most.
        for op in 0..=255 {
            let mut bytes = bytes.clone();
            bytes[0] = op;
            let header: &[u8; REQUEST_LEN] = bytes.first_chunk().unwrap();
            if let Ok(request) = Request::decode(header) {
                prop_assert!(request.payload() <= frame::MAX_IO && request.sums as usize <= frame::MAX_SUMS);
            }
            if let Ok(answer) = Answer::decode(bytes.first_chunk().unwrap()) {
                prop_assert!(answer.length as usize <= frame::MAX_IO && answer.sums as usize <= frame::MAX_SUMS);
            }
        }
        let hello: &[u8; HELLO_LEN] = bytes.first_chunk().unwrap();
        let _ = (ClientHello::decode(hello), MoverHello::decode(hello));
        let mut some: [u8; CAPABILITY_LEN] = *bytes.first_chunk().unwrap();
        some[..2].copy_from_slice(&[1, 0]);
        if let Ok(capability) = Capability::decode(&some) {
            prop_assert_eq!(capability.encode(), some);
        }
    }
}
