//! A tape drive: an SSC-4 device server. One command at a time; a command that waits for the mechanics holds the drive.

mod append_only;
mod data;
pub(crate) mod density;
mod encrypt;
mod log;
mod mam;
mod medium;
mod mode;
mod motion;
mod pace;
mod protect;
mod rao;

use crate::cartridge::Cartridge;
use crate::clock::Clock;
use crate::config::VtlConfig;
use crate::fault::Faults;
use crate::identity::{Identity, report_luns};
use crate::stats::DriveStats;
use crate::unit::{self, Done, Host, Hosts, OK, Outcome, field, give};
use medium::{Medium, Stage};
use mode::Settings;
use pace::Pace;
use parking_lot::Mutex;
use scsi::{Data, Reply, Sense, SenseKey, TransportError, opcode as op};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::{Access, Generation};

/// Longest record (bytes): what readers of the cartridge layout accept.
pub(crate) const MAX_RECORD: u64 = 4 << 20;

/// Medium not present.
const NO_MEDIUM: Sense = Sense::new(SenseKey::NotReady, 0x3A, 0x00);

/// Cleaning requested; the command was carried out.
const CLEANING_REQUESTED: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x17);

/// One drive of a library.
pub(crate) struct Drive {
    number: u16,
    faults: Arc<Faults>,
    /// Asked by the robot without waiting for a running command.
    ejected: AtomicBool,
    soiled: Arc<AtomicBool>,
    /// It says so with the next record.
    requests_cleaning: AtomicBool,
    state: Mutex<State>,
}

/// What commands work on.
pub(crate) struct State {
    number: u16,
    pub(crate) identity: Identity,
    generation: Generation,
    clock: Arc<dyn Clock>,
    faults: Arc<Faults>,
    config: VtlConfig,
    hosts: Hosts,
    settings: Settings,
    encryption: encrypt::Encryption,
    medium: Option<Medium>,
    pace: Pace,
    stats: DriveStats,
    alerts: u64,
    deferred: Option<Sense>,
    /// What ALLOW OVERWRITE allowed and nobody has done yet.
    allowed: Option<append_only::Allowed>,
    /// Access order made last, of this cartridge.
    order: Vec<scsi::rao::DataSegment>,
    /// The drive asks to be cleaned.
    soiled: Arc<AtomicBool>,
}

