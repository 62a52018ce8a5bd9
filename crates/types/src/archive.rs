//! Copies, volumes, classes of service and requests.

use crate::{Barcode, ClassName, CopyNo, Digest, FileKind, Ino, PoolName, RequestId, TapeDir, Time, Version};
use serde::{Deserialize, Serialize};

/// A run of bytes on a tape partition (an LTFS extent): starts `byte_offset` bytes into the record at
/// `start_block` and continues through as many records as needed, all of them full but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Offset in the file (bytes).
    pub file_offset: u64,
    /// Logical object number on the data partition.
    pub start_block: u64,
    /// Offset in that record (bytes).
    pub byte_offset: u32,
    /// Length (bytes).
    pub byte_count: u64,
}

/// The part of a copy that lies on one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Volume that holds it.
    pub volume: Barcode,
    /// First byte of the file that this segment covers.
    pub file_offset: u64,
    /// Bytes of the file that this segment covers (holes included).
    pub length: u64,
    /// Extents of the data on the volume; what no extent covers is a hole.
    pub extents: Vec<Extent>,
    /// Directory of the volume's own tree that lists this segment ...
    pub tape_dir: TapeDir,
    /// ... and its name there.
    pub tape_name: String,
}

/// One copy of one version: complete when its segments cover the whole length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// Which copy.
    pub copy: CopyNo,
    /// Parts in order of file offset.
    pub segments: Vec<Segment>,
    /// When it was recorded.
    pub recorded: Time,
}

/// A version of a file and all copies of it that are known, also of versions overwritten or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// Version number.
    pub version: Version,
    /// Length in bytes.
    pub size: u64,
    /// Modification time of this content.
    pub mtime: Time,
    /// Digest, once known.
    pub digest: Option<Digest>,
    /// Copies on tape.
    pub copies: Vec<CopyRecord>,
    /// Whether the namespace still shows this version.
    pub current: bool,
}

/// What a tape volume records about one file segment: everything needed to write the volume's index, and to
/// rebuild the catalogue from the volume alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeFile {
    /// LTFS file uid, unique on the volume.
    pub uid: u64,
    /// Inode it is a copy of.
    pub ino: Ino,
    /// Version of the content.
    pub version: Version,
    /// Copy number.
    pub copy: CopyNo,
    /// Length of the whole file in bytes.
    pub file_size: u64,
    /// First byte of the file in this segment.
    pub segment_offset: u64,
    /// Length of this segment (bytes).
    pub segment_length: u64,
    /// Extents on the data partition; `file_offset` here is relative to the *file*, not to the segment.
    pub extents: Vec<Extent>,
    /// Path in the namespace at the time of migration (absolute, bytes).
    pub path: Vec<u8>,
    /// Mode including the file type bits.
    pub mode: u32,
    /// Owner.
    pub uid_owner: u32,
    /// Group.
    pub gid_owner: u32,
    /// Access, modification, change and creation time at migration.
    pub times: [Time; 4],
    /// Digest of the whole file.
    pub digest: Option<Digest>,
    /// Extended attributes of the file at migration.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Class of service at migration.
    pub class: ClassName,
    /// When the segment was written.
    pub written: Time,
    /// False once the version it belongs to was overwritten or deleted: dead bytes of the volume.
    pub live: bool,
    /// What else is to be known of what has no data.
    #[serde(default)]
    pub node: NodeFacts,
}

impl TapeFile {
    /// What kind of node it is a copy of; None if the mode has type bits that no node has.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::of_mode(self.mode)
    }

    /// Whether it is one of a directory without what lies in it, and not only a word on one that was removed.
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory) && !self.node.gone
    }

    /// Whether it is one of data: a regular file, and not only a word on one.
    pub fn has_data(&self) -> bool {
        self.kind() == Some(FileKind::File) && !self.node.gone && !self.ino.is_word()
    }
}

/// What a tape tells of a node without data, beside what it tells of every file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// Device number of a device node.
    pub rdev: u32,
    /// The node was removed: what tapes tell of its earlier versions is over.
    pub gone: bool,
    /// Directory in which it was named; 0: not known.
    pub parent: Ino,
    /// Further names: directory and path (absolute, bytes).
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Of data: the version of the word on its file that was in force; 0: it had none. Of a word: the version of the data
    /// that the file had.
    pub beside: Version,
}

