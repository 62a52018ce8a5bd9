//! Whoever is refused: what the log says of him, and when nobody listens to him for a while.

use crate::object::NO_FENCE;
use data::{Capability, Refusal};
use ident::{Origin, Refusals};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Between two lines that tell how many more refusals there were at an address.
const SUM_UP: Duration = Duration::from_secs(60);

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    from: Origin,
    /// On this host, and not known to be one of its users. The node itself and all its users have this address, so nobody is kept out for what one of them does.
    here: bool,
}

impl Peer {
    /// Somebody on this host.
    pub fn here() -> Self {
        let from = IpAddr::from(Ipv4Addr::LOCALHOST).into();
        Self { name: "this host".to_owned(), from, here: true }
    }

    /// Somebody at that address of another host.
    pub fn at(from: SocketAddr) -> Self {
        Self { name: from.to_string(), from: from.ip().into(), here: false }
    }

    /// Whoever has made a connection over TCP.
    pub(super) fn of(stream: &TcpStream, from: SocketAddr) -> Self {
        let address = from.ip().to_canonical();
        let own = stream.local_addr().is_ok_and(|own| own.ip().to_canonical() == address);
        Self { here: own || address.is_loopback(), ..Self::at(from) }
    }

    /// Whoever has made a connection over a socket of this host. The kernel says which user that is, so nobody else is kept out for what he does; root and
    /// the user of this process are trusted as the host is.
    pub(super) fn beside(stream: &UnixStream) -> Self {
        let user = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
        match user {
            Ok(user) if !user.is_root() && user != rustix::process::geteuid() => Self::user(user.as_raw()),
            _ => Self::here(),
        }
    }

    fn user(user: u32) -> Self {
        let from = Origin::User(user);
        Self { name: from.to_string(), from, here: false }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A refusal, and whether whoever gets it may be an attacker. An honest one may get most of them: he has an old capability, or is of another release.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) refusal: Refusal,
    suspect: bool,
}

impl Denial {
    /// No honest client is refused so.
    pub(super) fn suspect(refusal: Refusal) -> Self {
        Self { refusal, suspect: true }
    }

    /// An honest one may be.
    pub(super) fn ordinary(refusal: Refusal) -> Self {
        Self { refusal, suspect: false }
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Capability(why) if why == NO_FENCE => Self::ordinary(refusal),
            Refusal::Signature | Refusal::Capability(_) => Self::suspect(refusal),
            _ => Self::ordinary(refusal),
        }
    }
}

/// Who asks for what, as far as he has said. It may be a lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct What {
    client: Option<u64>,
    user: Option<u32>,
    target: Option<u32>,
    file: Option<u64>,
    object: Option<u64>,
}

impl What {
    pub(super) fn of(self, client: u64) -> Self {
        Self { client: Some(client), ..self }
    }

    pub(super) fn with(self, capability: &Capability) -> Self {
        let Capability { user, target, file, .. } = capability;
        Self { user: Some(*user), target: Some(target.0), file: Some(file.0), ..self }
    }

    pub(super) fn object(self, object: u64) -> Self {
        Self { object: Some(object), ..self }
    }
}

/// Refusals by whom they are put down to.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Of those who may be attackers. Whoever has many is not listened to.
    suspects: Refusals,
    /// Of others: only lines of the log are counted.
    ordinary: Refusals,
    /// When the rest was summed up last.
    summed: Mutex<Option<Instant>>,
}

impl Gate {
    /// Whether somebody is listened to.
    pub(super) fn lets(&self, peer: &Peer, now: Instant) -> bool {
        self.sum_up_at(now);
        peer.here || self.suspects.allows(peer.from, now)
    }

    /// Tells the log of a refusal, and counts it if it is due. False: whoever got it is not listened to any more.
    pub(super) fn refused(&self, peer: &Peer, what: What, denial: &Denial, now: Instant) -> bool {
        let What { client, user, target, file, object } = what;
        let why = &denial.refusal;
        // Whoever waits for a target that is elsewhere asks every second.
        if matches!(why, Refusal::Elsewhere(_)) {
            tracing::debug!(%peer, client, user, target, file, object, "refused: {why}");
            return true;
        }
        self.sum_up_at(now);
        if !denial.suspect {
            if self.ordinary.note(peer.from, now).told {
                tracing::info!(%peer, client, user, target, file, object, "refused: {why}");
            }
            return true;
        }
        let noted = self.suspects.note(peer.from, now);
        let limited = noted.limited && !peer.here;
        if noted.told {
            let then = if limited { "; nobody there is listened to for a while" } else { "" };
            tracing::warn!(%peer, client, user, target, file, object, "refused: {why}{then}");
        }
        !limited
    }

