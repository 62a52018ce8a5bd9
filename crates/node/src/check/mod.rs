//! Catalogue against itself, against the disk tier and against the cartridges.

mod far;
mod parts;
mod tape_side;

use crate::Node;
use crate::archive::{CheckAsk, Event};
use crate::error::{failure, refused};
use crate::files::Content;
use disk::Found;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::*;
use wire::Failure;

pub(crate) use tape_side::{answer_failed, check_volume, distrust};

/// Inodes read at a time.
const PAGE: usize = 1_000;

/// Findings that one report tells.
const MOST_FINDINGS: usize = 10_000;

/// Enters `findings`, as long as there is room.
fn tell(report: &mut CheckReport, findings: impl IntoIterator<Item = Finding>) {
    for finding in findings {
        match report.findings.len() {
            ..MOST_FINDINGS => report.findings.push(finding),
            MOST_FINDINGS => report.findings.push(serious(
                "check",
                "there are more findings than one report tells",
                "mend these, then check again",
            )),
            _ => return,
        }
    }
}

fn serious(subject: impl Into<String>, problem: impl Into<String>, remedy: &str) -> Finding {
    Finding { grade: Grade::Serious, subject: subject.into(), problem: problem.into(), remedy: remedy.into() }
}

impl Node {
    /// Checks everything that was asked for; files may be in use meanwhile.
    pub(crate) fn check(&self, tapes: bool, deep: bool) -> Result<CheckReport, Failure> {
        let mut report = CheckReport::default();
        self.catalog.sync().map_err(|e| refused("check", &e))?;
        // An engine that does not answer is no damage.
        self.catalog.site().map_err(|e| refused("check", &e))?;
        let wrong = catalog::check::verify(&self.catalog);
        let remedy = "restore the catalogue from a backup, or report a defect with this text";
        tell(&mut report, wrong.into_iter().map(|what| serious("catalogue", what, remedy)));
        self.check_objects(&mut report)?;
        self.check_files(&mut report, deep)?;
        if tapes || deep {
            self.check_volumes(&mut report, deep)?;
        }
        Ok(report)
    }

