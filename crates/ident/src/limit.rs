//! Addresses, and users of this host, that were refused again and again are not listened to for a while.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Refusals that an address has free ...
const FREE: u32 = 10;
/// ... of which it gets one back in this time.
const BACK: Duration = Duration::from_secs(6);
/// Addresses remembered; beyond it those that have all their refusals back are forgotten, and then everybody else's oldest.
const MOST: usize = 4096;

/// Whom an attempt is put down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Whoever is at that address (of IPv6: in its network).
    Address(IpAddr),
    /// A user of this host, by his number.
    User(u32),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self::Address(whose(address))
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(user) => write!(f, "user {user} of this host"),
        }
    }
}

/// Counts refused attempts by origin.
#[derive(Debug, Default)]
pub struct Refusals {
    table: Mutex<HashMap<Origin, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    used: u32,
    since: Instant,
    /// Refusals beyond the free ones since somebody asked for their number.
    untold: u64,
}

/// What comes of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// It is worth a line of its own in the log. Others are counted ([`Refusals::untold`]).
    pub told: bool,
    /// Nobody at that address is listened to for a while.
    pub limited: bool,
}

impl Bucket {
    /// With what came back since.
    fn at(mut self, now: Instant) -> Self {
        let back = now.saturating_duration_since(self.since).as_secs() / BACK.as_secs();
        let back = u32::try_from(back).unwrap_or(u32::MAX).min(self.used);
        self.used -= back;
        self.since += BACK * back;
        if self.used == 0 {
            self.since = now;
        }
        self
    }
}

impl Refusals {
    /// Whether somebody of that origin is listened to.
    pub fn allows(&self, from: impl Into<Origin>, now: Instant) -> bool {
        let table = self.table.lock();
        table.get(&from.into()).is_none_or(|bucket| bucket.at(now).used < FREE)
    }

    /// Somebody there was refused. True if that was the last that he had free: worth a line in the log.
    pub fn refused(&self, from: impl Into<Origin>, now: Instant) -> bool {
        self.note(from, now).limited
    }

    /// The same, for a log that says no more of an address than how many refusals are free.
    pub fn note(&self, from: impl Into<Origin>, now: Instant) -> Noted {
        let mut table = self.table.lock();
        if table.len() >= MOST {
            table.retain(|_, bucket| bucket.at(now).used > 0);
        }
        if table.len() >= MOST
            && let Some(oldest) = table.iter().min_by_key(|(_, bucket)| bucket.since).map(|(a, _)| *a)
        {
            table.remove(&oldest);
        }
        let bucket = table.entry(from.into()).or_insert(Bucket { used: 0, since: now, untold: 0 });
        *bucket = bucket.at(now);
        let told = bucket.used < FREE;
        if told {
            bucket.used += 1;
        } else {
            bucket.untold += 1;
        }
        Noted { told, limited: bucket.used == FREE }
    }

    /// Refusals that got no line of their own since this was asked last, by origin. Those of one that was forgotten are lost.
    pub fn untold(&self) -> Vec<(Origin, u64)> {
        let mut table = self.table.lock();
        let some = table.iter_mut().map(|(from, bucket)| (*from, std::mem::take(&mut bucket.untold)));
        some.filter(|(_, untold)| *untold > 0).collect()
    }
}

/// Whoever has one address of IPv6 has the other 2^64 of its network.
fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_often_waits() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let [bad, good]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        for n in 1..=FREE {
            assert!(refusals.allows(bad, start), "{n}");
            assert_eq!(refusals.refused(bad, start), n == FREE);
        }
        assert!(!refusals.allows(bad, start));
        assert!(refusals.allows(good, start));
        assert!(!refusals.allows(bad, start + BACK / 2));
        assert!(refusals.allows(bad, start + BACK));
        refusals.refused(bad, start + BACK);
        assert!(!refusals.allows(bad, start + BACK));
        assert!(refusals.allows(bad, start + BACK * 2));
    }

    #[test]
    fn a_network_counts_as_one() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for n in 0..u128::from(FREE) {
            refusals.refused(IpAddr::V6((0x2001_0db8 << 96 | n).into()), now);
        }
        assert!(!refusals.allows("2001:db8::ffff".parse::<IpAddr>().unwrap(), now));
        assert!(refusals.allows("2001:db8:0:1::1".parse::<IpAddr>().unwrap(), now));
    }

    #[test]
    fn users_count_alone() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let limited = (0..FREE).map(|_| refusals.refused(Origin::User(7), now)).filter(|limited| *limited);
        assert_eq!(limited.count(), 1);
        assert!(!refusals.allows(Origin::User(7), now) && refusals.allows(Origin::User(8), now));
        assert!(refusals.allows(IpAddr::from([0, 0, 0, 7]), now));
    }

    #[test]
    fn of_many_refusals_the_first_are_told_and_the_others_counted() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let bad: IpAddr = "192.0.2.1".parse().unwrap();
        let told = |times: u32, now| (0..times).filter(|_| refusals.note(bad, now).told).count();
        assert_eq!(told(1000, start), FREE as usize);
        assert_eq!(refusals.untold(), [(bad.into(), u64::from(1000 - FREE))]);
        assert_eq!(refusals.untold(), []);
        assert_eq!(told(1000, start + BACK), 1);
        assert_eq!(refusals.untold(), [(bad.into(), 999)]);
    }

    #[test]
    fn memory_is_bounded() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for n in 0..2 * MOST as u32 {
            refusals.refused(IpAddr::V4(n.into()), now);
        }
        assert!(refusals.table.lock().len() <= MOST);
    }
}
