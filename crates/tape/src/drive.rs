//! A drive: opening it, waiting until it is ready, its alerts, loading and unloading.

use crate::classify::{Device, Verdict, classify};
use crate::fence::{self, Claim, Refused};
use crate::head::Head;
use crate::{Blame, Fault, KeySource, Mounted, Result, Sleeper, Unloaded, alert};
use scsi::{ScsiError, SenseKey, Ssc, Transport};
use std::time::Duration;
use types::{Barcode, Reach};

/// Device type of a tape drive in INQUIRY data.
const TAPE: u8 = 0x01;
/// Time between two questions whether the drive is ready.
const POLL: Duration = Duration::from_secs(1);
/// How long a drive may become ready: the first load of LTO-9 media calibrates for up to two hours.
const READY_LIMIT: Duration = Duration::from_secs(3 * 3600);
/// A load that takes longer is told to whoever watches: LTO-9 drives take 16 seconds, older ones about as long.
const SLOW: Duration = Duration::from_secs(120);
/// Additional sense code: medium not present.
const NO_MEDIUM: u8 = 0x3a;
/// How long cleaning may take: a few minutes, by the makers of drives.
const CLEANING_LIMIT: Duration = Duration::from_secs(30 * 60);
/// TapeAlert flag: the cleaning cartridge is used up.
const CLEANING_USED_UP: u8 = 22;
/// Unit attentions in a row before a drive counts as broken.
const MAX_ATTENTIONS: u32 = 32;

/// A load that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLoad {
    /// Since then it has been waited for.
    pub waited: Duration,
    /// How much of it is done (256ths), where the drive says so.
    pub progress: Option<u8>,
}

/// Is told of loads that take long, each second, and None when they have ended.
pub type Watcher = std::sync::Arc<dyn Fn(Option<SlowLoad>) + Send + Sync>;

/// How a drive is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Logical block protection (CRC-32C behind each record on its way) where the drive has it; false: never.
    pub block_protection: bool,
    /// Compression by the drive, where it has it; None: as the drive is set.
    pub compression: Option<bool>,
    /// The drive overwrites only what it is told to (append-only mode), where it has that; false: never switched on.
    pub append_only: bool,
    /// Drives are reserved with this key (see [`crate::fence`]); None: not at all.
    pub key: Option<u64>,
}

impl Default for Settings {
    /// All that the drive has.
    fn default() -> Self {
        Self { block_protection: true, compression: None, append_only: true, key: None }
    }
}

/// A tape drive.
pub struct Drive {
    pub(crate) head: Head,
    sleeper: Sleeper,
    product: String,
    serial: String,
    reach: Reach,
    pub(crate) settings: Settings,
    watcher: Option<Watcher>,
    pub(crate) keys: Option<KeySource>,
}

impl Drive {
    /// Opens the drive behind `transport` and asks who it is and which media it takes.
    ///
    /// # Errors
    /// No answer, or a device that is not a tape drive.
    pub fn open(transport: Box<dyn Transport>, sleeper: Sleeper) -> Result<Self> {
        let mut head = Head::new(Ssc::new(transport));
        let inquiry = head.attempt("asking the drive who it is", |ssc| ssc.inquiry())?;
        if inquiry.device_type != TAPE {
            let what = format!("this is no tape drive but a {} {}", inquiry.vendor, inquiry.product);
            return Err(head.error(
                Fault::Misuse,
                Blame::Us,
                "opening",
                what,
                "correct the drive's device name",
            ));
        }
        let serial = head.attempt("asking the drive for its serial number", |ssc| ssc.unit_serial())?;
        let product = format!("{} {} {}", inquiry.vendor, inquiry.product, inquiry.revision);
        let reach = crate::reach::ask(&mut head, &product);
        Ok(Self {
            head,
            sleeper,
            product,
            serial,
            reach,
            settings: Settings::default(),
            watcher: None,
            keys: None,
        })
    }

    /// Goes on only if the drive's serial number is the given one (None: any).
    ///
    /// # Errors
    /// It has another one.
    pub fn insist(self, serial: Option<&str>) -> Result<Self> {
        serial.map_or(Ok(()), |wanted| crate::discover::insist(self.name(), &self.serial, wanted))?;
        Ok(self)
    }

