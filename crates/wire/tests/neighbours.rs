//! Neighbouring releases work together. The bytes are what the last release with version 4 sent: they may not be changed, and both have
//! to be understood and answered as then.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use types::{CheckReport, ErrorClass, Finding, Grade, Quota, QuotaView, StatusView, UsageView};
use wire::frame;
use wire::{Call, Channel, QuotaChangeV4, Reply, WireError, serve_connection};

/// First frame of `thermo 0.1.0`, version 4.
const HELLO: &str = "18000000010000000000000000544845524d4f0d0a04000000746865726d6f20302e312e30";
/// It asks for the status, with id 1.
const STATUS: &str = "0100000002010000000000000000";
/// What a node with a virtual library of two cartridges answered.
const ANSWER: &str = "ef0000000301000000000000000205302e312e30be3901072f7372762f74630001000c2f7372762f74632f6469736b80 \
     80e19ea701008080e19ea7010080c08ac296018080b4e585010200077669727475616c0c4c544f2d382c204c544f2d39 \
     1449424d20554c54333538302d54443920533248300b544356544c303031443030010000000000000000020107766972 \
     7475616c0c4c544f2d382c204c544f2d391449424d20554c54333538302d54443920533248300b544356544c30303144 \
     30310200000000000000000202077072696d6172790000000000000000000000000000067365636f6e64000000000000 \
     000000000000000000000000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| String::from_utf8(pair.to_vec()).unwrap();
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).unwrap()).collect()
}

fn recorded() -> StatusView {
    let frame = frame::read_frame(&mut bytes(ANSWER).as_slice()).unwrap();
    match frame::decode(frame.kind, &frame.payload) {
        Ok(Reply::Status(status)) => *status,
        other => panic!("version 4 is not understood any more: {other:?}"),
    }
}

#[test]
fn a_client_of_the_release_before_is_answered_as_it_was_then() {
    let (mut old, node) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        serve_connection(node, "thermo, newer", &mut |call| {
            assert_eq!(call, Call::Status);
            Ok(Reply::Status(Box::new(recorded())).into())
        })
    });
    old.write_all(&bytes(HELLO)).unwrap();
    let hello = frame::decode_hello(&frame::read_frame(&mut old).unwrap()).unwrap();
    assert!(hello.version > 4, "{hello:?}");
    old.write_all(&bytes(STATUS)).unwrap();
    let mut answer = vec![0; bytes(ANSWER).len()];
    old.read_exact(&mut answer).unwrap();
    assert!(answer == bytes(ANSWER), "another answer than version 4 expects");
    drop(old);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_client_of_the_release_before_is_told_no_grade_that_it_does_not_know() {
    let finding =
        |grade| Finding { grade, subject: String::new(), problem: String::new(), remedy: String::new() };
    let grades = [Grade::Leftover, Grade::Serious, Grade::Incomplete];
    let report = CheckReport { findings: grades.map(finding).to_vec(), ..CheckReport::default() };
    let (mut old, node) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        serve_connection(node, "thermo, newer", &mut |_| Ok(Reply::Check(report.clone()).into()))
    });
    old.write_all(&bytes(HELLO)).unwrap();
    frame::read_frame(&mut old).unwrap();
    old.write_all(&bytes(STATUS)).unwrap();
    let answer = frame::read_frame(&mut old).unwrap().payload;
    // Behind the number of the reply, five counts and the number of findings: a bool and three empty texts each.
    assert_eq!(answer[7..], [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    drop(old);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_node_of_the_release_before_is_asked_for_no_more_than_it_knows() {
    let (new, mut old) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        old.write_all(&bytes(HELLO)).unwrap();
        frame::read_frame(&mut old).unwrap();
        let mut asked = vec![0; bytes(STATUS).len()];
        old.read_exact(&mut asked).unwrap();
        old.write_all(&bytes(ANSWER)).unwrap();
        assert_eq!(old.read(&mut [0]).unwrap(), 0, "nothing but the status is asked");
        asked
    });
    let mut channel = Channel::open(new, "thermo, newer").unwrap();
    assert_eq!(channel.version(), 4);
    let unknown = channel.send_call(1, &Call::Cluster).unwrap_err();
    assert!(matches!(&unknown, WireError::NotYet { needs: 5, speaks: 4, .. }), "{unknown}");
    assert!(
        unknown.class() == ErrorClass::Invalid && unknown.to_string().contains("thermo 0.1.0"),
        "{unknown}"
    );
    // The connection is as good as before.
    channel.send_call(1, &Call::Status).unwrap();
    let status = channel.receive_result().unwrap().result.unwrap();
    assert_eq!(status, Reply::Status(Box::new(recorded())));
    drop(channel);
    assert_eq!(serving.join().unwrap(), bytes(STATUS));
}

