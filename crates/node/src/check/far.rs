//! Files whose bytes lie on disk targets of the cluster: their objects are there, and are as long as the catalogue says; a deep check reads all of them,
//! and holds copies and parity against each other.

use super::serious;
use crate::Node;
use crate::clock::Moment;
use crate::error::refused;
use crate::files::{Content, FarFile};
use crate::movers::{down, troubles};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stripe::StripeError;
use types::*;
use wire::Failure;

/// A file that is another one after each of so many looks is being written.
const LOOKS: usize = 10;
/// Who did not answer is asked nothing more for so long: each file would wait for it.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// What is out of date of a file that is all there otherwise.
fn lacks(subject: &str, far: &catalog::Far) -> Option<Finding> {
    let target = |(component, column): &(u16, u16)| {
        far.layout.components.get(usize::from(*component)).and_then(|c| c.target(*column))
    };
    let targets: Vec<String> = far.stale.iter().filter_map(target).map(|target| target.to_string()).collect();
    (!targets.is_empty()).then(|| Finding {
        grade: Grade::Incomplete,
        subject: subject.to_owned(),
        problem: format!("what it has on target {} is out of date", targets.join(", ")),
        remedy: "it is rebuilt when the target answers: see `thermo target ls`".to_owned(),
    })
}

/// Files of one kind: how many, and the first of them.
type Files = (u64, String);

/// Why a file is not known to be good.
enum Problem {
    Wrong(String),
    /// These targets do not answer: nothing is known of what lies there.
    Away(BTreeSet<TargetId>),
}

/// A check under way.
pub(super) struct FarCheck<'a> {
    node: &'a Node,
    deep: bool,
    /// Targets that are known not to answer: asking each would take a minute.
    down: BTreeSet<TargetId>,
    /// Those that did not answer this check, and until when they are not asked again.
    gone: BTreeMap<TargetId, Moment>,
    /// Why each of these is down, and what to do.
    troubles: BTreeMap<TargetId, (String, String)>,
    /// Files that could not be looked at.
    skipped: BTreeMap<TargetId, Files>,
    /// Files of which what lies there was not compared, and the rest was.
    uncompared: BTreeMap<TargetId, Files>,
    /// What scrubbing could not repair.
    unrepaired: BTreeMap<Ino, String>,
}

impl<'a> FarCheck<'a> {
    pub(super) fn new(node: &'a Node, deep: bool) -> Result<Self, Failure> {
        let unrepaired = node.unrepaired().map_err(|e| refused("what scrubs have found", &e))?;
        let mut check = Self {
            node,
            deep,
            down: BTreeSet::new(),
            gone: BTreeMap::new(),
            troubles: BTreeMap::new(),
            skipped: BTreeMap::new(),
            uncompared: BTreeMap::new(),
            unrepaired,
        };
        check.renew()?;
        Ok(check)
    }

    /// Which targets are down now; those that are lost.
    fn renew(&mut self) -> Result<BTreeSet<TargetId>, Failure> {
        let views = if self.node.movers.is_used() { self.node.target_views()? } else { Vec::new() };
        (self.down, self.troubles) = (down(&views), troubles(&views));
        let lost = views.iter().filter(|view| view.state == TargetState::Lost);
        Ok(lost.map(|view| view.target.id).collect())
    }

    /// What a file is to be looked at without.
    fn without(&self) -> BTreeSet<TargetId> {
        let gone = self.gone.iter().filter(|(_, until)| Moment::now() < **until);
        self.down.iter().chain(gone.map(|(target, _)| target)).copied().collect()
    }

    /// Takes note of those that did not answer; false: none of them is new.
    fn note_gone(&mut self, targets: &BTreeSet<TargetId>) -> bool {
        let known = self.without();
        let until = Moment::now() + ASKED_AGAIN;
        self.gone.extend(targets.iter().map(|target| (*target, until)));
        // If that cannot be known now it stays as it was.
        let _ = self.renew();
        !targets.is_subset(&known)
    }