    /// Uses the drive so, from the next mount on.
    pub fn with(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Takes the keys of encrypted volumes from `keys`.
    pub fn with_keys(self, keys: Option<KeySource>) -> Self {
        Self { keys, ..self }
    }

    /// Tells `watcher` of loads that take long.
    pub fn watched(self, watcher: Watcher) -> Self {
        Self { watcher: Some(watcher), ..self }
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        self.head.name()
    }

    /// Vendor, product and revision.
    pub fn product(&self) -> &str {
        &self.product
    }

    /// Unit serial number.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Media that it reads and writes, as it says itself.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Active TapeAlert flags (1 to 64). Reading clears them in the drive.
    ///
    /// # Errors
    /// The drive does not give its TapeAlert page.
    pub fn alerts(&mut self) -> Result<Vec<u8>> {
        let page = self
            .head
            .attempt("reading the TapeAlert flags", |ssc| ssc.log_sense(scsi::log::PAGE_TAPE_ALERT, 0))?;
        Ok(scsi::log::tape_alerts(&page))
    }

    /// Makes sure that no other host uses the drive; `force` takes it from whoever does.
    ///
    /// # Errors
    /// [`Fault::Reserved`]: another host has it; the message names it.
    pub fn claim(&mut self, force: bool) -> Result<Claim> {
        const DOING: &str = "reserving the drive";
        let Some(key) = self.settings.key else { return Ok(Claim::None) };
        self.head.claim = Claim::None;
        match fence::claim(&mut self.head.ssc, key, force) {
            Ok(claim) => {
                self.head.claim = claim;
                Ok(claim)
            }
            Err(Refused::Failed(e)) => Err(self.head.failed(DOING, e)),
            Err(Refused::Elsewhere(who)) => {
                let advice =
                    "stop the other host, or take the drive from it with `thermo drive up N --preempt`";
                Err(self.head.error(Fault::Reserved, Blame::Drive, DOING, who, advice))
            }
        }
    }

    /// Whether it is reserved for us.
    pub fn claimed(&self) -> Claim {
        self.head.claim
    }

    /// Gives the drive back to other hosts.
    pub fn release(&mut self) {
        if let (Claim::Held, Some(key)) = (self.head.claim, self.settings.key) {
            fence::release(&mut self.head.ssc, key);
            self.head.claim = Claim::None;
        }
    }

    /// Loads what the robot put into the drive and reads its label. `expect` is the barcode on the cartridge as the
    /// library reads it; a label of another volume counts as [`crate::LabelState::Foreign`].
    ///
    /// # Errors
    /// No cartridge, a cleaning cartridge, a drive that does not become ready within three hours, or one that fails.
    pub fn mount(&mut self, expect: Option<&Barcode>) -> Result<Mounted<'_>> {
        self.head.begin(expect.cloned());
        self.claim(false)?;
        self.wait_ready()?;
        // A reset during the load has ended the reservation.
        self.claim(false)?;
        self.head.attempt("preventing removal", |ssc| ssc.prevent_removal(true))?;
        self.head.set_variable_blocks()?;
        self.compress()?;
        self.keep_what_is_written()?;
        self.head.protect(self.settings.block_protection)?;
        Mounted::open(self, expect)
    }

    /// Sets the drive's compression as the settings say.
    fn compress(&mut self) -> Result<()> {
        const DOING: &str = "setting compression";
        let Some(wanted) = self.settings.compression else { return Ok(()) };
        match self.head.attempt(DOING, Ssc::compression)? {
            Some(now) if now != wanted => self.head.attempt(DOING, |ssc| ssc.set_compression(wanted)),
            _ => Ok(()),
        }
    }

    /// Waits until the loaded cartridge can be used; loads it if it sits in the drive unloaded. Unit attentions are
    /// expected here and swallowed.
    ///
    /// # Errors
    /// As [`Drive::mount`].
    pub fn wait_ready(&mut self) -> Result<()> {
        let ended = self.become_ready();
        self.tell(None);
        ended
    }

    fn tell(&self, load: Option<SlowLoad>) {
        if let Some(watcher) = &self.watcher {
            watcher(load);
        }
    }

