//! The drive's head: one command at a time, with the position tracked, errors classified, and a session that ends for
//! good when the position is lost.

use crate::classify::{Device, Verdict, classify, explain};
use crate::fence::Claim;
use crate::{Blame, Fault, Result, TapeError};
use scsi::{ReadOutcome, ScsiError, Sense, SenseKey, Ssc, There, WriteOutcome};
use types::Barcode;

/// How often a command is sent again after unit attentions that change nothing.
const MAX_AGAIN: u32 = 8;

/// What a read met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A record; its first bytes (as many as fit) are in the buffer, the number is its length there.
    Record(usize),
    /// A filemark; the head stands behind it.
    Filemark,
    /// End of data; the head stands there.
    EndOfData,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// In the drive.
    Good,
    /// In the drive; the end of the partition is near.
    EarlyWarning,
    /// Not written: the partition is full.
    Overflow,
}

/// A place on the medium: partition and number of the next logical object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub partition: u8,
    pub block: u64,
}

/// See the module.
pub(crate) struct Head {
    pub ssc: Ssc,
    volume: Option<Barcode>,
    at: Option<Place>,
    /// Why the session is over.
    pub lost: Option<TapeError>,
    /// Records carry a sum (see the module `protect`), in this buffer.
    pub guarded: bool,
    pub sealed: Vec<u8>,
    /// The drive is in append-only mode.
    pub append_only: bool,
    /// Whether the drive is reserved for us.
    pub claim: Claim,
    /// Name of the key that the drive has for this volume.
    pub key: Option<String>,
    /// The drive was told with which key, or that with none, it writes and reads this volume.
    pub keyed: bool,
}

impl Head {
    pub fn new(ssc: Ssc) -> Self {
        Self {
            ssc,
            volume: None,
            at: None,
            lost: None,
            guarded: false,
            sealed: Vec::new(),
            append_only: false,
            claim: Claim::None,
            key: None,
            keyed: false,
        }
    }

    pub fn name(&self) -> &str {
        self.ssc.name()
    }

    pub fn volume(&self) -> Option<&Barcode> {
        self.volume.as_ref()
    }

    /// A new session: nothing is known of the medium.
    pub fn begin(&mut self, volume: Option<Barcode>) {
        self.append_only = false;
        (self.volume, self.at, self.lost, self.guarded) = (volume, None, None, false);
        (self.key, self.keyed) = (None, false);
    }

    /// Where the head stands, as far as known.
    pub fn at(&self) -> Option<Place> {
        self.at
    }

    pub fn forget_position(&mut self) {
        self.at = None;
    }

    /// An error about this drive and volume.
    pub fn error(
        &self,
        fault: Fault,
        blame: Blame,
        doing: impl Into<String>,
        what: impl Into<String>,
        advice: &'static str,
    ) -> TapeError {
        TapeError {
            blame,
            fault,
            volume: self.volume.clone(),
            drive: self.name().into(),
            doing: doing.into().into(),
            what: what.into().into(),
            sense: None,
            advice,
        }
    }

    /// Classifies a failed command. The position is unknown afterwards; a reset ends the session.
    pub fn failed(&mut self, doing: &str, error: ScsiError) -> TapeError {
        let doing = self.doing(doing);
        self.at = None;
        let (failure, what) = explain(&error, Device::Drive);
        let sense = error.sense().copied();
        let what = match (&self.key, failure.fault) {
            (Some(key), Fault::Key) => format!("{what} (key `{key}`)"),
            _ => what,
        };
        let mut error = self.error(failure.fault, failure.blame, doing, what, failure.advice);
        error.sense = sense;
        if error.fault == Fault::PositionLost {
            self.lost = Some(error.clone());
        }
        error
    }

