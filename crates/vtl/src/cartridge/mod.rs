//! A cartridge: a directory in the layout of the LTFS reference implementation's file back end.
//!
//! `<P>_<B>_E` moves only when everything before it is on stable storage, so it is the line between what survives and
//! what was only in the drive's buffer: opening a cartridge removes whatever lies behind it. Downside: after a kill the
//! records since the last flush are gone even where the host still had them; that is what a drive without power does.

mod index;
mod mam;
mod meta;
mod open;
pub(crate) mod seal;
mod stock;
mod sync;

pub(crate) use mam::Moved;
pub(crate) use meta::Meta;
pub(crate) use stock::Stock;

use crate::fault::{Faults, HostOp};
use index::Index;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use scsi::Attribute;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sync::Unsynced;
use types::Generation;

/// A cartridge that is in use by a drive.
pub(crate) struct Cartridge {
    generation: Option<Generation>,
    pub(crate) barcode: String,
    pub(crate) meta: Meta,
    dir: PathBuf,
    fd: OwnedFd,
    partitions: Vec<Partition>,
    attributes: BTreeMap<(u8, u16), Attribute>,
    unsynced: Unsynced,
    faults: Arc<Faults>,
    pub(crate) stock: Arc<Stock>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Partition {
    index: Index,
    /// Where `<P>_<B>_E` is.
    flushed: u64,
    /// Objects that are encrypted records.
    sealed: BTreeSet<u64>,
}

impl Partition {
    /// Name of the file of an object.
    fn name(&self, partition: u8, block: u64) -> String {
        match self.index.length(block) {
            Some(0) => mark_name(partition, block),
            _ if self.sealed.contains(&block) => sealed_name(partition, block),
            _ => record_name(partition, block),
        }
    }
}

/// What stands in the way of reading a record.
pub(crate) enum Unread {
    /// The host.
    Host(io::Error),
    /// It is encrypted, and there is no key, or another.
    Sealed,
    /// The key is another, or the record was changed.
    WrongKey,
}

impl From<io::Error> for Unread {
    fn from(e: io::Error) -> Self {
        Self::Host(e)
    }
}

fn record_name(partition: u8, block: u64) -> String {
    format!("{partition}_{block}_R")
}

fn sealed_name(partition: u8, block: u64) -> String {
    format!("{partition}_{block}_X")
}

fn mark_name(partition: u8, block: u64) -> String {
    format!("{partition}_{block}_F")
}

fn end_name(partition: u8, block: u64) -> String {
    format!("{partition}_{block}_E")
}

impl Cartridge {
    /// Directory of the cartridge.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Number of partitions, 1 or 2.
    pub(crate) fn partitions(&self) -> u8 {
        self.partitions.len() as u8
    }

    /// Generation of the medium, by its barcode.
    pub(crate) fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Whether the medium can have two partitions: LTO media of the first four generations and WORM media cannot.
    pub(crate) fn takes_partitions(&self) -> bool {
        !self.meta.worm && self.generation().is_none_or(|medium| medium >= Generation::Lto5)
    }

    /// Objects of a partition (must exist).
    pub(crate) fn index(&self, partition: u8) -> &Index {
        &self.partitions[usize::from(partition)].index
    }

    /// Capacity of a partition (bytes; must exist).
    pub(crate) fn capacity(&self, partition: u8) -> u64 {
        self.meta.partitions.get(usize::from(partition)).copied().unwrap_or(0)
    }

