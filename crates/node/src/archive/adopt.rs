//! A volume of ours that the catalogue has lost gives its files back: its newest index is read and entered.

use super::layout::{self, Found, Tells};
use super::state::Adopted;
use super::trouble::ours;
use super::worker::Worker;
use catalog::{Adoption, ListedDir, ListedFile};
use crossbeam_channel::Sender;
use format::ltfs::file::from_index;
use format::ltfs::index::{DirMeta, IndexEvent, IndexFile};
use format::ltfs::name::tape_name;
use format::ltfs::origin::{DirFacts, Origin};
use format::tar::index::SectionHead;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;
use tape::{Fault, LabelState, Mounted, TapeError};
use types::*;

/// Files entered in one transaction.
const BATCH: usize = 500;

/// Answers for a volume that could not be looked at.
pub fn answer_failed(answer: &Sender<(Barcode, Adopted)>, barcode: &Barcode, why: String) {
    let adopted = Adopted { failed: Some(why), what: "could not be looked at".into(), ..Adopted::default() };
    // Whoever asked may have gone.
    let _ = answer.send((barcode.clone(), adopted));
}

/// Enters the files of a mounted volume, and answers; returns the tape's position.
pub fn adopt(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    answer: &Sender<(Barcode, Adopted)>,
) -> Result<u64, TapeError> {
    answering(barcode, answer, |adopted| take(worker, mounted, barcode, adopted))
}

/// Looks at a volume, and answers however that ends; returns the tape's position.
pub fn answering(
    barcode: &Barcode,
    answer: &Sender<(Barcode, Adopted)>,
    look: impl FnOnce(&mut Adopted) -> Result<(), TapeError>,
) -> Result<u64, TapeError> {
    let mut adopted = Adopted::default();
    let result = look(&mut adopted);
    if let Err(e) = &result {
        adopted.failed = Some(e.to_string());
    }
    // Whoever asked may have gone.
    let _ = answer.send((barcode.clone(), adopted));
    result.map(|()| 0)
}

fn take(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let Some(label) = label(mounted, adopted) else { return Ok(()) };
    if label.format == VolumeFormat::Tar {
        (adopted.what, adopted.foreign) = ("tar archives of another program".into(), true);
        return Ok(());
    }
    let (capacity, key) =
        (mounted.capacity().map_or(0, |c| c.maximum), mounted.key().unwrap_or_default().to_owned());
    let mut reader = Reader::new(worker, barcode, &label, (capacity, key.clone()), adopted);
    let scanned = layout::scan(mounted, &mut |generation, told| reader.told(generation, told));
    let found = match scanned {
        Ok(Some(found)) => found,
        Err(e) if !matches!(e.fault, Fault::MediumError | Fault::BadRecord | Fault::DataMissing) => {
            return Err(e);
        }
        Ok(None) | Err(_) => {
            // What was entered so far is known the second time.
            reader.flush();
            let adopted = reader.adopted;
            reader = Reader::new(worker, barcode, &label, (capacity, key), adopted);
            layout::read(mounted, &mut |generation, told| reader.told(generation, told))?
        }
    };
    reader.flush();
    let (found_it, left_out, cut, error) = (reader.found, reader.left_out, reader.cut, reader.error.take());
    if let Some(e) = error {
        return Err(ours(barcode, "entering its files", e));
    }
    if cut {
        // The volume stays as it is, read-only: the next rebuild goes on.
        adopted.failed = Some("the node stopped before all its files were entered; ask again".into());
        return Ok(());
    }
    match found_it {
        Standing::New => settle(worker, mounted, barcode, &found, left_out, adopted),
        Standing::Unverified => verify(worker, mounted, barcode, &found, adopted),
        Standing::Left => Ok(()),
    }
}

/// What the label says; None, and the words for it, where there is none that we could read.
pub fn label(mounted: &Mounted<'_>, adopted: &mut Adopted) -> Option<Label> {
    let what = match mounted.label() {
        LabelState::Ltfs(label) => {
            return Some(Label {
                format: VolumeFormat::Ltfs,
                uuid: label.uuid.clone(),
                labelled: label.format_time,
                block_size: label.block_size,
                worm: mounted.worm(),
            });
        }
        LabelState::Sections(label) => {
            return Some(Label {
                format: VolumeFormat::AnsiTar,
                uuid: label.uuid.clone(),
                labelled: label.format_time,
                block_size: label.block_size,
                worm: mounted.worm(),
            });
        }
        LabelState::Tar(label) => {
            return Some(Label {
                format: VolumeFormat::Tar,
                uuid: label.uuid.clone(),
                labelled: crate::now(),
                block_size: 0,
                worm: mounted.worm(),
            });
        }
        LabelState::Blank => "blank".to_owned(),
        LabelState::Foreign { what } => format!("not of ours: {what}"),
        LabelState::Damaged { what, .. } => {
            adopted.failed = Some(format!("its label is damaged: {what}"));
            "damaged".to_owned()
        }
    };
    adopted.what = what;
    None
}