    /// Fails if the session has lost its position: nothing may be read or written until the volume is mounted again.
    fn alive(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Runs a command; unit attentions that change nothing are followed by the same command (which was not executed).
    pub fn attempt<T>(
        &mut self,
        doing: &str,
        mut command: impl FnMut(&mut Ssc) -> scsi::Result<T>,
    ) -> Result<T> {
        self.alive()?;
        let mut again = 0;
        loop {
            let error = match command(&mut self.ssc) {
                Ok(value) => return Ok(value),
                Err(e) => e,
            };
            let sense = error.sense().copied();
            if let Some((sense, what)) = sense.and_then(|s| Some((s, self.changed_by_others(&s)?))) {
                return Err(self.settings_changed(doing, what, sense));
            }
            let theirs = matches!(error, ScsiError::Status { status: CONFLICT, .. });
            if self.claim == Claim::Held && (theirs || sense.is_some_and(|s| fence_is_down(&s))) {
                return Err(self.taken(doing, sense));
            }
            let harmless = error.sense().is_some_and(|s| classify(s, Device::Drive) == Verdict::Again);
            if !harmless || again == MAX_AGAIN {
                return Err(self.failed(doing, error));
            }
            again += 1;
        }
    }

    /// What somebody else has changed of how the drive writes and reads, where that is told and matters: records would go
    /// onto the medium, and come from it, in another form than we take them to have.
    fn changed_by_others(&self, sense: &Sense) -> Option<&'static str> {
        match (sense.key, sense.asc, sense.ascq) {
            (SenseKey::UnitAttention, 0x2a, 0x01) if self.guarded => {
                Some("another program changed the drive's settings, perhaps logical block protection")
            }
            // Parameters changed by another host or by the drive itself; another key.
            (SenseKey::UnitAttention, 0x2a, 0x11..=0x13) if self.keyed => {
                Some("another program changed the drive's encryption, perhaps the key")
            }
            _ => None,
        }
    }

    /// Another host has ended our reservation: it may have moved the tape.
    fn taken(&mut self, doing: &str, sense: Option<Sense>) -> TapeError {
        self.claim = Claim::None;
        let doing = self.doing(doing);
        self.at = None;
        let what = "another host has taken the drive from us (its reservation was preempted)";
        let advice = "see what else uses the drive: stop it, or take the drive back with `thermo drive up N --preempt`; data after the \
                      last flush must be written again";
        let error = TapeError { sense, ..self.error(Fault::Reserved, Blame::Drive, doing, what, advice) };
        self.lost = Some(error.clone());
        error
    }

    /// Variable-length records, buffered writes.
    pub fn set_variable_blocks(&mut self) -> Result<()> {
        self.attempt("setting variable record length", Ssc::set_variable_blocks)
    }

    /// Asks the drive where it stands.
    pub fn ask_position(&mut self) -> Result<Place> {
        let found = self.attempt("reading the position", |ssc| ssc.read_position())?;
        let partition = u8::try_from(found.partition).unwrap_or(u8::MAX);
        let place = Place { partition, block: found.block };
        self.at = Some(place);
        Ok(place)
    }

    /// Asks the drive where it stands and fails if that is not `expected`.
    pub fn verify(&mut self, doing: &str, expected: Place) -> Result<()> {
        let found = self.ask_position()?;
        if found == expected {
            return Ok(());
        }
        self.at = None;
        let what = format!(
            "the drive stands at block {} of partition {} instead of block {} of partition {}",
            found.block, found.partition, expected.block, expected.partition
        );
        let advice =
            "nothing more was written; mount the volume again and see whether something else uses the drive";
        Err(self.error(Fault::WrongPosition, Blame::Drive, doing, what, advice))
    }

    /// Moves to `to` unless the head is known to be there.
    pub fn locate(&mut self, to: Place) -> Result<()> {
        self.alive()?;
        if self.at == Some(to) {
            return Ok(());
        }
        self.at = None;
        let doing = format!("locating block {} of partition {}", to.block, to.partition);
        self.attempt(&doing, |ssc| ssc.locate(to.partition, to.block))?;
        self.at = Some(to);
        Ok(())
    }

