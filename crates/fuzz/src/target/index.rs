//! An index as bytes. What is read is the same however the bytes arrive, every part of a cut index is a part of the whole
//! one, what can be written again is read as the same, and another XML reader sees the same files.

use format::ltfs::file::{from_index, to_index};
use format::ltfs::index::{
    DirMeta, IndexError, IndexEvent, IndexFile, IndexHeader, IndexWriter, WriteError, parse,
};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

/// What an index says, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Header(IndexHeader),
    Enter(DirMeta),
    File(IndexFile),
    Leave,
}

/// Everything up to the end or the error.
pub(super) fn read(input: impl BufRead) -> (Vec<Part>, Result<(), IndexError>) {
    let mut parts = Vec::new();
    let result = parse(input, &mut |event| {
        parts.push(match event {
            IndexEvent::Header(header) => Part::Header(header.clone()),
            IndexEvent::EnterDir(dir) => Part::Enter(dir.clone()),
            IndexEvent::File(file) => Part::File(file.clone()),
            IndexEvent::LeaveDir => Part::Leave,
        });
        ControlFlow::Continue(())
    });
    (parts, result.map(|_| ()))
}

/// The XML reader counts its errors' places from where its input begins anew.
fn without_place(result: Result<(), IndexError>) -> Result<(), IndexError> {
    result.map_err(|error| match error {
        IndexError::Damaged { what, .. } => IndexError::Damaged { offset: 0, what },
        error => error,
    })
}

pub(super) fn write(parts: &[Part]) -> Result<Vec<u8>, WriteError> {
    let mut writer = IndexWriter::new(Vec::new());
    for part in parts {
        match part {
            Part::Header(header) => writer.begin(header)?,
            Part::Enter(dir) => writer.enter_dir(dir)?,
            Part::File(file) => writer.file(file)?,
            Part::Leave => writer.leave_dir()?,
        }
    }
    writer.finish()
}

pub(super) fn run(bytes: &[u8]) {
    let (parts, result) = read(bytes);
    let step = 1 + bytes.len() % 7;
    let (slowly, slow_result) = read(BufReader::with_capacity(step, bytes));
    assert_eq!(slowly, parts, "in pieces of {step} bytes");
    assert_eq!(without_place(slow_result), without_place(result.clone()), "in pieces of {step} bytes");
    let (cut, _) = read(&bytes[..bytes.len() * 2 / 3]);
    assert_eq!(cut[..], parts[..cut.len().min(parts.len())], "a cut index says something else");
    for part in &parts {
        if let Part::File(file) = part {
            segment(file);
        }
    }
    if result.is_ok() {
        rewritten(&parts);
        compared(bytes, &parts);
    }
}

/// A segment of ours that is understood returns unchanged.
fn segment(file: &IndexFile) {
    if let Ok(Some(found)) = from_index(file) {
        let again = to_index(&file.name, &found).expect("extents lie inside the segment");
        assert_eq!(from_index(&again).as_ref(), Ok(&Some(found)));
    }
}

fn rewritten(parts: &[Part]) {
    // The writer refuses more than the reader: it writes only what every reader takes.
    let Ok(written) = write(parts) else { return };
    let (again, result) = read(&written[..]);
    assert_eq!(result, Ok(()), "{}", String::from_utf8_lossy(&written));
    assert_eq!(again, parts, "{}", String::from_utf8_lossy(&written));
}

/// Names of files by a reader that shares no code with ours, where both understand the document.
fn compared(bytes: &[u8], parts: &[Part]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(document) = roxmltree::Document::parse(text) else { return };
    let contents = |node: roxmltree::Node<'_, '_>| {
        node.parent().is_some_and(|parent| parent.tag_name().name() == "contents")
    };
    let theirs = document.descendants().filter(|n| n.has_tag_name("file") && contents(*n));
    let ours: Vec<_> =
        parts.iter().filter_map(|p| if let Part::File(f) = p { Some(f) } else { None }).collect();
    let lengths: Vec<_> =
        theirs.filter_map(|n| n.children().rfind(|c| c.has_tag_name("length"))?.text()).collect();
    // Elements that we skip may hold what looks like files; none of ours may be missing.
    let mut rest = lengths.iter().filter_map(|text| text.trim().parse::<u64>().ok());
    for file in &ours {
        assert!(rest.any(|length| length == file.length), "{:?} is not there for others", file.name);
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../format/tests/golden/index.xml").to_vec(),
        include_bytes!("../../../format/tests/golden/legacy.xml").to_vec(),
        include_bytes!("../../../format/tests/golden/reference.xml").to_vec(),
    ]
}
