//! The catalogue from the tapes alone: every cartridge in the library is looked at, and a report says what came back and
//! what is missing.

use crate::Node;
use crate::archive::import::Import;
use crate::archive::{Adopted, Event};
use crate::error::{failure, refused};
use crossbeam_channel::Receiver;
use format::ltfs::origin::Rules;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use types::*;
use wire::Failure;

/// Inodes read at a time.
const PAGE: usize = 1_000;
/// Files that a report names as incomplete.
const MOST_NAMED: u64 = 10_000;

impl Node {
    /// Begins to rebuild; the request tells how far it is.
    pub(super) fn rebuild(self: &Arc<Self>, cx: &Cx) -> Result<Request, Failure> {
        let fail = |e| refused("rebuild", &e);
        let open = self.catalog.open_requests().map_err(fail)?;
        if let Some(running) = open.iter().find(|r| r.kind == RequestKind::Rebuild) {
            let message =
                format!("the catalogue is being rebuilt already: `thermo request show {}`", running.id);
            return Err(failure(ErrorClass::Busy, message));
        }
        let mut volumes: Vec<Barcode> = self.archive.present().into_iter().collect();
        // Cleaning cartridges are no volumes.
        let known: HashSet<Barcode> =
            self.catalog.volumes().map_err(fail)?.into_iter().map(|v| v.barcode).collect();
        volumes.retain(|barcode| known.contains(barcode));
        // What an empty catalogue gives from now on must not be what tapes have.
        let empty = self.catalog.is_empty().map_err(fail)?;
        if empty {
            self.catalog.skip_numbers(crate::now()).map_err(fail)?;
        }
        let subject = format!("{} in the library", plural(volumes.len(), "volume"));
        self.take_in(cx, subject, volumes, None, empty)
    }

    /// Has volumes read into the catalogue.
    pub(super) fn take_in(
        self: &Arc<Self>,
        cx: &Cx,
        subject: String,
        volumes: Vec<Barcode>,
        import: Option<Arc<Import>>,
        empty: bool,
    ) -> Result<Request, Failure> {
        let fail = |e| refused("request", &e);
        let kind = if import.is_some() { RequestKind::Import } else { RequestKind::Rebuild };
        let mut request = Request::new(kind, cx.uid, subject, crate::now());
        request.state = RequestState::Active;
        let total = volumes.len() as u64;
        let made = self.catalog.create_request(&request, &[]);
        let request = made
            .and_then(|r| self.catalog.update_request(r.id, &mut |r| r.files_total = total))
            .map_err(fail)?;
        self.catalog.sync().map_err(fail)?;
        let (answer, answers) = crossbeam_channel::unbounded();
        let back = import.as_ref().map_or_else(BTreeMap::new, |import| import.back.clone());
        self.archive.send(Event::Adopt { volumes, import, answer });
        let (node, id) = (self.clone(), request.id);
        crate::startup::spawn(Some(self), "rebuild", move || {
            node.follow_rebuild(id, total, empty, (&answers, back));
        })?;
        Ok(request)
    }

    /// `empty`: nothing but what volumes tell is known, and the newest classes and pools of theirs hold. Otherwise somebody may
    /// have changed them since. `back`: volumes that were exported, as they were; they are so again if they cannot be taken in.
    fn follow_rebuild(
        &self,
        id: RequestId,
        total: u64,
        empty: bool,
        (answers, mut back): (&Receiver<(Barcode, Adopted)>, BTreeMap<Barcode, Before>),
    ) {
        let mut report = Report::default();
        let (mut asked, mut answers) = (total, answers.clone());
        loop {
            let mut later = Vec::new();
            // When the archive service stops nobody is left who could answer, and this ends.
            for (barcode, adopted) in answers.iter().take(usize::try_from(asked).unwrap_or(usize::MAX)) {
                if let Some(before) = back.remove(&barcode) {
                    let why = adopted.failed.as_ref().unwrap_or(&adopted.what);
                    self.stays_exported(&barcode, &before, why);
                }
                if adopted.again {
                    later.push((barcode, adopted));
                } else {
                    self.note_adopted(id, empty, &mut report, &barcode, &adopted);
                }
            }
            if later.is_empty() || later.len() as u64 == asked {
                later.iter().for_each(|(b, adopted)| self.note_adopted(id, empty, &mut report, b, adopted));
                break;
            }
            // What they are needed for may be known elsewhere by now.
            asked = later.len() as u64;
            let volumes = later.into_iter().map(|(barcode, _)| barcode).collect();
            let (answer, next) = crossbeam_channel::unbounded();
            self.archive.send(Event::Adopt { volumes, import: None, answer });
            answers = next;
        }
        for (barcode, before) in &back {
            self.stays_exported(barcode, before, "the node stopped before it was looked at");
        }
        let ended = if report.volumes < total {
            Err("the node stopped before all volumes were looked at; ask again: what was entered stays"
                .into())
        } else {
            self.end_rebuild(id, &mut report).map_err(|e| e.message)
        };
        let failed = ended.is_err() || report.failed > 0;
        let message = ended.unwrap_or_else(|why| why);
        if failed {
            self.archive.warn(format!("rebuild of the catalogue: {message}"));
        }
        let told = self.catalog.update_request(id, &mut |r| {
            if r.state == RequestState::Cancelled {
                return;
            }
            r.state = if failed { RequestState::Failed } else { RequestState::Done };
            r.finished = Some(crate::now());
            r.message.clone_from(&message);
        });
        if let Err(e) = told {
            tracing::error!("request {id} cannot be ended: {e}");
        }
    }

