//! Names, permissions and times: the corner cases by name.

use crate::common::*;
use catalog::{CatalogError, New};
use types::api::XattrMode;
use types::*;

const R: Ino = Ino::ROOT;

fn fs<T: std::fmt::Debug>(r: Result<T, CatalogError>) -> FsError {
    match r.expect_err("must be refused") {
        CatalogError::Fs(e) => e,
        other => panic!("{other}"),
    }
}

fn mkdir(f: &Fixture, dir: Ino, name: &str, now: i64) -> Ino {
    f.catalog
        .create(&root(now), dir, name.as_bytes(), &New::node(FileKind::Directory, 0o755))
        .expect("mkdir")
        .attr
        .ino
}

fn touch(f: &Fixture, dir: Ino, name: &str, now: i64) -> Ino {
    f.catalog
        .create(&root(now), dir, name.as_bytes(), &New::node(FileKind::File, 0o644))
        .expect("create")
        .attr
        .ino
}

fn rename(
    f: &Fixture,
    now: i64,
    from: (Ino, &str),
    to: (Ino, &str),
    mode: RenameMode,
) -> Result<Option<catalog::Removed>, CatalogError> {
    f.catalog.rename(&root(now), (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), mode, &|_| false)
}

#[test]
fn create_in_a_removed_directory_is_not_found() {
    let f = memory();
    let d = mkdir(&f, R, "d", 2);
    f.catalog.rmdir(&root(3), R, b"d").expect("rmdir");
    assert_eq!(fs(f.catalog.create(&root(4), d, b"x", &New::node(FileKind::File, 0o644))), FsError::NotFound);
    f.check();
}

#[test]
fn names_are_checked() {
    let f = memory();
    let new = New::node(FileKind::File, 0o644);
    let long = vec![b'n'; 255];
    f.catalog.create(&root(2), R, &long, &new).expect("255 bytes fit");
    assert_eq!(fs(f.catalog.create(&root(2), R, &[b'n'; 256], &new)), FsError::NameTooLong);
    assert_eq!(fs(f.catalog.create(&root(2), R, b"a/b", &new)), FsError::Invalid);
    assert_eq!(fs(f.catalog.create(&root(2), R, b"a\0b", &new)), FsError::Invalid);
    assert_eq!(fs(f.catalog.create(&root(2), R, b"..", &new)), FsError::Exists);
    assert_eq!(fs(f.catalog.create(&root(2), R, b"", &new)), FsError::NotFound);
    assert_eq!(fs(f.catalog.create(&root(2), R, &long, &new)), FsError::Exists);
    f.check();
}

#[test]
fn rename_refuses_what_posix_refuses() {
    let f = memory();
    let a = mkdir(&f, R, "a", 2);
    let b = mkdir(&f, a, "b", 2);
    touch(&f, b, "file", 2);
    touch(&f, R, "plain", 2);
    let m = RenameMode::Replace;
    assert_eq!(fs(rename(&f, 3, (R, "a"), (b, "x"), m)), FsError::Invalid);
    assert_eq!(fs(rename(&f, 3, (R, "a"), (a, "x"), m)), FsError::Invalid);
    assert_eq!(fs(rename(&f, 3, (a, "b"), (R, "a"), m)), FsError::NotEmpty);
    mkdir(&f, R, "e", 3);
    assert_eq!(fs(rename(&f, 3, (R, "e"), (R, "a"), m)), FsError::NotEmpty);
    assert_eq!(fs(rename(&f, 3, (R, "e"), (R, "plain"), m)), FsError::NotADirectory);
    assert_eq!(fs(rename(&f, 3, (R, "plain"), (R, "e"), m)), FsError::IsADirectory);
    assert_eq!(fs(rename(&f, 3, (R, "plain"), (R, "e"), RenameMode::NoReplace)), FsError::Exists);
    assert_eq!(fs(rename(&f, 3, (R, "plain"), (R, "none"), RenameMode::Exchange)), FsError::NotFound);
    assert_eq!(fs(rename(&f, 3, (R, "a"), (a, "b"), RenameMode::Exchange)), FsError::Invalid);
    assert_eq!(fs(rename(&f, 3, (R, "none"), (R, "x"), m)), FsError::NotFound);
    f.check();
}

