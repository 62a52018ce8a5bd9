//! The files that a command names: arguments, and lists from standard input of any length. What cannot be chosen is named
//! with its reason, the rest is done.

use crate::exit::{Exit, of_class, of_error, told, usage};
use crate::paths::namespace_path;
use anyhow::{Context as _, Result};
use client::{Connection, escape};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use types::{QuoteView, QuoteWaits, RequestView, StatusView, plural};
use wire::{Act, ActOrder, Acted, Call, MAX_PATHS, Outcome, Selection};

/// Bytes of the paths of one call, about.
const PART_BYTES: usize = 1 << 20;
/// A longer list becomes several requests, each of so many paths.
const REQUEST_PATHS: u64 = 1_000_000;
/// Longest path of a list (bytes). So much is looked at to learn what separates its paths.
const LONGEST: usize = 1 << 20;

/// Which files, and whether to wait.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// Files and directories; `-` reads a list from standard input
    pub paths: Vec<OsString>,
    /// Directories with all files below them
    #[arg(short, long)]
    pub recursive: bool,
    /// Read paths from standard input, one per line, or separated by NUL if there is a NUL
    #[arg(long)]
    pub from_stdin: bool,
}

/// What became of the files.
#[derive(Default)]
pub struct Done {
    /// Requests that were made.
    pub requests: Vec<RequestView>,
    /// Files pinned or unpinned.
    pub changed: u64,
    /// What it would take, if any path could be chosen.
    pub quote: Option<(QuoteView, QuoteWaits)>,
    /// What is left out.
    pub left: Left,
}

/// Paths that are left out.
#[derive(Default)]
pub struct Left {
    /// Paths of the whole list.
    of: u64,
    /// Those of them that are left out.
    paths: u64,
    /// Further files below directories.
    unnamed: u64,
    named: Vec<(Vec<u8>, String)>,
    /// Of all reasons, if it is one.
    exit: Option<Exit>,
}

impl Left {
    fn out(&mut self, path: &[u8], why: &str, exit: Exit) {
        eprintln!("thermo: {}: {why}", escape(path));
        let first = self.named.is_empty();
        self.exit = if first { Some(exit) } else { self.exit.filter(|before| *before == exit) };
        self.named.push((path.to_owned(), why.to_owned()));
    }

    /// Says how many there are.
    fn sum_up(&self) {
        if self.unnamed > 0 {
            eprintln!(
                "thermo: left out below directories: {} more; see the log of the node",
                plural(self.unnamed, "file")
            );
        }
        if self.paths > 0 && self.of > 1 {
            eprintln!("thermo: {} of {} paths are left out", self.paths, self.of);
        }
    }

    /// How the command ends: as `otherwise`, if nothing is left out.
    pub fn exit(&self, otherwise: Exit) -> Exit {
        if self.named.is_empty() || otherwise == Exit::INTERRUPTED {
            return otherwise;
        }
        match self.exit {
            Some(exit) if self.paths == self.of => exit,
            _ => Exit::SOME_FAILED,
        }
    }

    /// For JSON.
    pub fn json(&self) -> Value {
        let each = self.named.iter().map(|(path, why)| json!({ "path": path, "why": why }));
        each.collect()
    }
}

impl Files {
    /// Does something with all of them.
    pub fn act(self, node: &mut Connection, act: Act) -> Result<Done> {
        let from_stdin = self.from_stdin || self.paths.iter().any(|p| p == "-");
        let typed = self.paths.into_iter().filter(|p| p != "-").map(Ok);
        let mut acting =
            Acting { act, recursive: self.recursive, mounts: None, after: 0, done: Done::default() };
        if from_stdin {
            let listed = list(std::io::stdin().lock())?;
            acting.all(node, &mut typed.chain(listed))?;
        } else {
            acting.all(node, &mut { typed })?;
        }
        acting.done.left.sum_up();
        Ok(acting.done)
    }
}

/// A list on its way to the node.
struct Acting {
    act: Act,
    recursive: bool,
    /// Mounts of the node, once it was asked.
    mounts: Option<Vec<String>>,
    /// Paths of the present request that the node has.
    after: u64,
    done: Done,
}

impl Acting {
    fn all(
        &mut self,
        node: &mut Connection,
        paths: &mut dyn Iterator<Item = Result<OsString>>,
    ) -> Result<()> {
        let mut paths = paths.peekable();
        if paths.peek().is_none() {
            return Err(usage("no files are named; give paths, or a list with --from-stdin"));
        }
        while paths.peek().is_some() {
            let (mut typed, mut found, mut bytes) = (Vec::new(), Vec::new(), 0);
            while typed.len() < MAX_PATHS && bytes < PART_BYTES {
                let Some(path) = paths.next().transpose()? else { break };
                self.done.left.of += 1;
                match self.namespace_path(node, &path)? {
                    Ok(path_found) => {
                        bytes += path_found.len();
                        found.push(path_found);
                        typed.push(path);
                    }
                    Err(why) => self.left_out(&path, &why),
                }
            }
            let full = self.after + found.len() as u64 >= REQUEST_PATHS && self.act != Act::Quote;
            self.part(node, &typed, found, full || paths.peek().is_none())?;
        }
        Ok(())
    }

