//! Who is who in a cluster: its authority, certificates of nodes and clients, tokens to join with, and TLS 1.3 with both ends
//! authenticated. No records, no calls: those are the node's. `docs/design/0007-parallel.md`, "Who is who".
#![forbid(unsafe_code)]

mod authority;
mod error;
mod limit;
mod name;
mod places;
mod program;
mod signed;
mod store;
mod tls;
mod token;
mod verify;
mod withdrawn;

pub use authority::{Authority, Key, Validity, YEAR};
pub use error::IdentError;
pub use limit::{Noted, Origin, Refusals};
pub use name::{Identity, Role};
pub use places::{Places, read_places};
pub use program::session_of_program;
pub use rustls::pki_types::CertificateDer;
pub use store::Credentials;
pub use tls::{Acceptor, Connector, TlsStream};
pub use token::{Secret, SecretDigest, Token};
pub use uuid::Uuid;
pub use withdrawn::{Withdrawn, read_withdrawn};

/// SHA-256 of something public: a certificate.
pub type Digest = [u8; 32];

/// SHA-256 of a certificate, by which it is known.
pub fn digest(certificate: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(certificate).into()
}
