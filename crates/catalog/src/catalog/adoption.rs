//! How a lost catalogue comes back from the indexes of volumes. Durable.

use super::Catalog;
use crate::ops::adopt::ClassIds;
use crate::ops::{adopt, class, import, nodes, parts, pool, restored, site, spares, tape_tree};
use crate::{Adoption, ListedFile, Part, Result, classes};
use format::ltfs::origin::{DirFacts, Rules};
use types::*;

/// Records changed in one transaction.
const RESTORE_BATCH: usize = 1_000;

impl Catalog {
    /// Which namespace this is; None for one that was never told.
    pub fn site(&self) -> Result<Option<String>> {
        self.read(site::get)
    }

    /// Which namespace this is, for a target that is to note it for good: it stays from now on. None while it may still become another one.
    pub fn give_site(&self) -> Result<Option<String>> {
        match self.read(site::is_given)? {
            true => self.site(),
            false if self.is_empty()? => Ok(None),
            false => self.durable(site::give),
        }
    }

    /// Whether this may become another namespace.
    pub fn may_change_site(&self) -> Result<bool> {
        self.read(site::may_change)
    }

    /// Says which namespace this is. Refused if it is another one already, and not empty or that of targets.
    pub fn set_site(&self, site: &str) -> Result<()> {
        self.durable(|tx| site::set(tx, site))
    }

    /// Whether there is nothing but the root directory.
    pub fn is_empty(&self) -> Result<bool> {
        self.read(site::is_empty)
    }

    /// The directory that `name` leads to, and what an index tells of it; None if it is none.
    pub fn dir_facts(&self, parent: Ino, name: &[u8], now: Time) -> Result<Option<(Ino, DirFacts)>> {
        self.read(|v| site::dir_facts(v, parent, name, now))
    }

    /// What an index tells of a directory by its number; None if there is none.
    pub fn facts_of(&self, dir: Ino, now: Time) -> Result<Option<DirFacts>> {
        self.read(|v| site::facts_of(v, dir, now))
    }

    /// The copy of a directory without its contents that lies on a volume, if one counts there.
    pub fn dir_node(&self, barcode: &Barcode, dir: TapeDir) -> Result<Option<TapeFile>> {
        self.read(|v| tape_tree::dir_node(v, barcode, dir))
    }

    /// Name under which a volume's tree has a copy of a directory.
    pub fn dir_entry(file: &TapeFile) -> String {
        tape_tree::dir_entry(file)
    }

    /// The archive state of any node, also of one that was removed of which tapes are to tell so; None if it has none.
    pub fn archived(&self, ino: Ino) -> Result<Option<FileState>> {
        self.read(|v| nodes::archived(v, ino))
    }

    /// From now on inodes and objects get numbers that this namespace cannot have given before its catalogue was lost.
    pub fn skip_numbers(&self, now: Time) -> Result<()> {
        let mut ids = self.ids.lock();
        self.durable(|tx| site::skip_numbers(tx, now))?;
        *ids = 0..0;
        Ok(())
    }

    /// From now on objects get numbers that no catalogue begun at another time gives: a backup that is restored beside them
    /// must not take them for its own.
    pub fn skip_objects(&self, now: Time) -> Result<()> {
        self.durable(|tx| site::skip_objects(tx, now))
    }

    /// This catalogue comes from a backup: objects that belonged to nobody, or lay where they did not belong, may be a file's by now and stay, volumes that may
    /// have been written since are not written before somebody looked at them, and numbers begin anew.
    pub fn mark_restored(&self, now: Time) -> Result<()> {
        self.skip_numbers(now)?;
        // What was written since lies over what hosts kept by then.
        self.durable(spares::lose_all)?;
        while self.durable(|tx| restored::keep_unowned(tx, RESTORE_BATCH))? {}
        self.durable(|tx| restored::distrust(tx, now))
    }

    /// The content of a file on disk changed after the backup: its version gets a number that no copy on tape can have.
    /// To be called after [`Catalog::observe`]; refused while copies of the version are recorded.
    pub fn raise_version(&self, ino: Ino) -> Result<()> {
        self.relaxed(|tx| restored::raise_version(tx, ino))
    }

