//! How often cleaning cartridges were used, and which are used up: a small text file in the state directory. Only what the
//! operator is told depends on it; a cartridge that is used up says so itself when it is put into a drive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use types::Barcode;

const FILE: &str = "cleaning";
const HEAD: &str = "thermocline cleaning cartridges 1";

/// A cleaning cartridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaner {
    /// Times that it cleaned a drive.
    pub uses: u64,
    /// A drive has said that it is used up.
    pub used_up: bool,
}

/// Cleaning cartridges that were used.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaners(pub BTreeMap<Barcode, Cleaner>);

impl Cleaners {
    /// What earlier runs have counted.
    pub fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Self::default(),
            Err(e) => {
                tracing::warn!("{}: {e}; uses of cleaning cartridges are counted anew", path.display());
                return Self::default();
            }
        };
        Self::parse(&text).unwrap_or_else(|| {
            tracing::warn!("{} is damaged; uses of cleaning cartridges are counted anew", path.display());
            Self::default()
        })
    }

    /// Keeps it. A failure costs the count only.
    pub fn keep(&self, state_dir: &Path) {
        if let Err(e) = self.replace(state_dir) {
            tracing::warn!("uses of cleaning cartridges are not kept: {}: {e}", state_dir.display());
        }
    }

    fn replace(&self, state_dir: &Path) -> io::Result<()> {
        let new = state_dir.join(format!("{FILE}.new"));
        let mut file = File::create(&new)?;
        file.write_all(self.format().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, state_dir.join(FILE))?;
        File::open(state_dir)?.sync_all()
    }

    fn format(&self) -> String {
        let line = |(barcode, c): (&Barcode, &Cleaner)| {
            format!("{barcode} {} {}\n", c.uses, if c.used_up { "used-up" } else { "good" })
        };
        format!("{HEAD}\n") + &self.0.iter().map(line).collect::<String>()
    }

    fn parse(text: &str) -> Option<Self> {
        let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.lines();
        let cleaner = |line: &str| {
            // From its end: a barcode may have blanks.
            let (line, state) = line.rsplit_once(' ')?;
            let (barcode, uses) = line.rsplit_once(' ')?;
            let (barcode, uses) = (Barcode::from(barcode), uses.parse().ok()?);
            let used_up = match state {
                "good" => false,
                "used-up" => true,
                _ => return None,
            };
            Some((barcode, Cleaner { uses, used_up }))
        };
        lines.map(cleaner).collect::<Option<BTreeMap<_, _>>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_known_after_a_restart_and_damage_is_left_aside() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Cleaners::load(dir.path()), Cleaners::default());
        let mut known = Cleaners::default();
        known.0.insert(Barcode::from("CLN001L9"), Cleaner { uses: 7, used_up: false });
        known.0.insert(Barcode::from("CLN002L9"), Cleaner { uses: 50, used_up: true });
        known.0.insert(Barcode::from("CLN 3 L9"), Cleaner { uses: 1, used_up: false });
        known.keep(dir.path());
        assert_eq!(Cleaners::load(dir.path()), known);
        for damaged in
            ["", "something else\n", &format!("{HEAD}\nCLN001L9 x good\n"), &format!("{HEAD}\nCLN001L9 7\n")]
        {
            fs::write(dir.path().join(FILE), damaged).unwrap();
            assert_eq!(Cleaners::load(dir.path()), Cleaners::default(), "{damaged:?}");
        }
    }
}
