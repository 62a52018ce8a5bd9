//! Whether every dependency may be used: its licence against the list in `deny.toml` (the same that cargo-deny reads,
//! which also knows advisories but needs a database that is not in the registry), and its source.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// One line per dependency that may not be used.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let policy: toml::Value = toml::from_str(&text).context("deny.toml")?;
    let listed = policy.get("licenses").and_then(|l| l.get("allow")).and_then(|a| a.as_array());
    let allowed: Vec<&str> =
        listed.context("deny.toml: no list licenses.allow")?.iter().filter_map(|v| v.as_str()).collect();
    problems(&crate::metadata(root, &["--locked"])?, &allowed)
}

fn problems(metadata: &Value, allowed: &[&str]) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    Ok(packages.iter().filter_map(|package| problem(package, allowed)).collect())
}

fn problem(package: &Value, allowed: &[&str]) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    let source = package["source"].as_str();
    if source.is_some_and(|s| !s.starts_with("registry+https://github.com/rust-lang/crates.io-index")) {
        return Some(format!("{name} comes from {}, not from crates.io", source.unwrap_or_default()));
    }
    let Some(licence) = package["license"].as_str() else {
        return Some(format!("{name} names no licence"));
    };
    // Old manifests write `MIT/Apache-2.0`.
    let expression = match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(e) => return Some(format!("{name}: licence {licence:?} is not understood: {}", e.reason)),
    };
    let ok = expression.evaluate(|requirement| allowed.contains(&requirement.to_string().as_str()));
    (!ok).then(|| format!("{name}: licence {licence} is not among those that deny.toml allows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn found(licence: Value, source: Value) -> Option<String> {
        problem(
            &json!({"name": "x", "version": "1", "license": licence, "source": source}),
            &["MIT", "Apache-2.0"],
        )
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert_eq!(found(json!("GPL-3.0-only OR MIT"), json!(CRATES_IO)), None);
        assert_eq!(found(json!("MIT/Apache-2.0"), json!(CRATES_IO)), None);
    }

    #[test]
    fn what_is_not_allowed_unnamed_or_from_elsewhere_is_told() {
        assert!(found(json!("MIT AND GPL-3.0-only"), json!(CRATES_IO)).is_some());
        assert!(found(Value::Null, json!(CRATES_IO)).is_some());
        assert!(found(json!("MIT"), json!("git+https://example.org/x")).is_some());
    }
}
