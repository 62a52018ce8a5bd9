//! Libraries and drives that the node gets while it runs, from a configuration that was read again.
//!
//! Whoever watches the door of a library takes its new drives into use; a new library begins as one that cannot be used, and is tried as any other such. Nothing
//! that is there changes its number.

use super::Event;
use super::library::{enter_out, out_of_use, take_stock, take_stock_behind};
use crate::Node;
use crate::attached::{AttachedDrive, AttachedLibrary};
use crate::clock::Moment;
use crate::startup::spawn;
use parking_lot::Mutex;
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

    /// Whether a drive has its place in a library that is in use: what is said of where it sits does not count any more.
    pub(crate) fn has_placed(&self, drive: DriveNo) -> bool {
        let state = self.archive.state.lock();
        let library = state.drives.get(&drive).map(|drive| drive.library);
        library.and_then(|no| state.shelves.get(&no)).is_some_and(|shelf| shelf.out.is_none())
    }

    /// Takes drives into use that a library in use has got; `tried`: when that failed last.
    pub(super) fn take_in_drives(
        self: &Arc<Self>,
        library: LibraryNo,
        robot: &Arc<Mutex<Changer>>,
        tried: &mut Option<Tried>,
    ) {
        let wanted = self.hardware(library).map_or(0, |hardware| hardware.count());
        let known = self.archive.state.lock().drives.values().filter(|d| d.library == library).count();
        let due = tried.as_ref().is_none_or(|tried| tried.is_due_again(self, library));
        if usize::from(wanted) <= known || !due {
            return;
        }
        let first = tried.as_ref().is_none_or(|tried| tried.drives != drives(self, library));
        *tried = Some(Tried::now(self, library));
        match take_stock_behind(self, library, robot, known) {
            Ok(stock) => self.archive.send(Event::Library(Box::new(stock))),
            Err(e) if first => {
                let name = self.library_name(library);
                self.archive.warn(format!(
                    "library {name} has a drive that cannot be used: {}; it is tried again by itself",
                    e.message
                ));
            }
            Err(e) => {
                tracing::info!("library {library} still has a drive that cannot be used: {}", e.message)
            }
        }
    }
}
