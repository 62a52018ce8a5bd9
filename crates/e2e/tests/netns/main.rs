//! A cluster on hosts of their own, in network namespaces: a first node and its standby, four movers, two clients. Programs on both clients go on while
//! hosts die and links fail, and every byte is right at the end.

mod load;
mod site;

use load::Load;
use site::Site;

#[test]
fn programs_on_two_clients_go_on_while_movers_die() {
    let Some(site) = Site::new("a cluster in network namespaces") else { return };
    let mut load = Load::begin(&site);
    for host in site::MOVERS {
        site.network.kill(host);
        std::thread::sleep(std::time::Duration::from_millis(700));
        site.bed(host).up();
        site.is_whole();
        load.goes_on();
    }
    load.end(&site);
    site.check();
}
