//! Words on files come back, in whatever order they and the data are found: the word that is later says what the file is called
//! and whose it is. A word on a file whose data was not found waits for it; it makes no file.

use super::adopt::{Namespace, attach, put_xattrs};
use super::adopt_names::{prune, take_names};
use super::{nodes, observe, remove, version, words};
use crate::rec::{FileRec, InodeRec};
use crate::store::Tx;
use crate::{ListedFile, Result};
use types::*;

/// What is known of the word on a file, beside an entry of its data.
pub struct Word {
    /// Version of the word that is known; 0: none.
    known: Version,
    /// That in force when the data was written.
    then: Version,
    /// What it says, if it is not older than the data.
    said: Option<Box<TapeFile>>,
}

impl Word {
    /// Beside this entry of data.
    pub fn on(tx: &mut Tx<'_>, data: &TapeFile) -> Result<Self> {
        let (word, then) = (tx.gone(data.ino.word())?, data.node.beside);
        let known = words::version_of(word.as_ref());
        let said = match &word {
            Some(word) if known >= then => words::on_tape(tx.view(), word)?,
            _ => None,
        };
        Ok(Self { known, then, said })
    }

    /// Whether what is known of the file was said later than the data.
    pub fn is_later(&self) -> bool {
        self.known > self.then
    }

    /// What it says of the file's names.
    pub fn says(&self) -> Option<&TapeFile> {
        self.said.as_deref()
    }

    /// An entry of data as the word has it, if that is later.
    pub fn over(&self, data: &TapeFile) -> TapeFile {
        let Some(said) = self.says().filter(|_| self.is_later()) else { return data.clone() };
        let mut file = TapeFile {
            path: said.path.clone(),
            mode: said.mode,
            uid_owner: said.uid_owner,
            gid_owner: said.gid_owner,
            times: said.times,
            xattrs: said.xattrs.clone(),
            class: said.class.clone(),
            ..data.clone()
        };
        if said.node.beside != data.version {
            file.times[1] = data.times[1];
        }
        file
    }
}

impl Namespace<'_> {
    /// Enters a word that counts, and does what it says to its file if that is there.
    pub fn word(
        &self,
        tx: &mut Tx<'_>,
        old: Option<InodeRec>,
        one: &ListedFile,
        segment: Segment,
    ) -> Result<()> {
        let file = &one.file;
        let before = old.as_ref().and_then(|word| word.file.as_ref()).filter(|f| f.version == file.version);
        let (news, names) = (before.is_none(), before.is_none_or(|f| !f.known));
        let mut rec = match &old {
            Some(old) if !news => old.clone(),
            _ => self.word_record(file)?,
        };
        rec.settle(&tx.class(rec.class)?.clone(), self.as_of);
        tx.replace(old.as_ref(), Some(&rec))?;
        attach(tx, rec, file, segment)?;
        match tx.try_load(file.ino.told_of())? {
            Some(of) if of.has_data() && news && file.node.gone => self.remove(tx, &of),
            Some(of) if of.has_data() && names && !file.node.gone => self.obey(tx, &of, file, news),
            _ => Ok(()),
        }
    }

    /// Brings a file to what a word says of it: its names, and (`all`) what else there is.
    fn obey(&self, tx: &mut Tx<'_>, old: &InodeRec, said: &TapeFile, all: bool) -> Result<()> {
        let mut rec = old.clone();
        if all {
            let same = old.file.as_ref().is_some_and(|f| f.version == said.node.beside);
            let mtime = if same { said.times[1] } else { old.mtime };
            let class = self.class(&said.class)?;
            let (mode, uid, gid) = (said.mode & 0o7777, said.uid_owner, said.gid_owner);
            let (atime, ctime) = (said.times[0], said.times[2]);
            rec = InodeRec { mode, uid, gid, class, atime, mtime, ctime, ..rec };
            rec = put_xattrs(tx, rec, &said.xattrs)?;
            rec.settle(&tx.class(class)?.clone(), self.as_of);
        }
        let places = self.told_places(tx, said)?;
        let rec = self.set_names(tx, rec, places, said)?;
        tx.replace(Some(old), Some(&rec))
    }

    /// A file was removed since its data was written. One that is on disk was not: then the word is over. It gets a later one, and new
    /// copies, that tell of this.
    fn remove(&self, tx: &mut Tx<'_>, of: &InodeRec) -> Result<()> {
        if let Some(f) = &of.file
            && f.object.is_some_and(|object| !(self.is_gone)(object))
        {
            version::end(tx, of, None)?;
            let file = FileRec { sealed: f.sealed, ..observe::next_version(tx, f.clone())? };
            let mut rec = InodeRec { file: Some(file), ..of.clone() };
            rec.settle(&tx.class(of.class)?.clone(), self.as_of);
            tx.replace(Some(of), Some(&rec))?;
            let word = tx.gone(of.ino.word())?;
            return words::say(tx, &rec, word, false, self.as_of);
        }
        version::end(tx, of, None)?;
        let left = take_names(tx, of)?;
        remove::take_out(tx, of)?;
        left.into_iter().try_for_each(|dir| prune(tx, dir))
    }

    /// All places at which a word says that its file is named.
    pub fn told_places(&self, tx: &mut Tx<'_>, said: &TapeFile) -> Result<Vec<(Ino, Vec<u8>)>> {
        let one = ListedFile { dirs: [].into(), name: String::new(), file: said.clone() };
        let mut places = Vec::from_iter(self.place(tx, &one)?);
        places.extend(self.further_places(tx, said)?);
        Ok(places)
    }

    /// Data tells of a word that is not known: it is to be written again, unless it is found.
    pub fn note_word(&self, tx: &mut Tx<'_>, of: &InodeRec, data: &TapeFile) -> Result<()> {
        if data.node.beside == Version(0) {
            return Ok(());
        }
        let known = tx.gone(of.ino.word())?;
        if words::version_of(known.as_ref()) >= data.node.beside {
            return Ok(());
        }
        if let Some(known) = &known {
            version::end(tx, known, None)?;
        }
        let file = FileRec { version: data.node.beside, ..nodes::fresh(data.written) };
        let mut word = words::record(of, file);
        word.settle(&tx.class(of.class)?.clone(), self.as_of);
        tx.replace(known.as_ref(), Some(&word))
    }

    fn word_record(&self, file: &TapeFile) -> Result<InodeRec> {
        let version = FileRec { version: file.version, gone: file.node.gone, ..nodes::fresh(file.written) };
        Ok(InodeRec { nlink: 0, size: 0, file: Some(version), ..self.record(file)? })
    }
}