/// What a volume turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its index tells of files that the catalogue may not know.
    New,
    /// The catalogue comes from a backup and knows this index: was anything written behind it?
    Unverified,
    /// Known, or none of ours.
    Left,
}

/// What the label says.
pub struct Label {
    /// How data lies on it.
    pub format: VolumeFormat,
    /// Uuid of the volume.
    pub uuid: String,
    /// When it was labelled.
    pub labelled: Time,
    /// Size of its records (bytes).
    pub block_size: u32,
    /// Its medium can be written once.
    pub worm: bool,
}

/// Reads an index into the catalogue, a batch at a time.
struct Reader<'r> {
    worker: &'r Worker,
    barcode: &'r Barcode,
    label: &'r Label,
    capacity: u64,
    key: String,
    adopted: &'r mut Adopted,
    /// Of what it tells: generation, and when it was written.
    generation: u64,
    written: Option<Time>,
    /// Of sections behind the newest index: files below this uid are known to the catalogue under names of its own.
    known_uids: u64,
    dirs: Vec<ListedDir>,
    /// The same, shared by the files of one directory.
    shared: Option<Arc<[ListedDir]>>,
    batch: Vec<ListedFile>,
    found: Standing,
    /// Files of its index that the catalogue does not take.
    left_out: u64,
    /// The node stops: what was read is not all.
    cut: bool,
    error: Option<catalog::CatalogError>,
}

impl<'r> Reader<'r> {
    fn new(
        worker: &'r Worker,
        barcode: &'r Barcode,
        label: &'r Label,
        (capacity, key): (u64, String),
        adopted: &'r mut Adopted,
    ) -> Self {
        Self {
            worker,
            barcode,
            label,
            capacity,
            key,
            adopted,
            generation: 0,
            written: None,
            known_uids: 0,
            dirs: Vec::new(),
            shared: None,
            batch: Vec::new(),
            found: Standing::Left,
            left_out: 0,
            cut: false,
            error: None,
        }
    }

    fn told(&mut self, generation: u64, told: Tells<'_>) -> ControlFlow<()> {
        self.generation = generation;
        match told {
            Tells::Event(event) => self.event(event),
            Tells::File(head, file) => self.of_section(head, file),
        }
    }

    /// A file of a section that no index tells of.
    fn of_section(&mut self, head: &SectionHead, file: &TapeFile) -> ControlFlow<()> {
        if self.written != Some(head.begun) {
            self.flush();
            self.written = Some(head.begun);
        }
        if self.found == Standing::Left {
            let Some(origin) = Origin::of_records(&head.attributes) else {
                self.adopted.what = "a section without word of its namespace".into();
                return ControlFlow::Break(());
            };
            if self.take(origin).is_break() {
                return ControlFlow::Break(());
            }
        }
        if file.uid >= self.known_uids {
            // No directory of the namespace has this name on a volume, and no two files this one.
            let name = format!("~section-{:010}", head.section);
            let plain = |name: String| ListedDir { name, created: head.begun, facts: None };
            let (dirs, name): (Arc<[ListedDir]>, String) = if file.is_dir() {
                // Where the next index will tell of it.
                let names = file.path.split(|b| *b == b'/').filter(|name| !name.is_empty());
                let dirs: Vec<ListedDir> = names.map(|name| plain(tape_name(name))).collect();
                (dirs.into(), catalog::Catalog::dir_entry(file))
            } else {
                ([plain(name)].into(), file.uid.to_string())
            };
            self.list(ListedFile { dirs, name, file: file.clone() });
        }
        self.goes_on()
    }

