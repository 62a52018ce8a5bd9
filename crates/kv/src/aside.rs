//! The mark of an engine that does not count: a copy that is not the engine yet, or one whose content went elsewhere.

use std::fmt;

/// What an engine is that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A copy of another engine, perhaps not complete.
    Copy,
    /// Its content was copied into another engine.
    Left,
}

/// Says durably of an engine that it does not count. It opens only for who knows the number of the move that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// What it is.
    pub role: Role,
    /// Number of the move, without blanks.
    pub id: String,
    /// What it is, and what to do, for people: one line.
    pub why: String,
}

impl Aside {
    /// Reads what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (role, rest) = text.split_once(' ')?;
        let (id, why) = rest.split_once(' ')?;
        let role = match role {
            "copy" => Role::Copy,
            "left" => Role::Left,
            _ => return None,
        };
        Some(Self { role, id: id.into(), why: why.into() })
    }

    /// Whether it opens for who knows of the move `id`.
    pub(crate) fn opens_for(&self, id: Option<&str>) -> bool {
        id == Some(self.id.as_str())
    }
}

impl fmt::Display for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Copy => "copy",
            Role::Left => "left",
        };
        // It is stored as one line.
        write!(f, "{role} {} {}", self.id, self.why.replace(['\n', '\r'], " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_on_one_line() {
        for role in [Role::Copy, Role::Left] {
            let mark = Aside { role, id: "1-2".into(), why: "moved to /a\nb".into() };
            let read = Aside::parse(&mark.to_string()).expect("a mark");
            assert_eq!(read, Aside { why: "moved to /a b".into(), ..mark });
            assert!(read.opens_for(Some("1-2")) && !read.opens_for(Some("1")) && !read.opens_for(None));
        }
        assert!(["", "copy", "copy 1", "other 1 why"].iter().all(|text| Aside::parse(text).is_none()));
    }
}
