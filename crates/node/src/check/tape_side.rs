//! One volume: its newest index against the catalogue, and (deep) every byte against its digest.

use super::serious;
use crate::archive::layout::{self, Tells};
use crate::archive::{Checked, FileHash, Worker, left_of_one, write_index};
use catalog::{Catalog, CatalogError, VolumeFiles};
use crossbeam_channel::Sender;
use format::ltfs::index::IndexEvent;
use format::ltfs::origin::Origin;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use tape::{Mounted, Onto, TapeError};
use types::*;

/// Findings reported per volume; more of the same help nobody.
const MOST_FINDINGS: usize = 100;

/// The catalogue's list of a volume's files, in the order of the index.
struct Expected<'w> {
    files: Option<VolumeFiles<'w>>,
    /// Why the list ended early.
    failed: Option<CatalogError>,
}

impl<'w> Expected<'w> {
    fn new(catalog: &'w Catalog, barcode: &Barcode) -> Self {
        match catalog.files_on(barcode) {
            Ok(files) => Self { files: Some(files), failed: None },
            Err(e) => Self { files: None, failed: Some(e) },
        }
    }

    fn next(&mut self) -> Option<(String, TapeFile)> {
        for file in self.files.as_mut()? {
            match file {
                // Directories are no files of an index, and a volume may have nothing else.
                Ok((_, file)) if file.is_dir() => {}
                Ok(file) => return Some(file),
                Err(e) => self.failed = Some(e),
            }
        }
        None
    }
}

/// Notes what was found; no more than are reported.
fn find(checked: &mut Checked, finding: Finding) {
    if checked.findings.len() < MOST_FINDINGS {
        checked.findings.push(finding);
    }
}

/// Answers for a volume that could not be looked at.
pub fn answer_failed(answer: &Sender<Checked>, barcode: &Barcode, error: &TapeError) {
    let finding = serious(format!("volume {barcode}"), error.to_string(), "see `thermo volume show`");
    // Whoever asked may have gone.
    let _ = answer.send(Checked { files: 0, bytes: 0, findings: vec![finding] });
}

/// Compares a mounted volume with the catalogue and answers; returns the tape's position.
pub fn check_volume(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    deep: bool,
    answer: &Sender<Checked>,
) -> Result<u64, TapeError> {
    let mut checked = Checked { files: 0, bytes: 0, findings: Vec::new() };
    let result = compare(worker, mounted, barcode, deep, &mut checked);
    if let Err(e) = &result {
        find(&mut checked, serious(format!("volume {barcode}"), e.to_string(), "see `thermo volume show`"));
    }
    if deep && checked.findings.is_empty() && !worker.node.archive.halted() {
        verified(worker, barcode);
    }
    // Whoever asked may have gone.
    let _ = answer.send(checked);
    result
}

fn compare(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    deep: bool,
    checked: &mut Checked,
) -> Result<u64, TapeError> {
    let volume = worker.node.catalog.volume(barcode).ok().flatten();
    let label = mounted.label().uuid().map(str::to_owned);
    let subject = format!("volume {barcode}");
    if let Some(volume) = &volume
        && left_of_one(&worker.node, mounted.label(), volume).is_some()
    {
        find(checked, cut_short(volume, &mounted.label().describe()));
        return Ok(0);
    }
    if label.is_none() || label != volume.as_ref().map(|v| v.uuid.clone()) {
        let carries = label.map_or("no label".to_owned(), |label| format!("label {label}"));
        let recorded = volume.map_or_else(String::new, |v| v.uuid);
        let problem = format!("carries {carries}, not the one recorded ({recorded})");
        let remedy = "another cartridge lies in its place, or somebody wrote to it: copies on it do not count before it is found";
        find(checked, serious(subject, problem, remedy));
        return Ok(0);
    }
    // Volumes that were imported are only read.
    let asks = volume.as_ref().is_some_and(|v| v.state == VolumeState::ReadOnly || v.may_hold_more());
    let indexed = volume.as_ref().is_some_and(lacks_index) && !mounted.write_protected();
    if indexed {
        write_index(worker, mounted, barcode, Onto::Both)?;
    }
    let mut expected = Expected::new(&worker.node.catalog, barcode);
    let mut to_read = Vec::new();
    let archives = volume.as_ref().is_some_and(|v| v.format == VolumeFormat::Tar);
    let mut imported = if archives { Some(true) } else { (!asks).then_some(false) };
    let mut look = |_, told: Tells<'_>| {
        if imported.is_none() {
            imported = is_imported(worker, &told);
        }
        if imported == Some(true) {
            // It is told of under other names and numbers; its files are those that were taken.
            return ControlFlow::Break(());
        }
        if let Tells::Event(IndexEvent::File(file)) = told {
            compare_entry(&mut expected, file, barcode, checked, deep.then_some(&mut to_read));
        }
        ControlFlow::Continue(())
    };
    // Tar archives of other programs have no index.
    let found = if archives { layout::Found::default() } else { layout::read(mounted, &mut look)? };
    if imported == Some(true) {
        while let Some((_, file)) = expected.next() {
            checked.files += 1;
            if deep && file.live {
                to_read.push(file);
            }
        }
    }
    if found.behind > 0 && imported != Some(true) {
        let problem = format!("{} sections behind its newest index were not compared", found.behind);
        find(checked, serious(&subject, problem, "write-protected volumes and full ones get no new index"));
        return Ok(0);
    }
    let behind = !indexed && volume.is_some_and(|v| v.indexed_to < v.append_block);
    missed(&mut expected, behind, &subject, checked);
    read_all(worker, mounted, barcode, to_read, checked)
}

