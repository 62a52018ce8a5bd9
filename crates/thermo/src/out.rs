//! Standard output: text or JSON, tables, colours only for people.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::io::{BufWriter, IsTerminal, Write};

/// Where results are printed.
pub struct Out {
    writer: BufWriter<std::io::Stdout>,
    colour: bool,
}

/// A colour with a meaning.
#[derive(Clone, Copy)]
pub enum Tint {
    /// Good.
    Green,
    /// Look at it.
    Yellow,
    /// Bad.
    Red,
    /// Less important.
    Dim,
    /// Heading.
    Bold,
}

impl Out {
    /// Colours are used on a terminal unless NO_COLOR is set.
    pub fn new() -> Self {
        let stdout = std::io::stdout();
        let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { writer: BufWriter::new(stdout), colour }
    }

    /// Prints a line.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.writer, "{text}").context("printing")
    }

    /// Prints a value as JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let value = readable(serde_json::to_value(value)?);
        serde_json::to_writer_pretty(&mut self.writer, &value).map_err(std::io::Error::from)?;
        self.line("")
    }

    /// Ends printing.
    pub fn finish(&mut self) -> Result<()> {
        self.writer.flush().context("printing")
    }

    /// Text in a colour, where colours are used.
    pub fn tint(&self, tint: Tint, text: impl Display) -> String {
        if !self.colour {
            return text.to_string();
        }
        let code = match tint {
            Tint::Green => 32,
            Tint::Yellow => 33,
            Tint::Red => 31,
            Tint::Dim => 2,
            Tint::Bold => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Prints a table.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        for (i, line) in table.lines().iter().enumerate() {
            let text = if i == 0 { self.tint(Tint::Bold, line) } else { line.clone() };
            self.line(text)?;
        }
        Ok(())
    }
}

/// Rows under a heading, columns aligned.
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that ends in `>` aligns its column to the right.
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heading.len());
        self.rows.push(cells);
    }

    /// The lines to print, heading first.
    pub fn lines(&self) -> Vec<String> {
        let heads: Vec<String> = self.heading.iter().map(|h| h.trim_end_matches('>').to_owned()).collect();
        let mut widths: Vec<usize> = heads.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        std::iter::once(&heads).chain(&self.rows).map(|row| self.align(row, &widths)).collect()
    }

    fn align(&self, row: &[String], widths: &[usize]) -> String {
        let cells = row.iter().zip(widths).zip(&self.heading).map(|((cell, &width), head)| {
            if head.ends_with('>') { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// Fields of views that are paths or names: bytes, mostly UTF-8.
const NAMES: [&str; 5] = ["path", "name", "directory", "target", "link_target"];

/// Byte strings of the views become text, and digests hexadecimal. A name that is not UTF-8 has its bytes, hexadecimal, in a field
/// beside it.
fn readable(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut shown = serde_json::Map::new();
            for (key, value) in fields {
                match (key.as_str(), bytes(&value)) {
                    ("digest", Some(digest)) if digest.len() == 32 => {
                        shown.insert(key, hex(&digest).into());
                    }
                    (name, Some(text)) if NAMES.contains(&name) => {
                        if std::str::from_utf8(&text).is_err() {
                            shown.insert(format!("{name}_bytes"), hex(&text).into());
                        }
                        shown.insert(key, String::from_utf8_lossy(&text).into());
                    }
                    _ => {
                        shown.insert(key, readable(value));
                    }
                }
            }
            Value::Object(shown)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(readable).collect()),
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_array()?.iter().map(|v| v.as_u64().and_then(|n| u8::try_from(n).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new(&["NAME", "SIZE>", "NOTE"]);
        table.row(vec!["a".into(), "1 B".into(), String::new()]);
        table.row(vec!["längst".into(), "10.0 KiB".into(), "x".into()]);
        assert_eq!(table.lines(), ["NAME        SIZE  NOTE", "a            1 B", "längst  10.0 KiB  x"]);
    }

    #[test]
    fn json_shows_digests_and_paths_as_text() {
        let value = serde_json::json!({"digest": vec![171u8; 32], "path": [47, 97, 255], "target": [98], "rest": [1, 2]});
        let shown = readable(value);
        assert_eq!(shown["digest"], "ab".repeat(32));
        assert_eq!(shown["path"], "/a\u{fffd}");
        assert_eq!(shown["path_bytes"], "2f61ff");
        assert_eq!(shown.get("target_bytes"), None);
        assert_eq!(shown["target"], "b");
        assert_eq!(shown["rest"], serde_json::json!([1, 2]));
    }
}