#[test]
fn rename_moves_directories_with_their_counters_and_parent() {
    let f = memory();
    let (a, b) = (mkdir(&f, R, "a", 2), mkdir(&f, R, "b", 2));
    let d = mkdir(&f, a, "d", 3);
    let file = touch(&f, d, "f", 3);
    rename(&f, 9, (a, "d"), (b, "e"), RenameMode::Replace).expect("rename");
    assert_eq!(f.catalog.path_of(file).expect("path"), b"/b/e/f");
    assert_eq!(f.catalog.parent(d).expect("parent"), b);
    let (a, b) = (f.catalog.inode(a).expect("a").attr, f.catalog.inode(b).expect("b").attr);
    assert_eq!((a.nlink, a.size, a.mtime), (2, 0, t(9)));
    assert_eq!((b.nlink, b.size, b.mtime), (3, 1, t(9)));
    assert_eq!(f.catalog.inode(d).expect("d").attr.ctime, t(9));
    f.check();
}

#[test]
fn rename_between_hard_links_of_one_file_does_nothing() {
    let f = memory();
    let x = touch(&f, R, "x", 2);
    f.catalog.link(&root(3), x, R, b"y").expect("link");
    assert_eq!(rename(&f, 4, (R, "x"), (R, "y"), RenameMode::Replace).expect("no-op"), None);
    let attr = f.catalog.lookup(R, b"x").expect("still there").attr;
    assert_eq!((attr.nlink, attr.ctime), (2, t(3)));
    f.check();
}

#[test]
fn exchange_swaps_file_and_directory_and_keeps_cookies() {
    let f = memory();
    let (a, b) = (mkdir(&f, R, "a", 2), mkdir(&f, R, "b", 2));
    let (sub, file) = (mkdir(&f, a, "x", 2), touch(&f, b, "y", 2));
    let before = f.catalog.readdir(a, 0, 10).expect("list").found[0].cookie;
    rename(&f, 5, (a, "x"), (b, "y"), RenameMode::Exchange).expect("exchange");
    let listed = f.catalog.readdir(a, 0, 10).expect("list").found;
    assert_eq!((listed[0].ino, listed[0].cookie, listed[0].kind), (file, before, FileKind::File));
    assert_eq!(f.catalog.lookup(b, b"y").expect("dir").attr.ino, sub);
    assert_eq!(f.catalog.inode(a).expect("a").attr.nlink, 2);
    assert_eq!(f.catalog.inode(b).expect("b").attr.nlink, 3);
    f.check();
}

#[test]
fn the_last_link_of_an_open_file_leaves_an_orphan_until_reaped() {
    let f = memory();
    let new = New::file(0o644, ObjectId(7));
    let x = f.catalog.create(&root(2), R, b"x", &new).expect("create").attr.ino;
    f.catalog.link(&root(3), x, R, b"y").expect("link");
    let first = f.catalog.unlink(&root(4), R, b"x", &|_| true).expect("unlink");
    assert_eq!((first.freed, first.orphan), (None, false));
    assert_eq!(f.catalog.path_of(x).expect("other name"), b"/y");
    let last = f.catalog.unlink(&root(5), R, b"y", &|_| true).expect("unlink");
    assert_eq!((last.freed, last.orphan), (None, true));
    assert_eq!(f.catalog.inode(x).expect("open still").attr.nlink, 0);
    assert_eq!(fs(f.catalog.link(&root(6), x, R, b"z")), FsError::NotFound);
    assert_eq!(f.catalog.orphans().expect("list"), [x]);
    f.check();
    assert_eq!(f.catalog.reap(x).expect("reap"), Some(ObjectId(7)));
    assert_eq!(f.catalog.reap(x).expect("again"), None);
    assert_eq!(fs(f.catalog.inode(x)), FsError::NotFound);
    assert_eq!(f.catalog.totals().expect("totals").inodes, 1);
    f.check();
}