/// A fresh label that the node began to write, and that is not on record: of what was there nobody needs anything.
fn cut_short(volume: &Volume, carries: &str) -> Finding {
    let barcode = &volume.barcode;
    let remedy = match volume.state {
        VolumeState::Repacking => "nothing: the node carries on with it".to_owned(),
        _ => format!("`thermo volume label --force {barcode}` has it used again"),
    };
    Finding {
        grade: Grade::Leftover,
        subject: format!("volume {barcode}"),
        problem: format!("its fresh label was cut short: nothing on it is needed, and it carries {carries}"),
        remedy,
    }
}

/// What the catalogue has there, and the index does not list. Of a volume that is `behind` with its index and gets none, as it is
/// write-protected or may hold more than the catalogue lists, nobody misses what is elsewhere by now.
fn missed(expected: &mut Expected<'_>, behind: bool, subject: &str, checked: &mut Checked) {
    while let Some((path, file)) = expected.next() {
        if behind && !file.live {
            continue;
        }
        let problem = format!("does not list {path} (inode {}), which the catalogue has there", file.ino);
        find(checked, serious(subject, problem, "stage the file from its other copy and migrate it again"));
    }
    if let Some(e) = &expected.failed {
        let problem = format!("the catalogue's list of its files cannot be read to the end: {e}");
        find(checked, serious(subject, problem, "see `thermo check` and `thermo catalog restore`"));
    }
}

/// Whether the newest index is to be written anew. Not that of a volume that may hold more than the catalogue lists, nor where the node
/// may have met an end that no drive writes, or a key that was not the right one.
fn lacks_index(volume: &Volume) -> bool {
    let by_node = volume.state == VolumeState::ReadOnly && volume.by.is_none();
    let closed = by_node && (volume.worm || !volume.key.is_empty());
    volume.indexed_to < volume.append_block && !volume.may_hold_more() && !closed
}

/// Whether the volume tells of another namespace; None: it has not said yet.
fn is_imported(worker: &Worker, told: &Tells<'_>) -> Option<bool> {
    let origin = match told {
        Tells::Event(IndexEvent::EnterDir(root)) => Origin::of(root),
        Tells::File(head, _) => Origin::of_records(&head.attributes),
        Tells::Event(_) => return None,
    };
    let site = worker.node.catalog.site().ok().flatten();
    Some(origin.map(|origin| origin.site) != site)
}

/// Reads files in the order in which they lie on the volume; returns the tape's position.
fn read_all(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    mut files: Vec<TapeFile>,
    checked: &mut Checked,
) -> Result<u64, TapeError> {
    files.sort_by_key(|f| f.extents.first().map_or((0, 0), |e| (e.start_block, e.byte_offset)));
    for file in files {
        if worker.node.archive.halted() {
            break;
        }
        read_back(worker, mounted, barcode, &file, checked)?;
    }
    Ok(0)
}

fn compare_entry(
    expected: &mut Expected<'_>,
    found: &format::ltfs::index::IndexFile,
    barcode: &Barcode,
    checked: &mut Checked,
    to_read: Option<&mut Vec<TapeFile>>,
) {
    checked.files += 1;
    let subject = format!("volume {barcode}");
    let Some((path, wanted)) = expected.next() else {
        if expected.failed.is_some() {
            return;
        }
        let problem = format!("lists {:?}, which the catalogue does not have there", found.name);
        find(checked, serious(subject, problem, "keep the volume and report a defect"));
        return;
    };
    match format::ltfs::file::from_index(found) {
        Ok(Some(file)) if is_still(&file, &wanted) => {}
        Ok(Some(file)) if was_restored_since(&file, &wanted) => {
            find(checked, not_told(barcode, &path, &file, &wanted));
        }
        _ => {
            let problem =
                format!("lists {:?} where the catalogue has {path} (inode {})", found.name, wanted.ino);
            find(checked, serious(subject, problem, "keep the volume and report a defect"));
            return;
        }
    }
    if let Some(to_read) = to_read.filter(|_| wanted.live) {
        to_read.push(wanted);
    }
}

