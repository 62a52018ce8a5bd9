//! Where a cluster is, as the configuration says it.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use crate::{KvError, Result};

/// Longest name of an engine in a cluster (bytes): with it a key stays far below the 4 KiB that TiKV takes by default.
const LONGEST_NAME: usize = 64;
/// How long what was changed or removed is kept, unless the address says something else.
const KEEP: Duration = Duration::from_secs(24 * 3600);
/// The shortest time for which it can be kept: readings that are not older do not ask whether it is.
const SHORTEST_KEEP: Duration = Duration::from_secs(600);

/// `tikv://HOST:PORT,HOST:PORT/NAME?ca=FILE&cert=FILE&key=FILE&keep=TIME`: the placement drivers of a cluster, and which of the engines in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) drivers: Vec<String>,
    pub(super) name: String,
    /// Certificates of the authority, our own certificate, its key: then all is over TLS.
    pub(super) tls: Option<[PathBuf; 3]>,
    /// After this long the cluster may forget what was changed or removed; `None`: somebody else tells it.
    pub(super) keep: Option<Duration>,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self> {
        Self::read(text).map_err(|problem| KvError::Address {
            detail: format!("{problem}; write tikv://HOST:PORT,HOST:PORT/NAME"),
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("tikv://").ok_or("an address begins with tikv://")?;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, name) = base.split_once('/').ok_or("it names no engine")?;
        let drivers: Vec<String> = hosts.split(',').map(String::from).collect();
        let host = |text: &String| {
            let parts = text.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if let Some(bad) = drivers.iter().find(|driver| !host(driver)) {
            return Err(format!("{bad:?} is not HOST:PORT of a placement driver"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
            return Err(format!(
                "the name {name:?} must have 1 to {LONGEST_NAME} letters, digits, `-` and `_`"
            ));
        }
        let (mut files, mut keep) = ([None, None, None], Some(KEEP));
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("ca", file)) => files[0] = Some(readable(file)?),
                Some(("cert", file)) => files[1] = Some(readable(file)?),
                Some(("key", file)) => files[2] = Some(readable(file)?),
                Some(("keep", time)) => keep = read_keep(time)?,
                _ => return Err(format!("{pair}: settings are ca=FILE, cert=FILE, key=FILE and keep=TIME")),
            }
        }
        let tls = match files {
            [None, None, None] => None,
            [Some(ca), Some(cert), Some(key)] => Some([ca, cert, key]),
            _ => return Err("TLS needs all of ca=FILE, cert=FILE and key=FILE".into()),
        };
        Ok(Self { drivers, name: name.into(), tls, keep })
    }
}

/// A file that can be read now: what TLS says later of one that cannot is less clear.
fn readable(file: &str) -> Result<PathBuf, String> {
    File::open(file).map_err(|e| format!("{file} cannot be read: {e}"))?;
    Ok(file.into())
}

fn read_keep(text: &str) -> Result<Option<Duration>, String> {
    let units = [("m", 60), ("h", 3600), ("d", 24 * 3600)];
    let time = units.iter().find_map(|(unit, seconds)| {
        let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_secs(u64::from(number) * seconds))
    });
    match time {
        _ if text == "no" => Ok(None),
        Some(time) if time >= SHORTEST_KEEP => Ok(Some(time)),
        _ => Err(format!(
            "keep={text}: write a time of at least 10m (m, h or d), or `no` where something else collects old versions"
        )),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tikv://{}/{}", self.drivers.join(","), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_what_is_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pem");
        std::fs::write(&file, "").unwrap();
        let file = file.display();
        let a = format!("tikv://a:1,[::1]:2379/thermo-1?ca={file}&cert={file}&key={file}&keep=90m");
        let a = Address::parse(&a).unwrap();
        assert_eq!(a.drivers, ["a:1", "[::1]:2379"]);
        assert_eq!(a.tls, Some([(); 3].map(|()| file.to_string().into())));
        assert_eq!(a.keep, Some(Duration::from_secs(5400)));
        assert_eq!(a.to_string(), "tikv://a:1,[::1]:2379/thermo-1");
        let plain = Address::parse("tikv://a:1/x").unwrap();
        assert_eq!((plain.tls, plain.keep), (None, Some(KEEP)));
        assert_eq!(Address::parse("tikv://a:1/x?keep=no").unwrap().keep, None);
        for bad in
            ["postgres://a:1/x", "tikv://a:1", "tikv://a/x", "tikv://:1/x", "tikv://a:1/", "tikv://a:1/x/y"]
        {
            assert!(matches!(Address::parse(bad), Err(KvError::Address { .. })), "{bad}");
        }
        assert!(Address::parse(&format!("tikv://a:1/x?ca={file}")).is_err());
        let missing = Address::parse("tikv://a:1/x?ca=/nonexistent").unwrap_err().to_string();
        assert!(missing.contains("/nonexistent cannot be read"), "{missing}");
        for bad in ["9m", "1", "x", "h", "-1h", ""] {
            assert!(Address::parse(&format!("tikv://a:1/x?keep={bad}")).is_err(), "{bad}");
        }
        assert!(Address::parse("tikv://a:1/x?cb=/c").is_err());
        assert!(Address::parse(&format!("tikv://a:1/{}", "x".repeat(65))).is_err());
    }
}
