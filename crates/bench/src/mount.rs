//! Work through the mount, against the same calls in directories of the file systems below, by turns.

mod create;
mod data;
mod list;

use crate::sides::Sides;
use crate::{Comparison, Group, MountFn, Plan};
use anyhow::{Result, ensure};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Measures one of the groups of the mount; gives nothing, and says why, if this user cannot mount.
pub fn measure(
    plan: &Plan,
    group: Group,
    mount: MountFn<'_>,
    told: &dyn Fn(&str),
) -> Result<Vec<Comparison>> {
    let each = match group {
        Group::Data => data::bytes(plan),
        Group::Create => create::bytes(plan),
        _ => list::bytes(plan),
    };
    let Some(sides) = Sides::set_up(plan, each, mount, told)? else { return Ok(Vec::new()) };
    match group {
        Group::Data => data::measure(plan, &sides, told),
        Group::Create => create::measure(plan, &sides, told),
        _ => list::measure(plan, &sides, told),
    }
}

/// Room that a small file takes below (bytes).
const SMALL: u64 = 4096 + 1024;

fn name(n: u64) -> String {
    format!("file-{n:07}")
}

/// Makes small files in an existing directory.
fn populate(dir: &Path, files: u64) -> Result<()> {
    for n in 0..files {
        let written = File::create(dir.join(name(n)))?.write(b"small files are small")?;
        ensure!(written == 21, "a short write");
    }
    Ok(())
}
