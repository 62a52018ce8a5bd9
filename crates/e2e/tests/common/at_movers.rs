//! Bytes of files on targets as a client moves them, who does not ask the node any more.

use data::{Capability, CapabilityKey, Channel, Link, Terms};
use layout::{Component, Layout, Redundancy};
use std::sync::Arc;
use std::time::Duration;
use stripe::{Column, Striped};
use wire::{ColumnAccess, FileLayout};

/// The columns of a file as whoever has a right to write there reaches them.
pub fn at_movers(found: &FileLayout) -> Striped {
    let column = |access: &ColumnAccess| {
        let capability = Capability::decode(access.capability.as_slice().try_into().unwrap()).unwrap();
        let addresses = access.data.clone();
        let terms = Terms {
            mover: "of a test".into(),
            client: capability.client,
            channel: 1,
            cluster: capability.cluster,
            patience: Duration::from_secs(10),
            window_bytes: 1 << 20,
        };
        let channel = Arc::new(
            Channel::open(Box::new(move || Link::dial(&addresses, |socket| socket)), terms).unwrap(),
        );
        let slot = channel.attach(&capability, CapabilityKey::from_secret(access.key.0)).unwrap();
        Column { channel, slot, target: access.target }
    };
    let [part] = &found.parts[..] else { panic!("{} parts", found.parts.len()) };
    let component = Component {
        range: 0..part.end,
        unit_bytes: part.unit_bytes,
        redundancy: Redundancy::None,
        base: part.object,
        targets: part.columns.iter().map(|column| column.target).collect(),
    };
    let layout = Layout { generation: 1, components: vec![component] };
    Striped::open(layout, vec![part.columns.iter().map(column).collect()]).unwrap()
}