    /// A volume was looked at.
    fn note_adopted(
        &self,
        id: RequestId,
        empty: bool,
        report: &mut Report,
        barcode: &Barcode,
        adopted: &Adopted,
    ) {
        if report.volume(barcode, adopted)
            && empty
            && let Some((_, rules)) = &report.rules
            && let Err(e) = self.catalog.put_rules(rules, true)
        {
            report.failed += 1;
            let _ = writeln!(report.lines, "    FAILED: its classes and pools cannot be entered: {e}");
        }
        let told = self.catalog.update_request(id, &mut |r| {
            r.started.get_or_insert(crate::now());
            r.files_done += 1;
            r.files_failed += u64::from(adopted.failed.is_some());
            r.bytes_done += adopted.bytes;
            r.bytes_total = r.bytes_done;
            if let Some(why) = &adopted.failed {
                r.message = format!("volume {barcode}: {why}");
            }
        });
        if let Err(e) = told {
            tracing::error!("request {id} cannot be told about volume {barcode}: {e}");
        }
    }

    /// Every file is looked at. Returns the summary.
    fn end_rebuild(&self, id: RequestId, report: &mut Report) -> Result<String, Failure> {
        let fail = |e| refused("rebuild", &e);
        while self.catalog.refresh_classes(PAGE, crate::now()).map_err(fail)? {}
        if let Some((_, rules)) = &report.rules {
            let (classes, pools) =
                (self.catalog.classes().map_err(fail)?, self.catalog.pools().map_err(fail)?);
            let other =
                rules.classes.iter().filter(|c| !classes.contains(c)).map(|c| format!("class {}", c.name));
            let pools = rules.pools.iter().filter(|p| !pools.contains(p)).map(|p| format!("pool {}", p.name));
            report.otherwise = other.chain(pools).collect();
        }
        let mut after = Ino(0);
        loop {
            let page = self.catalog.for_each_inode(after, PAGE).map_err(fail)?;
            let read = page.found.iter().map(|i| i.attr.ino).chain(page.damaged.iter().map(|d| d.0));
            let Some(last) = read.max() else { break };
            after = last;
            page.found.iter().for_each(|inode| self.weigh(inode, report));
        }
        self.catalog.sync().map_err(fail)?;
        let path = self.write_report(id, report).map_err(|e| {
            failure(ErrorClass::Denied, format!("all was entered, but the report cannot be written: {e}"))
        })?;
        let first = report.first_failed.as_ref().map_or(String::new(), |why| format!("; {why}"));
        Ok(format!("{}{first}; report: {}", report.summary(), path.display()))
    }

    fn weigh(&self, inode: &Inode, report: &mut Report) {
        let Some(file) = &inode.file else { return };
        report.files += 1;
        let wanted = self.catalog.class(&file.class).ok().flatten().map_or(0, |c| c.copies.len());
        let have = file.copies.len();
        if have >= wanted.max(1) || (file.object.is_some() && have >= wanted) {
            return;
        }
        let lost = have == 0 && file.object.is_none();
        *(if lost { &mut report.lost } else { &mut report.fewer }) += 1;
        if report.lost + report.fewer <= MOST_NAMED {
            let path = self.catalog.path_of(inode.attr.ino).unwrap_or_default();
            let what = if lost { "has no complete copy" } else { "has fewer copies than its class wants" };
            let line = format!("{} (inode {}): {what}", types::escape(&path), inode.attr.ino);
            report.incomplete.push(line);
        }
    }

