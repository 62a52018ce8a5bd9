//! A cluster on hosts of their own, in network namespaces: a first node and its standby, four movers, one of them with a tape library, two clients. Programs on
//! both clients go on while hosts die and links fail, files go to tape and come back, and every byte is right at the end.

mod faults;
mod hall;
mod load;
mod networks;
mod site;
mod straight;

use faults::ALL;
use load::Load;
use posix::random::{self, Random};
use site::Site;
use std::time::Instant;

/// Each fault once, in an order that follows from `SEED`; with `RANDOM_SECONDS` again and again until so many have passed.
#[test]
fn programs_on_two_clients_go_on_whatever_happens_to_hosts_and_links() {
    let Some(mut site) = Site::new("a cluster in network namespaces") else { return };
    let seed = if std::env::var_os("SEED").is_some() { random::seed("hosts and links") } else { 1 };
    let (length, begun) = (random::seconds(0), Instant::now());
    let mut random = Random::new(seed);
    let mut load = Load::begin(&site);
    let mut faults = ALL.to_vec();
    while !faults.is_empty() {
        faults.swap_remove(random.below(faults.len())).happen(&mut site, &mut load, &mut random);
        if faults.is_empty() && begun.elapsed() < length {
            faults = ALL.to_vec();
        }
    }
    load.end(&site);
    site.certificates_are_good();
    site.check();
}
