//! What the system says of itself: views for `status`, `ls`, `stat`, `drive ls` ... Serialised as JSON as they are.

use crate::*;
use serde::{Deserialize, Serialize};

/// What `O_NONBLOCK` means on a mount for a regular file whose bytes are on tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonBlock {
    /// EAGAIN at once; the recall is started.
    #[default]
    Eagain,
    /// Nothing: the call waits as without the flag. For programs that open every file with it and do not try again.
    Wait,
}

impl std::str::FromStr for NonBlock {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "eagain" => Ok(Self::Eagain),
            "wait" => Ok(Self::Wait),
            other => Err(format!("`{other}` is not `eagain` or `wait`")),
        }
    }
}

/// What a user holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// Owner.
    pub uid: u32,
    /// Files, directories and other nodes.
    pub files: u64,
    /// Length of regular files (bytes).
    pub bytes: u64,
    /// Bytes allocated on disk: on the node's own, and on disk targets.
    pub disk_bytes: u64,
    /// Bytes of copies on tape that count: length times copies.
    pub tape_bytes: u64,
    /// Those of `disk_bytes` that are on disk targets; what redundancy takes there is not counted.
    pub target_bytes: u64,
}

/// An owner's limits and what he holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaView {
    /// Limits.
    pub quota: Quota,
    /// What he holds; None for the quota of everybody else.
    pub usage: Option<UsageView>,
    /// Volumes of his own, in the pool where he has most.
    pub volumes: u32,
}

/// A backup of the catalogue that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    /// Its directory on the node's host.
    pub path: String,
    /// Length (bytes).
    pub bytes: u64,
    /// How long it took (milliseconds).
    pub took_ms: u64,
}

/// State of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveStatus {
    /// Empty and usable.
    Free,
    /// Volume mounted, nothing running.
    Idle,
    /// Robot moves, loads or unloads.
    Mounting,
    /// Writing files to the volume.
    Migrating,
    /// Reading files from the volume.
    Recalling,
    /// Writing a label or an index, or checking a volume.
    Maintaining,
    /// Out of use because of errors (the text says which).
    Suspect(String),
    /// Taken out of use by an operator.
    Down,
    /// Loading a new cartridge, which the drive calibrates for up to two hours (LTO-9 and later).
    Calibrating,
}

/// A drive as shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveView {
    /// Number.
    pub drive: DriveNo,
    /// Name of its library.
    pub library: String,
    /// Media that it writes, and reads; empty if it does not say.
    pub media: String,
    /// Vendor, product and revision from INQUIRY.
    pub product: String,
    /// Unit serial number.
    pub serial: String,
    /// Element address in the library.
    pub element: u16,
    /// State.
    pub status: DriveStatus,
    /// Volume in the drive.
    pub volume: Option<Barcode>,
    /// Request or work being served, as text for people.
    pub activity: String,
    /// Bytes moved since the volume was mounted.
    pub bytes: u64,
    /// Bytes per second over the current batch.
    pub rate: u64,
    /// Mounts since the node started.
    pub mounts: u64,
    /// Errors since the node started.
    pub errors: u64,
    /// Active TapeAlert flags.
    pub alerts: Vec<u8>,
    /// Whether other hosts are kept off it.
    pub hold: Hold,
}

/// An operator wants a drive out of use, until he takes it into use again: restarts do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOut {
    /// Operator (uid); None: the simulator.
    pub by: Option<u32>,
    /// When he said so.
    pub at: Time,
    /// Why; empty if he did not say.
    pub reason: String,
}

/// All about one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDetails {
    /// As in the list.
    pub drive: DriveView,
    /// In this state since then.
    pub since: Time,
    /// Who wants it out of use, and why; None: nobody does.
    pub taken_out: Option<TakenOut>,
    /// It goes out of use when its present job has ended.
    pub leaving: bool,
    /// Its generation (`LTO-9`), if it says which media it takes.
    pub generation: Option<String>,
    /// Where the node has it: `sg:/dev/sg3`, `iscsi://...`, or `this process`.
    pub device: String,
    /// Host of that node.
    pub host: String,
    /// When the volume in it was mounted.
    pub mounted: Option<Time>,
    /// When its present job began ...
    pub begun: Option<Time>,
    /// ... and when it is expected to end.
    pub until: Option<Time>,
    /// Open requests that its present job serves.
    pub requests: Vec<RequestId>,
    /// How long things really take with it.
    pub learnt: Vec<LearntView>,
    /// Other hosts are to be kept off it (`tape.reserve`); whether they are is in `drive.hold`.
    pub reserve: bool,
    /// Name of the key that the volume in it is encrypted with; empty: it is not; None: no volume is in it.
    pub key: Option<String>,
    /// Compression by the drive as the configuration has it; None: as the drive is set.
    pub compression: Option<bool>,
    /// Records carry a sum on their way to and from it, where it has that.
    pub block_protection: bool,
    /// It overwrites only what it is told to, where it has that.
    pub append_only: bool,
    /// It asks to be cleaned.
    pub asks_for_cleaning: bool,
}