#[test]
fn links_to_directories_are_not_permitted() {
    let f = memory();
    let d = mkdir(&f, R, "d", 2);
    assert_eq!(fs(f.catalog.link(&root(3), d, R, b"e")), FsError::NotPermitted);
}

#[test]
fn sticky_directories_protect_the_files_of_others() {
    let f = memory();
    let d = mkdir(&f, R, "tmp", 2);
    f.catalog.setattr(&root(2), d, &SetAttr { mode: Some(0o1777), ..SetAttr::default() }).expect("chmod");
    let new = New::node(FileKind::File, 0o644);
    f.catalog.create(&user(5, 3), d, b"mine", &new).expect("create");
    assert_eq!(fs(f.catalog.unlink(&user(6, 4), d, b"mine", &|_| false)), FsError::NotPermitted);
    let to = (d, b"theirs".as_slice());
    let moved = f.catalog.rename(&user(6, 4), (d, b"mine"), to, RenameMode::Replace, &|_| false);
    assert_eq!(fs(moved), FsError::NotPermitted);
    f.catalog.unlink(&user(5, 4), d, b"mine", &|_| false).expect("his own");
    assert_eq!(fs(f.catalog.create(&user(5, 3), R, b"x", &new)), FsError::AccessDenied);
    f.check();
}

#[test]
fn setgid_directories_give_their_group() {
    let f = memory();
    let d = mkdir(&f, R, "g", 2);
    let set = SetAttr { mode: Some(0o2777), gid: Some(77), ..SetAttr::default() };
    f.catalog.setattr(&root(2), d, &set).expect("chmod");
    let sub =
        f.catalog.create(&user(5, 3), d, b"s", &New::node(FileKind::Directory, 0o755)).expect("mkdir").attr;
    assert_eq!((sub.gid, sub.mode), (77, 0o2755));
    let file =
        f.catalog.create(&user(5, 3), d, b"f", &New::node(FileKind::File, 0o644)).expect("create").attr;
    assert_eq!((file.gid, file.uid), (77, 5));
}

#[test]
fn setattr_follows_the_rules_of_owners() {
    let f = memory();
    let d = mkdir(&f, R, "d", 2);
    f.catalog.setattr(&root(2), d, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).expect("chmod");
    let x =
        f.catalog.create(&user(5, 3), d, b"x", &New::node(FileKind::File, 0o666)).expect("create").attr.ino;
    let set = |cx: &Cx, s: SetAttr| f.catalog.setattr(cx, x, &s);
    let none = SetAttr::default();
    assert_eq!(fs(set(&user(6, 4), SetAttr { mode: Some(0o600), ..none.clone() })), FsError::NotPermitted);
    assert_eq!(fs(set(&user(5, 4), SetAttr { uid: Some(6), ..none.clone() })), FsError::NotPermitted);
    assert_eq!(fs(set(&user(5, 4), SetAttr { gid: Some(9), ..none.clone() })), FsError::NotPermitted);
    let member = Cx { groups: vec![9], ..user(5, 4) };
    assert_eq!(set(&member, SetAttr { gid: Some(9), ..none.clone() }).expect("own group").attr.gid, 9);
    let mode = set(&user(5, 5), SetAttr { mode: Some(0o6755), ..none.clone() }).expect("chmod").attr.mode;
    assert_eq!(mode, 0o4755, "setgid goes when the caller is not in the group");
    let owner = set(&root(6), SetAttr { uid: Some(8), ..none.clone() }).expect("chown").attr;
    assert_eq!((owner.mode, owner.ctime), (0o755, t(6)), "setuid goes on chown");
    let explicit = SetAttr { mtime: Some(t(1)), atime: Some(t(1)), ..none.clone() };
    set(&user(8, 7), SetAttr { mode: Some(0o666), ..none.clone() }).expect("chmod");
    assert_eq!(fs(set(&user(6, 7), explicit.clone())), FsError::NotPermitted);
    let now = SetAttr { mtime: Some(t(7)), atime: Some(t(7)), ..none };
    assert_eq!(set(&user(6, 7), now.clone()).expect("may write").attr.mtime, t(7));
    assert_eq!(set(&user(8, 8), explicit).expect("owner").attr.mtime, t(1));
    set(&user(8, 9), SetAttr { mode: Some(0o644), ..SetAttr::default() }).expect("chmod");
    assert_eq!(fs(set(&user(6, 7), now)), FsError::AccessDenied);
    f.check();
}