    fn goes_on(&mut self) -> ControlFlow<()> {
        self.cut = self.worker.node.archive.halted();
        if self.error.is_none() && !self.cut { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn event(&mut self, event: IndexEvent<'_>) -> ControlFlow<()> {
        match event {
            IndexEvent::Header(header) => self.written = Some(header.update_time),
            IndexEvent::EnterDir(root) if self.found == Standing::Left => return self.root(root),
            IndexEvent::EnterDir(dir) => {
                let facts = DirFacts::of(dir);
                let node = facts.as_ref().and_then(|f| f.node.clone());
                self.dirs.push(ListedDir { name: dir.name.clone(), created: dir.times.creation, facts });
                self.shared = None;
                self.directory(node);
            }
            IndexEvent::LeaveDir => {
                self.dirs.pop();
                self.shared = None;
            }
            IndexEvent::File(file) => self.file(file),
        }
        self.goes_on()
    }

    /// The root says whose volume this is.
    fn root(&mut self, root: &DirMeta) -> ControlFlow<()> {
        let Some(origin) = Origin::of(root) else {
            (self.adopted.what, self.adopted.foreign) = ("an LTFS volume of another program".into(), true);
            return ControlFlow::Break(());
        };
        let flow = self.take(origin);
        if flow.is_continue() {
            self.directory(DirFacts::of(root).and_then(|facts| facts.node));
        }
        flow
    }

    fn take(&mut self, origin: Origin) -> ControlFlow<()> {
        match self.begin(origin) {
            Ok(found) => self.found = found,
            Err(e) => self.error = Some(e),
        }
        if self.found == Standing::New { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn begin(&mut self, origin: Origin) -> catalog::Result<Standing> {
        let catalog = &self.worker.node.catalog;
        if catalog.site()?.as_deref() != Some(&origin.site) {
            if !catalog.may_change_site()? {
                let what = format!("a volume of another namespace ({})", origin.site);
                self.adopted.failed = Some(format!("{what}; it was left alone"));
                (self.adopted.what, self.adopted.foreign) = (what, true);
                return Ok(Standing::Left);
            }
            catalog.set_site(&origin.site)?;
        }
        let known = catalog.volume(self.barcode)?;
        if let Some(needed) = known.as_ref().filter(|v| v.uuid != self.label.uuid).map(|v| v.live_files)
            && needed > 0
        {
            let why = format!(
                "it has another label than the one recorded, under which {needed} file segments are needed by current \
                 files; if other volumes have them now, bring those into the library and ask again"
            );
            (self.adopted.failed, self.adopted.again) = (Some(why), true);
            self.adopted.what = "labelled anew since it was recorded".into();
            return Ok(Standing::Left);
        }
        let known = known.filter(|v| v.uuid == self.label.uuid);
        self.known_uids = known.as_ref().map_or(0, |v| v.next_uid);
        match known.as_ref().map(|v| (v.state, v.generation.cmp(&self.generation))) {
            None | Some((VolumeState::Unverified, Ordering::Less)) => {}
            // An earlier rebuild did not come to its end.
            Some((VolumeState::ReadOnly, Ordering::Less))
                if known.as_ref().is_some_and(|v| v.generation == 0) => {}
            Some((VolumeState::Unverified, Ordering::Equal)) => return Ok(Standing::Unverified),
            Some(_) => {
                self.adopted.what = "known to the catalogue".into();
                return Ok(Standing::Left);
            }
        }
        catalog.put_rules(&origin.rules, false)?;
        let now = crate::now();
        catalog.begin_adoption(&Volume {
            state: VolumeState::ReadOnly,
            reason: "its files are being entered into the catalogue".into(),
            // Until all are.
            holds_more: true,
            pool: origin.pool,
            family: origin.family,
            uuid: self.label.uuid.clone(),
            labelled: Some(self.label.labelled),
            format: self.label.format,
            block_size: self.label.block_size,
            worm: self.label.worm,
            capacity: self.capacity,
            key: self.key.clone(),
            ..Volume::new(self.barcode.clone(), now)
        })?;
        self.adopted.what = match self.label.format {
            VolumeFormat::Ltfs => format!("index of generation {}", self.generation),
            _ => format!("{} sections", self.generation),
        };
        self.adopted.rules = Some((self.written.unwrap_or(now), origin.rules));
        Ok(Standing::New)
    }

    /// The volume has a copy of the directory that it lists.
    fn directory(&mut self, node: Option<Box<TapeFile>>) {
        if let Some(file) = node.filter(|node| node.copy.0 > 0) {
            let dirs = self.shared.get_or_insert_with(|| self.dirs.as_slice().into()).clone();
            self.list(ListedFile { dirs, name: catalog::Catalog::dir_entry(&file), file: *file });
        }
    }

    fn file(&mut self, file: &IndexFile) {
        match from_index(file) {
            Ok(Some(found)) => {
                let dirs = self.shared.get_or_insert_with(|| self.dirs.as_slice().into()).clone();
                self.list(ListedFile { dirs, name: file.name.clone(), file: found });
            }
            Ok(None) => self.leave_out(format!("{:?} was put there by another program", file.name)),
            Err(e) => self.leave_out(format!("not entered: {e}")),
        }
    }

    fn list(&mut self, file: ListedFile) {
        self.batch.push(file);
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(written) = self.written else { return };
        if self.batch.is_empty() || self.error.is_some() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let node = &self.worker.node;
        // What lies on targets is not looked for: it counts as there.
        let gone = |object| {
            matches!(node.catalog.far(object), Ok(None)) && matches!(node.disk.exists(object), Ok(false))
        };
        let outcomes = match node.catalog.adopt_beside(self.barcode, written, &batch, &gone) {
            Ok(outcomes) => outcomes,
            Err(e) => {
                self.error = Some(e);
                return;
            }
        };
        for (listed, outcome) in batch.iter().zip(outcomes) {
            let live = matches!(outcome, Adoption::Live | Adoption::Displaced { .. });
            self.adopted.live += u64::from(live);
            self.adopted.dead += u64::from(matches!(outcome, Adoption::Dead));
            if live {
                self.adopted.bytes += listed.file.segment_length;
            }
            match outcome {
                Adoption::Displaced { path, at } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.adopted.note(format!(
                        "{} is taken by a later file: found at {}",
                        text(&path),
                        text(&at)
                    ));
                }
                Adoption::Contradicts { why } => self.adopted.note(format!("{:?}: {why}", listed.name)),
                Adoption::Live | Adoption::Dead | Adoption::Known => {}
            }
        }
    }

    fn leave_out(&mut self, line: String) {
        self.left_out += 1;
        self.adopted.note(line);
    }
}

/// All files are entered: the volume may be used again, as far as it is certain where it ends.
fn settle(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    found: &Found,
    left_out: u64,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let end = layout::survey(mounted, found)?;
    let unlisted = end.end_of_data.saturating_sub(end.append_block);
    // Where its end is not known its newest index is, and that lists all.
    let holds_more = left_out > 0 || (end.append_block > 0 && unlisted > 0);
    let (state, reason) = match end.append_block {
        _ if mounted.write_protected() => (VolumeState::ReadOnly, "it is write protected".to_owned()),
        // The next index would not list them any more.
        _ if left_out > 0 => {
            (VolumeState::ReadOnly, format!("{left_out} files of its index are not in the catalogue"))
        }
        0 => (VolumeState::Full, "its newest index had no room on the data partition".to_owned()),
        _ if unlisted > 0 => {
            let why = format!(
                "{unlisted} records behind its newest index are listed nowhere: what was written there is lost \
                 unless another copy has it"
            );
            adopted.note(why.clone());
            (VolumeState::ReadOnly, why)
        }
        _ => (VolumeState::Filling, String::new()),
    };
    let now = crate::now();
    let recorded = worker.node.catalog.update_volume(barcode, &mut |v| {
        let unused = state == VolumeState::Filling && v.pool.is_none() && v.files == 0;
        v.becomes(if unused { VolumeState::Scratch } else { state }, reason.clone(), now);
        v.holds_more = holds_more;
        v.generation = found.generation;
        v.index_block = end.index_block;
        v.append_block = if end.append_block > 0 { end.append_block } else { end.end_of_data };
        // A new index is written at the next occasion.
        v.indexed_to = v.append_block.saturating_sub(u64::from(end.stale));
        v.vcr = end.vcr;
        v.last_written = found.written;
    });
    recorded.map(drop).map_err(|e| ours(barcode, "recording where it ends", e))
}

/// The catalogue has all that the newest index lists; it is written again unless more lies behind what is recorded.
pub fn verify(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    found: &Found,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let end = layout::survey(mounted, found)?;
    let now = crate::now();
    let mut what = String::new();
    let recorded = worker.node.catalog.volume_comes_back(barcode, &mut |v, before| {
        let known = end.end_of_data.cmp(&v.append_block);
        let before = before.filter(|_| known == Ordering::Equal);
        let (state, reason) = match (known, before) {
            (Ordering::Equal, Some(before)) => (before.state, before.reason.clone()),
            // Why it was not written to any more, before the backup was made, is not forgotten with that.
            (Ordering::Equal, None) if v.errors > 0 => (
                VolumeState::Suspect,
                format!("its medium has failed {} times; `thermo volume verify` it", v.errors),
            ),
            // Found out when its files were entered.
            (Ordering::Equal, None) if v.holds_more => {
                (VolumeState::ReadOnly, "its tape may hold more than the catalogue lists".into())
            }
            (Ordering::Equal, None) if v.pool.is_some() => (VolumeState::Filling, String::new()),
            (Ordering::Equal, None) => (VolumeState::Scratch, String::new()),
            (Ordering::Greater, _) => (
                VolumeState::ReadOnly,
                format!(
                    "{} records were written after the backup and are listed nowhere",
                    end.end_of_data - v.append_block
                ),
            ),
            (Ordering::Less, _) => {
                (VolumeState::Suspect, "the medium ends before the data recorded on it".into())
            }
        };
        v.holds_more |= known == Ordering::Greater;
        v.becomes(state, reason, now);
        v.by = before.and_then(|before| before.by);
        v.vcr = end.vcr;
        what = format!(
            "known to the catalogue; {}",
            if v.reason.is_empty() { "nothing newer is on it" } else { &v.reason }
        );
    });
    adopted.what = what;
    recorded.map(drop).map_err(|e| ours(barcode, "recording its state", e))
}

#[cfg(test)]
mod tests;
