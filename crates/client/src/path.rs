//! Paths of the namespace: bytes with `/` between the names.

/// The path of a name in a directory.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, separator, name].concat()
}
