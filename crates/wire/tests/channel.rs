//! Connections over a real socket pair: calls, descriptors, credentials, peers that misbehave.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use types::{Attr, ErrorClass, FileKind, Handle, Ino, Time};
use wire::frame::{self, Kind};
use wire::{Answer, Call, Channel, Failure, FileCall, Hello, Reply, VERSION, WireError, serve_connection};

fn attr(ino: u64) -> Attr {
    let t = Time::new(1, 2);
    Attr {
        ino: Ino(ino),
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 3,
        disk_bytes: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    }
}

fn served<F>(mut handler: F) -> (Channel, thread::JoinHandle<Result<(), WireError>>)
where
    F: FnMut(Call) -> Result<Answer, Failure> + Send + 'static,
{
    let (near, far) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve_connection(far, "test node", &mut handler));
    (Channel::open(near, "test client").unwrap(), server)
}

#[test]
fn calls_are_answered_in_order_until_the_client_leaves() {
    let (mut channel, server) = served(|call| match call {
        Call::Status => {
            Err(Failure { class: ErrorClass::Busy, fs: Some(types::FsError::Busy), message: "no".into() })
        }
        Call::Request(id) => Ok(Reply::Count(id.0).into()),
        _ => Ok(Reply::Done.into()),
    });
    assert_eq!(channel.peer().program, "test node");
    for id in 1..50 {
        channel.send_call(id, &Call::Request(types::RequestId(id * 3))).unwrap();
    }
    for id in 1..50 {
        let inbound = channel.receive_result().unwrap();
        assert_eq!((inbound.id, inbound.result), (id, Ok(Reply::Count(id * 3))));
    }
    channel.send_call(99, &Call::Status).unwrap();
    let failure = channel.receive_result().unwrap().result.unwrap_err();
    assert_eq!((failure.class, failure.fs), (ErrorClass::Busy, Some(types::FsError::Busy)));
    drop(channel);
    server.join().unwrap().unwrap();
}

#[test]
fn a_descriptor_travels_with_its_reply_only() {
    let object = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let given = object.clone();
    let (mut channel, server) = served(move |call| {
        let direct = matches!(call, Call::File(FileCall::Open { write: true, .. }));
        Ok(Answer {
            reply: Reply::Opened { handle: Handle(5), attr: attr(7), direct: !direct },
            descriptor: direct.then(|| given.clone()),
        })
    });
    // three calls in flight: the middle one brings the descriptor
    for (id, write) in [(1, false), (2, true), (3, false)] {
        let open = FileCall::Open { ino: Ino(7), write, truncate: false };
        channel.send_call(id, &Call::File(open)).unwrap();
    }
    for id in 1..=3 {
        let inbound = channel.receive_result().unwrap();
        let Ok(Reply::Opened { direct, .. }) = inbound.result else { panic!("{:?}", inbound.result) };
        assert_eq!((inbound.id, direct, inbound.descriptor.is_some()), (id, id == 2, id == 2));
        if let Some(fd) = inbound.descriptor {
            File::from(fd).write_all_at(b"abc", 0).unwrap();
        }
    }
    drop(channel);
    server.join().unwrap().unwrap();
    let mut back = [0; 3];
    File::from(Arc::try_unwrap(object).unwrap()).read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"abc");
}

#[test]
fn large_content_passes_and_too_large_content_fails_that_call_only() {
    let (mut channel, server) = served(|call| match call {
        Call::Request(id) => Ok(Reply::Bytes(vec![0xaa; id.0 as usize]).into()),
        _ => Ok(Reply::Done.into()),
    });
    channel.send_call(1, &Call::Request(types::RequestId(frame::MAX_IO as u64))).unwrap();
    assert_eq!(channel.receive_result().unwrap().result, Ok(Reply::Bytes(vec![0xaa; frame::MAX_IO])));
    channel.send_call(2, &Call::Request(types::RequestId(frame::MAX_PAYLOAD as u64))).unwrap();
    let failure = channel.receive_result().unwrap().result.unwrap_err();
    assert!(failure.message.contains("over the limit"), "{failure}");
    channel.send_call(3, &Call::Status).unwrap();
    assert_eq!(channel.receive_result().unwrap().result, Ok(Reply::Done));
    drop(channel);
    server.join().unwrap().unwrap();
}

#[test]
fn a_foreign_server_is_named_as_such() {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(b"220 ftp.example.org ready\r\n").unwrap();
    assert!(matches!(Channel::open(near, "t"), Err(WireError::NotThermocline)));
}

#[test]
fn another_version_is_refused_on_both_ends() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let old = Hello { version: 0, program: "thermo 0.0.1".into() };
    frame::write_frame(&mut far, Kind::Hello, 0, &frame::encode_hello(&old)).unwrap();
    let error = Channel::open(near, "t").unwrap_err();
    assert!(matches!(error, WireError::Version { ours: VERSION, theirs: 0, .. }), "{error}");
    assert_eq!(frame::read_frame(&mut far).unwrap().kind, Kind::Hello);
    let told = frame::read_frame(&mut far).unwrap();
    let failure: Failure = frame::decode(told.kind, &told.payload).unwrap();
    assert!(failure.message.contains("thermo 0.0.1"), "{failure}");
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_client_that_breaks_the_protocol_ends_its_connection() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve_connection(far, "n", &mut |_| Ok(Reply::Done.into())));
    let mut raw = near.try_clone().unwrap();
    let _channel = Channel::open(near, "t").unwrap();
    frame::write_frame(&mut raw, Kind::Reply, 1, &frame::encode(&Reply::Done).unwrap()).unwrap();
    assert!(matches!(server.join().unwrap(), Err(WireError::Unexpected { got: Kind::Reply, .. })));
}

#[test]
fn the_kernel_tells_who_called() {
    let (near, _far) = UnixStream::pair().unwrap();
    let peer = wire::peer(&near).unwrap();
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    assert_eq!(peer.pid, std::process::id() as i32);
    let own = rustix::process::getgroups().unwrap();
    assert_eq!(peer.groups, own.iter().map(|g| g.as_raw()).collect::<Vec<_>>());
}