    /// Fails if a fault is injected for this.
    fn host(&self, op: HostOp) -> io::Result<()> {
        self.faults
            .host_error(&self.barcode, op)
            .map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Makes the names of the cartridge's files durable.
    fn sync_names(&self) -> io::Result<()> {
        self.host(HostOp::SyncNames)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// True when something is written that a power failure would take.
    pub(crate) fn dirty(&self) -> bool {
        self.partitions.iter().any(|p| p.flushed != p.index.end())
    }

    /// Writes a record (1 byte to 4 MiB) at `at`, removing what lies behind. On an error the partition ends at `at`.
    pub(crate) fn write_record(
        &mut self,
        partition: u8,
        at: u64,
        record: &[u8],
        key: Option<&seal::Key>,
    ) -> io::Result<()> {
        self.truncate(partition, at)?;
        let length = record.len() as u32;
        let sealed = key.map(|key| seal::seal(key, partition, at, record)).transpose()?;
        let name = match &sealed {
            Some(_) => sealed_name(partition, at),
            None => record_name(partition, at),
        };
        let record = sealed.as_deref().unwrap_or(record);
        let mut file = match self.stock.take(record.len() as u64, &self.fd, &name)? {
            Some(file) => file,
            None => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                File::from(openat(&self.fd, &name, flags, Mode::from_raw_mode(0o644))?)
            }
        };
        let written = match self.host(HostOp::Write) {
            Ok(()) => file.write_all(record),
            Err(e) => file.write_all(&record[..record.len() / 2]).and(Err(e)),
        };
        if let Err(e) = written {
            drop(file);
            unlinkat(&self.fd, &name, AtFlags::empty())?;
            return Err(e);
        }
        self.unsynced.add(file);
        let p = &mut self.partitions[usize::from(partition)];
        p.index.push(length);
        if sealed.is_some() {
            p.sealed.insert(at);
        }
        Ok(())
    }

    /// Writes a filemark at `at`, removing what lies behind.
    pub(crate) fn write_mark(&mut self, partition: u8, at: u64) -> io::Result<()> {
        self.truncate(partition, at)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&self.fd, mark_name(partition, at), flags, Mode::from_raw_mode(0o644))?;
        self.partitions[usize::from(partition)].index.push(0);
        Ok(())
    }

    /// Makes `at` the end of data. Durable before anything can be written there, so that old and new objects never mix.
    pub(crate) fn truncate(&mut self, partition: u8, at: u64) -> io::Result<()> {
        let p = &mut self.partitions[usize::from(partition)];
        if at >= p.index.end() {
            return Ok(());
        }
        if at < p.flushed {
            renameat(&self.fd, end_name(partition, p.flushed), &self.fd, end_name(partition, at))?;
            p.flushed = at;
            self.sync_names()?;
        }
        let p = &mut self.partitions[usize::from(partition)];
        while p.index.end() > at {
            let last = p.index.end() - 1;
            match unlinkat(&self.fd, p.name(partition, last), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {
                    p.index.truncate(last);
                    p.sealed.remove(&last);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// True for an encrypted record.
    pub(crate) fn sealed(&self, partition: u8, at: u64) -> bool {
        self.partitions[usize::from(partition)].sealed.contains(&at)
    }

    fn file(&self, partition: u8, at: u64) -> io::Result<File> {
        self.host(HostOp::Read)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name = self.partitions[usize::from(partition)].name(partition, at);
        Ok(File::from(openat(&self.fd, name, flags, Mode::empty()).map_err(io::Error::from)?))
    }

    /// Reads the record at `at` into `buf` (as much as fits); returns the bytes read.
    pub(crate) fn read_record(
        &self,
        partition: u8,
        at: u64,
        buf: &mut [u8],
        key: Option<&seal::Key>,
    ) -> Result<usize, Unread> {
        let want = buf.len().min(self.index(partition).length(at).unwrap_or(0) as usize);
        let mut file = self.file(partition, at)?;
        if !self.sealed(partition, at) {
            file.read_exact(&mut buf[..want])?;
            return Ok(want);
        }
        let key = key.ok_or(Unread::Sealed)?;
        let mut raw = Vec::new();
        file.read_to_end(&mut raw)?;
        let record = seal::open(key, partition, at, &raw).ok_or(Unread::WrongKey)?;
        let plain = record.get(..want).ok_or(Unread::WrongKey)?;
        buf[..want].copy_from_slice(plain);
        Ok(want)
    }

    /// Key-associated data of an encrypted record; None for all else.
    pub(crate) fn kad(&self, partition: u8, at: u64) -> io::Result<Option<seal::Kad>> {
        if !self.sealed(partition, at) {
            return Ok(None);
        }
        let mut head = vec![0; seal::OVERHEAD as usize];
        self.file(partition, at)?.read_exact(&mut head)?;
        Ok(seal::kad(&head))
    }

    /// Forgets all data and makes partitions of these capacities (one or two).
    pub(crate) fn format(&mut self, capacities: Vec<u64>) -> io::Result<()> {
        for partition in 0..self.partitions() {
            self.truncate(partition, 0)?;
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        match (self.partitions.len(), capacities.len()) {
            (2, 1) => unlinkat(&self.fd, end_name(1, 0), AtFlags::empty())?,
            (1, 2) => drop(openat(&self.fd, end_name(1, 0), flags, Mode::from_raw_mode(0o644))?),
            _ => {}
        }
        self.partitions = vec![Partition::default(); capacities.len()];
        self.meta.partitions = capacities;
        self.sync_names()?;
        self.meta.store(&self.dir).map_err(io::Error::other)
    }
}
