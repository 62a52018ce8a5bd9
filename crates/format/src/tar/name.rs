//! Names of members: the path without its first slash where that is a name that any tar can extract safely.

use types::TapeFile;

/// Directory of what is ours in a section; a path of the namespace does not begin with it.
pub const OURS: &str = ".thermocline";

/// Name of the list of members of a section.
pub fn index(section: u64) -> String {
    format!("{OURS}/section-{section:010}.index")
}

/// Name of the list of digests of a section.
pub fn sums(section: u64) -> String {
    format!("{OURS}/section-{section:010}.sha256")
}

/// Name of a part of the index of a volume; the parts behind each other are the index.
pub fn volume_index(section: u64, part: u32) -> String {
    format!("{OURS}/volume-{section:010}.index.part-{part:05}")
}

/// Name of the member of a segment. A segment that is not the whole file has its place in the file behind the name.
pub fn of(file: &TapeFile) -> Vec<u8> {
    let mut name = match plain(&file.path).filter(|_| !super::node::is_ours(file)) {
        Some(name) => name.to_vec(),
        None => format!("{OURS}/files/{}.{}.{}", file.ino, file.version, file.copy).into_bytes(),
    };
    if file.segment_length != file.file_size || file.segment_offset != 0 {
        name.extend_from_slice(format!(".part-{:020}", file.segment_offset).as_bytes());
    }
    name
}

/// The path without its first slash, if it is absolute, has no empty, `.` or `..` component, does not lie in [`OURS`],
/// and has no NUL.
fn plain(path: &[u8]) -> Option<&[u8]> {
    let name = path.strip_prefix(b"/")?;
    let mut components = name.split(|&byte| byte == b'/');
    let odd = |component: &[u8]| matches!(component, b"" | b"." | b"..") || component.contains(&0);
    let ours = components.clone().next() == Some(OURS.as_bytes());
    (!ours && !components.any(odd)).then_some(name)
}

/// Name under which the data of a sparse member travels: programs that do not know such members show it.
pub fn sparse(name: &[u8]) -> Vec<u8> {
    let at = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    [&name[..at], b"GNUSparseFile.0/", &name[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_no_extraction_may_follow_are_not_names() {
        for path in [
            &b""[..],
            b"/",
            b"relative",
            b"/a//b",
            b"/../etc/passwd",
            b"/a/./b",
            b"/.thermocline/x",
            b"/a\0b",
        ] {
            assert_eq!(plain(path), None, "{}", path.escape_ascii());
        }
        assert_eq!(plain(b"/a/\xff\n/..c"), Some(&b"a/\xff\n/..c"[..]));
        assert_eq!(sparse(b"a/b"), b"a/GNUSparseFile.0/b");
        assert_eq!(sparse(b"b"), b"GNUSparseFile.0/b");
    }
}
