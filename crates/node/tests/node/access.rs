//! Files over the control socket: nobody gets more than the permission bits of a file allow him, whatever call he uses.

use crate::support::{Bed, cx};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::{Answer, Call, Failure, FileCall, Reply};

const ALL: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, nonblock: false };

fn user(uid: u32) -> Cx {
    Cx::user(uid, uid, cx().now)
}

fn ask(bed: &Bed, session: &mut node::Session, uid: u32, call: FileCall) -> Result<Answer, Failure> {
    bed.node.call(&user(uid), session, Call::File(call))
}

/// A directory in which everybody may write but only owners remove, with a file of user 1001.
fn shared(bed: &Bed, mode: u32) -> Ino {
    bed.node.setattr(&cx(), Ino::ROOT, &SetAttr { mode: Some(0o1777), ..SetAttr::default() }).unwrap();
    let file = bed.write("private", b"content");
    let owner = SetAttr { uid: Some(1001), gid: Some(1001), ..SetAttr::default() };
    bed.node.setattr(&cx(), file, &owner).unwrap();
    bed.node.setattr(&cx(), file, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
    file
}

fn creates(flags: OpenFlags) -> [FileCall; 2] {
    let (parent, name) = (Ino::ROOT, b"private".to_vec());
    [
        FileCall::Create { parent, name: name.clone(), mode: 0o666, exclusive: false },
        FileCall::CreateAs { parent, name, mode: 0o666, flags },
    ]
}

#[test]
fn creating_a_file_that_is_there_opens_it_only_for_who_may() {
    let bed = Bed::new();
    let file = shared(&bed, 0o640);
    let mut session = node::Session::default();
    for call in creates(OpenFlags { truncate: true, ..ALL }) {
        let refused = ask(&bed, &mut session, 1002, call).unwrap_err();
        assert_eq!(refused.fs, Some(FsError::AccessDenied), "{refused}");
    }
    let refused = ask(&bed, &mut session, 1002, FileCall::OpenAs { ino: file, flags: ALL }).unwrap_err();
    assert_eq!(refused.fs, Some(FsError::AccessDenied), "{refused}");
    assert_eq!(bed.read(file), b"content");
    for call in creates(ALL) {
        assert!(ask(&bed, &mut session, 1001, call).is_ok(), "its owner may");
    }
    let exclusive = OpenFlags { exclusive: true, ..ALL };
    let [_, call] = creates(exclusive);
    assert_eq!(ask(&bed, &mut session, 1001, call).unwrap_err().fs, Some(FsError::Exists));
    bed.node.end_session(session);
}

/// Who may only write gets a descriptor that cannot read, and the other way round.
#[test]
fn descriptors_can_do_no_more_than_was_asked_for() {
    let bed = Bed::new();
    let file = shared(&bed, 0o624);
    let mut session = node::Session::default();
    let mut open = |uid, flags| ask(&bed, &mut session, uid, FileCall::OpenAs { ino: file, flags });
    let only_write = OpenFlags { read: false, ..ALL };
    let only_read = OpenFlags { write: false, ..ALL };
    let group = 1001;
    assert!(open(1002, only_read).is_ok(), "others may read");
    assert_eq!(open(1002, ALL).unwrap_err().fs, Some(FsError::AccessDenied));
    let descriptor = |answer: Answer| answer.descriptor.expect("a descriptor");
    let mut byte = [0];
    let writing = descriptor(open(group, only_write).unwrap());
    assert!(rustix::io::pread(&writing, &mut byte, 0).is_err());
    assert_eq!(rustix::io::pwrite(&writing, b"C", 0), Ok(1));
    let reading = descriptor(open(group, only_read).unwrap());
    assert_eq!(rustix::io::pread(&reading, &mut byte, 0), Ok(1));
    assert!(rustix::io::pwrite(&reading, b"x", 0).is_err());
    let both = descriptor(open(group, ALL).unwrap());
    assert_eq!((rustix::io::pread(&both, &mut byte, 0), byte), (Ok(1), *b"C"));
    assert_eq!(rustix::io::pwrite(&both, b"c", 0), Ok(1));
    let end = open(group, OpenFlags { append: true, ..ALL }).unwrap();
    assert!(end.descriptor.is_none(), "only the node knows where the end is");
    bed.node.end_session(session);
}

#[test]
fn a_program_that_somebody_else_may_write_loses_its_rights() {
    let bed = Bed::new();
    let file = shared(&bed, 0o4777);
    let mut session = node::Session::default();
    let mode = || bed.node.getattr(&cx(), file).unwrap().mode;
    ask(&bed, &mut session, 1002, FileCall::OpenAs { ino: file, flags: OpenFlags { write: false, ..ALL } })
        .unwrap();
    assert_eq!(mode(), 0o4777, "reading changes nothing");
    let opened = ask(&bed, &mut session, 1002, FileCall::OpenAs { ino: file, flags: ALL }).unwrap();
    assert!(matches!(opened.reply, Reply::Opened { .. }));
    assert_eq!(mode(), 0o777);
    bed.node.end_session(session);
}

/// Names that only their owner may take away in such a directory.
#[test]
fn names_are_changed_by_who_may() {
    let bed = Bed::new();
    shared(&bed, 0o644);
    let mut session = node::Session::default();
    let (from, to) = ((Ino::ROOT, b"private".to_vec()), (Ino::ROOT, b"mine".to_vec()));
    let rename = || FileCall::Rename { from: from.clone(), to: to.clone(), mode: RenameMode::Replace };
    let refused = ask(&bed, &mut session, 1002, rename()).unwrap_err();
    assert_eq!(refused.fs, Some(FsError::NotPermitted), "{refused}");
    let closed = bed.node.mkdir(&cx(), Ino::ROOT, b"closed", 0o700).unwrap().ino;
    let into = FileCall::Rename { from: to.clone(), to: (closed, b"x".to_vec()), mode: RenameMode::Replace };
    ask(&bed, &mut session, 1001, rename()).unwrap();
    assert_eq!(ask(&bed, &mut session, 1001, into).unwrap_err().fs, Some(FsError::AccessDenied));
    let rmdir = FileCall::Rmdir { parent: Ino::ROOT, name: b"closed".to_vec() };
    assert_eq!(ask(&bed, &mut session, 1001, rmdir.clone()).unwrap_err().fs, Some(FsError::NotPermitted));
    ask(&bed, &mut session, 0, rmdir).unwrap();
}

/// Only administrators say where a directory leads; everybody is told, also by what is refused there.
#[test]
fn junctions_are_made_by_administrators_and_told_to_everybody() {
    let bed = Bed::new();
    let dir = bed.node.mkdir(&cx(), Ino::ROOT, b"scratch", 0o777).unwrap().ino;
    let mut session = node::Session::default();
    let mut call = |uid, call| bed.node.call(&user(uid), &mut session, call).map(|answer| answer.reply);
    let make = |address: &str| Call::JunctionMake {
        path: b"/scratch".to_vec(),
        subsystem: "fast".into(),
        addresses: vec![address.into()],
    };
    let refused = call(1001, make("mds2:7430")).unwrap_err();
    assert_eq!(refused.fs, Some(FsError::NotPermitted), "{refused}");
    let refused = call(0, make("mds2")).unwrap_err();
    assert!(refused.class == ErrorClass::Invalid && refused.message.contains("host:port"), "{refused}");
    assert_eq!(call(1001, Call::Junctions), Ok(Reply::Junctions(vec![])));
    assert_eq!(call(0, make("mds2:7430")), Ok(Reply::Done));
    let Ok(Reply::Junctions(found)) = call(1001, Call::Junctions) else { panic!("no list") };
    assert_eq!((found.len(), &found[0].path, found[0].ino), (1, &"/scratch".into(), dir));
    let name = b"x".to_vec();
    let inside = [
        Call::File(FileCall::Mkdir { parent: dir, name: name.clone(), mode: 0o755 }),
        Call::File(FileCall::Create { parent: dir, name: name.clone(), mode: 0o644, exclusive: true }),
        Call::File(FileCall::CreateAs { parent: dir, name, mode: 0o644, flags: ALL }),
        Call::File(FileCall::Resolve { path: b"/scratch/x/y".to_vec() }),
        Call::File(FileCall::Follow { path: b"/scratch/x".to_vec() }),
        Call::Stat { path: b"/scratch/x".to_vec() },
        Call::List { path: b"/scratch/x".to_vec(), after: 0, limit: 10 },
    ];
    for inside in inside {
        let refused = call(1001, inside.clone()).unwrap_err();
        assert_eq!(
            (refused.class, refused.fs),
            (ErrorClass::Namespace, Some(FsError::Elsewhere)),
            "{inside:?}"
        );
        let words = ["/scratch leads to subsystem fast", "--node mds2:7430"];
        assert!(words.iter().all(|word| refused.message.contains(word)), "{inside:?}: {refused}");
    }
    let remove = || Call::JunctionRemove { path: b"/scratch".to_vec() };
    assert_eq!(call(1001, remove()).unwrap_err().fs, Some(FsError::NotPermitted));
    assert_eq!(call(0, remove()), Ok(Reply::Done));
    assert_eq!(call(0, remove()).unwrap_err().class, ErrorClass::NotFound);
    bed.node.end_session(session);
}
