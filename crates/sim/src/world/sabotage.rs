//! Worlds that are made wrong on purpose, to see that the checkers notice.

use super::{World, users};
use std::path::PathBuf;
use types::api::FileApi;
use types::*;

/// What is made wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A file is gone that was acknowledged as durable before the node was killed.
    ForgetDurable,
    /// A file is gone, and nobody was killed.
    LoseFile,
    /// A byte of a file on the disk is another.
    ChangeObject,
    /// A byte of a record that counts is another, on its cartridge.
    ChangeRecord,
    /// The end of data of a cartridge goes back, as if a flush had not happened.
    Unflush,
    /// A byte of a cartridge's newest index is another, in both partitions.
    ChangeIndex,
    /// A drive never ends its job.
    NeverEnd,
    /// Two drives have one volume.
    TwoDrives,
}

impl Sabotage {
    /// Each of them, and a word of what its checker says.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::ForgetDurable, "after the crash the names are those of none"),
        (Self::LoseFile, "is lost"),
        (Self::ChangeObject, "wrong bytes"),
        (Self::ChangeRecord, "is not what was written"),
        (Self::Unflush, "is not flushed"),
        (Self::ChangeIndex, "catalogue and tape differ"),
        (Self::NeverEnd, "has not ended after"),
        (Self::TwoDrives, "have volume"),
    ];
}

impl World {
    /// Does the damage: before everything is migrated, or (`late`) when it is on tape.
    pub(super) fn sabotage(&mut self, late: bool) -> Result<(), String> {
        match self.sabotage {
            Some(Sabotage::LoseFile) if !late => self.lose_a_file(),
            Some(Sabotage::ChangeRecord) if late => {
                let (dir, segment) = self.a_segment()?;
                self.decay(&dir, &segment)
            }
            Some(Sabotage::Unflush) if late => {
                let (dir, segment) = self.a_segment()?;
                let block = segment.extents.first().map_or(0, |e| e.start_block);
                rename_end(&dir, block)
            }
            _ => Ok(()),
        }
    }

    /// Behind everybody's back.
    pub(super) fn lose_a_file(&mut self) -> Result<(), String> {
        let name = self.users.now().keys().next().cloned().ok_or("no file")?;
        let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
        let gone = self.node()?.node().unlink(&cx, Ino::ROOT, name.as_bytes());
        gone.map_err(|e| format!("{name}: {e:?}"))
    }

    /// As if the tape had decayed.
    pub(super) fn change_an_index(&mut self) -> Result<(), String> {
        let (dir, _) = self.a_segment()?;
        [0, 1].iter().try_for_each(|partition| {
            let prefix = format!("{partition}_");
            let number = |n: String| n.strip_prefix(&prefix)?.strip_suffix("_R")?.parse::<u64>().ok();
            let last = names(&dir)?.into_iter().filter_map(number).max();
            flip(dir.join(format!("{partition}_{}_R", last.ok_or("no index")?)), 700)
        })
    }

    /// As if the disk had.
    pub(super) fn change_an_object(&mut self) -> Result<(), String> {
        let names: users::Names = self.users.now().clone();
        let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
        for (name, _) in names.iter().filter(|(_, (_, size))| *size > 100) {
            let attr = self.node()?.node().lookup(&cx, Ino::ROOT, name.as_bytes());
            let ino = attr.map_err(|e| format!("{name}: {e:?}"))?.ino;
            let inode = self.node()?.catalog().inode(ino).map_err(|e| e.to_string())?;
            if let Some(object) = inode.file.and_then(|f| f.object) {
                let dir = self.config.state_dir.join("disk/objects");
                return flip(dir.join(format!("{:02x}/{:016x}", (object.0 >> 8) & 0xff, object.0)), 50);
            }
        }
        Err("no file is on disk".into())
    }

    /// A byte of this segment is another, in the directory of its cartridge.
    pub(super) fn decay(&self, dir: &std::path::Path, segment: &Segment) -> Result<(), String> {
        let block = segment.extents.first().map_or(0, |e| e.start_block);
        let at = segment.extents.first().map_or(0, |e| e.byte_offset as usize);
        flip(dir.join(format!("1_{block}_R")), at)
    }

    /// Part of a file that counts, on a cartridge that is good.
    pub(super) fn a_segment(&self) -> Result<(PathBuf, Segment), String> {
        let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
        for (name, _) in self.users.now().iter().filter(|(_, (_, size))| *size > 100) {
            let attr = self.node()?.node().lookup(&cx, Ino::ROOT, name.as_bytes());
            let ino = attr.map_err(|e| format!("{name}: {e:?}"))?.ino;
            let inode = self.node()?.catalog().inode(ino).map_err(|e| e.to_string())?;
            let Some(file) = inode.file else { continue };
            let copies = self.node()?.catalog().version_copies(ino, file.version);
            for copy in copies.map_err(|e| e.to_string())? {
                let good = |s: &&Segment| !self.spoilt.contains(s.volume.as_str());
                if copy.segments.iter().all(|s| good(&s))
                    && let Some(segment) = copy.segments.first()
                {
                    return Ok((self.cartridges().join(segment.volume.as_str()), segment.clone()));
                }
            }
        }
        Err("nothing is on tape".into())
    }
}

fn flip(path: PathBuf, at: usize) -> Result<(), String> {
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut bytes = std::fs::read(&path).map_err(said)?;
    let at = at.min(bytes.len().saturating_sub(1));
    *bytes.get_mut(at).ok_or("it is empty")? ^= 1;
    std::fs::write(&path, bytes).map_err(said)
}

fn names(dir: &std::path::Path) -> Result<Vec<String>, String> {
    let listed = std::fs::read_dir(dir).map_err(|e| e.to_string())?;
    Ok(listed.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
}

fn rename_end(dir: &std::path::Path, to: u64) -> Result<(), String> {
    let end = |n: &String| n.starts_with("1_") && n.ends_with("_E");
    let old = names(dir)?.into_iter().find(end).ok_or("no end of data")?;
    std::fs::rename(dir.join(old), dir.join(format!("1_{to}_E"))).map_err(|e| e.to_string())
}
