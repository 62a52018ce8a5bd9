//! Configuration of a node: one TOML file, every key optional, unknown keys refused with the nearest valid one.

#![forbid(unsafe_code)]

pub mod attached;
mod catalog;
mod cluster;
mod devices;
mod encryption;
mod explain;
pub mod limits;
mod mixed;
mod size;
mod standby;
mod targets;

use attached::AttachedLibrary;
pub use catalog::{CatalogConfig, backup_names};
pub use cluster::ClusterConfig;
pub use devices::{DeviceConfig, Users};
pub use encryption::{EncryptionConfig, KeySource};
use explain::{explain, nearest};
use limits::LimitConfig;
pub use mixed::{DriveKind, Media};
use serde::{Deserialize, Serialize};
pub use size::Size;
pub use standby::{StandbyConfig, StandbyMode, WhenAway};
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use targets::TargetConfig;
use types::{Class, ClassName, FormatRule, Generation, NonBlock, PoolName};

/// Everything an operator can set. Sizes are bytes written as integers or as text (`"6 GiB"`, `"500MB"`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory for the catalogue, the control socket and the log.
    pub state_dir: PathBuf,
    /// The file that it was read from, which commands change; None: `config.toml` in the state directory.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Disk tier.
    pub disk: DiskConfig,
    /// Virtual tape library; used when none is attached.
    pub library: LibraryConfig,
    /// Attached tape libraries.
    pub libraries: Vec<AttachedLibrary>,
    /// How volumes are written.
    pub tape: TapeConfig,
    /// When volumes are emptied without being asked.
    pub reclaim: ReclaimConfig,
    /// How long deleted files stay restorable.
    pub undelete: UndeleteConfig,
    /// Volumes that drives encrypt.
    pub encryption: EncryptionConfig,
    /// Where a node of a cluster is reached.
    pub cluster: ClusterConfig,
    /// Who follows whom.
    pub standby: StandbyConfig,
    /// Disk targets that this node serves to the cluster.
    pub targets: Vec<TargetConfig>,
    /// Drives and robots of this host that other nodes of the cluster use.
    pub devices: Vec<DeviceConfig>,
    /// Backups of the catalogue.
    pub catalog: CatalogConfig,
    /// Pools made at first start.
    pub pools: Vec<PoolConfig>,
    /// Classes of service made at first start.
    pub classes: Vec<ClassConfig>,
    /// Shares and limits of those who recall files.
    pub limits: Vec<LimitConfig>,
    /// Mount here when the node starts.
    pub mount: Option<PathBuf>,
    /// What `O_NONBLOCK` means for files on tape, on every mount that does not say otherwise: `"eagain"` or `"wait"`.
    pub nonblock: NonBlock,
    /// Mounts hand resident files to the kernel, where it takes them.
    pub passthrough: bool,
    /// The node keeps the locks of programs at its mounts also where no other host can come.
    pub locks: bool,
    /// From this start on take robot and drives, each once, from other hosts that have reserved them; an operator's order, in no file.
    #[serde(skip)]
    pub preempt: bool,
    /// At this start another disk tier than the one of the last start is taken; an operator's order, in no file.
    #[serde(skip)]
    pub new_disk_tier: bool,
}

/// Disk tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// Directory of the objects; default `<state_dir>/disk`.
    pub path: Option<PathBuf>,
    /// Bytes that Thermocline may use there; default: 90 % of the file system.
    pub capacity: Option<Size>,
    /// Purge starts above this share of the capacity (per cent).
    pub high_watermark: u8,
    /// Purge ends below this share (per cent).
    pub low_watermark: u8,
    /// Longest time that a write waits for space while something is being released (seconds).
    pub space_wait_s: u32,
}

/// Most virtual libraries.
const MOST_VIRTUAL: u8 = 9;