    fn write_report(&self, id: RequestId, report: &Report) -> std::io::Result<PathBuf> {
        let path = self.config.state_dir.join(format!("rebuild-{id}.txt"));
        let mut file = std::fs::File::create(&path)?;
        writeln!(file, "{}", report.summary())?;
        writeln!(file, "\nVolumes:\n{}", report.lines)?;
        if !report.otherwise.is_empty() {
            let otherwise = report.otherwise.join(", ");
            writeln!(
                file,
                "The newest index tells otherwise of these; they stay as they are now: {otherwise}\n"
            )?;
        }
        file.write_all(report.imports().as_bytes())?;
        if !report.incomplete.is_empty() {
            writeln!(file, "Files that are not complete:")?;
        }
        for line in &report.incomplete {
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        Ok(path)
    }
}

/// What came back, and what did not.
#[derive(Default)]
struct Report {
    volumes: u64,
    failed: u64,
    /// Volume and reason.
    first_failed: Option<String>,
    /// Volumes of other programs and namespaces.
    foreign: Vec<Barcode>,
    segments: u64,
    dead: u64,
    lines: String,
    /// Of the newest index.
    rules: Option<(Time, Rules)>,
    /// Classes and pools of which the newest index tells something else than the catalogue.
    otherwise: Vec<String>,
    files: u64,
    lost: u64,
    fewer: u64,
    incomplete: Vec<String>,
}

impl Report {
    /// Takes note of a volume; true if it tells the newest classes and pools so far.
    fn volume(&mut self, barcode: &Barcode, adopted: &Adopted) -> bool {
        self.volumes += 1;
        self.failed += u64::from(adopted.failed.is_some());
        self.foreign.extend(adopted.foreign.then(|| barcode.clone()));
        self.segments += adopted.live;
        self.dead += adopted.dead;
        // Writing to a string cannot fail.
        let _ = write!(self.lines, "{barcode}: {}", adopted.what);
        if adopted.live + adopted.dead > 0 {
            let _ = write!(self.lines, ", {} segments of files, {} not needed", adopted.live, adopted.dead);
        }
        if let Some(why) = &adopted.failed {
            let _ = write!(self.lines, "; FAILED: {why}");
            self.first_failed.get_or_insert_with(|| format!("{barcode}: {why}"));
        }
        self.lines.push('\n');
        for note in &adopted.notes {
            let _ = writeln!(self.lines, "    {note}");
        }
        let newer = |rules: &&(Time, Rules)| self.rules.as_ref().is_none_or(|(newest, _)| *newest < rules.0);
        let newest = adopted.rules.as_ref().filter(newer).cloned();
        let tells = newest.is_some();
        self.rules = newest.or(self.rules.take());
        tells
    }

    /// How what was imported comes back: no tape of ours tells of it.
    fn imports(&self) -> String {
        if self.foreign.is_empty() {
            return String::new();
        }
        let mut text = String::from(
            "Volumes of other programs and namespaces. What was imported of them is in the namespace again after\n",
        );
        for barcode in &self.foreign {
            let _ = writeln!(text, "  thermo volume import {barcode} --into DIR");
        }
        text + "\n"
    }

    fn summary(&self) -> String {
        let foreign = match self.foreign.len() {
            0 => String::new(),
            n => format!("; {} of others to be imported", plural(n, "volume")),
        };
        format!(
            "{} looked at ({} failed), {} entered, {} in the namespace: {} without a complete copy, {} with fewer copies than \
             their class wants{foreign}",
            plural(self.volumes, "volume"),
            self.failed,
            plural(self.segments, "segment"),
            plural(self.files, "file"),
            self.lost,
            self.fewer
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_others_are_named_with_the_command_that_takes_them() {
        let mut report = Report::default();
        report.volume(&Barcode::from("TC0001L9"), &Adopted { live: 2, ..Adopted::default() });
        assert_eq!((report.imports().as_str(), report.summary().contains("of others")), ("", false));
        for barcode in ["XX0001L9", "XX0002L9"] {
            report.volume(&Barcode::from(barcode), &Adopted { foreign: true, ..Adopted::default() });
        }
        let told = report.imports();
        assert!(told.ends_with(
            "  thermo volume import XX0001L9 --into DIR\n  thermo volume import XX0002L9 --into DIR\n\n"
        ));
        assert!(report.summary().ends_with("; 2 volumes of others to be imported"), "{}", report.summary());
    }
}