    /// What is wrong with a file, as it was listed.
    pub(super) fn file(&mut self, listed: &Inode, verified: &mut u64) -> Option<Finding> {
        let object = |inode: &Inode| inode.file.as_ref().and_then(|file| file.object);
        let laid = |inode: &Inode| object(inode).and_then(|object| self.node.catalog.far(object).ok()?);
        let mut inode = listed.clone();
        for _ in 0..LOOKS {
            let before = laid(&inode);
            let found = self.look_at(&inode, LOOKS, verified)?;
            // It may have been written, and closed, or its columns may have moved, since it was listed or looked at.
            match self.node.catalog.inode(inode.attr.ino) {
                Ok(now) if now.observed != inode.observed || object(&now) != object(&inode) => inode = now,
                Ok(_) if laid(&inode) != before => {}
                _ => return Some(found),
            }
        }
        None
    }

    fn look_at(&mut self, inode: &Inode, looks: usize, verified: &mut u64) -> Option<Finding> {
        let (node, ino) = (self.node, inode.attr.ino);
        let (file, object) = inode.file.as_ref().and_then(|f| Some((f, f.object?)))?;
        let path = node.catalog.path_of(ino).unwrap_or_default();
        let subject = format!("{} (inode {ino})", String::from_utf8_lossy(&path));
        let far = match node.catalog.far(object) {
            Ok(far) => far?,
            Err(e) => {
                return Some(serious(subject, refused("its layout", &e).message, "run `thermo check` again"));
            }
        };
        let without = self.without();
        if !far.can_spare(&without) {
            let targets = far.layout.components.iter().flat_map(|component| &component.targets);
            let targets: BTreeSet<TargetId> = targets.copied().collect();
            count(&mut self.skipped, targets.intersection(&without), &subject);
            return None;
        }
        let busy = || {
            node.is_being_written(ino)
                || node.catalog.is_writing(ino).unwrap_or(true)
                || !node.has_object(ino, object)
        };
        if busy() {
            return None;
        }
        if let Some(why) = self.unrepaired.get(&ino)
            && node.is_bad(&far).unwrap_or(true)
        {
            let remedy = "restore the file from elsewhere, or remove it; see the disk of that target";
            return Some(serious(subject, why.clone(), remedy));
        }
        if let Some(why) = node.unmade(object, inode.observed) {
            let remedy = "write these bytes again, restore the file from elsewhere, or remove it; it is tried again when the file has changed";
            return Some(serious(subject, why, remedy));
        }
        let lacks = lacks(&subject, &far);
        let found = self.look((ino, object), far, file, inode.observed.unwrap_or_default(), verified);
        let problem = match found {
            Ok(uncompared) => {
                count(&mut self.uncompared, &uncompared, &subject);
                return lacks;
            }
            // Written, released or removed since it was listed.
            Err(_) if busy() => return None,
            Err(Problem::Wrong(problem)) => problem,
            Err(Problem::Away(targets)) if self.note_gone(&targets) && looks > 1 => {
                return self.look_at(inode, looks - 1, verified);
            }
            Err(Problem::Away(targets)) => {
                // One that comes and goes.
                count(&mut self.skipped, &targets, &subject);
                return None;
            }
        };
        let remedy = match file.copies.is_empty() {
            true => "see `thermo target ls`: bring the target back, or restore the file from elsewhere",
            false => {
                "see `thermo target ls`: bring the target back, or purge the file and stage it again from tape"
            }
        };
        Some(serious(subject, problem, remedy))
    }