/// Virtual tape libraries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LibraryConfig {
    /// Directory of the cartridges; default `<state_dir>/library`.
    pub path: Option<PathBuf>,
    /// How many such libraries there are, each with its own directory (`<path>`, `<path>-2` ...), drives and cartridges.
    pub count: u8,
    /// Drives.
    pub drives: u16,
    /// Storage slots.
    pub slots: u16,
    /// Import/export slots.
    pub import_export: u16,
    /// Cartridges made when the library is new.
    pub cartridges: u16,
    /// Last two characters of their barcodes: the generation, of which `L1` to `L4` cannot be partitioned. Several take turns.
    pub media: Media,
    /// Generations of the drives, the last one for all that follow; without any that which writes the (first) medium.
    pub generations: Vec<DriveKind>,
    /// Capacity of each of them (data partition).
    pub cartridge_capacity: Size,
    /// Mechanics: `"none"` (no waiting) or `"lto9"` (real times), scaled by `speed`.
    pub mechanics: String,
    /// Divides every mechanical time (1 = real, 100 = a hundred times faster).
    pub speed: f64,
    /// Streaming rate limit of a drive in bytes per second; 0 means as fast as the disk below.
    pub drive_rate: Size,
    /// Buffer of a drive: what it takes in before its tape has it.
    pub drive_buffer: Size,
    /// Serve drives and changer on unix sockets in this directory, for third-party tools.
    pub sockets: Option<PathBuf>,
}

/// How volumes are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TapeConfig {
    /// Size of records.
    pub block_size: Size,
    /// Format of new volumes whose pool does not say: `"auto"`, `"ltfs"` or `"ansi-tar"`.
    pub format: FormatRule,
    /// A full index is written whenever this many bytes follow the last one.
    pub index_every: Size,
    /// A batch is flushed, recorded and its disk space releasable after at most this many bytes ...
    pub flush_every: Size,
    /// ... or this many files.
    pub flush_files: u32,
    /// Memory for bytes between disk and tape, in equal shares for all drives.
    pub buffers: Size,
    /// Most file segments on one volume.
    pub max_files_per_volume: u64,
    /// An unused mounted volume stays in its drive this long (seconds).
    pub idle_unmount_s: u32,
    /// Drives that are never used for writing, as long as one is left for it.
    pub drives_for_recall: u32,
    /// One more drive writes a pool's backlog for each so many bytes of it.
    pub bytes_per_drive: Size,
    /// A drive that failed is tried again after this long (seconds), twice as long each further time, at most an hour;
    /// 0: only when an operator says so.
    pub drive_retry_s: u32,
    /// Each record is checked by drive and node on its way between them (logical block protection, CRC-32C).
    pub block_protection: BlockProtection,
    /// Compression by the drives; none: as they are set.
    pub compression: Option<bool>,
    /// Each copy is read and compared with its digest at least this often (days); 0: only when asked for.
    pub verify_every_days: u32,
    /// Bytes per second, on average, that are read for that; 0: as much as drives have time for.
    pub verify_pace: Size,
    /// Label blank cartridges of the library and assign them to pools as needed.
    pub auto_label: bool,
    /// Drives overwrite only what they are told to (append-only mode), where they have that.
    pub append_only: bool,
    /// Keep other hosts off robot and drives (persistent reservations).
    pub reserve: bool,
}

/// How long what was deleted or overwritten stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UndeleteConfig {
    /// Days for which a volume is not emptied by rule after the last deletion of something on it; 0: none.
    pub keep_days: u32,
}

/// When volumes are emptied without being asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReclaimConfig {
    /// A full volume is when so many per cent of it are dead (of its files, if it takes no more of them); 0: never for that.
    pub dead_percent: u8,
    /// Volumes of this generation (`"LTO6"`) and older ones are; none: never for that.
    pub generation: Option<String>,
    /// Volumes emptied at a time, asked for or not.
    pub parallel: u16,
}

impl Default for ReclaimConfig {
    fn default() -> Self {
        Self { dead_percent: 0, generation: None, parallel: 2 }
    }
}

/// Number of a generation of LTO: `LTO6` or `6`.
pub fn lto_generation(text: &str) -> Option<u8> {
    Generation::parse(text.trim()).map(Generation::number)
}

impl Config {
    /// Whether the node keeps the locks of programs at its mounts; else the kernel alone does, without asking.
    pub fn keeps_locks(&self) -> bool {
        self.locks || self.cluster.listen.is_some()
    }

    /// Whether the catalogue is in a database.
    pub fn in_database(&self) -> bool {
        self.catalog.engine.is_some()
    }

    /// How long this node's turn lasts without a sign of life; None: the database is its own.
    pub fn turn(&self) -> Option<Duration> {
        self.catalog.take_turns_s.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Whether it waits for its turn before it serves.
    pub fn takes_turns(&self) -> bool {
        self.turn().is_some()
    }
}

/// When records carry a sum on their way between node and drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockProtection {
    /// When the drive has it.
    Auto,
    /// Never.
    Off,
}

