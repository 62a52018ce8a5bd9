//! Libraries and drives that the node gets while it runs, from a configuration that was read again.
//!
//! Whoever watches the door of a library takes its new drives into use; a new library begins as one that cannot be used, and is tried as any other such. Nothing
//! that is there changes its number.

use super::Event;
use super::library::{Failed, enter_out, out_of_use, take_stock, take_stock_of};
use crate::Node;
use crate::attached::{AttachedDrive, AttachedLibrary};
use crate::clock::Moment;
use crate::startup::spawn;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tape::Changer;
use types::*;

/// When something was tried last, and as which drives the configuration had then.
pub struct Tried {
    at: Moment,
    drives: Vec<AttachedDrive>,
}

impl Tried {
    /// Just now.
    pub fn now(node: &Node, library: LibraryNo) -> Self {
        Self { at: Moment::now(), drives: drives(node, library) }
    }

    /// Whether it is time to try again; at once when the configuration says something else.
    pub fn is_due_again(&self, node: &Node, library: LibraryNo) -> bool {
        let pause = Duration::from_secs(u64::from(node.settings().tape.drive_retry_s));
        (!pause.is_zero() && self.at.elapsed() >= pause) || self.drives != drives(node, library)
    }
}

/// Drives of a library in use that are still looked for.
#[derive(Default)]
pub struct Wanted {
    /// When those that have no place in it were looked for last.
    tried: Option<Tried>,
    /// As what one was looked for last that never answered where it was found to be.
    sought: BTreeMap<DriveNo, AttachedDrive>,
}

fn drives(node: &Node, library: LibraryNo) -> Vec<AttachedDrive> {
    node.hardware(library).map_or_else(Vec::new, |hardware| hardware.entries())
}

impl Node {
    /// From now on the configuration says this of attached libraries, and may have more of them and of drives.
    pub(crate) fn renew_libraries(self: &Arc<Self>, config: &[AttachedLibrary]) {
        for library in self.hardware.renew(config, &self.config.state_dir) {
            enter_out(self, library, "it is looked at");
            let node = self.clone();
            let watch = move || {
                let tried = Tried::now(&node, library);
                match take_stock(&node, library) {
                    Ok(stock) => node.archive.send(Event::Library(Box::new(stock))),
                    Err(e) => out_of_use(&node, library, &e.message),
                }
                node.watch_door(library, tried);
            };
            if let Err(e) = spawn(Some(self), &format!("door-{library}"), watch) {
                self.archive.warn(format!(
                    "library {}: {}; restart the node",
                    self.library_name(library),
                    e.message
                ));
            }
        }
    }

    /// Whether a drive has its place in a library that is in use, and was there: what is said of where it sits does not count any more.
    pub(crate) fn has_placed(&self, drive: DriveNo) -> bool {
        let state = self.archive.state.lock();
        let library = state.drives.get(&drive).map(|drive| drive.library);
        let in_use = |no: &LibraryNo| state.shelves.get(no).is_some_and(|shelf| shelf.out.is_none());
        library.filter(in_use).is_some_and(|no| self.was_opened(no, drive))
    }

    /// Takes drives into use that a library in use has got, or that are now found where they are: `wanted` is what is known of them.
    pub(super) fn take_in_drives(
        self: &Arc<Self>,
        library: LibraryNo,
        robot: &Arc<Mutex<Changer>>,
        wanted: &mut Wanted,
    ) {
        let entries = drives(self, library);
        let numbers = (self.first_drive(library)..).map(DriveNo);
        let entries: BTreeMap<DriveNo, AttachedDrive> = numbers.zip(entries).collect();
        let (missing, anew) = self.looked_for(&entries, &wanted.sought);
        let due = wanted.tried.as_ref().is_none_or(|tried| tried.is_due_again(self, library));
        let is_due = due && !missing.is_empty();
        if !is_due && anew.is_empty() {
            return;
        }
        let first = |tried: &Tried| !tried.drives.iter().eq(entries.values());
        let first = is_due && wanted.tried.as_ref().is_none_or(first);
        wanted.tried = Some(Tried::now(self, library));
        let goes = |no: DriveNo, element: u16| {
            missing.contains(&no) || anew.get(&no).is_some_and(|at| *at != element)
        };
        match take_stock_of(self, library, robot, &goes) {
            Ok((stock, mut failed)) => {
                let found: BTreeSet<DriveNo> = stock.drives().collect();
                let stay = anew.keys().filter(|no| !found.contains(no));
                wanted.sought.extend(stay.filter_map(|no| Some((*no, entries.get(no)?.clone()))));
                failed.retain(|no, _| missing.contains(no));
                self.tell_of(library, &failed, first);
                if !found.is_empty() {
                    self.archive.send(Event::Library(Box::new(stock)));
                }
            }
            Err(e) if is_due => {
                self.tell_of(library, &missing.iter().map(|no| (*no, e.clone())).take(1).collect(), first)
            }
            Err(_) => {}
        }
    }

    /// Drives that have no place yet; and those that never answered at theirs, with its element, and are another one by now than when they were `sought`.
    fn looked_for(
        &self,
        entries: &BTreeMap<DriveNo, AttachedDrive>,
        sought: &BTreeMap<DriveNo, AttachedDrive>,
    ) -> (BTreeSet<DriveNo>, BTreeMap<DriveNo, u16>) {
        let (mut missing, mut anew) = (BTreeSet::new(), BTreeMap::new());
        let state = self.archive.state.lock();
        for (no, entry) in entries {
            match state.drives.get(no) {
                None => drop(missing.insert(*no)),
                Some(slot) if slot.may_be_elsewhere() && sought.get(no) != Some(entry) => {
                    anew.insert(*no, slot.element);
                }
                Some(_) => {}
            }
        }
        (missing, anew)
    }

    /// Tells why drives have no place in their library; `first`: that is new.
    fn tell_of(&self, library: LibraryNo, failed: &Failed, first: bool) {
        let name = self.library_name(library);
        for (no, e) in failed {
            match first {
                true => self.archive.warn(format!(
                    "library {name} has a drive that cannot be used ({no}): {}; it is tried again by itself",
                    e.message
                )),
                false => tracing::info!("library {name}: drive {no} still cannot be used: {}", e.message),
            }
        }
    }
}