/// How long something takes with a drive, as it was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntView {
    /// What was timed.
    pub what: LearntKind,
    /// How often.
    pub observations: u64,
    /// Per cent of the time that the model expects; 100 is as expected.
    pub percent: Option<u64>,
    /// How long it takes (milliseconds), where that is one time.
    pub ms: Option<u64>,
    /// Bytes per second, of what moves bytes.
    pub bytes_per_s: Option<u64>,
}

/// What is timed of drives and robots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearntKind {
    /// The robot's way between slot and drive.
    Move,
    /// From there to ready.
    Load,
    /// From ready to where the robot can take the cartridge.
    Unload,
    /// Going to a file.
    Locate,
    /// Reading bytes.
    Read,
    /// Writing files.
    Write,
    /// What goes by with each file that is read, besides the way to it and its bytes.
    File,
}

/// Whether other hosts are kept off a drive or a robot (persistent reservation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Not now: nothing was asked of it, or another host has it.
    #[default]
    No,
    /// It has no reservations.
    Unsupported,
    /// It is reserved for this node.
    Held,
}

/// Kind of a library element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementKind {
    /// Robot hand.
    Transport,
    /// Storage slot.
    Slot,
    /// Import/export (mail) slot.
    ImportExport,
    /// Drive.
    Drive,
}

/// One element of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementView {
    /// Kind.
    pub kind: ElementKind,
    /// Element address.
    pub address: u16,
    /// Holds a cartridge.
    pub full: bool,
    /// Barcode of that cartridge, where readable.
    pub barcode: Option<Barcode>,
    /// Slot it came from, where known.
    pub source: Option<u16>,
    /// Exception reported by the library (sense code and qualifier), if any.
    pub exception: Option<(u8, u8)>,
    /// The robot laid it into this import/export slot: an operator is to take it.
    pub outgoing: bool,
}

/// A library as shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryView {
    /// Name in the configuration.
    pub name: String,
    /// Vendor, product and revision.
    pub product: String,
    /// Elements in order of address.
    pub elements: Vec<ElementView>,
    /// Why it cannot be used, or its robot not now; None: it can.
    pub out: Option<String>,
}

/// A volume as shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeView {
    /// Catalogue record.
    pub volume: Volume,
    /// Where it is now: `slot 1001`, `drive at element 1`, or `not in the library`; with several libraries the name of its own before
    /// it.
    pub location: String,
}

/// What of an owner's or a class's files is on one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingView {
    /// Volume.
    pub volume: Barcode,
    /// Its pool: tells the first copies from the second.
    pub pool: Option<PoolName>,
    /// Where it is now.
    pub location: String,
    /// File segments that current versions need.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A file on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFileView {
    /// Path on the volume (readable by any LTFS tool).
    pub tape_path: String,
    /// The record behind it.
    pub file: TapeFile,
}

/// A pool as shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// Name.
    pub name: PoolName,
    /// Volumes by state.
    pub volumes: u64,
    /// Volumes that still take data and are in a library.
    pub filling: u64,
    /// Capacity of its volumes (bytes).
    pub capacity: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes that current versions need.
    pub live: u64,
    /// Files waiting to be written to this pool.
    pub backlog_files: u64,
    /// Bytes waiting to be written to this pool.
    pub backlog_bytes: u64,
    /// Most volumes that it may hold; 0: no limit.
    pub max_volumes: u32,
    /// Most bytes that current versions may need of it; 0: no limit.
    pub max_bytes: u64,
    /// Format of its new volumes.
    pub format: FormatRule,
    /// What is kept together on volumes of its own.
    pub collocate: Collocate,
    /// It takes media that can be written once, and no others.
    pub worm: bool,
    /// Name of the key of its new volumes; empty: as the configuration says.
    pub key: String,
    /// Name of the library whose volumes alone are written.
    pub library: Option<String>,
}

/// With which key a pool writes, and which of its volumes are away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolKeyView {
    /// Pool.
    pub name: PoolName,
    /// Name of the key that its new volumes get; None: they are not encrypted.
    pub key: Option<String>,
    /// The key is that of `[encryption] pools`; otherwise it was set by command.
    pub by_configuration: bool,
    /// Why the key cannot be had: no new volume is written then.
    pub problem: Option<String>,
    /// Volumes that are in no library: they take no data however much room they have.
    pub absent: u64,
}

/// A request as shown to a user: what is stored plus what only the scheduler knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestView {
    /// Stored part.
    pub request: Request,
    /// Position among all queued requests, counted from 1; 0 when active or ended.
    pub queue_position: u64,
    /// Per cent done, by bytes (by files where there are no bytes).
    pub percent: u8,
    /// Bytes moved, including those of unfinished files.
    pub bytes_moved: u64,
    /// Estimated seconds until it is done, as likely longer as shorter; None where nothing can be said.
    pub eta_s: Option<u64>,
    /// When it will begin and end, as far as can be said.
    pub estimate: Option<Estimate>,
    /// What it waits for or does now, as text for people.
    pub doing: String,
    /// Why it waits: which volumes, drives, robot or limits are in the way, and who is ahead. One line each.
    pub why: Vec<String>,
}

