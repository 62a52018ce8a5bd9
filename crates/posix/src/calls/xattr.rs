//! Extended attributes.

use super::{Words, done};
use crate::world::{Outcome, World, number, show, text};
use rustix::fs::{self, XattrFlags};

fn flags(word: Option<&Vec<u8>>) -> XattrFlags {
    match word.map(|w| text(w)) {
        None => XattrFlags::empty(),
        Some("create") => XattrFlags::CREATE,
        Some("replace") => XattrFlags::REPLACE,
        Some(other) => panic!("no flag {other}"),
    }
}

/// setxattr PATH NAME VALUE [create|replace]
pub fn set(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::setxattr(&w[0], &w[1], &w[2], flags(w.get(3))))
}

pub fn lset(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::lsetxattr(&w[0], &w[1], &w[2], flags(w.get(3))))
}

pub fn fset(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::fsetxattr(world.fd(&w[0]), &w[1], &w[2], flags(w.get(3))))
}

/// getxattr PATH NAME SIZE: the value, or its length for size 0
pub fn get(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut value = vec![0; number(&w[2])];
    if value.is_empty() {
        return Ok(fs::getxattr_query(&w[0], &w[1])?.to_string());
    }
    let n = fs::getxattr(&w[0], &w[1], &mut value)?;
    Ok(show(&value[..n]))
}

pub fn lget(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut value = vec![0; number(&w[2])];
    let n = fs::lgetxattr(&w[0], &w[1], &mut value)?;
    Ok(show(&value[..n]))
}

/// listxattr PATH SIZE: the names in order of their bytes, or the length of the list for size 0
pub fn list(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut list = vec![0; number(&w[1])];
    if list.is_empty() {
        return Ok(fs::listxattr_query(&w[0])?.to_string());
    }
    let n = fs::listxattr(&w[0], &mut list)?;
    let mut names: Vec<&str> = list[..n].split(|b| *b == 0).filter(|n| !n.is_empty()).map(text).collect();
    // what the machine adds by itself is no matter of the file system
    names.retain(|n| *n != "security.selinux");
    names.sort_unstable();
    Ok(if names.is_empty() { "nothing".into() } else { names.join(" ") })
}

pub fn remove(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::removexattr(&w[0], &w[1]))
}

pub fn lremove(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::lremovexattr(&w[0], &w[1]))
}