    /// A volume found in the library is about to be adopted: `fresh` is what is known of it. What the catalogue has of an
    /// earlier label of this cartridge is dropped; refused while a current version needs that. A volume that is known by
    /// its uuid keeps its files.
    pub fn begin_adoption(&self, fresh: &Volume) -> Result<()> {
        self.durable_volumes(None, |tx| adopt::begin(tx, fresh))?;
        self.finish_drops()
    }

    /// Enters files that the index of a volume lists, in one transaction. `as_of` is when that index was written. A class
    /// that is not known is made without copies: [`Catalog::put_rules`] first. Adopting twice changes nothing.
    pub fn adopt(&self, barcode: &Barcode, as_of: Time, files: &[ListedFile]) -> Result<Vec<Adoption>> {
        self.adopt_beside(barcode, as_of, files, &|_| false)
    }

    /// The same beside a disk tier: a version on tape takes the place of an older one whose object is `gone` from disk. That
    /// is asked within the transaction, of such files only.
    pub fn adopt_beside(
        &self,
        barcode: &Barcode,
        as_of: Time,
        files: &[ListedFile],
        gone: &dyn Fn(ObjectId) -> bool,
    ) -> Result<Vec<Adoption>> {
        let classes = self.class_ids(files)?;
        let mut ids = self.ids.lock();
        let (outcomes, skipped) =
            self.durable_volumes(None, |tx| adopt::adopt(tx, barcode, as_of, &classes, files, gone))?;
        if skipped {
            *ids = 0..0;
        }
        Ok(outcomes)
    }

    /// Number here of an inode of another namespace; None: it was never imported.
    pub fn imported(&self, site: &str, foreign: Ino) -> Result<Option<Ino>> {
        self.read(|v| import::known(v, site, foreign))
    }

    /// Gives numbers to inodes of another namespace; those that have one keep it.
    pub fn import_numbers(&self, site: &str, foreign: &[Ino]) -> Result<Vec<Ino>> {
        self.durable(|tx| import::numbers(tx, site, foreign))
    }

    /// Records the digest of a version that had none, once all of it was read.
    pub fn note_digest(&self, ino: Ino, version: Version, digest: Digest) -> Result<()> {
        self.relaxed(|tx| import::note_digest(tx, ino, version, digest))
    }

    /// Notes digests of parts of the present version, of which something is on tape; of another one nothing.
    pub fn note_parts(&self, ino: Ino, version: Version, of: &[(Part, Digest)]) -> Result<()> {
        self.relaxed(|tx| parts::put(tx, ino, version, of))
    }

    /// The digest of a part of a version, if it was ever noted.
    pub fn part_digest(&self, ino: Ino, version: Version, part: Part) -> Result<Option<Digest>> {
        self.read(|v| parts::find(v, ino, version, part))
    }

    fn class_ids(&self, files: &[ListedFile]) -> Result<ClassIds> {
        let of_dirs = files.iter().flat_map(|f| f.dirs.iter()).filter_map(|d| d.facts.as_ref());
        let named = files.iter().map(|f| &f.file.class).chain(of_dirs.map(|facts| &facts.class));
        let mut found = ClassIds::new();
        for name in named {
            if found.contains_key(name) {
                continue;
            }
            if class::check_text("class", name.as_str()).is_err() {
                // What was removed before it was recorded has none, and a damaged one says nothing.
                found.insert(name.clone(), self.read(|v| v.load(Ino::ROOT))?.class);
                continue;
            }
            if self.class(name)?.is_none() {
                let rules = Class {
                    name: name.clone(),
                    copies: Vec::new(),
                    migrate_after_s: 60,
                    migrate_bytes: 0,
                    keep_on_disk: false,
                };
                self.put_class(&rules)?;
            }
            found.insert(name.clone(), self.read(|v| classes::require(v.r, name))?);
        }
        Ok(found)
    }

    /// Makes or changes the pools and classes of service that a volume tells of; `all` also those that are there already.
    /// Inodes follow with [`Catalog::refresh_classes`].
    pub fn put_rules(&self, rules: &Rules, all: bool) -> Result<()> {
        let (classes, pools) = (self.classes()?, self.pools()?);
        self.durable(|tx| {
            for p in rules.pools.iter().filter(|p| all || !pools.iter().any(|have| have.name == p.name)) {
                pool::put(tx, p)?;
            }
            for c in rules.classes.iter().filter(|c| all || !classes.iter().any(|have| have.name == c.name)) {
                class::put(tx, c)?;
            }
            Ok(())
        })
    }
}
