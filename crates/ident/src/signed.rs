//! What the authority of a cluster signs besides certificates, so that a member believes it whoever brings it.
//!
//! As bytes: what it is (16 bytes), cluster (16), what is said, and the authority's signature of all that (ECDSA P-256 with SHA-256, DER). No X.509 certificate
//! begins like that, so neither is ever taken for the other.

use crate::{Authority, IdentError};
use rustls::pki_types::CertificateDer;
use uuid::Uuid;
use webpki::EndEntityCert;

pub(crate) type Head = [u8; 16];

/// The beginning of one.
pub(crate) fn begin(head: &Head, authority: &Authority) -> Vec<u8> {
    [head.as_slice(), authority.cluster().as_bytes()].concat()
}

/// All of it is said: signs it.
pub(crate) fn end(mut said: Vec<u8>, authority: &Authority) -> Result<Vec<u8>, IdentError> {
    let signature = authority.signature(&said)?;
    said.extend_from_slice(&signature);
    Ok(said)
}

/// What is said, and the signature behind it, if it begins as one of that kind and cluster.
pub(crate) fn behind<'a>(head: &Head, bytes: &'a [u8], cluster: Uuid) -> Result<&'a [u8], IdentError> {
    let rest = bytes.strip_prefix(head).ok_or(bad("it does not begin as one"))?;
    let (of, rest) = rest.split_first_chunk::<16>().ok_or(bad("it ends early"))?;
    if of != cluster.as_bytes() {
        return Err(bad("it is of another cluster"));
    }
    Ok(rest)
}

/// Whether the authority (certificate, DER) has signed all that comes before the signature at the end of these bytes.
pub(crate) fn check(bytes: &[u8], signature: &[u8], authority: &[u8]) -> Result<(), IdentError> {
    let said = &bytes[..bytes.len() - signature.len()];
    let authority = CertificateDer::from(authority);
    let certificate = EndEntityCert::try_from(&authority).map_err(|_| bad("the authority cannot be read"))?;
    let checked = certificate.verify_signature(webpki::ring::ECDSA_P256_SHA256, said, signature);
    checked.map_err(|_| bad("the authority has not signed it"))
}

pub(crate) fn bad(why: &'static str) -> IdentError {
    IdentError::List(why)
}
