//! Paths of the namespace: bytes with `/` between the names.

/// A path as text: what is not UTF-8 and control characters are escaped.
pub fn escape(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if c.is_control() => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// The path of a name in a directory.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, separator, name].concat()
}
