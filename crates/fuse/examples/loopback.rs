//! Mounts a directory over FUSE, to measure this room against the directory itself:
//! `loopback <directory> <mount point> [--no-passthrough] [--threads N]`. Ends when the mount is unmounted.

#[path = "../tests/support/loopback.rs"]
mod loopback;

use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, mountpoint, rest @ ..] = &args[..] else {
        return Err("usage: loopback <directory> <mount point> [--no-passthrough] [--threads N]".into());
    };
    let passthrough = !rest.iter().any(|a| a == "--no-passthrough");
    let mut options = fuse::MountOptions { passthrough, ..fuse::MountOptions::default() };
    if let Some(n) = rest.iter().position(|a| a == "--threads").and_then(|i| rest.get(i + 1)) {
        options.threads = n.parse()?;
    }
    let mount = fuse::mount(loopback::Loopback::new(Path::new(dir)), Path::new(mountpoint), options)?;
    println!("mounted {} (passthrough: {})", mount.mountpoint().display(), mount.passthrough());
    while mount.is_alive() {
        std::thread::sleep(Duration::from_millis(200));
    }
    mount.unmount()?;
    Ok(())
}
