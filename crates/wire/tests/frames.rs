//! Framing and decoding: round trips, limits, and bytes that nobody should send.

use proptest::prelude::*;
use std::io::Cursor;
use types::{Ino, RequestId};
use wire::frame::{self, Kind, MAX_PAYLOAD};
use wire::{Call, Failure, FileCall, Hello, Reply, Selection, VERSION, WireError};

fn any_call() -> impl Strategy<Value = Call> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let paths = proptest::collection::vec(bytes(), 0..20);
    prop_oneof![
        Just(Call::Status),
        any::<bool>().prop_map(|graceful| Call::Down { graceful }),
        (paths, any::<bool>()).prop_map(|(paths, recursive)| Call::Stage(Selection { paths, recursive })),
        (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(id, after, limit)| Call::RequestItems {
            id: RequestId(id),
            after: Ino(after),
            limit
        }),
        (any::<u64>(), any::<u64>(), bytes()).prop_map(|(handle, offset, data)| Call::File(
            FileCall::Write { handle: types::Handle(handle), offset, data }
        )),
    ]
}

proptest! {
    #[test]
    fn a_call_comes_back_as_it_was(call in any_call(), id in any::<u64>()) {
        let mut bytes = Vec::new();
        frame::write_frame(&mut bytes, Kind::Call, id, &frame::encode(&call).unwrap()).unwrap();
        let mut stream = Cursor::new(&bytes);
        let read = frame::read_frame(&mut stream).unwrap();
        prop_assert_eq!((read.kind, read.id), (Kind::Call, id));
        prop_assert_eq!(frame::decode::<Call>(read.kind, &read.payload).unwrap(), call);
        prop_assert!(matches!(frame::read_frame(&mut stream), Err(WireError::Closed)));
    }

    #[test]
    fn a_cut_frame_is_an_error(call in any_call(), cut in any::<proptest::sample::Index>()) {
        let mut bytes = Vec::new();
        frame::write_frame(&mut bytes, Kind::Call, 7, &frame::encode(&call).unwrap()).unwrap();
        let cut = cut.index(bytes.len());
        let result = frame::read_frame(&mut Cursor::new(&bytes[..cut]));
        prop_assert!(matches!(result, Err(WireError::Closed | WireError::Io(_))));
        prop_assert_eq!(cut == 0, matches!(result, Err(WireError::Closed)));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = frame::read_frame(&mut Cursor::new(&bytes));
        let _ = frame::decode::<Call>(Kind::Call, &bytes);
        let _ = frame::decode::<Reply>(Kind::Reply, &bytes);
        let _ = frame::decode::<Failure>(Kind::Failure, &bytes);
        let _ = frame::decode_hello(&frame::Frame { kind: Kind::Hello, id: 0, payload: bytes });
    }

    #[test]
    fn changed_bytes_never_panic(call in any_call(), at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut payload = frame::encode(&call).unwrap();
        let at = at.index(payload.len());
        payload[at] = byte;
        let _ = frame::decode::<Call>(Kind::Call, &payload);
    }
}

#[test]
fn an_announced_length_over_the_limit_is_refused_before_reading_it() {
    let mut bytes = ((MAX_PAYLOAD + 1) as u32).to_le_bytes().to_vec();
    bytes.extend([Kind::Call as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(
        matches!(frame::read_frame(&mut Cursor::new(&bytes)), Err(WireError::TooLarge(n)) if n == 4_194_305)
    );
}

#[test]
fn nothing_is_written_of_a_message_over_the_limit() {
    let mut out = Vec::new();
    let result = frame::write_frame(&mut out, Kind::Reply, 1, &vec![0; MAX_PAYLOAD + 1]);
    assert!(matches!(result, Err(WireError::TooLarge(_))));
    assert!(out.is_empty());
}

#[test]
fn a_vector_that_claims_a_huge_length_is_malformed() {
    let mut payload = frame::encode(&Reply::Bytes(Vec::new())).unwrap();
    payload.pop();
    payload.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert!(matches!(frame::decode::<Reply>(Kind::Reply, &payload), Err(WireError::Malformed { .. })));
}

#[test]
fn bytes_behind_a_message_are_malformed() {
    let mut payload = frame::encode(&Call::Status).unwrap();
    payload.push(0);
    assert!(matches!(frame::decode::<Call>(Kind::Call, &payload), Err(WireError::Malformed { .. })));
}

/// The layouts written in docs/formats/wire.md, byte for byte.
#[test]
fn bytes_are_those_of_the_document() {
    let mut out = Vec::new();
    let call = Call::Stage(Selection { paths: vec![b"/a".to_vec()], recursive: true });
    frame::write_frame(&mut out, Kind::Call, 0x0102, &frame::encode(&call).unwrap()).unwrap();
    assert_eq!(
        out,
        [
            6, 0, 0, 0, 2, 2, 1, 0, 0, 0, 0, 0, 0, /* Stage */ 6, /* paths */ 1, 2, b'/', b'a',
            /* recursive */ 1
        ]
    );
    let hello = frame::encode_hello(&Hello { version: 3, program: "thermo 0.1.0".into() });
    assert_eq!(hello, b"THERMO\r\n\x03\0\0\0thermo 0.1.0");
    assert_eq!(frame::encode(&Reply::Bytes(vec![9, 200])).unwrap(), [18, 2, 9, 200]);
}

/// Names of the variants of an enum, in order, as the source has them.
fn variants<'s>(source: &'s str, of: &str) -> Vec<&'s str> {
    let body = source.split_once(&format!("pub enum {of} {{\n")).expect("the enum").1;
    let body = body.split_once("\n}\n").expect("its end").0;
    let at_first_level = |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let name = |line: &'s str| line.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    body.lines().filter(at_first_level).map(name).collect()
}

/// The tables of docs/formats/wire.md list every variant under its number.
#[test]
fn variants_are_those_of_the_document() {
    let source = concat!(
        include_str!("../src/message.rs"),
        include_str!("../src/reply.rs"),
        include_str!("../src/files.rs")
    );
    let document = include_str!("../../../docs/formats/wire.md");
    for of in ["Call", "FileCall", "Reply"] {
        let table = document.split_once(&format!("### `{of}`\n")).expect("a section").1;
        let rows =
            table.lines().skip_while(|line| !line.starts_with("| 0")).take_while(|l| l.starts_with('|'));
        let listed: Vec<String> = rows.map(|row| row.split('|').skip(1).take(2).collect()).collect();
        let expected: Vec<String> =
            variants(source, of).iter().enumerate().map(|(n, name)| format!(" {n}  `{name}` ")).collect();
        assert!(expected.len() > 15, "{expected:?}");
        assert_eq!(listed, expected, "{of}");
    }
}

#[test]
fn hello_agrees_on_a_common_version_only() {
    let hello = |version| Hello { version, program: "thermo 9.9".into() };
    assert_eq!(frame::agree(&hello(VERSION)).unwrap(), VERSION);
    assert_eq!(frame::agree(&hello(VERSION + 5)).unwrap(), VERSION);
    let error = frame::agree(&hello(0)).unwrap_err().to_string();
    assert!(error.contains("thermo 9.9") && error.contains("version 0"), "{error}");
}
