//! A process that may have few files open serves objects without end.

mod common;

use common::{Served, capability, create, key, read, write};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of this process: far fewer than twice the objects that are written.
const LIMIT: u64 = 400;

#[test]
fn more_objects_are_written_than_files_may_be_open() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let served = dirs.each_ref().map(|dir| Served::new(dir.path()));
    let channels = served.each_ref().map(|served| served.channel(1, 1));
    let capability = capability(1);
    let slots = channels.each_ref().map(|channel| channel.attach(&capability, key(&capability)).unwrap());
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: before.maximum }).unwrap();
    for objects in [1..301, 301..601] {
        for (channel, slot) in channels.iter().zip(&slots) {
            create(channel, slot, objects.clone());
            for object in objects.clone() {
                write(channel, slot, object, 0, &object.to_le_bytes());
            }
        }
    }
    // What else the process has open takes the rest: then those that nobody uses are closed before their time.
    let mut others = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        others.push(file);
    }
    drop(others.split_off(others.len() - 4));
    for object in 1..601 {
        for (channel, slot) in channels.iter().zip(&slots) {
            assert_eq!(read(channel, slot, object, 0, 100), object.to_le_bytes(), "object {object}");
        }
    }
    drop(others);
    setrlimit(Resource::Nofile, before).unwrap();
    drop(channels);
    served.into_iter().for_each(Served::stop);
}