impl Drive {
    pub(crate) fn new(number: u16, config: &VtlConfig, clock: Arc<dyn Clock>, faults: Arc<Faults>) -> Self {
        let generation = config.generation(number);
        let identity = Identity::drive(format!("{}D{number:02}", config.serial), generation);
        let soiled = Arc::new(AtomicBool::new(false));
        let mut state = State {
            number,
            identity,
            generation,
            clock,
            faults: faults.clone(),
            pace: Pace::new(config.mechanics, config.buffer_bytes),
            config: config.clone(),
            hosts: Hosts::default(),
            settings: Settings::default(),
            encryption: encrypt::Encryption::default(),
            medium: None,
            stats: DriveStats::default(),
            alerts: 0,
            deferred: None,
            allowed: None,
            order: Vec::new(),
            soiled: soiled.clone(),
        };
        state.hosts.power_on();
        Self {
            number,
            faults,
            ejected: AtomicBool::new(false),
            soiled,
            requests_cleaning: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// A TapeAlert flag (1 to 64) is raised.
    pub(crate) fn raise(&self, flag: u8) {
        self.state.lock().alerts |= alert_bit(flag);
    }

    /// Designator as the changer reports it for DVCID.
    pub(crate) fn designator(&self) -> Vec<u8> {
        self.state.lock().identity.designator()
    }

    /// True when the cartridge in the drive can be taken by the robot.
    pub(crate) fn ejected(&self) -> bool {
        self.ejected.load(Ordering::Acquire)
    }

    /// The robot puts a cartridge in; it is threaded by itself.
    pub(crate) fn insert(&self, cartridge: Cartridge) {
        let mut s = self.state.lock();
        let since = s.clock.now();
        let until = since + s.config.mechanics.load;
        let first = cartridge.meta.loads == 0 && !s.config.calibration.is_zero();
        let mut medium = Medium::new(cartridge, until);
        if first {
            medium.stage = Stage::Calibrating { since, until: until + s.config.calibration };
        }
        s.medium = Some(medium);
        s.alerts = 0;
        s.order.clear();
        s.allowed = None;
        s.begin_cleaning(until);
        s.pace.forget();
        let ejected = s.medium.as_ref().is_some_and(|m| m.stage == Stage::Ejected);
        self.ejected.store(ejected, Ordering::Release);
    }

    /// The robot takes the cartridge out. Err: why it cannot.
    pub(crate) fn take(&self) -> Result<(), Sense> {
        if self.faults.drive_dead(self.number).is_some() {
            return Err(Sense::new(SenseKey::HardwareError, 0x53, 0x01));
        }
        // A drive that is busy with a command has not ejected anything; do not make the robot wait for it.
        let Some(mut s) = self.state.try_lock() else { return Err(unit::illegal(0x53, 0x03)) };
        s.settle();
        match &s.medium {
            Some(m) if m.stage != Stage::Ejected && s.hosts.removal_prevented() => {
                Err(unit::illegal(0x53, 0x02))
            }
            Some(m) if m.stage != Stage::Ejected => Err(unit::illegal(0x53, 0x03)),
            _ => {
                s.medium = None;
                self.ejected.store(false, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Undoes [`Drive::take`]: the cartridge lies in the drive, unloaded.
    pub(crate) fn put_back(&self, cartridge: Cartridge) {
        let mut s = self.state.lock();
        let mut medium = Medium::new(cartridge, s.clock.now());
        medium.stage = Stage::Ejected;
        s.medium = Some(medium);
        self.ejected.store(true, Ordering::Release);
    }

    /// Power off and on: what was only in the buffer is lost; the cartridge (opened anew) stays in the drive.
    pub(crate) fn power_cycle(&self, cartridge: Option<Cartridge>) {
        let mut s = self.state.lock();
        s.hosts.power_on();
        s.settings = Settings::default();
        s.allowed = None;
        s.encryption = encrypt::Encryption::default();
        s.deferred = None;
        s.alerts = 0;
        s.pace = Pace::new(s.config.mechanics, s.config.buffer_bytes);
        let until = s.clock.now() + s.config.mechanics.load;
        s.medium = cartridge.map(|c| Medium::new(c, until));
        self.ejected.store(false, Ordering::Release);
    }

    /// Takes the medium's state out so that nothing touches the cartridge until [`Drive::power_cycle`].
    pub(crate) fn drop_medium(&self) {
        self.state.lock().medium = None;
    }

    /// Reset: the buffer reaches the medium, but the position is lost (the tape rewinds), and every host is told.
    pub(crate) fn reset(&self) {
        let mut s = self.state.lock();
        let flushed = s.flush();
        s.hosts.reset();
        s.settings = Settings::default();
        s.allowed = None;
        s.encryption = encrypt::Encryption::default();
        s.deferred = flushed.err();
        if let Some(m) = &mut s.medium {
            (m.partition, m.block) = (0, 0);
        }
    }

    /// The heads get dirty.
    pub(crate) fn soil(&self) {
        self.soiled.store(true, Ordering::Release);
    }

    /// The same, and it says so with the next record (0/00/17).
    pub(crate) fn request_cleaning(&self) {
        self.soil();
        self.requests_cleaning.store(true, Ordering::Release);
    }

    /// Whether it asks to be cleaned.
    pub(crate) fn soiled(&self) -> bool {
        self.soiled.load(Ordering::Acquire)
    }

    /// Counters since the library was opened.
    pub(crate) fn stats(&self) -> DriveStats {
        let s = self.state.lock();
        let mut stats = s.stats.clone();
        stats.streaming = stats.streaming.saturating_sub(s.pace.pending(s.clock.now()));
        stats
    }

    /// Carries out one command.
    pub(crate) fn execute(&self, host: Host, cdb: &[u8], data: Data<'_>) -> Result<Reply, TransportError> {
        match self.faults.drive_dead(self.number) {
            Some(false) => {
                let device = format!("virtual drive {}", self.number);
                return Err(TransportError::Lost { device, detail: "the drive does not answer".into() });
            }
            Some(true) => return Ok(unit::reply(Err(Sense::new(SenseKey::HardwareError, 0x44, 0x00)))),
            None => {}
        }
        let mut padded = [0u8; 16];
        let n = cdb.len().min(16);
        padded[..n].copy_from_slice(&cdb[..n]);
        let mut s = self.state.lock();
        if s.hosts.conflict(host, &padded) {
            return Ok(Reply { status: unit::RESERVATION_CONFLICT, ..Reply::default() });
        }
        let outcome = match padded[0] {
            op::PERSISTENT_RESERVE_OUT => match s.hosts.persistent_out(host, &padded, &data) {
                Some(outcome) => outcome,
                None => return Ok(Reply { status: unit::RESERVATION_CONFLICT, ..Reply::default() }),
            },
            _ => s.run(host, &padded, data),
        };
        let outcome = match outcome {
            Ok(done @ Done { sense: None, .. })
                if matches!(padded[0], op::READ_6 | op::WRITE_6)
                    && self.requests_cleaning.swap(false, Ordering::AcqRel) =>
            {
                Ok(Done { sense: Some(CLEANING_REQUESTED), ..done })
            }
            outcome => outcome,
        };
        let ejected = s.medium.as_ref().is_some_and(|m| m.stage == Stage::Ejected);
        self.ejected.store(ejected, Ordering::Release);
        Ok(unit::reply(outcome))
    }
}

impl State {
    fn run(&mut self, host: Host, cdb: &[u8; 16], data: Data<'_>) -> Outcome {
        match cdb[0] {
            op::INQUIRY => return self.identity.inquiry(cdb, data),
            op::REPORT_LUNS => return report_luns(cdb, data),
            op::REQUEST_SENSE => {
                let pending = self.hosts.take_attention(host).or_else(|| self.deferred.take());
                let sense = pending.unwrap_or_else(|| self.condition());
                return give(data, &sense.encode(), field(cdb, 4, 1));
            }
            _ => {}
        }
        self.settle();
        if let Some(sense) = self.hosts.take_attention(host).or_else(|| self.deferred.take()) {
            return Err(sense);
        }
        let outcome = self.dispatch(host, cdb, data);
        self.moved_away();
        outcome
    }

    fn dispatch(&mut self, host: Host, cdb: &[u8; 16], data: Data<'_>) -> Outcome {
        match cdb[0] {
            op::TEST_UNIT_READY => self.ready().map(|_| Done::default()),
            op::REWIND => self.rewind(),
            op::FORMAT_MEDIUM => self.format_medium(cdb),
            op::READ_BLOCK_LIMITS => give(data, &[0, 0x40, 0, 0, 0, 1], 6),
            op::READ_6 => self.read(cdb, data),
            op::WRITE_6 => self.write(cdb, data),
            op::SET_CAPACITY => self.set_capacity(cdb),
            op::WRITE_FILEMARKS_6 => self.write_filemarks(cdb),
            op::SPACE_6 => self.space(cdb[1] & 7, (field(cdb, 2, 3) << 40) as i64 >> 40),
            op::SPACE_16 => self.space(cdb[1] & 7, field(cdb, 4, 8) as i64),
            op::MODE_SENSE_6 | op::MODE_SENSE_10 => self.mode_sense(cdb, data),
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => self.mode_select(host, cdb, data),
            op::RESERVE_6 | op::RESERVE_10 => self.hosts.reserve(host, true),
            op::RELEASE_6 | op::RELEASE_10 => self.hosts.reserve(host, false),
            op::ERASE_6 => self.erase(),
            op::LOAD_UNLOAD => self.load_unload(cdb),
            op::SEND_DIAGNOSTIC => OK,
            op::PREVENT_ALLOW => self.hosts.prevent(host, cdb),
            op::LOCATE_10 | op::LOCATE_16 => self.locate(cdb),
            op::READ_POSITION => self.read_position(cdb, data),
            op::REPORT_DENSITY_SUPPORT => self.report_density(cdb, data),
            op::LOG_SENSE => self.log_sense(cdb, data),
            op::MAINTENANCE_IN => self.receive_order(cdb, data),
            op::MAINTENANCE_OUT => self.generate_order(cdb, data),
            op::SECURITY_PROTOCOL_IN => self.security_in(cdb, data),
            op::SECURITY_PROTOCOL_OUT => self.security_out(host, cdb, data),
            op::PERSISTENT_RESERVE_IN => self.hosts.persistent_in(cdb, data),
            op::ALLOW_OVERWRITE => self.allow_overwrite(cdb),
            op::READ_ATTRIBUTE => self.read_attribute(cdb, data),
            op::WRITE_ATTRIBUTE => self.write_attribute(cdb, data),
            _ => Err(unit::illegal(0x20, 0x00)),
        }
    }

    /// Takes note of a load that has come to its end.
    fn settle(&mut self) {
        let now = self.clock.now();
        let drive = self.identity.serial.clone();
        let Some(m) = &mut self.medium else { return };
        if matches!(m.stage, Stage::Cleaning { until } if until <= now) {
            m.stage = Stage::Ejected;
            self.soiled.store(false, Ordering::Release);
            return;
        }
        if !matches!(m.stage, Stage::Loading { until } | Stage::Calibrating { until, .. } if until <= now) {
            return;
        }
        m.stage = Stage::Ready;
        self.recognise();
        self.stats.loads += 1;
        self.hosts.attention(0x28, 0x00);
        let Some(m) = &mut self.medium else { return };
        if let Err(e) = m.cartridge.record_load(&drive) {
            self.stats.host_error = Some(e.to_string());
            self.alerts |= alert_bit(alert::HARDWARE_A);
        }
    }

    /// A cleaning cartridge begins to work, or is given back at once if it is used up.
    fn begin_cleaning(&mut self, until: std::time::Duration) {
        let Some(m) = &mut self.medium else { return };
        match m.cartridge.meta.cleaning {
            None => {}
            Some(0) => {
                m.stage = Stage::Ejected;
                self.alerts |= alert_bit(alert::CLEANING_USED_UP);
            }
            Some(uses) => {
                m.cartridge.meta.cleaning = Some(uses - 1);
                m.stage = Stage::Cleaning { until };
                if let Err(e) = m.cartridge.meta.store(m.cartridge.dir()) {
                    self.stats.host_error = Some(e.to_string());
                }
            }
        }
    }

    /// What REQUEST SENSE says when nothing is pending.
    fn condition(&mut self) -> Sense {
        self.settle();
        self.ready().err().unwrap_or(Sense::new(SenseKey::NoSense, 0, 0))
    }

    /// The medium, if the drive is ready.
    fn ready(&mut self) -> Result<&mut Medium, Sense> {
        let (suits, now) = (self.suits(Access::Read), self.clock.now());
        match &mut self.medium {
            None => Err(NO_MEDIUM),
            Some(m) => match m.stage {
                Stage::Ready => suits.map(|()| m),
                Stage::Loading { .. } => Err(Sense::new(SenseKey::NotReady, 0x04, 0x01)),
                Stage::Calibrating { since, until } => {
                    let share =
                        now.saturating_sub(since).as_secs_f64() / (until - since).as_secs_f64().max(1e-9);
                    let progress = (share * 256.0) as u8;
                    Err(Sense { progress, ..Sense::new(SenseKey::NotReady, 0x04, 0x01) })
                }
                Stage::Cleaning { .. } => Err(Sense::new(SenseKey::NotReady, 0x30, 0x03)),
                Stage::Ejected => Err(NO_MEDIUM),
            },
        }
    }

    /// A failure of the host's file system, as a drive would say it.
    fn host_failure(&mut self, e: &std::io::Error) -> Sense {
        self.note_host_error(e);
        self.alerts |= alert_bit(alert::HARDWARE_A);
        Sense::new(SenseKey::HardwareError, 0x03, 0x00)
    }

    fn note_host_error(&mut self, e: &std::io::Error) {
        self.stats.host_error = Some(match &self.medium {
            Some(m) => format!("{}: {e}", m.cartridge.dir().display()),
            None => e.to_string(),
        });
    }
}

/// TapeAlert flags that the drive raises (SSC-4 annex A).
pub(crate) mod alert {
    pub(crate) const HARD_ERROR: u8 = 3;
    pub(crate) const MEDIA: u8 = 4;
    pub(crate) const READ_FAILURE: u8 = 5;
    pub(crate) const WRITE_FAILURE: u8 = 6;
    pub(crate) const WRITE_PROTECT: u8 = 9;
    pub(crate) const UNSUPPORTED: u8 = 12;
    pub(crate) const CLEAN_NOW: u8 = 20;
    pub(crate) const CLEANING_USED_UP: u8 = 22;
    pub(crate) const HARDWARE_A: u8 = 30;
    pub(crate) const WORM_OVERWRITE: u8 = 60;
}

fn alert_bit(flag: u8) -> u64 {
    1 << (flag - 1)
}