    /// The path in the namespace; the inner error is about this path only.
    fn namespace_path(
        &mut self,
        node: &mut Connection,
        typed: &OsStr,
    ) -> Result<Result<Vec<u8>, anyhow::Error>> {
        if self.mounts.is_none() && !typed.as_bytes().starts_with(crate::paths::PREFIX) {
            self.mounts = Some(node.ask::<StatusView>(&Call::Status)?.mounts);
        }
        if typed.as_bytes().contains(&0) {
            return Ok(Err(usage("has a NUL in it; separate all paths of a list in the same way")));
        }
        Ok(namespace_path(typed, self.mounts.as_deref().unwrap_or_default()))
    }

    fn left_out(&mut self, path: &OsStr, why: &anyhow::Error) {
        let (path, text) = (path.as_bytes(), told(why));
        let text = text.strip_prefix(&format!("{}: ", escape(path))).unwrap_or(&text).to_owned();
        self.done.left.paths += 1;
        self.done.left.out(path, &text, of_error(why).unwrap_or(Exit::SOME_FAILED));
    }

    fn part(
        &mut self,
        node: &mut Connection,
        typed: &[OsString],
        paths: Vec<Vec<u8>>,
        last: bool,
    ) -> Result<()> {
        let count = paths.len() as u64;
        if count == 0 && self.after == 0 {
            return Ok(());
        }
        let files = Selection { paths, recursive: self.recursive };
        let order = ActOrder { act: self.act.clone(), files, after: self.after, last };
        let acted: Acted = node.ask(&Call::Act(order))?;
        self.after = if last { 0 } else { self.after + count };
        let left = &mut self.done.left;
        for out in acted.left {
            let exit = of_class(out.class);
            match (&out.below, typed.get(out.of as usize)) {
                (Some(below), _) => left.out(&[crate::paths::PREFIX, below].concat(), &out.why, exit),
                (None, Some(path)) => {
                    left.paths += 1;
                    left.out(path.as_bytes(), &out.why, exit);
                }
                (None, None) => {}
            }
        }
        left.unnamed += acted.unnamed;
        match acted.outcome {
            Outcome::Gathered | Outcome::Nothing => {}
            Outcome::Request(view) => self.done.requests.push(*view),
            Outcome::Changed(changed) => self.done.changed += changed,
            Outcome::Quote(view, waits) => self.done.quote = Some((*view, *waits)),
        }
        Ok(())
    }
}

/// The paths of a list, one after the other: it may be longer than memory.
fn list(input: impl Read) -> Result<impl Iterator<Item = Result<OsString>>> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut head = Vec::new();
    while !head.contains(&0) && head.len() < LONGEST {
        let more = input.fill_buf().context("reading the list of files")?;
        if more.is_empty() {
            break;
        }
        head.extend_from_slice(more);
        let used = more.len();
        input.consume(used);
    }
    let separator = if head.contains(&0) { 0 } else { b'\n' };
    let mut input = std::io::Cursor::new(head).chain(input);
    Ok(std::iter::from_fn(move || next(&mut input, separator).transpose()))
}

fn next(input: &mut impl BufRead, separator: u8) -> Result<Option<OsString>> {
    loop {
        let mut name = Vec::new();
        let mut some = input.by_ref().take(LONGEST as u64);
        some.read_until(separator, &mut name).context("reading the list of files")?;
        match name.pop_if(|last| *last == separator) {
            None if name.is_empty() => return Ok(None),
            None if name.len() == LONGEST => {
                return Err(usage(format!(
                    "the list has a path of more than {LONGEST} bytes, beginning with {}",
                    escape(&name[..200])
                )));
            }
            Some(_) if name.is_empty() => {}
            _ => return Ok(Some(OsString::from_vec(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(input: impl Read) -> Vec<OsString> {
        list(input).unwrap().map(|name| name.unwrap()).collect()
    }

    #[test]
    fn lists_are_split_at_lines_or_at_nul() {
        assert_eq!(names(&b"/a\n/b c\n\n/d"[..]), ["/a", "/b c", "/d"]);
        assert_eq!(names(&b"/a\nb\0/c\0"[..]), ["/a\nb", "/c"]);
        assert!(names(&b""[..]).is_empty() && names(&b"\n\n"[..]).is_empty());
    }

    #[test]
    fn a_path_without_end_is_an_error_and_one_behind_a_long_list_is_not_lost() {
        let error = list(std::io::repeat(b'x')).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("1048576 bytes"), "{error}");
        let long: Vec<u8> = (0..300_000).flat_map(|n| format!("/{n}\n").into_bytes()).collect();
        assert!(long.len() > LONGEST);
        assert_eq!(names(&long[..]).last().unwrap(), "/299999");
    }

    #[test]
    fn a_list_that_is_left_out_as_a_whole_ends_with_its_reason_and_a_part_of_it_with_some_failed() {
        let mut left = Left { of: 2, ..Left::default() };
        assert_eq!(left.exit(Exit::OK), Exit::OK);
        left.paths = 1;
        left.out(b"/a\xff", "no such file", Exit(5));
        assert_eq!(left.exit(Exit::OK), Exit::SOME_FAILED);
        assert_eq!(left.exit(Exit::INTERRUPTED), Exit::INTERRUPTED);
        left.paths = 2;
        left.out(b"/b", "no such file", Exit(5));
        assert_eq!(left.exit(Exit::OK), Exit(5));
        assert_eq!(left.json()[0], json!({ "path": b"/a\xff", "why": "no such file" }));
        left.out(b"/c", "denied", Exit(4));
        assert_eq!(left.exit(Exit::OK), Exit::SOME_FAILED);
    }
}
