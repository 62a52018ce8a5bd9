//! A tree written down, so that two of them can be compared entry by entry.

use super::ui::Progress;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// Attributes that only the mount shows.
const VIRTUAL: &[u8] = b"user.thermo.";

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is, in a word.
    pub kind: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Length of a regular file.
    pub size: u64,
    /// Modification time: seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Device number of a device.
    pub rdev: u64,
    /// Target of a symlink.
    pub target: Option<PathBuf>,
    /// First path with the same inode.
    pub same_as: Option<PathBuf>,
    /// User attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// SHA-256 of a regular file.
    pub digest: Option<[u8; 32]>,
}

/// Entries by path relative to the place of the roots.
pub type Manifest = BTreeMap<PathBuf, Entry>;

/// Writes down the directories `names` below their parents: `(parent, name)`. Digests are added by [`digest`].
pub fn scan(roots: &[PathBuf]) -> Result<Manifest> {
    let mut scan = Scan { manifest: Manifest::new(), first: HashMap::new() };
    for root in roots {
        let name = PathBuf::from(root.file_name().unwrap_or_default());
        scan.entry(root, name)?;
    }
    Ok(scan.manifest)
}

struct Scan {
    manifest: Manifest,
    first: HashMap<(u64, u64), PathBuf>,
}

impl Scan {
    fn entry(&mut self, path: &Path, name: PathBuf) -> Result<()> {
        let meta = path.symlink_metadata().with_context(|| format!("looking at {}", path.display()))?;
        let mut entry = describe(path, &meta)?;
        if meta.nlink() > 1 && !meta.is_dir() {
            let first = self.first.entry((meta.dev(), meta.ino())).or_insert_with(|| name.clone());
            entry.same_as = (*first != name).then(|| first.clone());
        }
        self.manifest.insert(name.clone(), entry);
        if meta.is_dir() {
            let list = fs::read_dir(path).and_then(|list| list.collect::<Result<Vec<_>, _>>());
            let mut list = list.with_context(|| format!("listing {}", path.display()))?;
            list.sort_by_key(|e| e.file_name());
            for child in list {
                self.entry(&child.path(), name.join(child.file_name()))?;
            }
        }
        Ok(())
    }
}

fn describe(path: &Path, meta: &Metadata) -> Result<Entry> {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () => "block device",
    };
    let (is_link, is_file) = (kind == "symlink", kind == "file");
    Ok(Entry {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        size: if is_file { meta.size() } else { 0 },
        mtime: (meta.mtime(), meta.mtime_nsec()),
        rdev: if kind.ends_with("device") { meta.rdev() } else { 0 },
        target: if is_link {
            Some(fs::read_link(path).with_context(|| path.display().to_string())?)
        } else {
            None
        },
        same_as: None,
        xattrs: if is_link { Vec::new() } else { xattrs(path)? },
        digest: None,
    })
}

fn xattrs(path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut names, mut value) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for name in names[..length].split(|&b| b == 0) {
        if name.starts_with(b"user.") && !name.starts_with(VIRTUAL) {
            let length = rustix::fs::lgetxattr(path, name, &mut value[..])
                .with_context(|| format!("attributes of {}", path.display()))?;
            found.push((name.to_vec(), value[..length].to_vec()));
        }
    }
    found.sort();
    Ok(found)
}

/// Regular files of a manifest, in its order.
pub fn files(manifest: &Manifest) -> impl Iterator<Item = (&PathBuf, &Entry)> {
    manifest.iter().filter(|(_, entry)| entry.kind == "file")
}

/// Computes digests of the named files, in parallel; `place` says where a file is.
pub fn digest(
    manifest: &mut Manifest,
    names: &[PathBuf],
    place: &(dyn Fn(&Path) -> PathBuf + Sync),
    progress: &Progress,
) -> Result<()> {
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 8);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(names.len()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut done = Vec::new();
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let digest = digest_of(&place(name), progress);
                    let failed = digest.is_err();
                    done.push((name, digest));
                    if failed {
                        next.store(names.len(), Ordering::Relaxed);
                    }
                }
                results.lock().unwrap_or_else(|e| e.into_inner()).extend(done);
            });
        }
    });
    for (name, digest) in results.into_inner().unwrap_or_else(|e| e.into_inner()) {
        let digest = digest?;
        if let Some(entry) = manifest.get_mut(name) {
            entry.digest = Some(digest);
        }
    }
    Ok(())
}