    /// Targets of which what lies there was not compared.
    fn look(
        &self,
        (ino, object): (Ino, ObjectId),
        far: catalog::Far,
        file: &FileState,
        stamp: ObjectStamp,
        verified: &mut u64,
    ) -> Result<BTreeSet<TargetId>, Problem> {
        let wrong = |why: &dyn std::fmt::Display| Problem::Wrong(why.to_string());
        let all = up_to_date(&far);
        let open = self.node.far_file_at(ino, object, far, stamp).map_err(|e| wrong(&e))?;
        let without = self.without();
        for ((component, column), way) in open.striped().ways() {
            if without.contains(&way.target) {
                open.striped().put_aside(component, column);
            }
        }
        let asked: BTreeSet<TargetId> = open.striped().ways().iter().map(|(_, way)| way.target).collect();
        let length = open.length().map_err(|e| away(&open, Some(&e)).unwrap_or_else(|| wrong(&e)))?;
        if length != stamp.size {
            let problem = format!("its targets have {length} bytes of it, the catalogue says {}", stamp.size);
            return Err(away(&open, None).unwrap_or(Problem::Wrong(problem)));
        }
        if !self.deep {
            return Ok(BTreeSet::new());
        }
        let compared = open.striped().compare(&|| !self.node.stops_within(Duration::ZERO));
        let compared = compared.map_err(|e| {
            let problem = format!("its columns cannot be compared: {e}");
            away(&open, Some(&e)).unwrap_or(Problem::Wrong(problem))
        })?;
        *verified += compared.bytes;
        if !compared.differences.is_empty() {
            return Err(Problem::Wrong(compared.differences.join("; ")));
        }
        let uncompared = all.difference(&asked).copied().collect();
        let Some(expected) = file.digest else { return Ok(uncompared) };
        *verified += length;
        match Content::Far(open.clone()).digest(self.node, length) {
            Some(found) if found == expected => Ok(uncompared),
            Some(_) => Err(wrong(&"has not the digest recorded at migration")),
            None => {
                Err(away(&open, None)
                    .unwrap_or_else(|| wrong(&"cannot be read to its end; the log says more")))
            }
        }
    }

    /// One finding for each target that is down, and each without which files could not be looked at or compared.
    pub(super) fn away(&mut self) -> Vec<Finding> {
        let lost = self.renew().unwrap_or_default();
        let (mut skipped, mut uncompared) =
            (std::mem::take(&mut self.skipped), std::mem::take(&mut self.uncompared));
        let mut troubles = std::mem::take(&mut self.troubles);
        let of_files = skipped.keys().chain(uncompared.keys());
        let all: BTreeSet<TargetId> = of_files.chain(troubles.keys()).copied().collect();
        let told = |why: &str, remedy: &str| (why.to_owned(), remedy.to_owned());
        let one = |target| {
            let (why, remedy) = troubles.remove(&target).unwrap_or_else(|| match lost.contains(&target) {
                // It was replaced, and its files cannot be had without it.
                true if skipped.contains_key(&target) => {
                    told("is lost", "restore these files from elsewhere, or from tape")
                }
                true => told("is lost", "what was there is made anew on others: see `thermo request ls`"),
                false => {
                    told("did not answer while this was checked", "see `thermo target ls`, and check again")
                }
            });
            let (skipped, uncompared) = (skipped.remove(&target), uncompared.remove(&target));
            let grade = if skipped.is_some() { Grade::Serious } else { Grade::Incomplete };
            let skipped = skipped.map(|(files, first)| {
                format!("; without it {} could not be looked at, the first is {first}", plural(files, "file"))
            });
            let uncompared = uncompared.map(|(files, first)| {
                format!(
                    "; of {} what lies there was not compared, the first is {first}",
                    plural(files, "file")
                )
            });
            let problem = [Some(why), skipped, uncompared].into_iter().flatten().collect();
            Finding { grade, subject: format!("target {target}"), problem, remedy }
        };
        all.into_iter().map(one).collect()
    }
}

/// Counts a file for each of these targets.
fn count<'t>(
    files: &mut BTreeMap<TargetId, Files>,
    targets: impl IntoIterator<Item = &'t TargetId>,
    subject: &str,
) {
    for target in targets {
        files.entry(*target).or_insert_with(|| (0, subject.to_owned())).0 += 1;
    }
}

/// Targets on which something of a file lies that is not out of date.
fn up_to_date(far: &catalog::Far) -> BTreeSet<TargetId> {
    let numbered = (0..).zip(&far.layout.components);
    let places = numbered.flat_map(|(number, component): (u16, _)| {
        (0..).zip(&component.targets).map(move |(column, target): (u16, _)| ((number, column), *target))
    });
    places.filter(|(place, _)| !far.stale.contains(place)).map(|(_, target)| target).collect()
}

/// The targets that do not answer, if some of those that were asked for a file do not.
fn away(open: &FarFile, error: Option<&StripeError>) -> Option<Problem> {
    let ways = open.striped().ways();
    let gone = ways.iter().filter(|(_, way)| way.channel.is_away()).map(|(_, way)| way.target);
    let gone: BTreeSet<TargetId> = gone.chain(error.and_then(StripeError::away)).collect();
    (!gone.is_empty()).then_some(Problem::Away(gone))
}
