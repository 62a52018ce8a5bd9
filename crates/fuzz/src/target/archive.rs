//! Headers of tar archives of other programs, block by block. What they name stays below a directory.

use format::tar::foreign::{Headers, Step, begins, path};
use format::tar::header::Header;
use format::tar::pax;

pub(super) fn run(bytes: &[u8]) {
    let (mut headers, mut rest) = (Headers::default(), bytes);
    while let Some((block, behind)) = rest.split_first_chunk() {
        rest = behind;
        let header = begins(block);
        match headers.block(block) {
            Ok(Step::Block) => {}
            Ok(Step::Body(length)) => {
                assert!(header && length <= 16 << 20);
                let Ok(Some((body, behind))) =
                    usize::try_from(length).map(|length| rest.split_at_checked(length.next_multiple_of(512)))
                else {
                    return;
                };
                rest = behind;
                if headers.body(&body[..length as usize]).is_err() {
                    return;
                }
            }
            Ok(Step::Member(member)) => {
                assert!(member.mode & !0o1777 == 0);
                if let Ok(path) = path(&member.name) {
                    assert!(!path.starts_with(b"/") && !path.ends_with(b"/") && !path.contains(&0));
                    assert!(path.split(|b| *b == b'/').all(|part| part != b".." && part != b"."));
                }
                let skipped = usize::try_from(member.stored.next_multiple_of(512)).unwrap_or(usize::MAX);
                rest = rest.get(skipped..).unwrap_or_default();
            }
            Ok(Step::End) | Err(_) => return,
        }
    }
}

fn header(kind: u8, size: u64) -> Vec<u8> {
    Header { name: b"dir/name".to_vec(), kind, mode: 0o4755, size, mtime: 1, ..Header::default() }
        .encode()
        .into()
}

fn padded(body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(512), 0);
    body
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let record = |key: &str, value: &[u8]| (key.to_owned(), value.to_vec());
    let records = pax::encode(&[
        record("path", b"./a/../b\xff"),
        record("size", b"5"),
        record("mtime", b"-1.5"),
        record("uid", b"4000000"),
        record("SCHILY.xattr.user.x", b"\0\n"),
        record("GNU.sparse.major", b"1"),
    ]);
    let length = records.len() as u64;
    let long = b"y".repeat(200);
    let mut sparse = header(b'S', 512);
    sparse[482] = 1;
    let sum =
        sparse.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) });
    let sum = format!("{:06o}\0 ", sum.sum::<u32>());
    sparse[148..156].copy_from_slice(sum.as_bytes());
    vec![
        [header(b'x', length), padded(&records), header(b'0', 0), padded(b"12345"), vec![0; 1024]].concat(),
        [header(b'g', length), padded(&records), header(b'1', 0), header(b'2', 0), header(b'5', 0)].concat(),
        [header(b'L', 200), padded(&long), header(b'K', 200), padded(&long), header(b'2', 0)].concat(),
        [sparse, vec![1; 512], vec![0; 512], vec![7; 512], header(b'0', 3), padded(b"abc")].concat(),
    ]
}
