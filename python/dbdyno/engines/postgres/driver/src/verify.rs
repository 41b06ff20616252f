//! Which server certificates are good enough: libpq's rules for `require`, `verify-ca`, `verify-full`
//! (PostgreSQL documentation, "SSL Support", client verification of server certificates).

use std::sync::Arc;

use dyno_model::{Error, Result};
use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::x509;

type Check<T> = std::result::Result<T, rustls::Error>;

/// `require`: encrypts, but asks no certificate who it is.
#[derive(Debug)]
pub struct Anything(Arc<CryptoProvider>);

impl Anything {
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }

    /// The server has the key of its certificate: else a relay could show the certificate of the real server,
    /// and SCRAM would bind to that. webpki does it for no certificate of X.509 version 1; OpenSSL does.
    fn check_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Check<HandshakeSignatureValid> {
        let (kind, key) = x509::public_key(cert).ok_or(rustls::CertificateError::BadEncoding)?;
        let mut known = self.0.signature_verification_algorithms.mapping.iter();
        let algorithms = known
            .find(|(scheme, _)| *scheme == dss.scheme)
            .map_or(&[][..], |m| m.1);
        let good = algorithms.iter().any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == kind
                && algorithm.verify_signature(key, message, dss.signature()).is_ok()
        });
        if good {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(rustls::CertificateError::BadSignature.into())
        }
    }
}

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Check<ServerCertVerified> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Check<HandshakeSignatureValid> {
        self.check_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Check<HandshakeSignatureValid> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `verify-ca`, and with `full` `verify-full`.
#[derive(Debug)]
pub struct Trusted {
    provider: Arc<CryptoProvider>,
    /// `None`: no root is an authority by webpki's rules; then only a root itself is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    /// Some certificates are known to be revoked: one of which that is not known is refused.
    revocable: bool,
    full: bool,
}

impl Trusted {
    pub fn new(
        provider: Arc<CryptoProvider>,
        roots: Vec<CertificateDer<'static>>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
        full: bool,
    ) -> Result<Self> {
        if roots.is_empty() {
            return Err(Error::Tls("no trusted certificate found".to_owned()));
        }
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let revocable = !revoked.is_empty();
        let built = WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone())
            .with_crls(revoked)
            .enforce_revocation_expiration()
            .build();
        let chains = match built {
            Ok(chains) => Some(chains),
            Err(VerifierBuilderError::InvalidCrl(e)) => return Err(Error::Tls(format!("sslcrl: {e:?}"))),
            Err(_) => None,
        };
        Ok(Self {
            provider,
            chains,
            roots,
            revocable,
            full,
        })
    }

    /// webpki looks at the name last: an error of the name means that the chain is good. A server whose
    /// self-signed certificate is the root itself is what PostgreSQL's documentation sets up first;
    /// webpki refuses it, OpenSSL and so libpq do not.
    fn check_chain(
        &self,
        cert: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Check<()> {
        if self.roots.iter().any(|root| root.as_ref() == cert.as_ref()) {
            if self.revocable {
                return Err(rustls::CertificateError::UnknownRevocationStatus.into());
            }
            return check_dates(cert, now);
        }
        let Some(chains) = &self.chains else {
            return Err(rustls::CertificateError::UnknownIssuer.into());
        };
        match chains.verify_server_cert(cert, chain, name, ocsp, now) {
            Ok(_)
            | Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Subject alternative names, or where there are none the common name.
    fn check_name(cert: &CertificateDer<'_>, name: &ServerName<'_>) -> Check<()> {
        if !x509::has_alternative_names(cert) {
            let common = x509::common_name(cert).unwrap_or_default();
            let wanted = name.to_str();
            return if x509::matches_host(&common, &wanted) {
                Ok(())
            } else {
                Err(NotValidForName.into())
            };
        }
        verify_server_name(&ParsedCertificate::try_from(cert)?, name)
    }
}

/// webpki does it for chains.
fn check_dates(cert: &CertificateDer<'_>, now: UnixTime) -> Check<()> {
    let Some((from, until)) = x509::validity(cert) else {
        return Err(rustls::CertificateError::BadEncoding.into());
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < from {
        return Err(rustls::CertificateError::NotValidYet.into());
    }
    if now > until {
        return Err(rustls::CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Check<ServerCertVerified> {
        self.check_chain(cert, chain, name, ocsp, now)?;
        if self.full {
            Self::check_name(cert, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Check<HandshakeSignatureValid> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Check<HandshakeSignatureValid> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
