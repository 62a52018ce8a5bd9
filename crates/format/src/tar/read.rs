//! Reading a section from its first byte, without the list of members or to compare with it.

use super::header::{FILE, Header, PAX};
use super::index::{MARK, MOST};
use super::member::{self, MODE, PATH};
use super::pax::{self, Record};
use super::{BLOCK, TarError, padding, time};
use std::io::Read;
use types::{TapeFile, Time};

/// Longest pax header that is read (bytes): attributes of a file are within 64 KiB each.
const MAX_RECORDS: u64 = 64 << 20;
/// Most parts of a member with holes that are read.
const MAX_PIECES: u64 = 1 << 24;

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Byte of the archive at which its headers begin.
    pub offset: u64,
    /// Byte at which its data begins.
    pub data: u64,
    /// Length of its data in the archive (bytes).
    pub stored: u64,
    /// Kind, as in its header: `0` a regular file.
    pub kind: u8,
    /// All that its headers say, standard values in the words of pax.
    pub records: Vec<Record>,
}

impl Member {
    /// The value of a key; of several the last counts.
    pub fn record(&self, key: &str) -> Option<&[u8]> {
        self.records.iter().rev().find(|(found, _)| found == key).map(|(_, value)| value.as_slice())
    }

    /// Name under which it is extracted.
    pub fn name(&self) -> &[u8] {
        self.record("GNU.sparse.name").or_else(|| self.record(PATH)).unwrap_or_default()
    }

    /// Whether it is the list of members.
    pub fn is_index(&self) -> bool {
        self.record(MARK).is_some()
    }

    /// Whether its data begins with a map of its holes.
    pub fn is_sparse(&self) -> bool {
        self.record("GNU.sparse.major").is_some()
    }

    /// The file of ours that it is, without extents; None for anything else.
    ///
    /// # Errors
    /// It carries our records, and one is missing or wrong.
    pub fn file(&self) -> Result<Option<TapeFile>, TarError> {
        let damaged = |what| TarError::Damaged { offset: self.offset, what };
        let mut records: Vec<Record> = self.records.iter().filter(|(key, _)| key != PATH).cloned().collect();
        records.push((PATH.to_owned(), self.name().to_vec()));
        let length = match self.record("GNU.sparse.realsize") {
            None => self.stored,
            Some(size) => number(size).ok_or_else(|| damaged("its length is no number".to_owned()))?,
        };
        member::file(&records, length).map_err(damaged)
    }
}

/// Reads the members of an archive one after the other.
pub struct Reader<R> {
    from: R,
    /// Byte of the archive that comes next.
    at: u64,
    /// Where the member begins that comes next.
    next: u64,
}

impl<R: Read> Reader<R> {
    /// Reads from the first byte of an archive.
    pub fn new(from: R) -> Self {
        Self { from, at: 0, next: 0 }
    }

