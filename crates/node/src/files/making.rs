//! Making files on targets.

use super::open::{Backing, Content};
use crate::Node;
use crate::error::fs_error;
use catalog::{Far, New};
use types::api::{FileApi, FsResult, OpenFlags, Opened};
use types::*;

impl Node {
    /// Creates a file on targets, as the rule of its directory says.
    pub(super) fn create_far(
        &self,
        cx: &Cx,
        (parent, name): (Ino, &[u8]),
        mode: u32,
        flags: OpenFlags,
        rule: &LayoutRule,
    ) -> FsResult<Opened> {
        let existing = |found: Ino| match flags.exclusive {
            true => Err(FsError::Exists),
            false => self.open_file(cx, found, flags),
        };
        match self.catalog.lookup(parent, name) {
            Ok(found) => return existing(found.attr.ino),
            Err(e) if e.fs() == FsError::NotFound => {}
            Err(e) => return Err(fs_error("create", &e)),
        }
        let (object, far) = self.make_far(rule)?;
        let new = New { far: true, ..New::file(mode, object) };
        let made = self.catalog.create(cx, parent, name, &new);
        // It belongs to the file now, or is to be removed.
        self.movers.settle(object);
        match made {
            Ok(inode) => self.open_made(cx, &inode, (object, far), flags),
            Err(e) => {
                self.movers.wake();
                match e.fs() {
                    FsError::Exists => existing(self.lookup(cx, parent, name)?.ino),
                    _ => Err(fs_error("create", &e)),
                }
            }
        }
    }

    /// Opens a file that was made a moment ago for writing. Others see its name already, and may have written it, closed it, and been lent it to read: then
    /// it is opened as any other one.
    fn open_made(
        &self,
        cx: &Cx,
        made: &Inode,
        (object, far): (ObjectId, Far),
        flags: OpenFlags,
    ) -> FsResult<Opened> {
        let (ino, flags) = (made.attr.ino, OpenFlags { write: true, ..flags });
        let opened = self.open.with(ino, |entry, state| {
            // Who writes it already may have a right to do so past the node.
            if state.handles > 0 || !self.is_as_made(made, object, &far)? {
                return Ok(None);
            }
            let file = self.far_file_at(ino, object, far, ObjectStamp::default())?;
            (state.direct, state.backing) = (false, Some(Backing { object, content: Content::Far(file) }));
            Ok(Some(self.opened(entry, state, made.attr.clone(), flags)))
        })?;
        match opened {
            Some(opened) => {
                self.take_alone(ino);
                Ok(opened)
            }
            None => self.open_file(cx, ino, OpenFlags { truncate: false, ..flags }),
        }
    }

    /// Whether nobody has opened, written and closed a file since it was made: from then on others see its name.
    fn is_as_made(&self, made: &Inode, object: ObjectId, far: &Far) -> FsResult<bool> {
        let fail = |e| fs_error("create", &e);
        let now = self.catalog.inode(made.attr.ino).map_err(fail)?;
        let marked = self.catalog.is_writing(made.attr.ino).map_err(fail)?;
        let same = now.observed == made.observed && now.attr.nlink > 0 && marked;
        Ok(same && self.catalog.far(object).map_err(fail)?.as_ref() == Some(far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_file_that_others_have_written_and_read_before_its_maker_opens_it_is_marked_as_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, writes) = (Cx::admin(crate::now()), OpenFlags { write: true, ..OpenFlags::default() });
        let made = node.create(&cx, Ino::ROOT, b"file", 0o644, writes).unwrap();
        let ino = made.attr.ino;
        let inode = node.catalog.inode(ino).unwrap();
        let object = inode.file.as_ref().unwrap().object.unwrap();
        let far = || Far {
            layout: layout::Layout { generation: 1, components: vec![] },
            stale: vec![],
            then: vec![],
            pool: None,
        };
        let reader = node.open(&cx, ino, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
        let beside = node.open_made(&cx, &inode, (object, far()), writes).unwrap();
        for opened in [made, beside] {
            assert!(node.catalog.is_writing(ino).unwrap());
            node.release(opened.handle);
        }
        assert!(!node.catalog.is_writing(ino).unwrap(), "now it may be lent to the reader");
        let opened = node.open_made(&cx, &inode, (object, far()), writes).unwrap();
        assert!(
            node.catalog.is_writing(ino).unwrap(),
            "whoever serves after a crash would take it for closed"
        );
        [opened, reader].into_iter().for_each(|opened| node.release(opened.handle));
        node.stop(true);
    }
}
