//! Lengths of functions in formatted Rust: a function ends with the first `}` at its own indentation.

/// A function longer than a limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Long {
    /// Name.
    pub name: String,
    /// First line, counted from 1.
    pub line: usize,
    /// Number of lines.
    pub length: usize,
}

/// Functions of more than `limit` lines.
pub fn longer_than(limit: usize, source: &str) -> Vec<Long> {
    let lines: Vec<&str> = source.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function_name(line)?)));
    starts
        .filter_map(|(at, name)| {
            let indent = lines[at].len() - lines[at].trim_start().len();
            let closes = |line: &str| {
                line.len() > indent && line[..indent].trim().is_empty() && line[indent..] == *"}"
            };
            let one_line = lines[at].trim_end().ends_with(['}', ';']);
            let end = if one_line { at } else { at + lines[at..].iter().position(|line| closes(line))? };
            let length = end - at + 1;
            (length > limit).then(|| Long { name: name.to_owned(), line: at + 1, length })
        })
        .collect()
}

fn function_name(line: &str) -> Option<&str> {
    let words = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe ", "extern \"C\" "];
    let mut rest = line.trim_start();
    while let Some(next) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = next;
    }
    let name = rest.strip_prefix("fn ")?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_long_functions_only() {
        let body = "        x();\n".repeat(4);
        let source = format!(
            "impl A {{\n    pub fn long(&self) {{\n{body}    }}\n\n    fn short() {{}}\n}}\nfn end() {{\n}}\n"
        );
        let found = longer_than(5, &source);
        assert_eq!(found, [Long { name: "long".to_owned(), line: 2, length: 6 }]);
        assert_eq!(longer_than(6, &source), []);
        assert_eq!(longer_than(0, "    let fn_ = 1;\n// fn x\n"), []);
    }
}
