//! `[encryption]`: volumes that drives encrypt, and where their keys are.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Volumes that drives encrypt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EncryptionConfig {
    /// Where the keys are: `"file:/path"` or `"command:/path"`.
    pub keys: Option<String>,
    /// Pools whose volumes are encrypted, from their labelling on.
    pub pools: Vec<String>,
}

impl EncryptionConfig {
    /// Where the keys are; None: no volume is encrypted.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn source(&self) -> Result<Option<KeySource>, String> {
        match &self.keys {
            Some(keys) => KeySource::parse(keys).map(Some),
            None if self.pools.is_empty() => Ok(None),
            None => {
                Err("encryption.pools names pools, and encryption.keys does not say where their keys are"
                    .into())
            }
        }
    }
}

/// Where keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Lines `NAME KEY [POOL ...]`.
    File(PathBuf),
    /// A program: `PROGRAM get NAME` prints the key, `PROGRAM current POOL` the name of the one for new volumes.
    Command(PathBuf),
}

impl KeySource {
    /// `file:/path` or `command:/path`.
    fn parse(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once(':') {
            Some(("file", path)) => Some((KeySource::File(path.into()), path)),
            Some(("command", path)) => Some((KeySource::Command(path.into()), path)),
            _ => None,
        };
        let (source, path) = parsed.ok_or_else(|| {
            format!("encryption.keys is `{text}`; write \"file:/path\" or \"command:/path\"")
        })?;
        if !Path::new(path).is_absolute() {
            return Err(format!("encryption.keys: the path `{path}` is not absolute"));
        }
        Ok(source)
    }
}
