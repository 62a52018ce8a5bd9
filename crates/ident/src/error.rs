//! Why somebody is not believed, or cannot be asked.

use rustls::{AlertDescription, CertificateError};
use std::path::PathBuf;
use types::ErrorClass;

/// What can go wrong between two ends that do not know each other yet.
#[derive(Debug, thiserror::Error)]
pub enum IdentError {
    /// Not TLS at all.
    #[error("plain TCP came where TLS is due; nothing is answered in the clear")]
    PlainTcp,
    /// The other end has no certificate.
    #[error("the other end shows no certificate; it has to join the cluster first (`thermo cluster join`)")]
    NoCertificate,
    /// Its certificate is too old.
    #[error(
        "the other end's certificate has expired; it gets a new one by itself where the first node answers it (or set the clocks right)"
    )]
    Expired,
    /// Its certificate is too new.
    #[error("the other end's certificate is not valid yet; the clocks of the two hosts differ")]
    NotYetValid,
    /// Signed by somebody else, or not at all as it says.
    #[error("the other end's certificate is not from the authority of this cluster")]
    Foreign,
    /// From the right authority, but for another cluster.
    #[error("the other end belongs to another cluster ({0})")]
    OtherCluster(String),
    /// A client where a node is due.
    #[error("the other end is {0}, and a node is due here")]
    NotANode(String),
    /// A certificate that names nobody, or more than one.
    #[error("the other end's certificate names nobody of a cluster: {0}")]
    Nameless(String),
    /// Of this cluster once.
    #[error("the other end was removed from the cluster")]
    Removed,
    /// A list of removed members that is not to be believed.
    #[error("that is no list of removed members: {0}")]
    List(&'static str),
    /// Our certificate is too old.
    #[error(
        "the other end says that our certificate has expired; this host gets a new one by itself where the first node answers it (or set the clocks right)"
    )]
    OwnExpired,
    /// The other end does not believe us.
    #[error("the other end refuses our certificate ({0})")]
    Refused(&'static str),
    /// Anything else of TLS.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The socket.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// A key or certificate that cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
    /// A signing request that is not one.
    #[error("the signing request cannot be used: {0}")]
    Request(String),
    /// A token that cannot be read.
    #[error("that is no token: {0}; copy all of what `thermo cluster token` printed")]
    Token(&'static str),
    /// Files of an identity.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl IdentError {
    /// What a caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io(_) | Self::Expired | Self::OwnExpired => ErrorClass::Retry,
            Self::Token(_) | Self::Request(_) | Self::List(_) => ErrorClass::Invalid,
            Self::Making(_) | Self::Tls(_) => ErrorClass::Bug,
            Self::File { .. } => ErrorClass::Corrupt,
            _ => ErrorClass::Denied,
        }
    }

    /// Whether the other end is to blame, so that a refusal counts against its address; a network that fails is not, nor is a certificate that has ended: a host
    /// that was away would not be listened to when it asks for the next one.
    pub fn counts(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::Making(_) | Self::File { .. } | Self::Expired)
    }
}

impl From<rustls::Error> for IdentError {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error as E;
        match error {
            E::NoCertificatesPresented => Self::NoCertificate,
            E::InvalidCertificate(why) => of_certificate(why),
            E::AlertReceived(alert) => of_alert(alert),
            E::InvalidMessage(_) => Self::PlainTcp,
            other => Self::Tls(other),
        }
    }
}

fn of_certificate(why: CertificateError) -> IdentError {
    use CertificateError as C;
    match why {
        C::Revoked => IdentError::Removed,
        C::Expired | C::ExpiredContext { .. } => IdentError::Expired,
        C::NotValidYet | C::NotValidYetContext { .. } => IdentError::NotYetValid,
        C::Other(other) => match other.0.downcast_ref::<Stranger>() {
            Some(Stranger::OtherCluster(who)) => IdentError::OtherCluster(who.clone()),
            Some(Stranger::NotANode(who)) => IdentError::NotANode(who.clone()),
            Some(Stranger::Nameless(why)) => IdentError::Nameless(why.clone()),
            None => IdentError::Foreign,
        },
        _ => IdentError::Foreign,
    }
}

fn of_alert(alert: AlertDescription) -> IdentError {
    use AlertDescription as A;
    IdentError::Refused(match alert {
        A::CertificateExpired => return IdentError::OwnExpired,
        A::UnknownCA | A::DecryptError => "it is not from that cluster's authority",
        A::CertificateRequired => "there is none: join the cluster first",
        A::NoApplicationProtocol => "it speaks no protocol that we know: is it a Thermocline node?",
        A::CertificateRevoked => "we were removed from the cluster: join again with a new token",
        _ => "see the log of the node",
    })
}

/// What a verifier finds in a certificate that the authority did sign; travels through rustls.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("of another cluster: {0}")]
    OtherCluster(String),
    #[error("{0} is not a node")]
    NotANode(String),
    #[error("{0}")]
    Nameless(String),
}

/// An error of a read or write that rustls is behind.
pub(crate) fn of_io(error: std::io::Error) -> IdentError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => inner.clone().into(),
        None => IdentError::Io(error),
    }
}