#[test]
fn clearing_set_id_bits_takes_nothing_else_from_a_mode() {
    let f = memory();
    let x = f.catalog.create(&root(1), R, b"x", &New::node(FileKind::File, 0o644)).expect("create").attr.ino;
    let chmod = |mode| {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        f.catalog.setattr(&root(2), x, &set).expect("chmod")
    };
    let mode = || f.catalog.inode(x).expect("there").attr.mode;
    for (before, after) in [(0o6755, 0o755), (0o2745, 0o2745), (0o4745, 0o745), (0o1777, 0o1777)] {
        chmod(before);
        assert_eq!(f.catalog.clear_set_id(x, t(3)).expect("clear"), before != after);
        assert_eq!(mode(), after);
    }
    let d = mkdir(&f, R, "d", 2);
    f.catalog.setattr(&root(2), d, &SetAttr { mode: Some(0o6777), ..SetAttr::default() }).expect("chmod");
    assert!(!f.catalog.clear_set_id(d, t(3)).expect("a directory keeps its bits"));
    // A chmod at the same time stays.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                f.catalog.clear_set_id(x, t(4)).expect("clear");
            }
        });
        for n in 0..3000 {
            chmod(0o4000 | n & 0o777);
            let found = mode() & 0o777;
            if found != n & 0o777 {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(found, n & 0o777);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    f.check();
}

#[test]
fn utimes_on_a_directory_sets_mtime_back() {
    let f = memory();
    let d = mkdir(&f, R, "d", 2);
    touch(&f, d, "x", 50);
    let set = SetAttr { mtime: Some(t(7)), ..SetAttr::default() };
    let attr = f.catalog.setattr(&root(60), d, &set).expect("utimes").attr;
    assert_eq!((attr.mtime, attr.ctime), (t(7), t(60)));
    touch(&f, d, "y", 70);
    let attr = f.catalog.inode(d).expect("d").attr;
    assert_eq!((attr.mtime, attr.ctime, attr.size), (t(70), t(70), 2));
    f.check();
}

#[test]
fn xattrs_keep_their_rules() {
    let f = memory();
    let x = touch(&f, R, "x", 2);
    let set = |cx: &Cx, n: &[u8], v: &[u8], m| f.catalog.setxattr(cx, x, n, v, m);
    set(&root(3), b"user.a", b"1", XattrMode::Create).expect("create");
    assert_eq!(f.catalog.inode(x).expect("x").attr.ctime, t(3));
    assert_eq!(fs(set(&root(3), b"user.a", b"1", XattrMode::Create)), FsError::Exists);
    assert_eq!(fs(set(&root(3), b"user.b", b"1", XattrMode::Replace)), FsError::NoAttribute);
    assert_eq!(fs(set(&root(3), b"user.b", &vec![0; 65537], XattrMode::Any)), FsError::TooBig);
    assert_eq!(fs(set(&root(3), b"system.other", b"", XattrMode::Any)), FsError::NotSupported);
    assert_eq!(fs(set(&user(5, 3), b"trusted.a", b"", XattrMode::Any)), FsError::NotPermitted);
    assert_eq!(fs(set(&user(5, 3), b"user.a", b"", XattrMode::Any)), FsError::AccessDenied);
    assert_eq!(fs(set(&root(3), b"system.posix_acl_default", b"", XattrMode::Any)), FsError::AccessDenied);
    set(&root(3), b"system.posix_acl_access", b"acl", XattrMode::Any).expect("stored");
    set(&root(3), b"trusted.t", b"", XattrMode::Any).expect("stored");
    assert_eq!(f.catalog.listxattr(&user(5, 4), x).expect("list").len(), 2);
    assert_eq!(f.catalog.listxattr(&root(4), x).expect("list").len(), 3);
    f.check();
    f.catalog.removexattr(&root(5), x, b"user.a").expect("remove");
    assert_eq!(fs(f.catalog.getxattr(&root(5), x, b"user.a")), FsError::NoAttribute);
    f.catalog.unlink(&root(6), R, b"x", &|_| false).expect("unlink takes them along");
    f.check();
}

#[test]
fn listings_continue_across_changes() {
    let f = lmdb();
    for i in 0..500 {
        touch(&f, R, &format!("f{i:03}"), 2);
    }
    let first = f.catalog.readdir(R, 0, 200).expect("page").found;
    for i in (0..500).step_by(2) {
        f.catalog.unlink(&root(3), R, format!("f{i:03}").as_bytes(), &|_| false).expect("unlink");
    }
    for i in 500..600 {
        touch(&f, R, &format!("f{i:03}"), 4);
    }
    let mut names: Vec<_> = first.iter().map(|e| e.name.clone()).collect();
    let mut cookie = first.last().expect("entries").cookie;
    loop {
        let page = f.catalog.readdir_plus(R, cookie, 64).expect("page").found;
        let Some((last, _)) = page.last() else { break };
        cookie = last.cookie;
        names.extend(page.into_iter().map(|(e, _)| e.name));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "no entry twice");
    for i in (1..500).step_by(2) {
        assert!(names.binary_search(&format!("f{i:03}").into_bytes()).is_ok(), "f{i} was there all the time");
    }
    f.check();
}

#[test]
fn paths_resolve_through_symlinks_and_permissions() {
    let f = memory();
    let a = mkdir(&f, R, "a", 2);
    let x = touch(&f, a, "x", 2);
    let link = |name: &str, to: &str| {
        let new = New { target: Some(to.into()), ..New::node(FileKind::Symlink, 0) };
        f.catalog.create(&root(2), R, name.as_bytes(), &new).expect("symlink").attr
    };
    let l = link("l", "a/../a/x");
    assert_eq!((l.size, l.mode), (8, 0o777));
    link("abs", "/l");
    link("loop", "loop");
    let at = |cx: &Cx, p: &str, follow| f.catalog.resolve(cx, p.as_bytes(), follow).map(|i| i.attr.ino);
    assert_eq!(at(&root(3), "/abs", true).expect("follows"), x);
    assert_eq!(at(&root(3), "/l", false).expect("itself"), l.ino);
    assert_eq!(fs(at(&root(3), "/loop", true)), FsError::Loop);
    assert_eq!(fs(at(&root(3), "/a/x/", true)), FsError::NotADirectory);
    assert_eq!(at(&root(3), "//a/./", true).expect("dir"), a);
    assert_eq!(fs(at(&root(3), "/none", true)), FsError::NotFound);
    f.catalog.setattr(&root(4), a, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).expect("chmod");
    assert_eq!(fs(at(&user(5, 5), "/a/x", true)), FsError::AccessDenied);
    f.check();
}

#[test]
fn a_reopened_catalogue_goes_on_with_new_numbers() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("meta");
    let first = {
        let c = catalog::Catalog::open(engine(&path), t(1)).expect("opens");
        c.create(&root(2), R, b"x", &New::node(FileKind::File, 0o644)).expect("create").attr.ino
    };
    let c = catalog::Catalog::open(engine(&path), t(3)).expect("opens again");
    assert_eq!(c.lookup(R, b"x").expect("kept").attr.ino, first);
    let second = c.create(&root(2), R, b"y", &New::node(FileKind::File, 0o644)).expect("create").attr.ino;
    assert!(second > first);
    assert_eq!(c.inode(R).expect("root").attr.btime, t(1));
    assert!(catalog::check::verify(&c).is_empty());
}