    /// Reads the next object. A record that does not fit into `buffer` is an error.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Item> {
        let found = self.read_any(buffer)?;
        self.item(found, buffer.len())
    }

    /// Reads the next object into memory at the drive's host, where it may have that many bytes.
    pub fn read_there(&mut self, place: There) -> Result<Item> {
        let found = self.read_record_there(place)?;
        self.passed(&found);
        self.item(found, place.bytes)
    }

    fn item(&mut self, found: ReadOutcome, room: usize) -> Result<Item> {
        match found {
            ReadOutcome::Record { bytes } => Ok(Item::Record(bytes)),
            ReadOutcome::Filemark => Ok(Item::Filemark),
            ReadOutcome::EndOfData => Ok(Item::EndOfData),
            ReadOutcome::TooLong { length } => {
                let length = length.map_or("unknown".to_owned(), |n| n.to_string());
                let what = format!("the record's length ({length} bytes) exceeds {room} bytes");
                Err(self.bad_record("reading", what))
            }
        }
    }

    /// Reads the next object. Behind a record that does not fit into `buffer` the position is not known.
    pub fn read_any(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome> {
        let found = self.read_record(buffer)?;
        self.passed(&found);
        Ok(found)
    }

    fn passed(&mut self, found: &ReadOutcome) {
        match found {
            ReadOutcome::Record { .. } | ReadOutcome::Filemark => self.advance(1),
            ReadOutcome::TooLong { .. } => self.at = None,
            ReadOutcome::EndOfData => {}
        }
    }

    /// What is on the medium is not what was recorded.
    pub fn bad_record(&mut self, doing: &str, what: impl Into<String>) -> TapeError {
        let doing = self.doing(doing);
        self.at = None;
        let advice = "use another copy; then check this volume";
        self.error(Fault::BadRecord, Blame::Medium, doing, what, advice)
    }

    /// Writes filemarks; `immediate` ones are in the drive's buffer only, others put everything on the medium.
    pub fn filemarks(&mut self, count: u32, immediate: bool) -> Result<Wrote> {
        let doing = if count == 0 { "putting the drive's buffer on the medium" } else { "writing filemarks" };
        self.put(doing, u64::from(count), |ssc| ssc.write_filemarks(count, immediate))
    }

    /// Runs a writing command. A full partition is an outcome, not an error: the position is to be asked for then.
    pub fn put(
        &mut self,
        doing: &str,
        objects: u64,
        mut command: impl FnMut(&mut Ssc) -> scsi::Result<WriteOutcome>,
    ) -> Result<Wrote> {
        let outcome = self.attempt(doing, |ssc| match command(ssc) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::VolumeOverflow) => Ok(None),
            Err(e) => Err(e),
        })?;
        let Some(outcome) = outcome else {
            self.at = None;
            return Ok(Wrote::Overflow);
        };
        self.advance(objects);
        let near_end = outcome.early_warning || outcome.programmable_early_warning;
        Ok(if near_end { Wrote::EarlyWarning } else { Wrote::Good })
    }

    /// `doing` with the place where the head stands, if known.
    pub fn doing(&self, doing: &str) -> String {
        match self.at {
            Some(p) => format!("{doing} at block {} of partition {}", p.block, p.partition),
            None => doing.to_owned(),
        }
    }

    fn advance(&mut self, objects: u64) {
        if let Some(place) = &mut self.at {
            place.block += objects;
        }
    }
}

/// Status of a command that met the reservation of another host.
const CONFLICT: u8 = 0x18;

/// Reservations preempted, reservations released, registrations preempted.
fn fence_is_down(sense: &Sense) -> bool {
    sense.key == SenseKey::UnitAttention && sense.asc == 0x2a && matches!(sense.ascq, 3..=5)
}
