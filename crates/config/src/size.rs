//! Numbers of bytes, with the units that people write.

use serde::{Deserialize, Serialize};

/// A number of bytes; in TOML an integer or text with a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Size(pub u64);

impl Size {
    /// Gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// Mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let t = text.trim();
        let split = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
        let (number, unit) = (&t[..split], t[split..].trim().to_ascii_lowercase());
        let factor: u64 = match unit.as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            other => {
                return Err(format!(
                    "`{other}` is not a unit of size; use KiB, MiB, GiB, TiB, KB, MB, GB or TB"
                ));
            }
        };
        let too_large = || format!("`{text}` is too large");
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(too_large);
        }
        let n: f64 =
            number.parse().map_err(|_| format!("`{text}` is not a size; write for example \"6 GiB\""))?;
        let bytes = n * factor as f64;
        if bytes < u64::MAX as f64 { Ok(Self(bytes as u64)) } else { Err(too_large()) }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl serde::de::Visitor<'_> for V {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes or text such as \"6 GiB\"")
            }
            fn visit_u64<E>(self, v: u64) -> Result<Size, E> {
                Ok(Size(v))
            }
            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Size, E> {
                u64::try_from(v).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Size, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(V)
    }
}
