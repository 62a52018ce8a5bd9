//! Where a server is, as the configuration says it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How many connections an engine uses for changes, and as many again for readers, unless its address says otherwise.
const CONNECTIONS: usize = 24;

/// Where certificates are, for a server reached over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Certificates of the authorities that are believed; by default those of the system.
    pub(super) roots: Option<PathBuf>,
    /// Our own certificate and key, if the server wants one.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

/// A server's address. Shown without its password.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Option<TlsFiles>,
    pub(super) connections: usize,
    /// Whether relaxed changes may be acknowledged before they are durable.
    pub(super) relaxed: bool,
    shown: String,
}

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?SETTING=VALUE&...`; the reason if it is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        if !base.starts_with("postgres://") && !base.starts_with("postgresql://") {
            return Err("an address begins with postgres://".into());
        }
        let mut rest = Vec::new();
        let mut own = Own::default();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("{pair}: a setting is NAME=VALUE"))?;
            if !own.take(name, value)? {
                rest.push(pair);
            }
        }
        let mut config: Config =
            format!("{base}?{}", rest.join("&")).parse().map_err(|e: tokio_postgres::Error| reason(&e))?;
        if let Some(path) = &own.password {
            let text =
                std::fs::read_to_string(path).map_err(|e| format!("passwordfile {}: {e}", path.display()))?;
            config.password(text.trim_end_matches(['\r', '\n']));
        }
        if config.get_hosts().is_empty() {
            return Err("it names no host".into());
        }
        let tls = own.tls()?;
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        config.connect_timeout(Duration::from_secs(5)).tcp_user_timeout(Duration::from_secs(20));
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(3))
            .keepalives_retries(3);
        // A replica may not yet have what was acknowledged, and nothing may be read that is so old.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("thermo");
        let shown = shown(&config);
        Ok(Self {
            config,
            tls,
            connections: own.connections.unwrap_or(CONNECTIONS),
            relaxed: !own.strict,
            shown,
        })
    }
}

/// The settings that are not the client library's.
#[derive(Default)]
struct Own {
    encrypted: bool,
    roots: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    password: Option<PathBuf>,
    connections: Option<usize>,
    strict: bool,
}

impl Own {
    /// Whether the setting is one of ours.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "sslmode" => match value {
                "disable" => {}
                "require" | "verify-ca" | "verify-full" => self.encrypted = true,
                _ => {
                    return Err(format!(
                        "sslmode={value}: say disable, or require (which verifies the server's certificate)"
                    ));
                }
            },
            "sslrootcert" => self.roots = Some(value.into()),
            "sslcert" => self.cert = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "passwordfile" => self.password = Some(value.into()),
            "connections" => match value.parse() {
                Ok(n @ 1..=1000) => self.connections = Some(n),
                _ => return Err(format!("connections={value}: say a number from 1 to 1000")),
            },
            "relaxed" => match value {
                "yes" => self.strict = false,
                "no" => self.strict = true,
                _ => return Err(format!("relaxed={value}: say yes or no")),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tls(&mut self) -> Result<Option<TlsFiles>, String> {
        let own = match (self.cert.take(), self.key.take()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("sslcert and sslkey belong together".into()),
        };
        let roots = self.roots.take();
        if !self.encrypted && (roots.is_some() || own.is_some()) {
            return Err("certificates are named, but sslmode=require is missing".into());
        }
        Ok(self.encrypted.then_some(TlsFiles { roots, own }))
    }
}

fn reason(e: &tokio_postgres::Error) -> String {
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(n, host)| {
            let port = ports.get(n).or(ports.first()).map_or(String::new(), |p| format!(":{p}"));
            match host {
                Host::Tcp(name) => format!("{name}{port}"),
                Host::Unix(path) => format!("{}{port}", path.display()),
            }
        })
        .collect();
    let user = config.get_user().map_or(String::new(), |u| format!("{u}@"));
    format!(
        "postgres://{user}{}/{}",
        hosts.join(","),
        config.get_dbname().or(config.get_user()).unwrap_or_default()
    )
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let a = Address::parse(
            "postgres://me:secret@db.example:5433/thermo?connections=3&sslmode=require&sslrootcert=/ca",
        )
        .unwrap();
        assert_eq!(a.to_string(), "postgres://me@db.example:5433/thermo");
        assert_eq!(a.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!((a.connections, a.tls), (3, Some(TlsFiles { roots: Some("/ca".into()), own: None })));
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_the_password() {
        for (bad, why) in [
            ("mysql://me:secret@x/y", "postgres://"),
            ("postgres://me:secret@x/y?sslmode=prefer", "verifies"),
            ("postgres://me:secret@x/y?sslcert=/c", "belong together"),
            ("postgres://me:secret@x/y?sslrootcert=/c", "sslmode=require"),
            ("postgres://me:secret@x/y?connections=0", "1 to 1000"),
            ("postgres://me:secret@x/y?nonsense=1", "nonsense"),
            ("postgres://me:secret@x:port/y", "port"),
        ] {
            let e = Address::parse(bad).err().expect(bad);
            assert!(e.contains(why) && !e.contains("secret"), "{bad}: {e}");
        }
    }
}