/// Life of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// In the library, label not yet read by us.
    Unknown,
    /// Carries no label of ours, or one with nothing on it that counts; may be labelled.
    Blank,
    /// Labelled, empty, waiting to be given to a pool.
    Scratch,
    /// Belongs to a pool and takes data.
    Filling,
    /// Takes no more data.
    Full,
    /// Read only by decision or by its write-protect tab.
    ReadOnly,
    /// An error points at this medium; still read, no longer written.
    Suspect,
    /// Carries data or a label that is not ours; never written without force.
    Foreign,
    /// Cannot be read.
    Broken,
    /// The catalogue comes from a backup and may not know all that is on it: read, not written, until
    /// `thermo catalog rebuild` has looked at it.
    Unverified,
    /// Out of the library by decision: neither read nor written until an operator says otherwise.
    Exported,
    /// Out of use for good: nothing on it is needed, and it is neither read nor written.
    Retired,
    /// What is needed of it is being copied to other volumes of its pool; it is read, no longer written, and scratch at the
    /// end.
    Repacking,
}

impl std::fmt::Display for VolumeState {
    /// As commands take it and lists show it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Blank => "blank",
            Self::Scratch => "scratch",
            Self::Filling => "filling",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Suspect => "suspect",
            Self::Foreign => "foreign",
            Self::Broken => "broken",
            Self::Unverified => "unverified",
            Self::Exported => "exported",
            Self::Retired => "retired",
            Self::Repacking => "repacking",
        })
    }
}

/// How the data of a volume lies on its medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeFormat {
    /// LTFS: two partitions, an index.
    #[default]
    Ltfs,
    /// Sections of pax tar between ANSI labels, on media without partitions.
    AnsiTar,
    /// Tar archives of another program between filemarks, with or without ANSI labels; only read.
    Tar,
}

/// Which format new volumes get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatRule {
    /// LTFS where the medium can be partitioned, ANSI labels and tar elsewhere.
    #[default]
    Auto,
    /// LTFS; other media are refused.
    Ltfs,
    /// ANSI labels and tar, on any medium.
    AnsiTar,
}

/// A cartridge volume as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Barcode.
    pub barcode: Barcode,
    /// Pool that it belongs to, once assigned.
    pub pool: Option<PoolName>,
    /// State ...
    pub state: VolumeState,
    /// ... why ...
    pub reason: String,
    /// ... and since when.
    pub since: Time,
    /// LTFS volume uuid (text form), empty before labelling.
    pub uuid: String,
    /// When it was labelled (LTFS format time).
    pub labelled: Option<Time>,
    /// Record size (bytes).
    pub block_size: u32,
    /// Native capacity of the data partition (bytes).
    pub capacity: u64,
    /// Bytes of file data written since labelling, dead ones included.
    pub written: u64,
    /// Bytes of file data that a current version needs.
    pub live: u64,
    /// File segments written since labelling, dead ones included.
    pub files: u64,
    /// File segments that a current version needs.
    pub live_files: u64,
    /// Data partition: logical object number at which the next record goes.
    pub append_block: u64,
    /// Next LTFS file uid.
    pub next_uid: u64,
    /// Generation of the newest index on the volume (0: none); of volumes without partitions the number of the last section.
    pub generation: u64,
    /// Block of the newest index on the data partition.
    pub index_block: u64,
    /// The index on the index partition lists everything recorded before this block; it lists all when this equals
    /// `append_block`. The data partition may hold a newer one.
    pub indexed_to: u64,
    /// Volume change reference after our last write; another value on the medium means somebody else wrote.
    pub vcr: u64,
    /// Times mounted by us, over all its labels.
    pub mounts: u64,
    /// Errors of its medium, over all its labels: what a cartridge has once failed with is not forgotten with its data.
    pub errors: u64,
    /// Last time data was written.
    pub last_written: Option<Time>,
    /// Last time data was read.
    pub last_read: Option<Time>,
    /// Operator (uid) who set the state; None: the node did, from what it met.
    #[serde(default)]
    pub by: Option<u32>,
    /// Last time every byte on it that a current version needs was read and found good.
    #[serde(default)]
    pub last_verified: Option<Time>,
    /// A verification that has begun has come to this block of the data partition; 0: none has.
    #[serde(default)]
    pub verified_to: u64,
    /// In a pool that keeps files together: whose or which it holds; None: any.
    #[serde(default)]
    pub family: Option<String>,
    /// Name of the key that the drive encrypts it with; empty: it is not encrypted.
    #[serde(default)]
    pub key: String,
    /// How its data lies on the medium.
    #[serde(default)]
    pub format: VolumeFormat,
    /// Its medium can be written once (WORM): labelled once, appended to, never made scratch. Until it was mounted for the first
    /// time, what its barcode says.
    #[serde(default)]
    pub worm: bool,
    /// It belongs to another namespace or to another program, and was imported in place: it may hold more than the catalogue
    /// knows, and is only read.
    #[serde(default)]
    pub imported: bool,
    /// The tape holds, or may hold, more than the catalogue lists: nothing is written to it, no index either, until it is labelled
    /// anew or an operator has it written again.
    #[serde(default)]
    pub holds_more: bool,
}

