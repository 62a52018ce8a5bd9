//! Everything that a comparison needs, set up side by side: the directory itself, an ext4 and an XFS image on the same
//! disk, a node on each of the three, and the floor.

use crate::bed::{self, Bed};
use crate::compare::{Base, Kind, Side};
use crate::floor::Empty;
use crate::image::{self, Image};
use crate::place::{self, processor_time};
use crate::{MountFn, Mounted, Plan};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::api::FileApi;

/// How often it is asked whether the daemons are still busy with what the kernel has just forgotten, what processor
/// time of that span counts as being idle, and how long it may last.
const LOOK: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(2);
const BUSY_AT_MOST: Duration = Duration::from_secs(10);

/// All sides, in the order of dropping: mounts, nodes, images, the directory of all.
pub struct Sides {
    live: Vec<Live>,
    _images: Vec<Image>,
    place: TempDir,
}

/// One side.
pub struct Live {
    /// Which.
    pub side: Side,
    /// An empty directory of its file system.
    pub dir: PathBuf,
    _mounted: Option<Mounted>,
    bed: Option<Bed>,
}

impl Sides {
    /// Sets up what is possible here; `each` bytes will be written on each side. None without root or FUSE.
    ///
    /// # Errors
    /// No space, or a side could not be made.
    pub fn set_up(plan: &Plan, each: u64, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            told("mount: left out, it needs root and /dev/fuse");
            return Ok(None);
        }
        image::own_mounts()?;
        // A native side and Thermocline's, and what file systems and the catalogue need; XFS refuses less than 300 MiB.
        let bytes = 2 * each + plan.amount(320 << 20, 512 << 20);
        let place = place::make(&plan.dir, 3 * bytes)?;
        let mut sides = Self { live: Vec::new(), _images: Vec::new(), place };
        told("mount: making file systems in image files");
        sides.add_base(Base::Directory, sides.place.path().to_owned(), mount)?;
        let dir = sides.empty_dir("floor")?;
        let mounted = mount(Empty::new(sides.place.path())?, &dir, true)?;
        sides.live.push(Live { side: Side::FLOOR, dir, _mounted: Some(mounted), bed: None });
        for base in [Base::Ext4, Base::Xfs] {
            let kind = image::file_system(base);
            if !image::possible(base) {
                told(&format!("mount: no {kind} image, it needs losetup and mkfs.{kind}"));
                continue;
            }
            let made = Image::make(sides.place.path(), base, bytes)?;
            let dir = made.dir.clone();
            sides._images.push(made);
            sides.add_base(base, dir, mount)?;
        }
        Ok(Some(sides))
    }

    /// Where there are sides.
    pub fn bases(&self) -> Vec<Base> {
        let mut bases: Vec<Base> = self.live.iter().map(|live| live.side.base).collect();
        bases.dedup();
        bases
    }

    /// The sides there.
    pub fn of(&self, base: Base) -> Vec<&Live> {
        self.live.iter().filter(|live| live.side.base == base).collect()
    }

    fn empty_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.place.path().join(name);
        fs::create_dir(&dir)?;
        Ok(dir)
    }

    /// The file system at `root`, and a node on it.
    fn add_base(&mut self, base: Base, root: PathBuf, mount: MountFn<'_>) -> Result<()> {
        let native = root.join("native");
        fs::create_dir(&native)?;
        let side = Side { base, kind: Kind::Native };
        self.live.push(Live { side, dir: native, _mounted: None, bed: None });
        let bed = Bed::start(bed::config(&root.join("state"), &["primary"]))?;
        let dir = self.empty_dir(&format!("mount-{base:?}").to_lowercase())?;
        let mounted = mount(Arc::clone(&bed.node) as Arc<dyn FileApi>, &dir, true)?;
        let side = Side { base, kind: Kind::Thermocline };
        self.live.push(Live { side, dir, _mounted: Some(mounted), bed: Some(bed) });
        Ok(())
    }

    /// Does `work` on every side that is `wanted`, each first by turns, and hands its result to `take`. Nothing is left to
    /// be written when the first begins; work that writes settles its own side before it measures.
    ///
    /// # Errors
    /// Of the work, with the side it happened on.
    pub fn each<T>(
        &self,
        round: usize,
        wanted: impl Fn(&Live) -> bool,
        work: impl Fn(&Live) -> Result<T>,
        mut take: impl FnMut(&Live, T),
    ) -> Result<()> {
        let wanted: Vec<&Live> = self.live.iter().filter(|live| wanted(live)).collect();
        self.settle()?;
        for n in 0..wanted.len() {
            let live = wanted[(n + round) % wanted.len()];
            let result =
                work(live).with_context(|| format!("{:?} on {:?}", live.side.kind, live.side.base))?;
            take(live, result);
        }
        Ok(())
    }

    /// Brings everything to stable storage, on all sides: names, then bytes.
    ///
    /// # Errors
    /// Of a node.
    pub fn settle(&self) -> Result<()> {
        for bed in self.live.iter().filter_map(|l| l.bed.as_ref()) {
            bed.node.sync_names().context("making names durable")?;
        }
        rustix::fs::sync();
        Ok(())
    }
}

/// What the kernel keeps in memory.
#[derive(Clone, Copy, Debug)]
pub enum Cache {
    /// Pages of files.
    Pages = 1,
    /// Names and inodes.
    Names = 2,
}

/// Has the kernel forget, everywhere on this machine, and waits until the daemons, which are threads of this program,
/// have heard of it. What still is to be written is not forgotten: settle first.
///
/// # Errors
/// Not privileged.
pub fn forget(what: Cache) -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", (what as u8).to_string())
        .context("dropping the kernel's caches")?;
    let begin = Instant::now();
    let mut used = processor_time();
    while begin.elapsed() < BUSY_AT_MOST {
        std::thread::sleep(LOOK);
        let now = processor_time();
        if now.saturating_sub(used) < IDLE {
            break;
        }
        used = now;
    }
    Ok(())
}
