//! Devices behind iSCSI (RFC 7143), without the kernel: libiscsi in this process.

mod chap;
mod sys;

use crate::address::IscsiAddress;
use crate::{Data, Reply, Transport, TransportError, opcode};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use sys::{Broken, Names, Session};

/// Limit for connecting and logging in.
const LOGIN: Duration = Duration::from_secs(30);
/// Room for the answer to REPORT LUNS.
const LUNS_BYTES: usize = 4096;

/// A logical unit of an iSCSI target. The session begins with the first command; one that broke begins anew with the
/// next (the target then reports a unit attention), under the same session identifier, so that reservations stay.
pub struct IscsiTransport {
    address: IscsiAddress,
    name: String,
    names: Names,
    session: Option<Session>,
    secrets: PathBuf,
}

impl IscsiTransport {
    /// A way to the logical unit; nothing is connected yet.
    pub fn new(address: IscsiAddress) -> Self {
        let names = Names {
            initiator: initiator_name(),
            portal: address.portal(),
            target: Some(address.target.clone()),
            session: next_session(),
            chap: None,
        };
        Self { name: address.to_string(), address, names, session: None, secrets: chap::file() }
    }

    /// Takes names and secrets for CHAP from this file, not from `THERMO_ISCSI_SECRETS` or `/etc/thermo/iscsi-secrets`.
    pub fn with_secrets(self, secrets: PathBuf) -> Self {
        Self { secrets, ..self }
    }

    fn broken(&self, broken: Broken, limit: Duration) -> TransportError {
        let device = self.name.clone();
        match broken {
            Broken::Unusable(detail) => TransportError::Refused { device, detail },
            Broken::Timeout => TransportError::Timeout { device, seconds: limit.as_secs() },
            Broken::Lost(detail) => TransportError::Lost { device, detail },
        }
    }

    fn session(&mut self) -> Result<Session, TransportError> {
        // A session that ended while nothing was under way is replaced: no command was sent into it.
        if let Some(mut session) = self.session.take()
            && session.look().is_ok()
        {
            return Ok(session);
        }
        let chap = chap::of(&self.secrets, self.names.target.as_deref());
        self.names.chap = chap.map_err(|e| self.broken(Broken::Unusable(e), LOGIN))?;
        Session::open(&self.names, LOGIN).map_err(|e| self.broken(e, LOGIN))
    }
}

