//! What is said of a key that is not known.

/// Turns serde's complaint about an unknown key into one that names the nearest valid key.
pub(super) fn explain(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let quoted: Vec<&str> = error.message().split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((unknown, known)) if error.message().starts_with("unknown field") => {
            format!("{text}{}", nearest(unknown, known.iter().copied()))
        }
        _ => text,
    }
}

/// The end of a message that proposes the known word most like this one.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .min()
        .map(|(_, k)| format!("; did you mean `{k}`?"))
        .unwrap_or_default()
}
