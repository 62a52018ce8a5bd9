//! What a volume of another namespace, or of another program, tells: its directories, files and links, with paths.

use super::super::layout::Tells;
use format::ltfs::Partition;
use format::ltfs::file::from_index;
use format::ltfs::index::{Content, DirMeta, IndexEvent, IndexExtent, IndexFile};
use format::ltfs::origin::{DirFacts, Origin};
use std::sync::Arc;
use types::*;

/// Next on the volume. Paths are absolute in what the volume shows.
pub enum Entry {
    /// Whose volume it is; the first of all.
    Begin,
    Dir {
        path: Vec<u8>,
        facts: Option<DirFacts>,
    },
    /// Inode and version are those of the other namespace.
    File(Box<TapeFile>),
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    /// A version that the other namespace needs no more.
    Dead,
    /// Cannot be taken, and why.
    Left(String),
}

/// Follows what a volume tells.
pub struct Walk {
    uuid: String,
    /// Name of the namespace whose inodes these are; of a volume of another program one of its own.
    pub site: Option<String>,
    /// A volume of ours: its files carry all that is known of them.
    pub ours: bool,
    dirs: Vec<catalog::ListedDir>,
    shared: Option<Arc<[catalog::ListedDir]>>,
    /// Files without a uid get numbers by their order.
    count: u64,
}

/// Uids of files in formats that have none begin here.
const COUNTED: u64 = 1 << 62;

/// What a volume of ours tells of a file or another node.
fn entry(found: TapeFile) -> Entry {
    let node = &found.node;
    match found.kind() {
        _ if !found.live || node.gone || found.ino.is_word() => Entry::Dead,
        Some(FileKind::File) => Entry::File(Box::new(found)),
        Some(FileKind::Symlink) => Entry::Symlink { path: found.path, target: node.target.clone() },
        Some(FileKind::Directory) => {
            let (mode, uid, gid, class) =
                (found.mode & 0o7777, found.uid_owner, found.gid_owner, found.class.clone());
            Entry::Dir { path: found.path, facts: Some(DirFacts { mode, uid, gid, class, node: None }) }
        }
        _ => {
            let path = types::escape(&found.path);
            Entry::Left(format!("{path}: a device, pipe or socket, which is made by hand"))
        }
    }
}

impl Walk {
    /// At the beginning of a volume.
    pub fn new(uuid: &str) -> Self {
        Self { uuid: uuid.to_owned(), site: None, ours: false, dirs: Vec::new(), shared: None, count: 0 }
    }

    /// Directories of the volume's own tree that we are in.
    pub fn dirs(&mut self) -> Arc<[catalog::ListedDir]> {
        self.shared.get_or_insert_with(|| self.dirs.as_slice().into()).clone()
    }

    /// What the volume tells now, and the name on the volume; None: nothing of interest.
    pub fn next(&mut self, told: Tells<'_>) -> Vec<(String, Entry)> {
        match told {
            Tells::Event(IndexEvent::EnterDir(root)) if self.site.is_none() => {
                self.begin(Origin::of(root));
                vec![(String::new(), Entry::Begin)]
            }
            Tells::Event(event) => self.event(event).into_iter().collect(),
            Tells::File(head, file) => {
                let mut out = Vec::new();
                if self.site.is_none() {
                    self.begin(Origin::of_records(&head.attributes));
                    out.push((String::new(), Entry::Begin));
                }
                let name = format!("~section-{:010}", head.section);
                self.dirs = vec![catalog::ListedDir { name, created: head.begun, facts: None }];
                self.shared = None;
                out.push((file.uid.to_string(), entry(file.clone())));
                out
            }
        }
    }

    fn begin(&mut self, origin: Option<Origin>) {
        self.ours = origin.is_some();
        self.site = Some(origin.map_or_else(|| format!("volume:{}", self.uuid), |origin| origin.site));
    }

    fn event(&mut self, event: IndexEvent<'_>) -> Option<(String, Entry)> {
        match event {
            IndexEvent::Header(_) => None,
            IndexEvent::EnterDir(dir) => {
                self.enter(dir);
                let facts = DirFacts::of(dir);
                // Without facts the name is perhaps not that of the namespace: its files know theirs.
                let shown = facts.is_some() || !self.ours;
                shown.then(|| (dir.name.clone(), Entry::Dir { path: self.path(None), facts }))
            }
            IndexEvent::LeaveDir => {
                self.dirs.pop();
                self.shared = None;
                None
            }
            IndexEvent::File(file) => {
                self.count += 1;
                Some((file.name.clone(), self.file(file)))
            }
        }
    }

    fn enter(&mut self, dir: &DirMeta) {
        let (name, created) = (dir.name.clone(), dir.times.creation);
        self.dirs.push(catalog::ListedDir { name, created, facts: None });
        self.shared = None;
    }

    fn path(&self, name: Option<&str>) -> Vec<u8> {
        let names = self.dirs.iter().map(|dir| dir.name.as_str()).chain(name);
        names.fold(Vec::new(), |path, name| [&path[..], b"/", name.as_bytes()].concat())
    }

    fn file(&self, file: &IndexFile) -> Entry {
        match from_index(file) {
            Ok(Some(found)) => entry(found),
            Ok(None) => self.foreign(file),
            Err(e) => Entry::Left(e.to_string()),
        }
    }

    /// A file that another program wrote.
    fn foreign(&self, file: &IndexFile) -> Entry {
        let path = self.path(Some(&file.name));
        let extents = match &file.content {
            Content::Symlink(target) => return Entry::Symlink { path, target: target.clone().into_bytes() },
            Content::Extents(extents) => extents,
        };
        let shown = types::escape(&path);
        let inside = |e: &IndexExtent| {
            e.extent.file_offset.checked_add(e.extent.byte_count).is_some_and(|end| end <= file.length)
        };
        if let Some(odd) = extents.iter().find(|e| e.partition != Partition::DATA || !inside(e)) {
            let what = if inside(odd) { "lies on the index partition" } else { "is longer than it says" };
            return Entry::Left(format!("{shown}: it {what}"));
        }
        let uid = if file.uid == 0 { COUNTED + self.count } else { file.uid };
        let times = &file.times;
        let user = |x: &format::ltfs::index::Xattr| {
            let own = !x.key.starts_with("ltfs.");
            own.then(|| (format!("user.{}", x.key).into_bytes(), x.value.clone()))
        };
        Entry::File(Box::new(TapeFile {
            uid,
            ino: Ino(uid),
            version: Version(1),
            copy: CopyNo(1),
            file_size: file.length,
            segment_offset: 0,
            segment_length: file.length,
            extents: extents.iter().map(|e| e.extent).collect(),
            path,
            mode: if file.readonly { 0o100_444 } else { 0o100_644 },
            uid_owner: u32::MAX,
            gid_owner: u32::MAX,
            times: [times.access, times.modify, times.change, times.creation],
            digest: None,
            xattrs: file.xattrs.iter().filter_map(user).collect(),
            class: ClassName::default(),
            written: times.modify,
            live: true,
            node: NodeFacts::default(),
        }))
    }
}