    fn become_ready(&mut self) -> Result<()> {
        const DOING: &str = "waiting until the drive is ready";
        let (mut waited, mut attentions, mut load_sent) = (Duration::ZERO, 0, false);
        loop {
            let error = match self.head.ssc.test_unit_ready() {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            match error.sense().map(|s| (s.key, classify(s, Device::Drive))) {
                Some((SenseKey::UnitAttention, _)) if attentions < MAX_ATTENTIONS => attentions += 1,
                Some((_, Verdict::Wait)) if waited < READY_LIMIT => {
                    (self.sleeper)(POLL);
                    waited += POLL;
                    attentions = 0;
                    if waited >= SLOW {
                        let progress = error.sense().map(|s| s.progress).filter(|done| *done > 0);
                        self.tell(Some(SlowLoad { waited, progress }));
                    }
                }
                Some((SenseKey::NotReady, Verdict::Failed(_))) if !load_sent => {
                    load_sent = true;
                    self.load(error)?;
                }
                _ => return Err(self.head.failed(DOING, error)),
            }
        }
    }

    /// Waits until the cleaning cartridge in the drive has done its work and is given back; false: it is used up.
    ///
    /// # Errors
    /// The drive does not give it back within half an hour, or says that cleaning failed.
    pub fn clean(&mut self) -> Result<bool> {
        const DOING: &str = "cleaning the drive";
        self.head.begin(None);
        self.claim(false)?;
        let (mut waited, mut attentions) = (Duration::ZERO, 0);
        loop {
            let Err(error) = self.head.ssc.test_unit_ready() else {
                let what = "the cartridge that was put in is no cleaning cartridge";
                let advice = "see what carries a barcode that begins with CLN";
                return Err(self.head.error(Fault::Misuse, Blame::Us, DOING, what, advice));
            };
            match error.sense().map(|s| (s.key, s.asc, s.ascq)) {
                Some((SenseKey::UnitAttention, ..)) if attentions < MAX_ATTENTIONS => attentions += 1,
                Some((SenseKey::NotReady, NO_MEDIUM, _)) => break,
                Some((SenseKey::NotReady, 0x04, _) | (_, 0x30, 0x03)) if waited < CLEANING_LIMIT => {
                    (self.sleeper)(POLL);
                    waited += POLL;
                    attentions = 0;
                }
                _ => return Err(self.head.failed(DOING, error)),
            }
        }
        Ok(!self.alerts()?.contains(&CLEANING_USED_UP))
    }

    /// Whether the drive answers sensibly, with or without a cartridge in it.
    ///
    /// # Errors
    /// It does not answer, or reports that it is broken.
    pub fn probe(&mut self) -> Result<()> {
        self.head.begin(None);
        for _ in 0..MAX_ATTENTIONS {
            let error = match self.head.ssc.test_unit_ready() {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            match error.sense().map(|s| s.key) {
                Some(SenseKey::UnitAttention) => {}
                Some(SenseKey::NotReady) => return Ok(()),
                _ => return Err(self.head.failed("asking whether the drive is in order", error)),
            }
        }
        let (what, advice) =
            ("it reports one event after the other", "see whether another program uses the drive");
        Err(self.head.error(
            Fault::NotReady,
            Blame::Drive,
            "asking whether the drive is in order",
            what,
            advice,
        ))
    }

    /// LOAD; when the drive says that there is nothing to load, the error is the one seen before.
    fn load(&mut self, before: ScsiError) -> Result<()> {
        match self.head.ssc.load() {
            Ok(()) => Ok(()),
            Err(e) => match e.sense().map(|s| s.key) {
                Some(SenseKey::UnitAttention) => Ok(()),
                Some(SenseKey::NotReady | SenseKey::IllegalRequest) => {
                    Err(self.head.failed("loading", before))
                }
                _ => Err(self.head.failed("loading", e)),
            },
        }
    }

    /// Allows removal and unloads, so that the robot can take the cartridge, and asks for the TapeAlert flags that were raised
    /// meanwhile, by the unloading too: with the next cartridge they are gone. An empty drive is left alone.
    ///
    /// # Errors
    /// The drive failed; data written since the last flush is then to be written again.
    pub fn unload(&mut self) -> Result<Unloaded> {
        let (guarded, append_only) = (self.head.guarded, self.head.append_only);
        self.head.begin(self.head.volume().cloned());
        self.take_attentions();
        if guarded {
            // For other programs only: the next mount sets it whatever this comes to.
            let _ = self.head.protect(false);
        }
        self.head.attempt("allowing removal", |ssc| ssc.prevent_removal(false))?;
        match self.head.attempt("unloading", |ssc| ssc.unload()) {
            Err(e) if e.sense.is_some_and(|s| s.asc == NO_MEDIUM) => {}
            other => other?,
        }
        self.forget_append_only(append_only);
        let alerts = self.alerts()?;
        let troubles = alert::troubles(&self.head, &alerts);
        self.head.begin(None);
        Ok(Unloaded { alerts, troubles })
    }

    /// Takes pending unit attentions: they do not matter to someone who is about to unload.
    fn take_attentions(&mut self) {
        for _ in 0..MAX_ATTENTIONS {
            match self.head.ssc.test_unit_ready() {
                Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention) => {}
                _ => return,
            }
        }
    }
}