fn digest_of(path: &Path, progress: &Progress) -> Result<[u8; 32]> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let got = file.read(&mut buffer).with_context(|| format!("reading {}", path.display()))?;
        if got == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&buffer[..got]);
        progress.add(got as u64);
    }
}

/// What differs between the original and the copy, one line each. Owners count only if `owner`: only root can give files away.
pub fn differences(original: &Manifest, copy: &Manifest, owner: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, a) in original {
        let shown = client::escape(name.as_os_str().as_bytes());
        match copy.get(name) {
            None => found.push(format!("{shown}: is missing")),
            Some(b) => found.extend(entry_differences(a, b, owner).map(|what| format!("{shown}: {what}"))),
        }
    }
    for name in copy.keys().filter(|name| !original.contains_key(*name)) {
        found.push(format!("{}: is not in the original", client::escape(name.as_os_str().as_bytes())));
    }
    found
}

fn entry_differences<'a>(a: &'a Entry, b: &'a Entry, owner: bool) -> impl Iterator<Item = String> + 'a {
    let link = a.kind == "symlink";
    let checks = [
        (a.kind != b.kind, format!("is a {} instead of a {}", b.kind, a.kind)),
        (!link && a.mode != b.mode, format!("mode {:o} instead of {:o}", b.mode, a.mode)),
        (owner && a.owner != b.owner, format!("owner {:?} instead of {:?}", b.owner, a.owner)),
        (a.size != b.size, format!("{} bytes instead of {}", b.size, a.size)),
        (a.mtime != b.mtime, format!("modified at {:?} instead of {:?}", b.mtime, a.mtime)),
        (a.rdev != b.rdev, format!("device {} instead of {}", b.rdev, a.rdev)),
        (a.target != b.target, format!("link to {:?} instead of {:?}", b.target, a.target)),
        (a.same_as != b.same_as, format!("hard link of {:?} instead of {:?}", b.same_as, a.same_as)),
        (a.xattrs != b.xattrs, format!("attributes {:?} instead of {:?}", b.xattrs, a.xattrs)),
        (a.digest != b.digest, "content differs (SHA-256)".to_owned()),
    ];
    checks.into_iter().filter(|(differs, _)| *differs).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn written_down(base: &Path) -> Manifest {
        let mut manifest = scan(&[base.join("t")]).unwrap();
        let names: Vec<_> = files(&manifest).map(|(n, _)| n.clone()).collect();
        digest(&mut manifest, &names, &|name| base.join(name), &Progress::hidden()).unwrap();
        manifest
    }

    /// Every kind of change is seen.
    #[test]
    fn differences_are_named() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("t");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("a"), "one").unwrap();
        fs::hard_link(root.join("a"), root.join("sub/b")).unwrap();
        let before = written_down(base.path());
        assert_eq!(before.len(), 4);
        assert!(differences(&before, &written_down(base.path()), true).is_empty());
        let a = base.path().join("t/a");
        let expect = |what: &str| {
            let found = differences(&before, &written_down(base.path()), true);
            assert!(found.iter().any(|line| line.contains(what)), "{what}: {found:?}");
        };
        let time = fs::metadata(&a).unwrap().modified().unwrap();
        fs::write(&a, "two").unwrap();
        expect("t/a: content differs");
        File::options()
            .write(true)
            .open(&a)
            .unwrap()
            .set_modified(time + std::time::Duration::from_nanos(1))
            .unwrap();
        expect("t/a: modified at");
        fs::set_permissions(&a, fs::Permissions::from_mode(0o4711)).unwrap();
        expect("t/a: mode 4711");
        fs::write(&a, "longer").unwrap();
        expect("t/a: 6 bytes instead of 3");
        fs::write(base.path().join("t/new"), "").unwrap();
        expect("t/new: is not in the original");
        fs::remove_file(base.path().join("t/sub/b")).unwrap();
        fs::write(base.path().join("t/sub/b"), "longer").unwrap();
        expect("t/sub/b: hard link of None");
        fs::remove_file(&a).unwrap();
        std::os::unix::fs::symlink("x", &a).unwrap();
        expect("t/a: is a symlink");
    }
}