/// Whether that is what a volume lists, but for what may change without a new index: the version may have ended, and the class
/// may number its copies otherwise by now.
fn is_still(listed: &TapeFile, wanted: &TapeFile) -> bool {
    let TapeFile { live, copy, .. } = *wanted;
    TapeFile { live, copy, ..listed.clone() } == *wanted
}

/// Whether the catalogue gives to another file what a volume lists: by `thermo undelete`, after the index was written.
fn was_restored_since(listed: &TapeFile, wanted: &TapeFile) -> bool {
    let TapeFile { ino, version, copy, live, .. } = *wanted;
    let (path, node) = (wanted.path.clone(), wanted.node.clone());
    let now = TapeFile { ino, version, copy, live, path, node, ..listed.clone() };
    listed.ino != ino && live && now == *wanted
}

/// A volume that tells of a file as of what it was before it was restored.
fn not_told(barcode: &Barcode, path: &str, listed: &TapeFile, wanted: &TapeFile) -> Finding {
    Finding {
        grade: Grade::Leftover,
        subject: format!("volume {barcode}"),
        problem: format!(
            "lists {path} (inode {}) as version {} of inode {}, which it was before it was restored; no new index can be \
             written to it: a catalogue rebuilt from tapes alone would not have the restored file",
            wanted.ino, listed.version, listed.ino
        ),
        remedy: format!(
            "`thermo volume repack {barcode}`; or, unless it may hold more than the catalogue lists (`thermo volume show`), clear its \
             write-protect tab and `thermo volume state {barcode} full`"
        ),
    }
}

fn read_back(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    file: &TapeFile,
    checked: &mut Checked,
) -> Result<(), TapeError> {
    let whole = file.segment_offset == 0 && file.segment_length == file.file_size;
    let mut hash = FileHash::new();
    for extent in &file.extents {
        let _whole = mounted.read(extent, &mut |offset, bytes| {
            hash.add(offset, bytes);
            worker.progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        })?;
    }
    checked.bytes += file.segment_length;
    let found = if whole { hash.finish(file.file_size) } else { None };
    if whole && file.digest.is_some() && found != file.digest {
        let path = types::escape(&file.path);
        let problem = format!("inode {} copy {}: the bytes on tape have another digest", file.ino, file.copy);
        distrust(worker, barcode, &problem);
        find(checked, serious(path, problem, "stage the file from its other copy and migrate it again"));
    }
    Ok(())
}

/// Every byte was read and found good.
fn verified(worker: &Worker, barcode: &Barcode) {
    let now = crate::now();
    let noted = worker.node.catalog.update_volume(barcode, &mut |v| v.last_verified = Some(now));
    if let Err(e) = noted {
        tracing::error!("volume {barcode}: that it was verified cannot be recorded: {e}");
    }
}