    /// The next member; its data may be read with [`Reader::read_data`] before the one after it is asked for. None at the
    /// end of the archive.
    ///
    /// # Errors
    /// Damage, an archive that was cut, kinds of members that do not occur in pax archives, or failures to read.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Member>, TarError> {
        self.skip_to(self.next)?;
        let offset = self.at;
        let mut records = Vec::new();
        loop {
            let start = self.at;
            let damaged = |what| TarError::Damaged { offset: start, what };
            let block = self.block()?;
            if block == [0; BLOCK as usize] {
                return if records.is_empty() {
                    Ok(None)
                } else {
                    Err(damaged("records of no member".to_owned()))
                };
            }
            let header = Header::decode(&block).map_err(damaged)?;
            match header.kind {
                PAX => records.append(&mut self.records(header.size)?),
                b'0'..=b'7' | 0 => return self.member(offset, header, records).map(Some),
                kind => {
                    let what = format!(
                        "a member of kind {:?}, which does not occur in pax archives",
                        char::from(kind)
                    );
                    return Err(damaged(what));
                }
            }
        }
    }

    fn records(&mut self, size: u64) -> Result<Vec<Record>, TarError> {
        let offset = self.at;
        if size > MAX_RECORDS {
            return Err(TarError::Damaged { offset, what: format!("a pax header of {size} bytes") });
        }
        let body = self.bytes(size)?;
        self.skip_to(self.at + padding(size))?;
        pax::decode(&body)
            .ok_or(TarError::Damaged { offset, what: "a pax header that is not right".to_owned() })
    }

    fn member(&mut self, offset: u64, header: Header, given: Vec<Record>) -> Result<Member, TarError> {
        let mtime = Time::new(header.mtime.try_into().unwrap_or(i64::MAX), 0);
        let mut records: Vec<Record> = [
            (PATH, header.name),
            (MODE, format!("{:o}", header.mode).into_bytes()),
            ("uid", header.uid.to_string().into_bytes()),
            ("gid", header.gid.to_string().into_bytes()),
            ("mtime", time::encode(mtime).into_bytes()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        records.extend(given);
        let kind = if header.kind == 0 { FILE } else { header.kind };
        let mut member = Member { offset, data: self.at, stored: header.size, kind, records };
        let damaged = |what: &str| TarError::Damaged { offset, what: what.to_owned() };
        if let Some(size) = member.record("size") {
            member.stored = number(size).ok_or_else(|| damaged("its length is no number"))?;
        }
        if !matches!(kind, FILE | b'7') {
            member.stored = 0; // links, directories and devices have no data
        }
        if member.stored >= MOST {
            return Err(damaged("its length is beyond reason"));
        }
        self.next = member.data + member.stored + padding(member.stored);
        Ok(member)
    }

    /// The data of the member given last, or of what of it is left, up to `most` bytes.
    ///
    /// # Errors
    /// The archive was cut, or cannot be read.
    pub fn read_data(&mut self, member: &Member, most: u64) -> Result<Vec<u8>, TarError> {
        let left = (member.data + member.stored).saturating_sub(self.at);
        self.bytes(left.min(most))
    }

    /// The parts of a sparse member that hold data, as offset and length in the extracted file. To be asked for before its
    /// data, which follows the map.
    ///
    /// # Errors
    /// A map that cannot be understood, or failures to read.
    pub fn read_map(&mut self, member: &Member) -> Result<Vec<(u64, u64)>, TarError> {
        let damaged = |what: &str| TarError::Damaged { offset: member.data, what: what.to_owned() };
        let mut text = Vec::new();
        let (mut numbers, mut wanted) = (Vec::new(), 1);
        while numbers.len() < wanted {
            let block = self.read_data(member, BLOCK)?;
            if block.is_empty() {
                return Err(damaged("the map of its holes does not end"));
            }
            text.extend_from_slice(&block);
            while let Some(end) =
                text.iter().position(|&byte| byte == b'\n').filter(|_| numbers.len() < wanted)
            {
                let found =
                    number(&text[..end]).ok_or_else(|| damaged("the map of its holes has no numbers"))?;
                text.drain(..=end);
                if numbers.is_empty() {
                    if found > MAX_PIECES {
                        return Err(damaged("the map of its holes is beyond reason"));
                    }
                    wanted = 1 + 2 * found as usize;
                }
                numbers.push(found);
            }
        }
        let pieces = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        Ok(pieces.filter(|(_, length)| *length > 0).collect())
    }

    fn block(&mut self) -> Result<[u8; BLOCK as usize], TarError> {
        let mut block = [0; BLOCK as usize];
        self.from.read_exact(&mut block).map_err(|error| self.cut(error))?;
        self.at += BLOCK;
        Ok(block)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, TarError> {
        let mut out = Vec::new();
        let read = (&mut self.from).take(length).read_to_end(&mut out)?;
        self.at += read as u64;
        if (read as u64) < length {
            return Err(self.cut(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(out)
    }

    fn skip_to(&mut self, to: u64) -> Result<(), TarError> {
        let length = to.saturating_sub(self.at);
        let skipped = std::io::copy(&mut (&mut self.from).take(length), &mut std::io::sink())?;
        self.at += skipped;
        if skipped < length {
            return Err(self.cut(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn cut(&self, error: std::io::Error) -> TarError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return TarError::Damaged { offset: self.at, what: "the section was cut off".to_owned() };
        }
        TarError::Io(error)
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
