//! Mounts an empty file system with the same session loop as a node: the floor of what any file system can cost through
//! FUSE on this machine.

mod empty;

use std::path::Path;
use std::time::Duration;

const HELP: &str = "\
usage: floor <directory> <mount point> [--threads N] [--no-passthrough]

Mounts a file system that answers everything from memory, to see what FUSE alone costs here. Names and attributes are
kept; contents are a few files without a name in <directory>, shared by all (enough for measuring, useless for data).
Prints `mounted <mount point>` when it is ready and ends when it is unmounted (`umount <mount point>`). Needs root.

  cargo build --release -p fuse --example floor
  target/release/examples/floor /var/tmp /mnt &
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let [dir, mountpoint, rest @ ..] = &args[..] else { return Err(HELP.into()) };
    let passthrough = !rest.iter().any(|a| a == "--no-passthrough");
    let mut options = fuse::MountOptions { passthrough, ..fuse::MountOptions::default() };
    if let Some(n) = rest.iter().position(|a| a == "--threads").and_then(|i| rest.get(i + 1)) {
        options.threads = n.parse()?;
    }
    let mount = fuse::mount(empty::Empty::new(Path::new(dir))?, Path::new(mountpoint), options)?;
    println!("mounted {} (passthrough: {})", mount.mountpoint().display(), mount.passthrough());
    while mount.is_alive() {
        std::thread::sleep(Duration::from_millis(200));
    }
    mount.unmount()?;
    Ok(())
}