/// When something will begin and end, in seconds from now: as likely later as earlier (p50), and later in one case of ten
/// (p90). It rests on the times that drives and robot took before, on everything that waits now, and on no new work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// First byte, 0 when it has begun.
    pub start_p50_s: u64,
    /// First byte.
    pub start_p90_s: u64,
    /// Last byte.
    pub finish_p50_s: u64,
    /// Last byte.
    pub finish_p90_s: u64,
}

/// A version that was deleted or overwritten and is still on tape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedView {
    /// Inode that it belonged to.
    pub ino: Ino,
    /// Version.
    pub version: Version,
    /// What it was called last.
    pub path: PathText,
    /// Length (bytes).
    pub size: u64,
    /// Modification time of the content.
    pub mtime: Time,
    /// When it was deleted or overwritten, if known.
    pub ended: Option<Time>,
    /// Owner (uid).
    pub owner: u32,
    /// Later content took its place, also if the file was deleted after that; otherwise this is what was deleted.
    pub overwritten: bool,
    /// Volumes that hold it; it is gone when they are emptied or labelled.
    pub volumes: Vec<Barcode>,
    /// It can be restored.
    pub restorable: bool,
}

/// One file of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestItemView {
    /// Inode.
    pub ino: Ino,
    /// Path now.
    pub path: PathText,
    /// State.
    pub state: ItemState,
}

/// Everything about one file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// Path as asked.
    pub path: PathText,
    /// POSIX attributes.
    pub attr: Attr,
    /// Target of a symlink.
    pub link_target: Option<PathText>,
    /// Residency (regular files).
    pub residency: Option<Residency>,
    /// Archive state (regular files).
    pub file: Option<FileState>,
    /// Number of copies that the class requires.
    pub copies_required: u8,
    /// All known versions with their copies, newest first (only in `stat`).
    pub versions: Vec<VersionRecord>,
    /// Request that is bringing it back, if any.
    pub request: Option<RequestId>,
    /// Per cent arrived, while staging.
    pub percent: Option<u8>,
    /// Estimated seconds until it is whole, while staging.
    pub eta_s: Option<u64>,
    /// Class that new files in this directory get (directories).
    pub directory_class: Option<ClassName>,
}

/// Disk tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskView {
    /// Directory that holds the objects.
    pub path: String,
    /// Capacity given to Thermocline (bytes).
    pub capacity: u64,
    /// Bytes used by objects.
    pub used: u64,
    /// Bytes free on the file system below.
    pub fs_free: u64,
    /// Bytes that could be released at once (all copies on tape, not pinned, not open).
    pub purgeable: u64,
    /// Purge starts above this many used bytes ...
    pub high_watermark: u64,
    /// ... and ends below this many.
    pub low_watermark: u64,
}

/// Answer of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// Version of the program.
    pub version: String,
    /// Process id of the node.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// State directory.
    pub state_dir: String,
    /// Where the namespace is mounted.
    pub mounts: Vec<String>,
    /// Inodes in the namespace.
    pub inodes: u64,
    /// Bytes of all regular files (current versions).
    pub bytes: u64,
    /// Disk tier.
    pub disk: DiskView,
    /// Drives.
    pub drives: Vec<DriveView>,
    /// Pools.
    pub pools: Vec<PoolView>,
    /// Requests queued and active.
    pub requests_open: u64,
    /// Files not yet in as many copies as their class requires.
    pub migrate_backlog_files: u64,
    /// Their bytes.
    pub migrate_backlog_bytes: u64,
    /// Things an operator should look at, newest first, each with what to do.
    pub warnings: Vec<String>,
}

/// How much a finding of `check` matters. Wire versions before 5 know the first two only, as a bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Something that was or can be reclaimed.
    Leftover,
    /// Data may be at risk.
    Serious,
    /// Nothing is damaged, but something is not all there yet: a file whose volumes were imported in part, or what lies on a target that is down.
    Incomplete,
}

/// One finding of `check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub grade: Grade,
    /// Which file, object or volume.
    pub subject: String,
    /// What is wrong.
    pub problem: String,
    /// What to do, or what was done.
    pub remedy: String,
}

impl Finding {
    /// Whether data may be at risk.
    pub fn is_serious(&self) -> bool {
        self.grade == Grade::Serious
    }
}

/// Answer of `check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Inodes looked at.
    pub inodes: u64,
    /// Disk objects looked at.
    pub objects: u64,
    /// Volumes looked at.
    pub volumes: u64,
    /// File segments on volumes compared.
    pub tape_files: u64,
    /// Bytes read and compared with digests.
    pub bytes_verified: u64,
    /// Findings; empty when all is well.
    pub findings: Vec<Finding>,
}