/// What a volume was before it was closed for its way out of the library, or to be emptied, and is again when it comes back, or is not
/// emptied after all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Full, read-only or suspect; a volume that was filling has none of this.
    pub state: VolumeState,
    /// Why.
    pub reason: String,
    /// Operator (uid) who said so; None: the node.
    pub by: Option<u32>,
}

impl Before {
    /// What of a volume is to be kept before its state is changed for a while.
    pub fn of(v: &Volume) -> Option<Self> {
        let kept = matches!(v.state, VolumeState::Full | VolumeState::ReadOnly | VolumeState::Suspect);
        kept.then(|| Self { state: v.state, reason: v.reason.clone(), by: v.by })
    }
}

impl Volume {
    /// Whether its tape may hold what the catalogue does not list: what is written to it, or an index, might go over that.
    pub fn may_hold_more(&self) -> bool {
        self.imported || self.holds_more || self.state == VolumeState::Unverified
    }

    /// The node finds the volume in another state.
    pub fn becomes(&mut self, state: VolumeState, why: impl Into<String>, now: Time) {
        (self.state, self.reason, self.since, self.by) = (state, why.into(), now, None);
    }

    /// A volume about which nothing is known but its barcode.
    pub fn new(barcode: Barcode, now: Time) -> Self {
        Self {
            worm: barcode.is_worm(),
            barcode,
            pool: None,
            state: VolumeState::Unknown,
            reason: String::new(),
            since: now,
            uuid: String::new(),
            labelled: None,
            block_size: 0,
            capacity: 0,
            written: 0,
            live: 0,
            files: 0,
            live_files: 0,
            append_block: 0,
            next_uid: 2,
            generation: 0,
            index_block: 0,
            indexed_to: 0,
            vcr: 0,
            mounts: 0,
            errors: 0,
            last_written: None,
            last_read: None,
            by: None,
            last_verified: None,
            verified_to: 0,
            family: None,
            key: String::new(),
            format: VolumeFormat::Ltfs,
            imported: false,
            holds_more: false,
        }
    }
}

/// A tape pool: volumes that share a purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: PoolName,
    /// Largest number of volumes it may hold; 0 means no limit.
    pub max_volumes: u32,
    /// No more is written to it when its volumes hold so much that is needed (bytes, as written); 0 means no limit.
    #[serde(default)]
    pub max_bytes: u64,
    /// What is kept together on volumes of its own.
    #[serde(default)]
    pub collocate: Collocate,
    /// Format of its new volumes.
    #[serde(default)]
    pub format: FormatRule,
    /// It takes media that can be written once (WORM), and no others; other pools take none of them.
    #[serde(default)]
    pub worm: bool,
    /// Name of the key of its new volumes; empty: as the configuration says.
    #[serde(default)]
    pub key: String,
    /// Name of the library whose volumes alone are written; None: any.
    #[serde(default)]
    pub library: Option<String>,
}

impl Pool {
    /// A pool without limits.
    pub fn new(name: PoolName) -> Self {
        Self {
            name,
            max_volumes: 0,
            max_bytes: 0,
            collocate: Collocate::Off,
            format: FormatRule::Auto,
            worm: false,
            key: String::new(),
            library: None,
        }
    }
}