/// A pool made at first start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Name.
    pub name: String,
    /// Most volumes; 0 means no limit.
    #[serde(default)]
    pub max_volumes: u32,
    /// Most bytes that current versions may need of it; 0 means no limit.
    #[serde(default)]
    pub max_bytes: Size,
    /// Format of its volumes: `"auto"`, `"ltfs"` or `"ansi-tar"`.
    #[serde(default)]
    pub format: FormatRule,
    /// It takes media that can be written once (WORM), and no others.
    #[serde(default)]
    pub worm: bool,
}

/// A class made at first start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Name.
    pub name: String,
    /// Pool of each copy.
    pub copies: Vec<String>,
    /// Unchanged for this long before migration (seconds).
    #[serde(default = "default_age")]
    pub migrate_after_s: u32,
    /// Waiting bytes that start migration at once; 0: only age counts.
    #[serde(default)]
    pub migrate_bytes: Size,
    /// Never purge.
    #[serde(default)]
    pub keep_on_disk: bool,
}

fn default_age() -> u32 {
    60
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/thermo"),
            file: None,
            disk: DiskConfig::default(),
            library: LibraryConfig::default(),
            libraries: Vec::new(),
            tape: TapeConfig::default(),
            reclaim: ReclaimConfig::default(),
            undelete: UndeleteConfig::default(),
            encryption: EncryptionConfig::default(),
            cluster: ClusterConfig::default(),
            standby: StandbyConfig::default(),
            targets: Vec::new(),
            devices: Vec::new(),
            catalog: CatalogConfig::default(),
            pools: ["primary", "second"]
                .map(|n| PoolConfig {
                    name: n.into(),
                    max_volumes: 0,
                    max_bytes: Size(0),
                    format: FormatRule::Auto,
                    worm: false,
                })
                .to_vec(),
            classes: vec![ClassConfig {
                name: "default".into(),
                copies: vec!["primary".into(), "second".into()],
                migrate_after_s: default_age(),
                migrate_bytes: Size::gib(1),
                keep_on_disk: false,
            }],
            limits: Vec::new(),
            mount: None,
            nonblock: NonBlock::Eagain,
            passthrough: true,
            locks: false,
            preempt: false,
            new_disk_tier: false,
        }
    }
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self { path: None, capacity: None, high_watermark: 90, low_watermark: 80, space_wait_s: 120 }
    }
}

impl Default for LibraryConfig {
    fn default() -> Self {
        Self {
            path: None,
            count: 1,
            drives: 2,
            slots: 8,
            import_export: 1,
            cartridges: 8,
            media: "L9".into(),
            generations: Vec::new(),
            cartridge_capacity: Size::gib(6),
            mechanics: "none".into(),
            speed: 1.0,
            drive_rate: Size(0),
            drive_buffer: Size::gib(1),
            sockets: None,
        }
    }
}

impl Default for TapeConfig {
    fn default() -> Self {
        Self {
            block_size: Size(512 << 10),
            format: FormatRule::Auto,
            index_every: Size::gib(64),
            flush_every: Size::gib(16),
            flush_files: 5000,
            buffers: Size::mib(128),
            max_files_per_volume: 2_000_000,
            idle_unmount_s: 30,
            drives_for_recall: 0,
            bytes_per_drive: Size::gib(64),
            drive_retry_s: 30,
            block_protection: BlockProtection::Auto,
            compression: None,
            verify_every_days: 0,
            verify_pace: Size(0),
            auto_label: true,
            append_only: true,
            reserve: true,
        }
    }
}

/// The configuration cannot be used; the text names the key and what to write instead.
#[derive(Debug, thiserror::Error)]
#[error("configuration {path}: {problem}")]
pub struct ConfigError {
    /// File, or `<built in>`.
    pub path: PathBuf,
    /// What is wrong and what to do.
    pub problem: String,
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let fail = |problem: String| ConfigError { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Self::parse(&text).map_err(fail)
    }

