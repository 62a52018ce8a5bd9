//! What a cartridge has besides its medium and its chip: capacity, write-protect tab, history. One small text file
//! beside the cartridge's directory, `<barcode>.cartridge`.

use crate::durable;
use crate::error::{Result, damaged, io};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const HEAD: &str = "thermocline virtual cartridge 1";

/// Content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Serial number of the medium.
    pub(crate) serial: String,
    /// Capacity of the medium (bytes).
    pub(crate) capacity: u64,
    /// Capacity of each partition (bytes).
    pub(crate) partitions: Vec<u64>,
    /// The write-protect tab is set.
    pub(crate) protected: bool,
    /// Write once, read many: nothing on it can be overwritten.
    pub(crate) worm: bool,
    /// A cleaning cartridge, good for so many more uses.
    pub(crate) cleaning: Option<u64>,
    /// Times loaded.
    pub(crate) loads: u64,
    /// Bytes written in its life.
    pub(crate) written: u64,
    /// Bytes read in its life.
    pub(crate) read: u64,
}

impl Meta {
    /// A new cartridge with one partition.
    pub(crate) fn new(serial: String, capacity: u64) -> Self {
        let partitions = vec![capacity];
        Self {
            serial,
            capacity,
            partitions,
            protected: false,
            worm: false,
            cleaning: None,
            loads: 0,
            written: 0,
            read: 0,
        }
    }

    /// Where the file is for the cartridge directory `dir`.
    pub(crate) fn path(dir: &Path) -> PathBuf {
        let mut name = dir.as_os_str().to_owned();
        name.push(".cartridge");
        name.into()
    }

    /// Reads the file of the cartridge in `dir`.
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        let path = Self::path(dir);
        let text = std::fs::read_to_string(&path).map_err(io(&path, "read"))?;
        Self::parse(&text).ok_or_else(|| damaged(path, "is not the description of a virtual cartridge"))
    }

    /// Writes it durably.
    pub(crate) fn store(&self, dir: &Path) -> Result<()> {
        durable::replace(&Self::path(dir), self.format().as_bytes())
    }

    fn format(&self) -> String {
        let mut text = format!("{HEAD}\nserial {}\ncapacity {}\n", self.serial, self.capacity);
        for size in &self.partitions {
            let _ = writeln!(text, "partition {size}");
        }
        let _ = writeln!(text, "protected {}", u8::from(self.protected));
        if self.worm {
            text.push_str("worm 1\n");
        }
        if let Some(uses) = self.cleaning {
            let _ = writeln!(text, "cleaning {uses}");
        }
        let _ = writeln!(text, "loads {}\nwritten {}\nread {}", self.loads, self.written, self.read);
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut partitions = Vec::new();
        let mut values = BTreeMap::new();
        for line in lines {
            let (key, value) = line.split_once(' ')?;
            match key {
                "partition" => partitions.push(value.parse().ok()?),
                _ => _ = values.insert(key, value),
            }
        }
        let number = |key| values.get(key)?.parse::<u64>().ok();
        if partitions.is_empty() || partitions.len() > 2 {
            return None;
        }
        Some(Self {
            serial: values.get("serial")?.to_string(),
            capacity: number("capacity")?,
            partitions,
            protected: number("protected")? != 0,
            worm: values.get("worm").is_some_and(|v| *v == "1"),
            cleaning: number("cleaning"),
            loads: number("loads")?,
            written: number("written")?,
            read: number("read")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_a_round_trip_and_refuses_others() {
        let mut meta = Meta::new("0001".into(), 5 << 30);
        meta.partitions = vec![1 << 30, 5 << 30];
        meta.protected = true;
        assert_eq!(Meta::parse(&meta.format()), Some(meta.clone()));
        meta.worm = true;
        meta.cleaning = Some(3);
        meta.loads = 7;
        assert_eq!(Meta::parse(&meta.format()), Some(meta.clone()));
        assert_eq!(Meta::parse(&meta.format().replace("cartridge 1", "cartridge 2")), None);
        assert_eq!(Meta::parse(&meta.format().replace("loads 7\n", "")), None);
        assert_eq!(Meta::parse(""), None);
    }
}