/// A mount has its callers checked by the kernel, which knows all their groups but does not tell.
#[test]
fn callers_who_were_checked_are_not_checked_again() {
    let f = memory();
    let d = mkdir(&f, R, "d", 2);
    let closed = SetAttr { mode: Some(0o2770), gid: Some(9), ..SetAttr::default() };
    f.catalog.setattr(&root(2), d, &closed).expect("a directory of group 9");
    let new = New::node(FileKind::File, 0o2755);
    assert_eq!(fs(f.catalog.create(&user(5, 3), d, b"x", &new)), FsError::AccessDenied);
    let member = Cx { checked: true, ..user(5, 3) };
    let made = f.catalog.create(&member, d, b"x", &new).expect("the kernel let him").attr;
    assert_eq!((made.uid, made.gid, made.mode), (5, 9, 0o2755));
    f.catalog.setxattr(&member, made.ino, b"user.a", b"v", XattrMode::Any).expect("set");
    f.catalog.unlink(&member, d, b"x", &|_| false).expect("remove");
    for name in [&b"user."[..], b"trusted.", b"security."] {
        assert_eq!(fs(f.catalog.getxattr(&root(4), d, name)), FsError::Invalid);
    }
    f.check();
}

/// All that a catalogue holds.
fn content(f: &Fixture) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let read = kv::read(&**f.catalog.engine(), |r| {
        all.clear();
        r.scan(&[], &[u8::MAX; 64], &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })
    });
    read.expect("scan");
    all
}

