//! Rebuilds what is out of date on targets that answer again, beside whoever uses the files. What is left to do is on record in the catalogue.

use super::PAGE;
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use crate::files::{Content, FarFile};
use catalog::Far;
use data::frame::Op;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stripe::{Column, Columns, Mended};
use types::api::OpenFlags;
use types::*;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(2);

/// The start of the machine that a column is written to: what was written there before another one, and not synced, may be lost.
pub(super) struct Started<'a> {
    to: &'a Column,
    boot: Option<u64>,
}

impl<'a> Started<'a> {
    pub(super) fn of(to: &'a Column) -> Self {
        Self { to, boot: to.channel.boot() }
    }

    /// Asked when all was synced.
    pub(super) fn is_the_same(&self) -> Result<(), String> {
        let boot = self.to.channel.boot();
        if boot.is_some() && boot == self.boot {
            return Ok(());
        }
        Err(format!(
            "the machine of target {} may have been started anew meanwhile: it is done again",
            self.to.target
        ))
    }
}

impl Node {
    /// Does it until the node stops.
    pub(crate) fn mend_far(&self) {
        let mut told = String::new();
        while !self.stops_within(AGAIN) {
            let problem = self.mend_all().map_or_else(|e| e.to_string(), |e| e.unwrap_or_default());
            if !problem.is_empty() && problem != told {
                tracing::warn!("a file lacks a column, and is tried again: {problem}");
            }
            told = problem;
        }
    }

    /// Mends what can be mended now; why the last one of the others cannot.
    fn mend_all(&self) -> Result<Option<String>, FsError> {
        let (mut after, mut problem) = (ObjectId(0), None);
        loop {
            let page =
                self.catalog.stale_far(after, PAGE).map_err(|e| fs_error("look for files to mend", &e))?;
            let Some((last, _)) = page.last() else { return Ok(problem) };
            after = *last;
            let down = self.down_targets()?;
            for (object, _) in page {
                // What is just being moved is looked at again soon.
                let Some(_claim) = self.movers.claims.try_take(object) else { continue };
                let far = self.catalog.far(object).map_err(|e| fs_error("look for files to mend", &e))?;
                let Some(far) = far else { continue };
                if let Err(why) = self.mend_file(object, &far, &down) {
                    problem = Some(why);
                }
                if self.stops_within(Duration::ZERO) {
                    return Ok(None);
                }
            }
        }
    }

    /// Mends the columns of a file whose targets are not down. The caller has claimed it.
    pub(super) fn mend_file(
        &self,
        object: ObjectId,
        far: &Far,
        down: &BTreeSet<TargetId>,
    ) -> Result<(), String> {
        let owner = self.catalog.object_owner(object).map_err(|e| e.to_string())?;
        let Some(ino) = owner else { return Ok(()) };
        for (component, column) in far.stale.iter().copied() {
            let target = far.layout.components.get(usize::from(component)).and_then(|c| c.target(column));
            let Some(target) = target.filter(|target| !down.contains(target)) else { continue };
            let told = |e: String| format!("inode {ino}, column {column} on target {target}: {e}");
            let mend = |file: &Arc<FarFile>| self.mend_column(file, object, (component, column), target);
            self.with_far(ino, object, mend).map_err(told)?;
        }
        Ok(())
    }

    /// Does something with a file that nobody releases or removes meanwhile; nothing if it has left its targets.
    pub(super) fn with_far<T>(
        &self,
        ino: Ino,
        object: ObjectId,
        what: impl FnOnce(&Arc<FarFile>) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let opened = self.open_file(&Cx::admin(crate::now()), ino, OpenFlags::default());
        let opened = opened.map_err(|e| e.to_string())?;
        let backing = self.open.handle(opened.handle).and_then(|f| f.inode.state.lock().backing.clone());
        let done = match backing.filter(|backing| backing.object == object).map(|b| b.content) {
            Some(Content::Far(file)) => what(&file).map(Some),
            _ => Ok(None),
        };
        self.close_file(opened.handle);
        done
    }

    fn mend_column(
        &self,
        file: &Arc<FarFile>,
        object: ObjectId,
        (component, column): (u16, u16),
        target: TargetId,
    ) -> Result<(), String> {
        let to = self.column_to(file, (component, column), target)?;
        let started = Started::of(&to);
        let mended = Mended { component: component.into(), column, to: &to };
        let (begun, mut at, mut bytes) = (Moment::now(), Some(0), 0);
        while let Some(from) = at {
            let step = file.striped().mend(mended, from).map_err(|e| e.to_string())?;
            bytes += step.bytes;
            at = step.next;
            self.keep_pace(self.config.cluster.move_rate.0, begun, bytes)?;
        }
        let admit = || {
            started.is_the_same()?;
            // All that can fail comes before it is on record: whoever has the file open must use the column from then on.
            let mut columns = self.columns_but(object, Some((component, column)))?;
            columns[usize::from(component)][usize::from(column)] = Some(to.clone());
            let recorded = self.catalog.set_stale(object, (component, column), false);
            self.settled(object, recorded, |far| !far.stale.contains(&(component, column)))?;
            Ok(columns)
        };
        file.striped().finish_mending(mended, admit).map_err(|e| e.to_string())?;
        tracing::info!("inode {}: column {column} on target {target} is up to date again", file.ino());
        Ok(())
    }

    /// The columns of a file as they are on record, all of which have to answer but those that are out of date; of one nothing is asked.
    pub(super) fn columns_but(&self, object: ObjectId, but: Option<(u16, u16)>) -> Result<Columns, String> {
        let far = self.catalog.far(object).map_err(|e| e.to_string())?.ok_or("it has left its targets")?;
        let (columns, absent) = self.columns(&far, &BTreeSet::new()).map_err(|e| e.to_string())?;
        match absent.iter().find(|place| Some(**place) != but) {
            None => Ok(columns),
            Some((_, column)) => Err(format!("column {column} cannot be reached either")),
        }
    }

    /// The way to a column that is to be written anew, with its objects made where they are missing.
    pub(super) fn column_to(
        &self,
        file: &FarFile,
        (component, column): (u16, u16),
        target: TargetId,
    ) -> Result<Column, String> {
        let striped = file.striped();
        let shape = &striped.layout().components[usize::from(component)];
        for (object, _) in shape.places().filter(|(_, place)| *place == column) {
            let ask = |op, length| -> Result<data::Result<data::Reply>, String> {
                Ok(self.ask_far(target, op, object, length).map_err(|e| e.to_string())?.wait())
            };
            match ask(Op::Stat, 0)? {
                Ok(_) => continue,
                Err(e) if e.class() == ErrorClass::NotFound => {}
                // Its file of sums is of no use: nothing of it counts, and all of it is written anew.
                Err(e) if e.class() == ErrorClass::Corrupt => {
                    ask(Op::Remove, 1)?.map_err(|e| e.to_string())?;
                }
                Err(e) => return Err(e.to_string()),
            }
            ask(Op::Create, 1)?.map_err(|e| e.to_string())?;
        }
        self.way(target, false).map_err(|e| e.to_string())
    }

    /// Waits as long as a rate wants it (bytes per second; 0: as fast as they can).
    pub(super) fn keep_pace(&self, rate: u64, begun: Moment, bytes: u64) -> Result<(), String> {
        let due = match rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        };
        match self.stops_within(due.saturating_sub(begun.elapsed())) {
            true => Err("the node stops".to_owned()),
            false => Ok(()),
        }
    }
}