impl Transport for IscsiTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        data.must_be_here(&self.name)?;
        let mut session = self.session()?;
        match session.execute(self.address.lun, cdb, data, timeout) {
            Ok(reply) => {
                self.session = Some(session);
                Ok(reply)
            }
            Err(e) => Err(self.broken(e, timeout)),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// All logical units behind a portal (`host[:port]`), or behind one target of it.
///
/// # Errors
/// The portal or a target does not answer.
pub fn find(host: &str, port: u16, target: Option<&str>) -> Result<Vec<IscsiAddress>, TransportError> {
    let mut address = IscsiAddress { host: host.into(), port, target: String::new(), lun: 0 };
    let portal = address.portal();
    let targets = match target {
        Some(target) => vec![target.to_owned()],
        None => {
            let session = next_session();
            let device = format!("iscsi://{portal}");
            let chap =
                chap::of(&chap::file(), None).map_err(|detail| TransportError::Refused { device, detail })?;
            let (initiator, portal) = (initiator_name(), portal.clone());
            let names = Names { initiator, portal, target: None, session, chap };
            let portal = address.portal();
            let found = Session::open(&names, LOGIN).and_then(|mut s| s.targets(LOGIN));
            let device = format!("iscsi://{portal}");
            found.map_err(|e| match e {
                Broken::Unusable(detail) => TransportError::Refused { device, detail },
                Broken::Timeout => TransportError::Timeout { device, seconds: LOGIN.as_secs() },
                Broken::Lost(detail) => TransportError::Lost { device, detail },
            })?
        }
    };
    let mut found = Vec::new();
    for target in targets {
        address.target = target;
        let mut transport = IscsiTransport::new(address.clone());
        let mut raw = vec![0; LUNS_BYTES];
        let mut cdb = [0u8; 12];
        cdb[0] = opcode::REPORT_LUNS;
        cdb[6..10].copy_from_slice(&(LUNS_BYTES as u32).to_be_bytes());
        let reply = transport.execute(&cdb, Data::In(&mut raw), LOGIN)?;
        if reply.status != crate::GOOD {
            let detail = format!("REPORT LUNS ended with status {:02X}h", reply.status);
            return Err(TransportError::Lost { device: transport.name, detail });
        }
        let luns = decode_luns(&raw[..reply.transferred.min(raw.len())]);
        found.extend(luns.into_iter().map(|lun| IscsiAddress { lun, ..address.clone() }));
    }
    Ok(found)
}

/// Numbers in REPORT LUNS data (SPC-4 section 6.33) of the peripheral and flat kinds; others cannot be addressed.
fn decode_luns(raw: &[u8]) -> Vec<u16> {
    let Some((head, rest)) = raw.split_at_checked(8) else { return Vec::new() };
    let bytes = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let entries = rest[..bytes.min(rest.len())].chunks_exact(8);
    entries
        .filter_map(|lun| match (lun[0] >> 6, lun[2..].iter().all(|b| *b == 0)) {
            (0 | 1, true) => Some(u16::from_be_bytes([lun[0] & 0x3F, lun[1]])),
            _ => None,
        })
        .collect()
}

/// The name that the machine's administrator gave it, else one made of its host name.
fn initiator_name() -> String {
    let file = std::fs::read_to_string("/etc/iscsi/initiatorname.iscsi").unwrap_or_default();
    let named = file.lines().find_map(|l| l.trim().strip_prefix("InitiatorName="));
    if let Some(name) = named.map(str::trim).filter(|n| !n.is_empty()) {
        return name.to_owned();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    format!("iqn.2026-01.invalid.thermocline:{}", if host.is_empty() { "host" } else { &host })
}

/// A session identifier that no other session of this machine's initiator has: process and number within it.
fn next_session() -> (u32, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_numbers_of_both_kinds_are_read_and_nonsense_is_not() {
        let raw = |luns: &[[u8; 8]]| {
            let head = (8 * luns.len() as u32).to_be_bytes();
            [&head[..], &[0; 4], luns.concat().as_slice()].concat()
        };
        let luns = raw(&[
            [0; 8],
            [0, 3, 0, 0, 0, 0, 0, 0],
            [0x41, 2, 0, 0, 0, 0, 0, 0],
            [0xC1, 1, 0, 0, 0, 0, 0, 0],
        ]);
        assert_eq!(decode_luns(&luns), [0, 3, 0x102]);
        assert_eq!(decode_luns(&luns[..20]), [0], "a list that was cut");
        assert_eq!(decode_luns(&[0xFF; 12]), [] as [u16; 0]);
        assert_eq!(decode_luns(&[0; 3]), [] as [u16; 0]);
    }

    #[test]
    fn a_portal_that_nobody_serves_is_a_lost_device() {
        // Bound, not listening: nobody else can take the port meanwhile.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = IscsiAddress { host: "127.0.0.1".into(), port, target: "iqn.a:b".into(), lun: 1 };
        let mut transport = IscsiTransport::new(address);
        for _ in 0..2 {
            let error = transport.execute(&[0; 6], Data::None, Duration::from_secs(5)).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, TransportError::Lost { .. }), "{text}");
            assert!(text.starts_with(&format!("iscsi://127.0.0.1:{port}/iqn.a:b/1: ")), "{text}");
        }
    }

    #[test]
    fn a_portal_that_never_answers_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = listener.local_addr().unwrap().to_string();
        let names =
            Names { initiator: initiator_name(), portal, target: None, session: next_session(), chap: None };
        let opened = Session::open(&names, Duration::from_millis(300));
        assert!(matches!(opened.err(), Some(Broken::Timeout)));
    }
}
