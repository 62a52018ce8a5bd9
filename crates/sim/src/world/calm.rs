//! The end of a world: everything that broke has been mended, but for cartridges that are bad for good. Then every file gets
//! its copies, leaves the disk, and comes back as it was; and the catalogue is what the tapes are.

use super::users::request;
use super::{Act, CALM, World, check};
use types::*;
use wire::{Call, Selection};

/// Operators look after suspect volumes so often before nothing more is expected.
const ATTEMPTS: usize = 8;

/// No request is open.
fn nothing_asked(node: &node::Stepped) -> bool {
    node.catalog().requests(false, 1).is_ok_and(|open| open.is_empty())
}

impl World {
    pub(super) fn become_calm(&mut self) -> Result<(), String> {
        self.calm = true;
        self.trace.note(self.hub.time(), "from here on everything is in order");
        self.agenda.retain(|_, act| matches!(act, Act::Look | Act::Govern | Act::GovernSoon));
        self.hazards.calm(&self.hardware.library);
        let node = self.node.as_ref().ok_or("no node")?;
        self.operators.put_in_order(node, &self.hardware.library, &self.spoilt);
        // A node that starts takes stock of the library: cartridges that were brought back are noticed.
        self.hub.die();
        self.after()?;
        self.sabotage(false)?;
        self.check()?;
        let old = self.hub.time();
        self.until("what users asked for", |w| w.users.requests.is_empty() && w.users.reads.is_empty())?;
        self.until("what operators asked for", |w| w.node.as_ref().is_some_and(nothing_asked))?;
        self.trace
            .note(self.hub.time(), format_args!("requests have ended after {:?}", self.hub.time() - old));
        self.all("migrated", Call::Migrate)?;
        self.all("released", Call::Purge)?;
        self.sabotage(true)?;
        self.seen.clear();
        self.read_everything()?;
        if self.sabotage == Some(super::Sabotage::ChangeObject) {
            self.change_an_object()?;
            self.read_everything()?;
        }
        if self.sabotage == Some(super::Sabotage::ChangeIndex) {
            self.change_an_index()?;
        }
        self.compare()
    }

    /// Goes on until something is true.
    pub(super) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end = self.hub.time() + CALM;
        while !done(self) {
            self.turn()?;
            if self.hub.time() > end {
                return Err(format!("{what}: not done after {CALM:?} although everything is in order"));
            }
        }
        Ok(())
    }

    /// Everything is migrated, or released.
    pub(super) fn all(&mut self, what: &str, call: fn(Selection) -> Call) -> Result<(), String> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            let node = self.node.as_ref().ok_or("no node")?;
            self.operators.put_in_order(node, &self.hardware.library, &self.spoilt);
            let paths: Vec<Vec<u8>> =
                self.users.now().keys().map(|name| format!("/{name}").into_bytes()).collect();
            if paths.is_empty() {
                return Ok(());
            }
            let id = request(node, call(Selection { paths, recursive: false }))?;
            self.users.requests.insert(id, self.hub.time());
            self.until(what, |w| w.users.requests.is_empty())?;
            let ended = self.node()?.catalog().request(id).map_err(|e| e.to_string())?;
            match ended {
                Some(r) if r.state == RequestState::Done => return Ok(()),
                Some(r) => why = format!("{:?} {}", r.state, r.message),
                None => why = "it is gone".into(),
            }
            self.trace.note(self.hub.time(), format_args!("not all {what}"));
        }
        let items = self.node()?.catalog().requests(true, 1).map_err(|e| e.to_string())?;
        let failed = items.first().map(|r| self.first_failure(r.id)).unwrap_or_default();
        let volumes = self.node()?.catalog().volumes().map_err(|e| e.to_string())?;
        for v in volumes {
            let line = format!(
                "{} {:?} {:?} {} of {}: {}",
                v.barcode, v.state, v.pool, v.written, v.capacity, v.reason
            );
            self.trace.note(self.hub.time(), line);
        }
        Err(format!("not all files can be {what} although everything is in order: {why}: {failed}"))
    }

    fn first_failure(&self, id: RequestId) -> String {
        let Some(node) = &self.node else { return String::new() };
        let items = node.catalog().items(id, Ino(0), 1_000).unwrap_or_default();
        let failed = items.into_iter().find_map(|(ino, state, _)| match state {
            ItemState::Failed(why) => Some(format!("inode {ino}: {why}")),
            _ => None,
        });
        failed.unwrap_or_default()
    }

    pub(super) fn read_everything(&mut self) -> Result<(), String> {
        self.check()?;
        let now = self.hub.time();
        let names = self.users.now().clone();
        for (name, content) in names {
            let node = self.node.as_ref().ok_or("no node")?;
            self.users.begin_read(node, now, name, content)?;
        }
        self.after()?;
        self.until("reads of everything", |w| w.users.reads.is_empty())?;
        self.trace.note(self.hub.time(), format_args!("all is read after {:?}", self.hub.time() - now));
        self.check()
    }

    /// The catalogue against itself and, through the drives, against every cartridge that nobody has damaged.
    fn compare(&mut self) -> Result<(), String> {
        let node = self.node.as_ref().ok_or("no node")?;
        check::catalogue(node)?;
        let volumes = node.catalog().volumes().map_err(|e| e.to_string())?;
        let ours: Vec<Barcode> = volumes
            .into_iter()
            .filter(|v| !v.uuid.is_empty() && !self.spoilt.contains(v.barcode.as_str()))
            .map(|v| v.barcode)
            .collect();
        let count = ours.len();
        let answers = node.begin_check(ours, true);
        self.until("the comparison with the tapes", |_| answers.len() == count)?;
        for checked in answers.try_iter() {
            if let Some(f) = checked.findings.iter().find(|f| f.is_serious()) {
                return Err(format!("catalogue and tape differ: {}: {}", f.subject, f.problem));
            }
        }
        let node = self.node.as_ref().ok_or("no node")?;
        check::catalogue(node)
    }
}
