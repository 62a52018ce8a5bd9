//! `thermo volume export` and `thermo volume import`: cartridges that go to another site, and come from one.

use crate::context::Context;
use crate::exit::{Exit, not_found, usage};
use crate::progress::begun;
use anyhow::{Context as _, Result};
use client::{Connection, VolumeFilesPage};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use types::{
    Barcode, Before, PoolName, RequestView, TapeFile, Time, Volume, VolumeFileView, VolumeView, plural,
};
use wire::{Call, FilesOrder, ImportOrder};

/// Files asked for at a time.
const PAGE: u32 = 500;
/// First field of a manifest.
const FORMAT: &str = "thermocline manifest 1";

/// Close volumes for a way out of the library, and list what is on them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The volumes get their index, are neither read nor written any more, and can be taken out of the library. The \
                  manifest lists them and their files with digests, one JSON document per line. Copies on them keep \
                  counting. Ctrl-C ends the watching, not the request: ask again for the manifest.\n\nExample:\n  thermo volume export TC0001L9 TC0002L9 --to set1.json\n  thermo volume export \
                  --pool offsite --to offsite.json --reason vault-12"
)]
pub struct ExportArgs {
    /// Barcodes
    #[arg(required_unless_present = "pool", conflicts_with = "pool")]
    volumes: Vec<String>,
    /// All volumes of this pool that hold files
    #[arg(long)]
    pool: Option<String>,
    /// Manifest to be written; replaced if it is there
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Why, for the volumes' records
    #[arg(long, default_value = "exported")]
    reason: String,
}

/// Take volumes in: back, from another site, or as another LTFS program or tar wrote them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Volumes of this site that were exported are available again. The files of others appear below a directory; no \
                  data is copied, and the volumes are only read. If a name is taken already, nothing is entered and the \
                  report names it. Tapes with tar archives need a new or empty directory.\n\nExample:\n  thermo volume import TC0001L9\n  thermo volume import TC0101L9 TC0102L9 \
                  --into tc:/from-bonn --pool bonn --wait\n  thermo volume import --manifest set1.json --into \
                  tc:/from-bonn --owner-map owners"
)]
pub struct ImportArgs {
    /// Barcodes
    #[arg(required_unless_present = "manifest")]
    volumes: Vec<String>,
    /// Take the volumes of this manifest [default: all of them]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Directory for files of other sites and programs, made if missing
    #[arg(long, value_name = "DIR")]
    into: Option<OsString>,
    /// Pool that volumes of other sites join, made if missing [default: none]
    #[arg(long)]
    pool: Option<String>,
    /// Lines `uid THERE HERE` and `gid THERE HERE`; other owners keep their numbers
    #[arg(long, value_name = "FILE")]
    owner_map: Option<PathBuf>,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

/// First line of a manifest.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    /// Uuid of the namespace.
    site: String,
    written: Time,
    volumes: Vec<Volume>,
    /// What those were that were full, read-only or suspect before they were exported.
    #[serde(default)]
    was: Vec<(Barcode, Before)>,
}

/// Every further line.
#[derive(Serialize)]
struct Line<'l> {
    volume: &'l Barcode,
    /// Path in the namespace when it was written to tape; bytes that are not UTF-8 replaced.
    path: String,
    /// SHA-256 of the whole file, hex; none: not known.
    sha256: Option<String>,
    file: &'l TapeFile,
}

