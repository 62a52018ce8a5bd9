//! Virtual libraries with drives and cartridges of several generations, in the configuration.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use types::Generation;

/// Media identifiers; in TOML `"L9"`, or `["L8", "L9"]` for cartridges of several kinds in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Media(pub Vec<String>);

impl From<&str> for Media {
    fn from(one: &str) -> Self {
        Self(vec![one.into()])
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Serialize for Media {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(s),
            more => more.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Media {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(match OneOrMore::deserialize(d)? {
            OneOrMore::One(one) => Self(vec![one]),
            OneOrMore::More(more) => Self(more),
        })
    }
}

/// Generation of a drive; in TOML `"LTO8"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveKind(pub Generation);

impl Serialize for DriveKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("LTO{}", self.0.number()))
    }
}

impl<'de> Deserialize<'de> for DriveKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let drive = Generation::parse(&text).filter(|g| *g != Generation::Lto7M8);
        drive.map(Self).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not LTO1 to LTO10")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn mixed_libraries_are_read_and_written_as_they_were() {
        let text = "[library]\ndrives = 3\ngenerations = [\"LTO8\", \"lto-9\"]\nmedia = [\"L8\", \"L9\"]\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.library.generations, [Generation::Lto8, Generation::Lto9].map(DriveKind));
        assert_eq!(config.library.media.0, ["L8", "L9"]);
        assert_eq!(Config::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
        assert_eq!(Config::parse("[library]\nmedia = \"L4\"\n").unwrap().library.media, "L4".into());
        for (bad, why) in [("generations = [\"M8\"]", "LTO1 to LTO10"), ("media = [\"X\"]", "library.media")]
        {
            let error = Config::parse(&format!("[library]\n{bad}\n")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