    /// Objects on disk that the catalogue does not know. One at a time: there may be millions.
    fn check_objects(&self, report: &mut CheckReport) -> Result<(), Failure> {
        let mut failed = None;
        let (mut empty, mut empties) = (None, 0_u64);
        let listed = self.disk.list(&mut |found| {
            let ours = matches!(found, Found::Object(_));
            let finding = match found {
                Found::Object(id) => {
                    report.objects += 1;
                    self.check_object(id)
                }
                Found::Stray(path) => Ok(Some(Finding {
                    grade: Grade::Leftover,
                    subject: path.display().to_string(),
                    problem: "is no object of ours".into(),
                    remedy: "move it out of the disk tier".into(),
                })),
            };
            match finding {
                // A stock of them is made in advance: what an older catalogue does not know of it is told as one.
                Ok(Some(finding))
                    if ours && std::fs::metadata(&finding.subject).is_ok_and(|m| m.len() == 0) =>
                {
                    empties += 1;
                    empty.get_or_insert(finding.subject);
                }
                Ok(finding) => tell(report, finding),
                Err(e) => failed = Some(e),
            }
            if failed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        listed.map_err(|e| failure(e.class(), e.to_string()))?;
        let one = empty.map(|first| Finding {
            grade: Grade::Leftover,
            subject: if empties > 1 { format!("{first} and {} more", empties - 1) } else { first },
            problem: "is empty and belongs to no file".into(),
            remedy: "it may be removed".into(),
        });
        tell(report, one);
        failed.map_or(Ok(()), Err)
    }

    fn check_object(&self, id: ObjectId) -> Result<Option<Finding>, Failure> {
        let owner = self.catalog.object_owner(id).map_err(|e| refused("check", &e))?;
        let stray = owner.is_none() && self.is_stray(id)?;
        Ok(stray.then(|| Finding {
            grade: Grade::Leftover,
            subject: self.disk.path(id).display().to_string(),
            problem: "belongs to no file".into(),
            remedy: "it may be removed".into(),
        }))
    }

    /// An object without owner, looked at again: its file may have been made or deleted since it was listed. Objects
    /// leave the catalogue only after they left the disk.
    fn is_stray(&self, id: ObjectId) -> Result<bool, Failure> {
        let fail = |e| refused("check", &e);
        let unowned = || {
            let next = self.catalog.unowned_objects(ObjectId(id.0.saturating_sub(1)), 1);
            next.map(|page| page.first() == Some(&id)).map_err(fail)
        };
        // In the order in which an object is stock, owned, and given up.
        let known = unowned()? || self.catalog.object_owner(id).map_err(fail)?.is_some() || unowned()?;
        Ok(!known && self.disk.exists(id).map_err(|e| failure(e.class(), e.to_string()))?)
    }

    /// Files whose object is missing or not what was recorded, and files without any copy.
    fn check_files(&self, report: &mut CheckReport, deep: bool) -> Result<(), Failure> {
        let mut after = Ino(0);
        let mut far = far::FarCheck::new(self, deep)?;
        loop {
            let page = self.catalog.for_each_inode(after, PAGE).map_err(|e| refused("check", &e))?;
            // The catalogue's check against itself has told of the damaged ones.
            report.inodes += page.damaged.len() as u64;
            let read = page.found.iter().map(|i| i.attr.ino).chain(page.damaged.iter().map(|d| d.0));
            let Some(last) = read.max() else {
                tell(report, far.away());
                return Ok(());
            };
            after = last;
            for inode in page.found {
                report.inodes += 1;
                if inode.file.as_ref().is_some_and(|f| f.far) {
                    let finding = far.file(&inode, &mut report.bytes_verified);
                    tell(report, finding);
                    continue;
                }
                if let Some(finding) = self.check_file(&inode, deep, &mut report.bytes_verified) {
                    tell(report, [finding]);
                }
            }
        }
    }

    fn check_file(&self, inode: &Inode, deep: bool, verified: &mut u64) -> Option<Finding> {
        let file = inode.file.as_ref()?;
        let ino = inode.attr.ino;
        let subject = || {
            let path = self.catalog.path_of(ino).unwrap_or_default();
            format!("{} (inode {ino})", types::escape(&path))
        };
        let Some(object) = file.object else {
            let lost = file.copies.is_empty();
            return lost.then(|| parts::finding(self, subject(), inode, file.version));
        };
        let fd = match self.disk.open_object(object, false) {
            Ok(fd) => fd,
            // Purged, replaced or deleted since it was listed.
            Err(_) if !self.has_object(ino, object) => return None,
            Err(e) if file.copies.is_empty() => {
                return Some(serious(subject(), e.to_string(), "restore it from elsewhere"));
            }
            Err(e) => {
                return Some(serious(
                    subject(),
                    e.to_string(),
                    "its copies on tape are not concerned: it is read from tape when it is opened next",
                ));
            }
        };
        if self.is_being_written(ino) || !deep {
            return None;
        }
        let expected = file.digest?;
        let stamp = self.disk.stamp(&fd).ok()?;
        if Self::changed(file.stamp.as_ref(), &stamp) {
            return None;
        }
        *verified += stamp.size;
        let fd = Arc::new(fd);
        let found = Content::Local(fd.clone()).digest(self, stamp.size);
        let unchanged = self.disk.stamp(&fd).ok() == Some(stamp);
        (unchanged && found != Some(expected)).then(|| {
            let remedy =
                "the bytes on disk are not those that went to tape: purge the file and stage it again";
            serious(subject(), "has not the digest recorded at migration", remedy)
        })
    }

    fn has_object(&self, ino: Ino, object: ObjectId) -> bool {
        let inode = self.catalog.inode(ino);
        inode.is_ok_and(|inode| inode.file.is_some_and(|f| f.object == Some(object)))
    }

    /// Every volume that carries a label of ours, mounted one after another.
    fn check_volumes(&self, report: &mut CheckReport, deep: bool) -> Result<(), Failure> {
        let volumes = self.catalog.volumes().map_err(|e| refused("check", &e))?;
        let inside = self.archive.present();
        let (present, absent): (Vec<_>, Vec<_>) = volumes
            .into_iter()
            .filter(|v| !v.uuid.is_empty() && !out_of_use(v.state))
            .map(|v| v.barcode)
            .partition(|b| inside.contains(b));
        for barcode in absent {
            let remedy = "import it and check again";
            report.findings.push(serious(format!("volume {barcode}"), "is not in the library", remedy));
        }
        let (answer, answers) = crossbeam_channel::unbounded();
        let asked = present.len();
        self.archive.send(Event::Check(CheckAsk { volumes: present, deep, answer }));
        for checked in answers.iter().take(asked) {
            report.volumes += 1;
            report.tape_files += checked.files;
            report.bytes_verified += checked.bytes;
            report.findings.extend(checked.findings);
        }
        if report.volumes < asked as u64 {
            let remedy = "see `thermo drive ls` and the log, then check again";
            let problem = format!("{} of {asked} volumes could be looked at", report.volumes);
            report.findings.push(serious("volumes", problem, remedy));
        }
        Ok(())
    }
}

/// Nobody expects these to be read.
fn out_of_use(state: VolumeState) -> bool {
    matches!(state, VolumeState::Broken | VolumeState::Exported | VolumeState::Retired)
}