/// Runs `thermo volume export`.
pub fn export(context: &mut Context, node: &mut Connection, args: ExportArgs) -> Result<Exit> {
    let mut volumes: Vec<Barcode> = args.volumes.into_iter().map(Barcode::from).collect();
    if let Some(pool) = &args.pool {
        super::volume::known_pool(node, pool)?;
        let all: Vec<VolumeView> = node.ask(&Call::Volumes)?;
        let of_pool =
            |v: &VolumeView| v.volume.files > 0 && v.volume.pool.as_ref().is_some_and(|p| p.as_str() == pool);
        volumes = all.into_iter().filter(of_pool).map(|v| v.volume.barcode).collect();
        if volumes.is_empty() {
            return Err(not_found(format!(
                "no volume of pool {pool} holds files; see `thermo volume ls --pool {pool}`"
            )));
        }
    }
    can_be_written(&args.to)?;
    let view: RequestView = node.ask(&Call::Export { volumes: volumes.clone(), reason: args.reason })?;
    let exit = begun(context, node, view, true)?;
    if exit != Exit::OK {
        eprintln!("thermo: no manifest was written; when the volumes are exported, ask again");
        return Ok(exit);
    }
    let site: String = node.ask(&Call::Site)?;
    let (mut head, mut places) = (Vec::new(), Vec::new());
    for barcode in &volumes {
        let view: VolumeView = node.ask(&Call::Volume(barcode.clone()))?;
        places.push(format!("{barcode}: {}", view.location));
        head.push(view.volume);
    }
    let before: Vec<Option<Before>> = node.ask(&Call::ExportedAs(volumes.clone()))?;
    let was = volumes.iter().cloned().zip(before).filter_map(|(volume, was)| Some((volume, was?))).collect();
    let written = std::time::SystemTime::now().into();
    let head = Head { format: FORMAT.into(), site, written, volumes: head, was };
    let files = write_manifest(node, &args.to, &head).with_context(|| {
        format!("the volumes are exported, but {} cannot be written; ask again", args.to.display())
    })?;
    if context.global.json {
        return Ok(Exit::OK);
    }
    context.out.line(format!(
        "{} exported, {} listed in {}",
        plural(volumes.len(), "volume"),
        plural(files, "file"),
        args.to.display()
    ))?;
    places.iter().try_for_each(|place| context.out.line(format!("  {place}")))?;
    let names: Vec<&str> = volumes.iter().map(Barcode::as_str).collect();
    context.out.line(format!(
        "to take them out through import/export slots: thermo library export {}",
        names.join(" ")
    ))?;
    Ok(Exit::OK)
}

/// Where a manifest is written before it is whole, and the directory of both.
fn partial_of(to: &Path) -> (PathBuf, &Path) {
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    (dir.join(name), dir)
}

/// Asked before a volume is closed for a list that nobody could write.
fn can_be_written(to: &Path) -> Result<()> {
    let shown = to.display();
    if to.is_dir() {
        return Err(usage(format!("{shown} is a directory: name the manifest's file; nothing was exported")));
    }
    let (partial, _) = partial_of(to);
    let tried = File::create(&partial).and_then(|_| std::fs::remove_file(&partial));
    tried.with_context(|| format!("manifest {shown} cannot be written; nothing was exported"))
}

/// Whole or not at all.
fn write_manifest(node: &mut Connection, to: &Path, head: &Head) -> Result<u64> {
    let (partial, dir) = partial_of(to);
    let mut out = BufWriter::new(File::create(&partial)?);
    serde_json::to_writer(&mut out, head)?;
    let mut files = 0;
    for volume in &head.volumes {
        let volume = &volume.barcode;
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let call = Call::VolumeFilesFrom(FilesOrder { volume: volume.clone(), from, limit: PAGE });
            let (page, further): VolumeFilesPage = node.ask(&call)?;
            next = further;
            for VolumeFileView { file, .. } in page.iter().filter(|v| v.file.live && v.file.has_data()) {
                let path = String::from_utf8_lossy(&file.path).into_owned();
                let sha256 = file.digest.map(|digest| digest.to_string());
                out.write_all(b"\n")?;
                serde_json::to_writer(&mut out, &Line { volume, path, sha256, file })?;
                files += 1;
            }
        }
    }
    out.write_all(b"\n")?;
    out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    std::fs::rename(&partial, to)?;
    File::open(dir)?.sync_all()?;
    Ok(files)
}

