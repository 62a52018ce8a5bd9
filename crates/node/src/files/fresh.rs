//! New objects on targets that the bytes of a file are copied to, before the file lies there.

use super::far::FarFile;
use std::ops::Range;
use std::sync::Arc;
use stripe::StripeError;
use types::FsError;

/// The objects. They belong to nobody until the catalogue says that they are the file.
pub(crate) struct Fresh(Arc<FarFile>);

impl Fresh {
    /// Makes ready what a file of a length needs: where it is to get more targets as it grows, the parts behind the first one too.
    ///
    /// # Errors
    /// A new object does not answer, or there is no room for one.
    pub(crate) fn begin(file: Arc<FarFile>, length: u64) -> Result<Self, Unfinished> {
        file.reach(length).map_err(Unfinished::Objects)?;
        let fresh = Self(file);
        fresh.is_known()?;
        Ok(fresh)
    }

    /// Asked before anything is written: which machines they are is known from then on.
    fn is_known(&self) -> Result<(), Unfinished> {
        self.0.striped().length()?;
        self.is_sound()
    }

    /// Nothing of what was written can be lost, and there is as much of it as there is to be.
    pub(crate) fn is_sound(&self) -> Result<(), Unfinished> {
        let (there, machines) = (self.0.striped(), &self.0.machines);
        if !machines.note(&there).is_empty() || !machines.is_complete() {
            return later("a machine of its new targets was started anew meanwhile, or does not answer");
        }
        match there.is_whole() {
            true => Ok(()),
            false => {
                later("a target of its new objects is away, so there would be less of it than there is to be")
            }
        }
    }

    /// Has them reach up to `end` (bytes).
    fn reach(&self, end: u64) -> Result<(), Unfinished> {
        if self.0.reaches(end) {
            return Ok(());
        }
        self.0.reach(end).map_err(Unfinished::Objects)?;
        self.is_known()
    }

    /// Writes a range. `empty`: nothing is there yet, so what is zeros stays a hole.
    pub(crate) fn write(&self, range: Range<u64>, bytes: &[u8], empty: bool) -> Result<(), Unfinished> {
        self.reach(range.end)?;
        if empty && bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Ok(self.0.striped().write_at(range.start, bytes)?)
    }

    /// Sets the length.
    pub(crate) fn set_length(&self, size: u64) -> Result<(), Unfinished> {
        self.reach(size)?;
        Ok(self.0.striped().set_length(size)?)
    }

    /// All that was written is durable, and nothing lies behind the length; the file that they are from now on.
    pub(crate) fn finish(&self, length: u64) -> Result<&Arc<FarFile>, Unfinished> {
        self.set_length(length)?;
        self.0.striped().sync()?;
        self.is_sound()?;
        self.0.machines.forget();
        self.0.going_to(length);
        self.0.changed(|_| length);
        Ok(&self.0)
    }
}

fn later<T>(why: &str) -> Result<T, Unfinished> {
    Err(Unfinished::Later(why.to_owned()))
}

/// Why a file is where it was.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// Its bytes could not be read or written.
    Targets(StripeError),
    /// Its new objects are not made.
    Objects(FsError),
    /// Again later.
    Later(String),
    /// Until somebody does something about it.
    Failed(String),
}

impl From<String> for Unfinished {
    fn from(why: String) -> Self {
        Self::Later(why)
    }
}

impl From<StripeError> for Unfinished {
    fn from(e: StripeError) -> Self {
        Self::Targets(e)
    }
}