/// Readers get bytes before a digest can be compared: from now on the other copies are preferred.
pub(crate) fn distrust(worker: &Worker, barcode: &Barcode, problem: &str) {
    let now = crate::now();
    let noted = worker.node.catalog.update_volume(barcode, &mut |v| {
        v.errors += 1;
        if matches!(v.state, VolumeState::Filling | VolumeState::Full | VolumeState::ReadOnly) {
            v.becomes(VolumeState::Suspect, format!("volume {barcode}: {problem}; replace it"), now);
        }
    });
    if let Err(e) = noted {
        tracing::error!("volume {barcode}: {problem}; this cannot be recorded: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::testing::{Rig, labelled, medium_fails, with_one};
    use catalog::{New, NewSegment, VolumeAppend};

    /// Whether a check writes the volume's index anew, which is behind.
    fn is_indexed(
        worker: &Worker,
        mounted: &mut Mounted<'_>,
        barcode: &Barcode,
        is: &dyn Fn(&mut Volume),
    ) -> bool {
        let volume = || worker.node.catalog.volume(barcode).unwrap().unwrap();
        let behind = &mut |v: &mut Volume| {
            is(v);
            v.indexed_to = v.append_block - 1;
        };
        worker.node.catalog.update_volume(barcode, behind).unwrap();
        let (before, (answer, _answers)) = (volume().generation, crossbeam_channel::unbounded());
        check_volume(worker, mounted, barcode, false, &answer).unwrap();
        volume().generation > before
    }

    #[test]
    fn no_check_writes_an_index_over_what_a_tape_holds_beyond_the_catalogue_whatever_becomes_of_the_volume() {
        use VolumeState as S;
        with_one(|worker, mounted, barcode| {
            labelled(worker, mounted, barcode);
            let volume = || worker.node.catalog.volume(barcode).unwrap().unwrap();
            let is = |state, holds_more| {
                move |v: &mut Volume| {
                    v.becomes(state, "", crate::now());
                    v.holds_more = holds_more;
                }
            };
            let now = &mut |v: &mut Volume| is(S::ReadOnly, true)(v);
            worker.node.catalog.update_volume(barcode, now).unwrap();
            assert!(!is_indexed(worker, mounted, barcode, &|_| ()));
            // A wrong digest was found on it.
            distrust(worker, barcode, "a wrong digest");
            assert_eq!(volume().state, S::Suspect);
            assert!(!is_indexed(worker, mounted, barcode, &|_| ()));
            // Whoever else wants an index of it.
            let generation = volume().generation;
            write_index(worker, mounted, barcode, Onto::Both).unwrap();
            assert_eq!(volume().generation, generation);
            // Its medium fails.
            worker.node.catalog.update_volume(barcode, &mut |v| is(S::Full, true)(v)).unwrap();
            assert!(!is_indexed(worker, mounted, barcode, &|_| ()));
            medium_fails(worker, barcode);
            assert_eq!(volume().state, S::Suspect);
            assert!(!is_indexed(worker, mounted, barcode, &|_| ()));
            assert!(
                !is_indexed(worker, mounted, barcode, &is(S::Unverified, false)),
                "nobody has looked at it"
            );
            assert!(!is_indexed(worker, mounted, barcode, &|v| (v.state, v.imported) = (S::Suspect, true)));
            let own =
                |state| move |v: &mut Volume| (v.state, v.imported, v.holds_more) = (state, false, false);
            assert!(!is_indexed(worker, mounted, barcode, &|v| {
                own(S::ReadOnly)(v);
                v.key = "k".into();
            }));
            worker.node.catalog.update_volume(barcode, &mut |v| v.key.clear()).unwrap();
            // Others get it, also what the node itself made read-only: it was trusted again, say.
            for state in [S::ReadOnly, S::Suspect, S::Full] {
                assert!(is_indexed(worker, mounted, barcode, &own(state)), "{state}");
            }
        });
    }

    #[test]
    fn a_list_that_cannot_be_read_is_found_and_no_file_taken_for_missing() {
        let rig = Rig::new();
        let mut expected = Expected::new(&rig.worker.node.catalog, &"XX0009L9".into());
        let mut checked = Checked { files: 0, bytes: 0, findings: Vec::new() };
        missed(&mut expected, false, "volume XX0009L9", &mut checked);
        let [found] = checked.findings.as_slice() else { panic!("{:?}", checked.findings) };
        assert!(found.is_serious() && found.problem.contains("cannot be read"), "{found:?}");
    }

    #[test]
    fn a_volume_with_thousands_of_directories_and_nothing_else_is_gone_through() {
        const DIRS: u64 = 3_000;
        let rig = Rig::new();
        let (catalog, now) = (&rig.worker.node.catalog, crate::now());
        let barcode = Barcode::from("XX0001L9");
        let of_pool = Volume { pool: Some("primary".into()), ..Volume::new(barcode.clone(), now) };
        catalog.put_volume(&Volume { state: VolumeState::Filling, uuid: "u".into(), ..of_pool }).unwrap();
        let copy_of = |uid| {
            let (name, new) = (format!("d{uid}"), New::node(FileKind::Directory, 0o755));
            let made = catalog.create(&Cx::admin(now), Ino::ROOT, name.as_bytes(), &new).unwrap();
            NewSegment {
                ino: made.attr.ino,
                version: Version(1),
                copy: CopyNo(1),
                file_offset: 0,
                length: 0,
                extents: Vec::new(),
                size: 0,
                digest: None,
                uid,
                told: None,
            }
        };
        let copies: Vec<NewSegment> = (2..2 + DIRS).map(copy_of).collect();
        let volume = barcode.clone();
        let append = VolumeAppend { volume, append_block: 9, next_uid: 2 + DIRS, vcr: 1, now, section: None };
        let recorded = catalog.record_copies(&append, &copies).unwrap();
        assert!(recorded.iter().all(|one| *one == catalog::RecordOutcome::Counted));
        // With less room than there are directories.
        std::thread::scope(|scope| {
            let look = || {
                let mut expected = Expected::new(catalog, &barcode);
                (expected.next(), expected.failed.map(|e| e.to_string()))
            };
            let small = std::thread::Builder::new().stack_size(512 << 10);
            assert_eq!(small.spawn_scoped(scope, look).unwrap().join().unwrap(), (None, None));
        });
    }
}