#[test]
fn a_file_that_is_made_closed_is_as_one_that_is_made_and_then_closed() {
    let (closed, opened) = (memory(), memory());
    for (number, at) in [(1, 49), (2, 50), (3, 51)] {
        let object = ObjectId(closed.catalog.alloc_objects(1).expect("an object").start);
        assert_eq!(opened.catalog.alloc_objects(1).expect("an object").start, object.0);
        let (name, made) = (format!("file-{number}"), stamp(0, at));
        let as_one =
            closed.catalog.create(&root(50), R, name.as_bytes(), &New::closed_file(0o640, object, made));
        let ino = opened
            .catalog
            .create(&root(50), R, name.as_bytes(), &New::file(0o640, object))
            .expect("create")
            .attr
            .ino;
        let as_two = opened
            .catalog
            .observe(&root(50), ino, object, &made, true, kv::Durability::Relaxed)
            .expect("close");
        assert_eq!(as_one.expect("create"), as_two);
        assert!(!closed.catalog.is_writing(ino).expect("whether it is being written"));
        assert!(closed.catalog.candidate(ino).expect("candidate").is_some(), "it goes to tape as it is");
    }
    assert_eq!(content(&closed), content(&opened));
    closed.check();
}

#[test]
fn what_has_no_object_or_is_being_written_is_not_made_closed() {
    let f = memory();
    let object = ObjectId(f.catalog.alloc_objects(1).expect("an object").start);
    let new = New::closed_file(0o640, object, stamp(0, 1));
    for wrong in [New { writing: true, ..new.clone() }, New { object: None, ..new }] {
        assert_eq!(fs(f.catalog.create(&root(2), R, b"file", &wrong)), FsError::Invalid);
    }
    f.check();
}
