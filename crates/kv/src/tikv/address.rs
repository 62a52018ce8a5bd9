//! Where a cluster is, as the configuration says it.

use std::fmt;
use std::path::PathBuf;

use crate::{KvError, Result};

/// Longest name of an engine in a cluster (bytes): with it a key stays far below the 4 KiB that TiKV takes by default.
const LONGEST_NAME: usize = 64;

/// `tikv://HOST:PORT,HOST:PORT/NAME?ca=FILE&cert=FILE&key=FILE`: the placement drivers of a cluster, and which of the engines in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) drivers: Vec<String>,
    pub(super) name: String,
    /// Certificates of the authority, our own certificate, its key: then all is over TLS.
    pub(super) tls: Option<[PathBuf; 3]>,
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
        let mut files = [None, None, None];
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let place = match pair.split_once('=') {
                Some(("ca", file)) => (0, file),
                Some(("cert", file)) => (1, file),
                Some(("key", file)) => (2, file),
                _ => return Err(format!("{pair}: settings are ca=FILE, cert=FILE and key=FILE")),
            };
            files[place.0] = Some(PathBuf::from(place.1));
        }
        let tls = match files {
            [None, None, None] => None,
            [Some(ca), Some(cert), Some(key)] => Some([ca, cert, key]),
            _ => return Err("TLS needs all of ca=FILE, cert=FILE and key=FILE".into()),
        };
        Ok(Self { drivers, name: name.into(), tls })
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
        let a = Address::parse("tikv://a:1,[::1]:2379/thermo-1?ca=/c&cert=/d&key=/e").unwrap();
        assert_eq!(a.drivers, ["a:1", "[::1]:2379"]);
        assert_eq!(a.tls, Some(["/c".into(), "/d".into(), "/e".into()]));
        assert_eq!(a.to_string(), "tikv://a:1,[::1]:2379/thermo-1");
        assert_eq!(Address::parse("tikv://a:1/x").unwrap().tls, None);
        for bad in
            ["postgres://a:1/x", "tikv://a:1", "tikv://a/x", "tikv://:1/x", "tikv://a:1/", "tikv://a:1/x/y"]
        {
            assert!(matches!(Address::parse(bad), Err(KvError::Address { .. })), "{bad}");
        }
        assert!(Address::parse("tikv://a:1/x?ca=/c").is_err());
        assert!(Address::parse("tikv://a:1/x?cb=/c").is_err());
        assert!(Address::parse(&format!("tikv://a:1/{}", "x".repeat(65))).is_err());
    }
}