/// Runs `thermo volume import`.
pub fn import(context: &mut Context, node: &mut Connection, args: ImportArgs) -> Result<Exit> {
    let mut volumes: Vec<Barcode> = args.volumes.into_iter().map(Barcode::from).collect();
    let mut was = Vec::new();
    if let Some(path) = &args.manifest {
        let listed = manifest(path)?;
        was = listed.was;
        if volumes.is_empty() {
            volumes = listed.volumes.into_iter().map(|v| v.barcode).collect();
        } else if let Some(other) = volumes.iter().find(|v| !listed.volumes.iter().any(|l| l.barcode == **v))
        {
            return Err(usage(format!("{}: volume {other} is not in it", path.display())));
        }
    }
    let into = args.into.map(|dir| context.path(node, &dir)).transpose()?;
    let (uids, gids) = args.owner_map.as_deref().map(owner_map).transpose()?.unwrap_or_default();
    let order = ImportOrder { volumes, into, pool: args.pool.map(PoolName), uids, gids };
    let import = if was.is_empty() { Call::Import(order) } else { Call::ImportAs(order, was) };
    let view: RequestView = node.ask(&import)?;
    begun(context, node, view, args.wait)
}

fn manifest(path: &Path) -> Result<Head> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("manifest {shown}"))?;
    let mut first = String::new();
    BufReader::new(file).read_line(&mut first).with_context(|| format!("manifest {shown}"))?;
    let head: Head =
        serde_json::from_str(&first).map_err(|e| usage(format!("{shown} is no manifest: {e}")))?;
    if head.format == FORMAT {
        return Ok(head);
    }
    Err(usage(format!("{shown}: format {:?} is not {FORMAT:?}; use the release that wrote it", head.format)))
}

/// Numbers there and here.
type Pairs = Vec<(u32, u32)>;

fn owner_map(path: &Path) -> Result<(Pairs, Pairs)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("owner map {}", path.display()))?;
    let (mut uids, mut gids) = (Pairs::new(), Pairs::new());
    for (line, number) in text.lines().zip(1..) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, pair) = match words[..] {
            [] | ["#", ..] => continue,
            [kind, there, here] => (kind, there.parse().ok().zip(here.parse().ok())),
            _ => ("", None),
        };
        match (kind, pair) {
            ("uid", Some(pair)) => uids.push(pair),
            ("gid", Some(pair)) => gids.push(pair),
            _ => {
                let shown = path.display();
                return Err(usage(format!(
                    "{shown}, line {number}: write `uid THERE HERE` or `gid THERE HERE`"
                )));
            }
        }
    }
    Ok((uids, gids))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::VolumeState;

    #[test]
    fn manifests_of_earlier_releases_are_read() {
        let volume = Volume::new("TC0001L9".into(), Time::new(1, 0));
        let head = Head {
            format: FORMAT.into(),
            site: "s".into(),
            written: Time::new(2, 0),
            volumes: vec![volume],
            was: vec![(
                "TC0001L9".into(),
                Before { state: VolumeState::Suspect, reason: "r".into(), by: None },
            )],
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |json: &serde_json::Value| {
            std::fs::write(file.path(), format!("{json}\n{{}}\n")).unwrap();
            manifest(file.path())
        };
        let mut json = serde_json::to_value(&head).unwrap();
        assert_eq!(read(&json).unwrap().was, head.was);
        // What was added since.
        json.as_object_mut().unwrap().remove("was");
        let volume = json["volumes"][0].as_object_mut().unwrap();
        for field in ["by", "last_verified", "verified_to", "family", "key", "format", "worm", "imported"] {
            assert!(volume.remove(field).is_some(), "{field}");
        }
        let old = read(&json).unwrap();
        assert_eq!((old.volumes[0].barcode.as_str(), old.was.len()), ("TC0001L9", 0));
    }
}
