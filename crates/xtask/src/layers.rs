//! Who may depend on whom (`docs/ARCHITECTURE.md`): a crate on crates of lower floors only.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Floor of each crate, ground floor first. A crate that is not listed fails the check, so that a new room is placed
/// on purpose. `xtask` stands above everything. `sim` is below the binary, which plans with it (`thermo plan`).
const FLOORS: &[(&str, u8)] = &[
    ("types", 0),
    ("kv", 1),
    ("layout", 1),
    ("code", 1),
    ("data", 1),
    ("disk", 1),
    ("format", 1),
    ("scsi", 1),
    ("ident", 1),
    ("wire", 1),
    ("catalog", 2),
    ("tape", 2),
    ("mover", 2),
    ("stripe", 2),
    ("vtl", 2),
    ("policy", 2),
    ("sched", 2),
    ("config", 2),
    ("node", 3),
    ("client", 4),
    ("fuse", 5),
    ("ftp", 5),
    ("s3", 5),
    ("nfs", 5),
    ("web", 5),
    ("capi", 5),
    ("preload", 5),
    ("python", 5),
    ("bench", 5),
    ("sim", 5),
    ("posix", 5),
    ("thermo", 6),
    ("e2e", 7),
    ("fuzz", 7),
    ("xtask", 7),
];

/// A dependency between two crates of the workspace.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    /// For tests only; these may also go sideways.
    dev: bool,
}

/// Asks cargo for the workspace and gives one line per forbidden edge.
pub fn check(root: &Path) -> Result<Vec<String>> {
    problems(&crate::metadata(root, &["--no-deps"])?)
}

fn problems(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut found: Vec<String> = names
        .iter()
        .filter(|name| floor(name).is_none())
        .map(|name| format!("crate {name} has no floor: add it to crates/xtask/src/layers.rs"))
        .collect();
    for package in packages {
        let from = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let edge = Edge { from, to, dev: dependency["kind"] == "dev" };
            if names.contains(&to) {
                found.extend(forbidden(&edge));
            }
        }
    }
    Ok(found)
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(listed, _)| *listed == name).map(|(_, floor)| *floor)
}

fn forbidden(edge: &Edge<'_>) -> Option<String> {
    let (from, to) = (floor(edge.from)?, floor(edge.to)?);
    let allowed = to < from || (edge.dev && to == from);
    let kind = if edge.dev { "test-depends" } else { "depends" };
    (!allowed).then(|| {
        format!(
            "{} (floor {from}) {kind} on {} (floor {to}): only lower floors are allowed",
            edge.from, edge.to
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn edges() {
        let metadata = json!({"packages": [
            {"name": "tape", "dependencies": [
                {"name": "scsi", "kind": null}, {"name": "vtl", "kind": "dev"}, {"name": "serde", "kind": null}]},
            {"name": "scsi", "dependencies": [{"name": "tape", "kind": null}, {"name": "vtl", "kind": "dev"}]},
            {"name": "vtl", "dependencies": [{"name": "tape", "kind": null}]},
            {"name": "attic", "dependencies": []},
        ]});
        let found = problems(&metadata).unwrap();
        let starts = [
            "crate attic has no floor",
            "scsi (floor 1) depends on tape",
            "scsi (floor 1) test-depends on vtl",
        ];
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found.iter().zip(starts).all(|(found, start)| found.starts_with(start)), "{found:?}");
        assert!(found[3].starts_with("vtl (floor 2) depends on tape"), "{found:?}");
    }
}