    /// Tells how many refusals had no line of their own, but not more often than in a minute.
    fn sum_up_at(&self, now: Instant) {
        let mut summed = self.summed.lock();
        let since = *summed.get_or_insert(now);
        if now.saturating_duration_since(since) >= SUM_UP {
            *summed = Some(now);
            drop(summed);
            self.sum_up();
        }
    }

    /// Tells how many refusals had no line of their own.
    pub(super) fn sum_up(&self) {
        for (from, count) in self.suspects.untold() {
            tracing::warn!(address = %from, count, "that many more were refused there as those before");
        }
        for (from, count) in self.ordinary.untold() {
            tracing::info!(address = %from, count, "that many more were refused there, as it happens to honest clients");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Peer {
        Peer::at(SocketAddr::new(address.parse().unwrap(), 7))
    }

    /// Refused as often as he is listened to, but not more than this.
    fn refused(gate: &Gate, peer: &Peer, denial: &Denial, most: usize, now: Instant) -> usize {
        let listened = (0..most).take_while(|_| gate.lets(peer, now));
        listened.filter(|_| !gate.refused(peer, What::default(), denial, now)).count()
    }

    #[test]
    fn whoever_may_be_an_attacker_waits_and_is_let_in_again() {
        let (gate, start) = (Gate::default(), Instant::now());
        let (bad, good) = (at("192.0.2.1"), at("192.0.2.2"));
        let suspect = Denial::from(Refusal::Signature);
        assert_eq!(refused(&gate, &bad, &suspect, 1000, start), 1);
        assert!(!gate.lets(&bad, start) && gate.lets(&good, start));
        assert!(!gate.lets(&at("::ffff:192.0.2.1"), start));
        let later = start + Duration::from_secs(6);
        assert!(gate.lets(&bad, later));
        assert_eq!(refused(&gate, &bad, &suspect, 1000, later), 1);
        assert!(!gate.lets(&bad, later) && gate.lets(&bad, later + Duration::from_secs(60)));
    }

    #[test]
    fn a_user_of_this_host_waits_alone() {
        let (gate, now) = (Gate::default(), Instant::now());
        let suspect = Denial::from(Refusal::Signature);
        assert_eq!(refused(&gate, &Peer::user(1000), &suspect, 1000, now), 1);
        assert!(!gate.lets(&Peer::user(1000), now) && gate.lets(&Peer::user(1001), now));
        assert!(gate.lets(&Peer::here(), now) && gate.lets(&at("127.0.0.1"), now));
    }

    #[test]
    fn neither_this_host_nor_what_is_ordinary_is_kept_out() {
        let (gate, now, there) = (Gate::default(), Instant::now(), at("192.0.2.1"));
        assert_eq!(refused(&gate, &Peer::here(), &Refusal::Signature.into(), 1000, now), 0);
        let elsewhere = Refusal::Elsewhere(String::new());
        for refusal in
            [Refusal::Expired, Refusal::Fenced, elsewhere, Refusal::Malformed("of a later release")]
        {
            assert_eq!(refused(&gate, &there, &refusal.into(), 1000, now), 0);
        }
        assert!(gate.lets(&Peer::here(), now) && gate.lets(&there, now));
    }

    #[test]
    fn the_rest_is_summed_up_once_in_a_minute() {
        let (gate, start, peer) = (Gate::default(), Instant::now(), at("192.0.2.1"));
        let expired = Denial::from(Refusal::Expired);
        refused(&gate, &peer, &expired, 1000, start);
        assert!(gate.lets(&peer, start + SUM_UP / 2));
        let summed = *gate.summed.lock();
        assert_eq!(summed, Some(start));
        // Somebody else comes.
        assert!(gate.lets(&at("192.0.2.2"), start + SUM_UP));
        assert_eq!(gate.ordinary.untold(), []);
        refused(&gate, &peer, &expired, 1000, start + SUM_UP);
        assert!(gate.lets(&peer, start + SUM_UP * 3 / 2));
        assert_eq!(gate.ordinary.untold().len(), 1);
    }

    #[test]
    fn whoever_connects_from_an_address_of_this_host_is_here() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, from) = listener.accept().unwrap();
        assert!(Peer::of(&stream, from).here);
        assert!(!Peer::of(&stream, "192.0.2.1:7".parse().unwrap()).here);
        assert!(Peer::of(&stream, "[::ffff:127.0.0.1]:7".parse().unwrap()).here);
    }
}
