//! Words on regular files: what tapes tell of a file beside its data. Its bytes went to tape under one name, with the owner,
//! mode, times and attributes of that moment; whatever becomes of these later, a further name, and its removal make no new
//! version of the data. They make a version of its *word*, a node without data of its own that goes to tape like any other. Its
//! number is that of the file with the highest bit set, so nothing needs to say which word is whose, and a file of which
//! nobody changes anything has none.
//!
//! Data that goes to tape tells the version of the word that was in force then ([`NodeFacts::beside`]): of two statements on a
//! file the one with the higher version of its word was made later.

use super::{names, nodes, path, tape_tree, version, xattr};
use crate::rec::{FileRec, InodeRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use types::*;

/// Most further names that a word tells.
const MOST_NAMES: usize = 4096;

/// `rec` is what becomes of a file: tapes are to tell it if they told something else, or cannot tell it with the data. What
/// becomes of one that is only open still nobody needs to know.
pub fn changed(tx: &mut Tx<'_>, rec: &InodeRec, now: Time) -> Result<()> {
    if rec.nlink == 0 {
        return Ok(());
    }
    let word = tx.gone(rec.ino.word())?;
    if word.is_some() || rec.nlink > 1 || rec.file.as_ref().is_some_and(|f| f.known) {
        say(tx, rec, word, false, now)?;
    }
    Ok(())
}

/// The file lost its last name. Tapes are to tell so as long as they tell of its data.
pub fn removed(tx: &mut Tx<'_>, rec: &InodeRec, now: Time) -> Result<()> {
    let word = tx.gone(rec.ino.word())?;
    if version::any_ended(tx.view(), rec.ino)? {
        return if word.as_ref().is_some_and(InodeRec::is_gone) {
            Ok(())
        } else {
            say(tx, rec, word, true, now)
        };
    }
    word.map_or(Ok(()), |word| drop_it(tx, &word))
}

/// The next version of the word on a file.
pub fn say(tx: &mut Tx<'_>, rec: &InodeRec, word: Option<InodeRec>, gone: bool, now: Time) -> Result<()> {
    let mut due = None;
    if let Some(word) = &word {
        version::end(tx, word, Some(now))?;
        due = word.file.as_ref().and_then(|f| f.due);
    }
    let version = version::after(tx, version_of(word.as_ref()))?;
    let file = FileRec { version, due, gone, ..nodes::fresh(now) };
    let mut next = record(rec, file);
    next.settle(&tx.class(rec.class)?.clone(), now);
    tx.replace(word.as_ref(), Some(&next))
}

/// The record of a word on a file.
pub fn record(of: &InodeRec, file: FileRec) -> InodeRec {
    let ino = of.ino.word();
    InodeRec { ino, kind: FileKind::File, nlink: 0, size: 0, xattrs: 0, file: Some(file), ..of.clone() }
}

/// Nothing needs the word any more.
pub fn drop_it(tx: &mut Tx<'_>, word: &InodeRec) -> Result<()> {
    version::end(tx, word, None)?;
    tx.replace(Some(word), None)
}

/// A file with several names in a catalogue of an earlier release gets its word.
pub fn enter(tx: &mut Tx<'_>, file: &InodeRec, now: Time) -> Result<()> {
    if file.has_data() && file.nlink > 1 && tx.gone(file.ino.word())?.is_none() {
        say(tx, file, None, false, now)?;
    }
    Ok(())
}

/// What tapes tell of a file beside its data, by the record of its word: version 0 of one that has none.
pub fn version_of(word: Option<&InodeRec>) -> Version {
    word.and_then(|word| word.file.as_ref()).map_or(Version(0), |f| f.version)
}

/// What a word says at present: its part of an entry on tape.
pub fn facts(view: View<'_>, word: &InodeRec) -> Result<Option<(InodeRec, NodeFacts)>> {
    let Some(file) = view.try_load(word.ino.told_of())? else { return Ok(None) };
    let beside = file.file.as_ref().map_or(Version(0), |f| f.version);
    let facts =
        NodeFacts { parent: file.link.0, names: further(view, &file)?, beside, ..NodeFacts::default() };
    Ok(Some((file, facts)))
}

/// Names of a node that is no directory beyond the first, as far as tapes tell them: directory and path.
pub fn further(view: View<'_>, rec: &InodeRec) -> Result<Vec<(Ino, Vec<u8>)>> {
    if rec.is_dir() || rec.nlink < 2 {
        return Ok(Vec::new());
    }
    let links = names::links(view, rec)?;
    let told = links.into_iter().skip(1).take(MOST_NAMES);
    told.map(|(dir, cookie)| {
        let name = path::name_at(view, rec.ino, (dir, cookie))?;
        Ok((dir, path::below(view, dir, &name)?))
    })
    .collect()
}

/// The entry of a volume that holds the present version of a word, if there is one.
pub fn on_tape(view: View<'_>, word: &InodeRec) -> Result<Option<Box<TapeFile>>> {
    for copy in version::copies(view, word.ino, version_of(Some(word)))? {
        for segment in &copy.segments {
            if let Some(found) = tape_tree::find(view, segment)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// An entry for tape, filled with what the word says; of a file that is not known (its data was not found when the catalogue
/// was rebuilt) with what it said before.
pub fn describe(view: View<'_>, word: &InodeRec, entry: TapeFile) -> Result<TapeFile> {
    let class = view.class(word.class)?.name.clone();
    if word.is_gone() {
        let node = NodeFacts { gone: true, ..NodeFacts::default() };
        return Ok(TapeFile { node, class, ..entry });
    }
    if let Some((file, node)) = facts(view, word)? {
        let attr = store::attr_of(&file);
        let path = if file.nlink > 0 { path::path_of(view, file.ino)? } else { Vec::new() };
        return Ok(TapeFile {
            path,
            mode: file.kind.type_bits() | file.mode,
            uid_owner: file.uid,
            gid_owner: file.gid,
            times: [attr.atime, attr.mtime, attr.ctime, attr.btime],
            xattrs: xattr::all(view, &file)?,
            class: view.class(file.class)?.name.clone(),
            node,
            ..entry
        });
    }
    let before = on_tape(view, word)?;
    let nowhere =
        || CatalogError::corrupt("word on inode", word.ino.told_of(), "neither file nor copy is known");
    let before = before.ok_or_else(nowhere)?;
    let TapeFile { uid, copy, written, live, .. } = entry;
    Ok(TapeFile { uid, copy, written, live, ..*before })
}
