//! Files whose bytes lie on disk targets of the cluster: their objects are there, and are as long as the catalogue says; a deep check reads all of them,
//! and holds copies and parity against each other.

use super::serious;
use crate::Node;
use crate::error::refused;
use crate::files::Content;
use crate::movers::{down, troubles};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::*;
use wire::Failure;

/// A file that is another one after each of so many looks is being written.
const LOOKS: usize = 10;

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

/// A check under way.
pub(super) struct FarCheck<'a> {
    node: &'a Node,
    deep: bool,
    /// Targets that do not answer: asking each would take a minute.
    down: BTreeSet<TargetId>,
    /// Why each of these is down, and what to do.
    troubles: BTreeMap<TargetId, (String, String)>,
    /// Files that could not be looked at: how many, and the first of them.
    skipped: BTreeMap<TargetId, (u64, String)>,
    /// What scrubbing could not repair.
    unrepaired: BTreeMap<Ino, String>,
}

impl<'a> FarCheck<'a> {
    pub(super) fn new(node: &'a Node, deep: bool) -> Result<Self, Failure> {
        let views = if node.movers.is_used() { node.target_views()? } else { Vec::new() };
        let (down, troubles) = (down(&views), troubles(&views));
        let unrepaired = node.unrepaired().map_err(|e| refused("what scrubs have found", &e))?;
        Ok(Self { node, deep, down, troubles, skipped: BTreeMap::new(), unrepaired })
    }

    /// What is wrong with a file, as it was listed.
    pub(super) fn file(&mut self, listed: &Inode, verified: &mut u64) -> Option<Finding> {
        let object = |inode: &Inode| inode.file.as_ref().and_then(|file| file.object);
        let laid = |inode: &Inode| object(inode).and_then(|object| self.node.catalog.far(object).ok()?);
        let mut inode = listed.clone();
        for _ in 0..LOOKS {
            let before = laid(&inode);
            let found = self.look_at(&inode, verified)?;
            // It may have been written, and closed, or its columns may have moved, since it was listed or looked at.
            match self.node.catalog.inode(inode.attr.ino) {
                Ok(now) if now.observed != inode.observed || object(&now) != object(&inode) => inode = now,
                Ok(_) if laid(&inode) != before => {}
                _ => return Some(found),
            }
        }
        None
    }

    fn look_at(&mut self, inode: &Inode, verified: &mut u64) -> Option<Finding> {
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
        if !far.can_spare(&self.down) {
            let targets = far.layout.components.iter().flat_map(|component| &component.targets);
            for target in targets.filter(|target| self.down.contains(target)) {
                self.skipped.entry(*target).or_insert_with(|| (0, subject.clone())).0 += 1;
            }
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
        let found = self.look(ino, far, file, inode.observed.unwrap_or_default(), verified);
        if found.is_ok() {
            return lacks;
        }
        // Written, released or removed since it was listed.
        let problem = found.err().filter(|_| !busy())?;
        let remedy = match file.copies.is_empty() {
            true => "see `thermo target ls`: bring the target back, or restore the file from elsewhere",
            false => {
                "see `thermo target ls`: bring the target back, or purge the file and stage it again from tape"
            }
        };
        Some(serious(subject, problem, remedy))
    }

    fn look(
        &self,
        ino: Ino,
        far: catalog::Far,
        file: &FileState,
        stamp: ObjectStamp,
        verified: &mut u64,
    ) -> Result<(), String> {
        let object = file.object.ok_or("it has left its targets")?;
        let open = self.node.far_file_at(ino, object, far, stamp).map_err(|e| e.to_string())?;
        let length = open.length().map_err(|e| e.to_string())?;
        if length != stamp.size {
            return Err(format!("its targets have {length} bytes of it, the catalogue says {}", stamp.size));
        }
        if self.deep {
            let compared = open.striped().compare(&|| !self.node.stops_within(Duration::ZERO));
            let compared = compared.map_err(|e| format!("its columns cannot be compared: {e}"))?;
            *verified += compared.bytes;
            if !compared.differences.is_empty() {
                return Err(compared.differences.join("; "));
            }
        }
        let Some(expected) = file.digest.filter(|_| self.deep) else { return Ok(()) };
        *verified += length;
        match Content::Far(open).digest(self.node, length) {
            Some(found) if found == expected => Ok(()),
            Some(_) => Err("has not the digest recorded at migration".to_owned()),
            None => Err("cannot be read to its end; the log says more".to_owned()),
        }
    }

    /// One finding for each target that is down, and each without which files could not be looked at.
    pub(super) fn away(&mut self) -> Vec<Finding> {
        let (mut skipped, mut troubles) =
            (std::mem::take(&mut self.skipped), std::mem::take(&mut self.troubles));
        let all: BTreeSet<TargetId> = skipped.keys().chain(troubles.keys()).copied().collect();
        let one = |target| {
            // It was replaced, and its files cannot be had without it.
            let lost =
                || ("is lost".to_owned(), "restore these files from elsewhere, or from tape".to_owned());
            let (why, remedy) = troubles.remove(&target).unwrap_or_else(lost);
            let subject = format!("target {target}");
            match skipped.remove(&target) {
                None => Finding { grade: Grade::Incomplete, subject, problem: why, remedy },
                Some((files, first)) => {
                    let files = plural(files, "file");
                    serious(
                        subject,
                        format!("{why}; without it {files} were not looked at, the first is {first}"),
                        &remedy,
                    )
                }
            }
        };
        all.into_iter().map(one).collect()
    }
}
