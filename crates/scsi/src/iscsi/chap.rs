//! Names and secrets for targets that ask who is there (CHAP, RFC 7143 section 12.1.3): a file with lines
//! `TARGET USER SECRET [USER SECRET]`, of which the second pair is what the target has to know (mutual CHAP). `*` stands for
//! every target, and for discovery. It is read at each login, so that a new secret counts at once.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the file is unless the environment says so.
const USUAL: &str = "/etc/thermo/iscsi-secrets";
/// Variable of the environment with another place.
const VARIABLE: &str = "THERMO_ISCSI_SECRETS";

/// A name and its secret. What is printed of it is the name only.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub secret: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// Who we are to a target, and who it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    pub ours: Login,
    pub theirs: Option<Login>,
}

/// The file that counts.
pub fn file() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| USUAL.into(), PathBuf::from)
}

/// What the file says of a target (None: of a portal that is asked for its targets); None: nothing, so no CHAP.
///
/// # Errors
/// The file cannot be read, is readable by others than its owner, or makes no sense; the text says so.
pub fn of(path: &Path, target: Option<&str>) -> Result<Option<Chap>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!(
            "{path} can be read by others than its owner (mode {:o}): chmod 600 {path}",
            mode & 0o777
        ));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let mut found = None;
    for (n, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let login = |user: &str, secret: &str| Login { user: user.to_owned(), secret: secret.to_owned() };
        let (name, chap) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [name, user, secret] => (name, Chap { ours: login(user, secret), theirs: None }),
            [name, user, secret, theirs, answer] => {
                (name, Chap { ours: login(user, secret), theirs: Some(login(theirs, answer)) })
            }
            _ => {
                let what = "write TARGET USER SECRET, or TARGET USER SECRET USER SECRET";
                return Err(format!("{}, line {}: {what}", path.display(), n + 1));
            }
        };
        // The target by its name goes before all targets.
        if target == Some(name) {
            return Ok(Some(chap));
        }
        if name == "*" {
            found = Some(chap);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_from_a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        assert_eq!(of(&path, Some("iqn.a:b")), Ok(None), "no file, no CHAP");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        write("# target user secret\n\n* any one\niqn.a:b me mine you yours\n", 0o600);
        let chap = of(&path, Some("iqn.a:b")).unwrap().unwrap();
        assert_eq!((chap.ours.user.as_str(), chap.ours.secret.as_str()), ("me", "mine"));
        assert_eq!(format!("{chap:?}"), "Chap { ours: Login(me), theirs: Some(Login(you)) }");
        for other in [Some("iqn.c:d"), None] {
            assert_eq!(of(&path, other).unwrap().unwrap().ours.user, "any");
        }
        write("iqn.a:b me\n", 0o600);
        let error = of(&path, None).unwrap_err();
        assert!(error.contains("line 1") && !error.contains("me\n"), "{error}");
        write("* me mine\n", 0o640);
        assert!(of(&path, None).unwrap_err().contains("chmod 600"));
    }
}
