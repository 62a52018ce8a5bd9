//! Cases as text: one call per line, with the user who makes it and what must come of it.
//!
//! ```text
//! == a title
//! mkdir d 1777
//! alice: create d/f 644
//! bob: unlink d/f => EPERM
//! stat d mode,nlink => 1777 2
//! ```
//!
//! Without `=>` the call must succeed, whatever it answers. `{n*255}` stands for 255 times `n`; text in double quotes may
//! hold spaces and the escapes `\n`, `\0`, `\"`, `\\` and `\xNN`. `#` at the start of a line begins a comment.

use crate::users::User;

/// Cases in one file.
#[derive(Clone, Debug)]
pub struct Case {
    /// `file: title`.
    pub name: String,
    /// What happens.
    pub steps: Vec<Step>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line as it is written.
    pub text: String,
    /// Number of the line in its file.
    pub line: usize,
    /// Who calls.
    pub user: User,
    /// Call and arguments.
    pub words: Vec<Vec<u8>>,
    /// What must come of it; None: success.
    pub want: Option<String>,
}

/// Reads a file of cases. Panics, with the line, if it is not well formed: it is part of the tests.
pub fn cases(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { name: format!("{file}: {title}"), steps: Vec::new() });
        } else if !line.is_empty() && !line.starts_with('#') {
            let case =
                cases.last_mut().unwrap_or_else(|| panic!("{file}:{}: a call before any title", at + 1));
            case.steps.push(step(line, at + 1).unwrap_or_else(|e| panic!("{file}:{}: {e}", at + 1)));
        }
    }
    cases
}

/// Reads one line.
pub fn step(text: &str, line: usize) -> Result<Step, String> {
    let (call, want) = match text.split_once(" => ") {
        Some((call, want)) => (call, Some(want.trim().to_owned())),
        None => (text, None),
    };
    let mut words = words(call)?;
    let first = words.first().ok_or("no call")?;
    let user = first.strip_suffix(b":").and_then(User::named);
    if user.is_some() {
        words.remove(0);
    }
    Ok(Step { text: text.to_owned(), line, user: user.unwrap_or(User::Root), words, want })
}

fn words(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = Vec::new();
        let mut quoted = false;
        while let Some(&c) = chars.peek() {
            match c {
                '"' => quoted = !quoted,
                c if c.is_whitespace() && !quoted => break,
                '\\' if quoted => {
                    chars.next();
                    word.push(escape(&mut chars)?);
                    continue;
                }
                '{' if !quoted => {
                    chars.next();
                    word.extend(repeated(&mut chars)?);
                    continue;
                }
                c => word.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
            chars.next();
        }
        if quoted {
            return Err("a quotation without end".into());
        }
        words.push(word);
    }
    Ok(words)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn escape(chars: &mut Chars<'_>) -> Result<u8, String> {
    match chars.next() {
        Some('n') => Ok(b'\n'),
        Some('0') => Ok(0),
        Some(c @ ('"' | '\\')) => Ok(c as u8),
        Some('x') => {
            let digits: String = chars.by_ref().take(2).collect();
            u8::from_str_radix(&digits, 16).map_err(|e| format!("\\x{digits}: {e}"))
        }
        other => Err(format!("escape {other:?}")),
    }
}

fn repeated(chars: &mut Chars<'_>) -> Result<Vec<u8>, String> {
    let inside: String = chars.by_ref().take_while(|c| *c != '}').collect();
    let (what, times) = inside.rsplit_once('*').ok_or_else(|| format!("{{{inside}}} has no *"))?;
    let times: usize = times.parse().map_err(|e| format!("{{{inside}}}: {e}"))?;
    Ok(what.repeat(times).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_steps() {
        let s = step(r#"bob: put {ab*3}/f "a b\n\x41\"" => EACCES"#, 7).unwrap();
        assert_eq!((s.user, s.line, s.want.as_deref()), (User::Bob, 7, Some("EACCES")));
        assert_eq!(s.words, [b"put".to_vec(), b"ababab/f".to_vec(), b"a b\nA\"".to_vec()]);
        assert_eq!(step("stat f", 1).unwrap().user, User::Root);
        for wrong in ["put \"x", "put {n}", "put \"\\q\"", ""] {
            assert!(step(wrong, 1).is_err(), "{wrong}");
        }
    }
}