/// Which files of a pool share volumes with nothing else, as long as there are volumes enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collocate {
    /// All lie together.
    #[default]
    Off,
    /// Those of an owner.
    Owner,
    /// Those of a group.
    Group,
    /// Those of a class of service.
    Class,
    /// Those below the same directory at this depth of the namespace (1: below the root): a project.
    Directory(u8),
}

/// A class of service: how many copies go where, and what happens to disk space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Name.
    pub name: ClassName,
    /// Pool of each copy, first copy first; empty: never migrated.
    pub copies: Vec<PoolName>,
    /// A file is due for migration when unchanged for this long (seconds).
    pub migrate_after_s: u32,
    /// ... or at once when this many bytes of this class wait (0: only age counts).
    pub migrate_bytes: u64,
    /// Files of this class are never purged.
    pub keep_on_disk: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// Bring files back to disk.
    Stage,
    /// Write the copies that are missing.
    Migrate,
    /// Release disk space.
    Purge,
    /// Write labels.
    Label,
    /// Enter what is on tape into the catalogue.
    Rebuild,
    /// Read every copy on volumes and compare it with its digest.
    Verify,
    /// Copy what is needed of volumes to others, and make them scratch.
    Repack,
    /// Take in volumes of other sites and programs, or take volumes back.
    Import,
    /// Close volumes for a way out of the library.
    Export,
    /// Move what lies on disk targets that get no new files to others.
    Drain,
    /// Move what lies on the fuller disk targets to the emptier ones.
    Balance,
    /// Compare what lies on a disk target with its sums, and repair what is not what was written.
    Scrub,
    /// Give files a layout on disk targets, or another one.
    Protect,
    /// Move the catalogue to another engine; its files are keys.
    MoveEngine,
}

impl RequestKind {
    /// Counts volumes, not files.
    pub fn is_of_volumes(self) -> bool {
        use RequestKind as K;
        matches!(self, K::Label | K::Rebuild | K::Verify | K::Repack | K::Import | K::Export)
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// Waits for a drive, a volume or its turn.
    Queued,
    /// Bytes move, or a robot does.
    Active,
    /// Everything done.
    Done,
    /// Ended; at least one file failed (see `message`).
    Failed,
    /// Withdrawn by a user.
    Cancelled,
}

impl std::fmt::Display for RequestState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Active => "active",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// State of one file within a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemState {
    /// Not finished.
    Pending,
    /// Finished well.
    Done,
    /// Failed; the text says why, and which volume or drive.
    Failed(String),
}

/// A user-visible request as stored. Its files are kept as items of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Identifier.
    pub id: RequestId,
    /// What is asked.
    pub kind: RequestKind,
    /// Who asked (uid).
    pub owner: u32,
    /// What the user named (a path, "list from stdin", "open by process 123 (cat)").
    pub subject: String,
    /// State.
    pub state: RequestState,
    /// When asked.
    pub created: Time,
    /// When the first byte moved.
    pub started: Option<Time>,
    /// When it ended.
    pub finished: Option<Time>,
    /// Files asked for.
    pub files_total: u64,
    /// Files finished (well or not).
    pub files_done: u64,
    /// Files failed.
    pub files_failed: u64,
    /// Bytes asked for.
    pub bytes_total: u64,
    /// Bytes moved for finished files.
    pub bytes_done: u64,
    /// Last error, or empty.
    pub message: String,
    /// Greater goes first, 1 to 9.
    pub priority: u8,
    /// Wanted by then.
    pub deadline: Option<Time>,
}

impl Request {
    /// Priority unless something else is asked for.
    pub const USUAL_PRIORITY: u8 = 5;

    /// A request that has not begun, without files yet; the catalogue gives it its id.
    pub fn new(kind: RequestKind, owner: u32, subject: String, now: Time) -> Self {
        Self {
            id: RequestId(0),
            kind,
            owner,
            subject,
            state: RequestState::Queued,
            created: now,
            started: None,
            finished: None,
            files_total: 0,
            files_done: 0,
            files_failed: 0,
            bytes_total: 0,
            bytes_done: 0,
            message: String::new(),
            priority: Self::USUAL_PRIORITY,
            deadline: None,
        }
    }
}