    /// As [`Config::load`]; where a file does not say where the state is, that is `state_dir`.
    pub fn load_for(path: &Path, state_dir: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::load(path)?;
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if !toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("state_dir")) {
            config.state_dir = state_dir.to_owned();
        }
        Ok(config)
    }

    /// Parses and checks TOML text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|e| explain(&e))?;
        config.validate()?;
        Ok(config)
    }

    /// Checks what the types cannot.
    pub fn validate(&self) -> Result<(), String> {
        let d = &self.disk;
        if d.high_watermark > 100 || d.low_watermark >= d.high_watermark {
            return Err(format!(
                "disk.low_watermark ({}) must be below disk.high_watermark ({}), and both at most 100",
                d.low_watermark, d.high_watermark
            ));
        }
        let block = self.tape.block_size.0;
        if !(4096..=1 << 20).contains(&block) || !block.is_multiple_of(4096) {
            return Err(format!(
                "tape.block_size is {block}; it must be a multiple of 4096, and at most 1 MiB, the most that LTFS programs read"
            ));
        }
        let l = &self.library;
        if l.drives == 0 || l.slots == 0 || !(1..=MOST_VIRTUAL).contains(&l.count) {
            return Err("library.drives and library.slots must be at least 1, library.count 1 to 9".into());
        }
        if l.cartridges > l.slots {
            return Err(format!("library.cartridges ({}) exceeds library.slots ({})", l.cartridges, l.slots));
        }
        let code =
            |m: &String| m.len() == 2 && m.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if l.media.0.is_empty() || !l.media.0.iter().all(code) {
            return Err("library.media must be media identifiers as \"L9\", one or a list".into());
        }
        if !["none", "lto9"].contains(&l.mechanics.as_str()) || !l.speed.is_finite() || l.speed <= 0.0 {
            return Err("library.mechanics must be \"none\" or \"lto9\" and library.speed above 0".into());
        }
        let r = &self.reclaim;
        if r.dead_percent > 100 || r.parallel == 0 {
            return Err("reclaim.dead_percent must be at most 100 and reclaim.parallel at least 1".into());
        }
        if let Some(bad) = r.generation.as_deref().filter(|text| lto_generation(text).is_none()) {
            return Err(format!("reclaim.generation is `{bad}`; write for example \"LTO6\""));
        }
        self.catalog.validate(self)?;
        attached::validate(&self.libraries)?;
        self.encryption.source()?;
        limits::validate(&self.limits)?;
        self.cluster.validate()?;
        self.standby.validate(self.in_database(), self.cluster.listen.is_some())?;
        let fed = self.standby.of.is_some() || !self.standby.to.is_empty();
        if fed && self.cluster.subsystem.is_some() {
            return Err("standby: a subsystem (cluster.subsystem) has none: its hosts take turns with a database (catalog.take_turns_s)".into());
        }
        devices::validate(self)?;
        targets::validate(&self.targets, &self.cluster, &self.disk_path())?;
        self.validate_classes()
    }

    fn validate_classes(&self) -> Result<(), String> {
        if !self.classes.iter().any(|c| c.name == "default") {
            return Err("no class named \"default\"; new files at the root get that class".into());
        }
        for class in &self.classes {
            for (i, pool) in class.copies.iter().enumerate() {
                if !self.pools.iter().any(|p| &p.name == pool) {
                    let near = nearest(pool, self.pools.iter().map(|p| p.name.as_str()));
                    return Err(format!(
                        "class {} names pool `{pool}`, which is not in `pools`{near}",
                        class.name
                    ));
                }
                if class.copies[..i].contains(pool) {
                    return Err(format!(
                        "class {} names pool `{pool}` twice; copies belong on different pools",
                        class.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Directory of the disk objects.
    pub fn disk_path(&self) -> PathBuf {
        self.disk.path.clone().unwrap_or_else(|| self.state_dir.join("disk"))
    }

    /// Drives of the library that the node uses.
    pub fn drives(&self) -> usize {
        match self.libraries.as_slice() {
            [] => usize::from(self.library.drives) * usize::from(self.library.count),
            attached => attached.iter().map(|l| l.drives.len()).sum(),
        }
    }

    /// Directory of the virtual cartridges.
    pub fn library_path(&self) -> PathBuf {
        self.library.path.clone().unwrap_or_else(|| self.state_dir.join("library"))
    }

    /// Socket on which the node answers.
    pub fn socket_path(&self) -> PathBuf {
        self.state_dir.join("control.sock")
    }
}

impl From<&ClassConfig> for Class {
    fn from(c: &ClassConfig) -> Self {
        Class {
            name: ClassName(c.name.clone()),
            copies: c.copies.iter().cloned().map(PoolName).collect(),
            migrate_after_s: c.migrate_after_s,
            migrate_bytes: c.migrate_bytes.0,
            keep_on_disk: c.keep_on_disk,
        }
    }
}

#[cfg(test)]
mod tests;
