//! Frames and messages of a connection, both directions. A message that is understood is written as bytes that are
//! understood the same, and not longer.

use std::fmt::Debug;
use std::io::Cursor;
use types::{FileKind, FsError, Handle, Ino, Junction, JunctionState, JunctionView, Time};
use wire::frame::{self, Frame, Kind, MAX_PAYLOAD};
use wire::{Call, Failure, FileCall, Hello, Reply, Selection, SubsystemView, VERSION, WireError};

/// What a payload may be.
trait Message: Sized + PartialEq + Debug {
    fn decoded(payload: &[u8]) -> Result<Self, WireError>;
    fn encoded(&self) -> Result<Vec<u8>, WireError>;
}

macro_rules! messages {
    ($($kind:ident)+) => {
        $(impl Message for $kind {
            fn decoded(payload: &[u8]) -> Result<Self, WireError> {
                frame::decode(Kind::$kind, payload)
            }

            fn encoded(&self) -> Result<Vec<u8>, WireError> {
                frame::encode(self)
            }
        })+
    };
}
messages!(Call Reply Failure);

pub(super) fn run(bytes: &[u8]) {
    let mut stream = Cursor::new(bytes);
    let mut again = Vec::new();
    while let Ok(frame) = frame::read_frame(&mut stream) {
        assert!(frame.payload.len() <= MAX_PAYLOAD);
        frame::write_frame(&mut again, frame.kind, frame.id, &frame.payload).expect("memory takes it");
        message(&frame);
    }
    assert!(bytes.starts_with(&again), "frames are written as they were read");
}

fn message(frame: &Frame) {
    match frame.kind {
        Kind::Call => returns::<Call>(&frame.payload),
        Kind::Reply => returns::<Reply>(&frame.payload),
        Kind::Failure => returns::<Failure>(&frame.payload),
        Kind::Hello => {
            let Ok(hello) = frame::decode_hello(frame) else { return };
            assert!(!hello.program.contains(char::is_control), "{hello:?}");
            let _ = frame::agree(&hello);
        }
    }
}

fn returns<T: Message>(payload: &[u8]) {
    let Ok(message) = T::decoded(payload) else { return };
    let again = message.encoded().expect("it was decoded");
    assert!(again.len() <= payload.len(), "{} bytes became {}", payload.len(), again.len());
    assert_eq!(T::decoded(&again).expect("it was encoded"), message);
}

fn framed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_frame(&mut out, kind, 7, payload).expect("memory takes it");
    out
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let call = |call: &Call| framed(Kind::Call, &call.encoded().expect("a good call"));
    let reply = |reply: &Reply| framed(Kind::Reply, &reply.encoded().expect("a good reply"));
    let hello = Hello { version: VERSION, program: "thermo 0.1.0".into() };
    let failure = Failure { class: types::ErrorClass::Busy, fs: Some(FsError::Busy), message: "no".into() };
    let selection = Selection { paths: vec![b"/a".to_vec(), b"/\xff".to_vec()], recursive: true };
    let mknod =
        FileCall::Mknod { parent: Ino(1), name: b"x".to_vec(), kind: FileKind::Fifo, mode: 0o644, rdev: 0 };
    let attr = types::Attr {
        ino: Ino(3),
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 3,
        disk_bytes: 0,
        atime: Time::new(1, 2),
        mtime: Time::new(-1, 2),
        ctime: Time::new(i64::MAX, 2),
        btime: Time::new(i64::MIN, 2),
    };
    let junction = Junction { subsystem: "s".into(), addresses: vec!["a:1".into()], made: Time::new(1, 2) };
    let opened = Reply::Opened { handle: Handle(9), attr: attr.clone(), direct: true };
    vec![
        [framed(Kind::Hello, &frame::encode_hello(&hello)), call(&Call::Stage(selection))].concat(),
        call(&Call::File(mknod)),
        call(&Call::Down { graceful: true }),
        framed(Kind::Failure, &failure.encoded().expect("a good failure")),
        [reply(&Reply::Bytes(vec![9, 200])), reply(&opened)].concat(),
        reply(&Reply::Attr(attr)),
        reply(&Reply::Xattrs(vec![(b"user.k".to_vec(), b"v".to_vec())])),
        reply(&Reply::Pools(Vec::new())),
        call(&Call::JunctionMake {
            path: b"/p".to_vec(),
            subsystem: "s".into(),
            addresses: vec!["a:1".into()],
        }),
        reply(&Reply::Subsystem(Box::new(SubsystemView {
            name: Some("n".into()),
            site: "s".into(),
            addresses: vec!["a:1".into()],
        }))),
        reply(&Reply::Junctions(vec![JunctionView {
            path: "/p".into(),
            ino: Ino(3),
            junction,
            state: JunctionState::Silent("w".into()),
        }])),
    ]
}
