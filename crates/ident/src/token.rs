//! One-time tokens: what a new node or client is given so that it can ask for a certificate.
//!
//! As text `thermo1.` and base64url (no padding) of: id (16 bytes), secret (32), cluster (16), digest of the authority's certificate
//! (32), last second of its life (u64, little-endian), number of addresses (u8), each as length (u8) and text, and the first 4
//! bytes of the SHA-256 of all that, so that a mistyped token is told from a refused one.

use crate::{Digest, IdentError, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::CryptoProvider;
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;
use uuid::Uuid;

const HEAD: &str = "thermo1.";
const SUM: usize = 4;
/// Longest text that is looked at (bytes).
const LONGEST: usize = 4096;

/// The secret of a token. It is compared only by its digest, and never shown.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// As somebody presents it.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// To be sent over TLS to a node that has proved who it is.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What the cluster keeps.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(digest(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// SHA-256 of a secret. 256 random bits need no slower function.
#[derive(Clone, Copy, Debug)]
pub struct SecretDigest(pub [u8; 32]);

impl SecretDigest {
    /// Whether that is the secret; takes equally long for all that are not.
    pub fn is_of(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.digest().0).into()
    }
}

/// A token.
#[derive(Clone, Debug)]
pub struct Token {
    /// By which the cluster finds its record; not secret.
    pub id: Uuid,
    /// What proves that the bearer was given it.
    pub secret: Secret,
    /// The cluster.
    pub cluster: Uuid,
    /// Of the authority's certificate: so the bearer knows whom it talks to before it says the secret.
    pub authority: Digest,
    /// Last second of its life, since 1970.
    pub expires: u64,
    /// Where to ask (`host:port`).
    pub addresses: Vec<String>,
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// No random numbers, or addresses that do not fit (at most 255, of at most 255 bytes).
    pub fn create(
        cluster: Uuid,
        authority: Digest,
        expires: u64,
        addresses: Vec<String>,
    ) -> Result<Self, IdentError> {
        let fits = addresses.iter().map(|a| a.len() + 1).sum::<usize>() <= LONGEST / 2;
        if addresses.len() > 255 || !fits || addresses.iter().any(|a| a.len() > 255) {
            return Err(IdentError::Token("the addresses of the node do not fit into one"));
        }
        let provider: CryptoProvider = rustls::crypto::ring::default_provider();
        let (mut id, mut secret) = ([0; 16], [0; 32]);
        let filled =
            provider.secure_random.fill(&mut id).and_then(|()| provider.secure_random.fill(&mut secret));
        filled.map_err(|_| IdentError::Io(std::io::Error::other("the system gives no random numbers")))?;
        Ok(Self { id: Uuid::from_bytes(id), secret: Secret(secret), cluster, authority, expires, addresses })
    }

    /// All of it as text. Whoever has the text can join.
    pub fn reveal(&self) -> String {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&self.secret.0);
        bytes.extend_from_slice(self.cluster.as_bytes());
        bytes.extend_from_slice(&self.authority);
        bytes.extend_from_slice(&self.expires.to_le_bytes());
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            bytes.push(address.len() as u8);
            bytes.extend_from_slice(address.as_bytes());
        }
        let sum = digest(&bytes);
        bytes.extend_from_slice(&sum[..SUM]);
        format!("{HEAD}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, IdentError> {
        let bad = IdentError::Token;
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        let body = text.strip_prefix(HEAD).ok_or(bad("it does not begin with thermo1."))?;
        let bytes =
            URL_SAFE_NO_PAD.decode(body).map_err(|_| bad("it has other characters than it should"))?;
        let (body, sum) = bytes.split_last_chunk::<SUM>().ok_or(bad("it ends early"))?;
        if digest(body)[..SUM] != sum[..] {
            return Err(bad("a part is missing or mistyped"));
        }
        read(&mut &*body).ok_or(bad("it is of another release"))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(*head)
}

fn read(bytes: &mut &[u8]) -> Option<Token> {
    let id = Uuid::from_bytes(take(bytes)?);
    let secret = Secret(take(bytes)?);
    let cluster = Uuid::from_bytes(take(bytes)?);
    let authority = take(bytes)?;
    let expires = u64::from_le_bytes(take(bytes)?);
    let [count] = take(bytes)?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        let [len] = take(bytes)?;
        let (text, rest) = bytes.split_at_checked(usize::from(len))?;
        addresses.push(std::str::from_utf8(text).ok()?.to_owned());
        *bytes = rest;
    }
    bytes.is_empty().then_some(Token { id, secret, cluster, authority, expires, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let addresses = vec!["mds1.example:7430".into(), "[2001:db8::1]:7430".into()];
        Token::create(Uuid::new_v4(), [7; 32], 1_800_000_000, addresses).unwrap()
    }

    #[test]
    fn a_token_survives_copying() {
        let token = token();
        let read: Token = format!("  {}\n", token.reveal()).parse().unwrap();
        assert_eq!((read.id, read.cluster, read.authority), (token.id, token.cluster, token.authority));
        assert_eq!((read.expires, read.addresses), (token.expires, token.addresses));
        assert!(token.secret.digest().is_of(&read.secret));
        assert!(!token.secret.digest().is_of(&Secret([0; 32])));
    }

    #[test]
    fn any_damage_is_noticed() {
        let text = token().reveal();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            // The last character holds spare bits: it may not decode, but it must not decode to something else.
            assert!(String::from_utf8(bytes).unwrap().parse::<Token>().is_err(), "{at}");
            assert!(text[..at].parse::<Token>().is_err(), "{at}");
        }
    }

    #[test]
    fn the_secret_is_not_in_the_log() {
        let token = token();
        let shown = format!("{token:?}");
        assert!(shown.contains("Secret(not shown)"), "{shown}");
    }
}