#[test]
fn what_is_older_or_newer_than_the_neighbour_is_told_so() {
    for version in [0, 3] {
        let (new, mut old) = UnixStream::pair().unwrap();
        let mut hello = bytes(HELLO);
        hello[21] = version;
        old.write_all(&hello).unwrap();
        let refused = Channel::open(new, "thermo, newer").unwrap_err();
        assert!(matches!(refused, WireError::Version { .. }), "{refused}");
    }
    let (new, mut next) = UnixStream::pair().unwrap();
    let mut hello = bytes(HELLO);
    hello[21] = 6;
    next.write_all(&hello).unwrap();
    assert_eq!(Channel::open(new, "thermo").unwrap().version(), wire::VERSION);
}

/// It decodes paths as text, and would end the connection.
#[test]
fn a_client_of_the_release_before_gets_names_in_utf8() {
    let item = |path: &[u8]| types::RequestItemView {
        ino: types::Ino(7),
        path: path.into(),
        state: types::ItemState::Done,
    };
    let ask = |hello: &str| {
        let (mut client, node) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            serve_connection(node, "thermo, newer", &mut |_| {
                Ok(Reply::RequestItems(vec![item(b"/a\xff")]).into())
            })
        });
        client.write_all(&bytes(hello)).unwrap();
        frame::read_frame(&mut client).unwrap();
        client.write_all(&bytes(STATUS)).unwrap();
        frame::read_frame(&mut client).unwrap().payload
    };
    let mut newer = HELLO.to_owned();
    newer.replace_range(42..44, "05");
    assert_eq!(ask(HELLO), frame::encode(&Reply::RequestItems(vec![item("/a\u{fffd}".as_bytes())])).unwrap());
    assert_eq!(ask(&newer), frame::encode(&Reply::RequestItems(vec![item(b"/a\xff")])).unwrap());
}

#[test]
fn a_client_of_the_release_before_is_told_how_much_was_written_and_no_more() {
    let (mut old, node) = UnixStream::pair().unwrap();
    let written = Reply::Written { count: 7, machines: vec![1, 2] };
    let serving =
        thread::spawn(move || serve_connection(node, "thermo, newer", &mut |_| Ok(written.clone().into())));
    old.write_all(&bytes(HELLO)).unwrap();
    frame::read_frame(&mut old).unwrap();
    old.write_all(&bytes(STATUS)).unwrap();
    assert_eq!(frame::read_frame(&mut old).unwrap().payload, frame::encode(&Reply::Count(7)).unwrap());
    drop(old);
    serving.join().unwrap().unwrap();
}

/// What version 4 sent and got when it was asked for what owners hold and may hold (postcard: numbers as varints, fields in order).
#[test]
fn what_owners_hold_and_may_hold_is_told_to_the_release_before_as_it_was_then() {
    let asked = [
        (vec![29], Call::UsageV4),
        (vec![32], Call::QuotasV4),
        (
            vec![33, 1, 7, 1, 1, 5, 0, 1, 0, 1, 2],
            Call::SetQuotaV4 {
                uid: Some(7),
                change: Some(QuotaChangeV4 {
                    files: Some(5),
                    bytes: None,
                    tape_bytes: Some(0),
                    volumes: Some(2),
                }),
            },
        ),
    ];
    for (bytes, call) in asked {
        assert_eq!(postcard::to_stdvec(&call).unwrap(), bytes, "{call:?}");
        assert!(call.since() <= 4, "{call:?}");
    }
    let usage = UsageView { uid: 7, files: 1, bytes: 2, disk_bytes: 3, tape_bytes: 4, target_bytes: 9 };
    let quota = Quota { uid: Some(7), files: 10, bytes: 11, tape_bytes: 12, volumes: 13, disk_bytes: 99 };
    let view = QuotaView { quota, usage: Some(usage.clone()), volumes: 5 };
    let told = [
        (vec![22, 1, 7, 1, 2, 3, 4], Reply::UsageV4(vec![usage.into()])),
        (vec![23, 1, 1, 7, 10, 11, 12, 13, 1, 7, 1, 2, 3, 4, 5], Reply::QuotasV4(vec![view.into()])),
    ];
    for (bytes, reply) in told {
        assert_eq!(postcard::to_stdvec(&reply).unwrap(), bytes, "{reply:?}");
    }
    let more = Call::SetQuota { uid: None, change: None };
    assert!([Call::Usage, Call::Quotas, more].iter().all(|call| call.since() == 5));
}
