//! TLS with rustls (provider `ring`), buffered: works on blocking and non-blocking sockets alike.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use dyno_model::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};
use socket2::Socket;

use crate::socket::{self, lost};
use crate::target::{TlsSpec, Verify, Version};
use crate::verify::{Anything, Trusted};
use crate::x509;

/// PostgreSQL's name for itself (IANA, "TLS Application-Layer Protocol Negotiation Protocol IDs").
const PROTOCOL: &[u8] = b"postgresql";

/// Settings that all TLS connections of a load share.
#[derive(Clone)]
pub struct TlsSetup {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// TLS begins without asking first.
    pub(crate) direct: bool,
}

impl TlsSetup {
    /// Reads certificates and key.
    ///
    /// # Errors
    /// [`Error::Tls`] when a file cannot be read or the name is none.
    pub fn new(spec: &TlsSpec) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn rustls::client::danger::ServerCertVerifier> = match spec.verify {
            Verify::None => Arc::new(Anything::new(provider.clone())),
            Verify::Ca | Verify::Full => Arc::new(Trusted::new(
                provider.clone(),
                trusted(spec)?,
                revoked(spec)?,
                spec.verify == Verify::Full,
            )?),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(spec))
            .map_err(tls_error)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&spec.cert, &spec.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(tls_error)?,
            _ => builder.with_no_client_auth(),
        };
        config.enable_sni = spec.sni;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = ServerName::try_from(spec.server_name.clone())
            .map_err(|e| Error::Tls(format!("server name {:?}: {e}", spec.server_name)))?;
        Ok(Self {
            config: Arc::new(config),
            name,
            direct: spec.direct,
        })
    }
}

fn trusted(spec: &TlsSpec) -> Result<Vec<CertificateDer<'static>>> {
    match spec.root_cert.as_deref() {
        None => Err(Error::Tls(
            "verifying needs root_cert: a PEM file, or \"system\"".to_owned(),
        )),
        Some("system") => Ok(rustls_native_certs::load_native_certs().certs),
        Some(path) => certificates(path),
    }
}

fn versions(spec: &TlsSpec) -> Vec<&'static SupportedProtocolVersion> {
    let wanted = |version| spec.versions.is_empty() || spec.versions.contains(&version);
    let known = [
        (Version::Tls13, &rustls::version::TLS13),
        (Version::Tls12, &rustls::version::TLS12),
    ];
    known
        .into_iter()
        .filter(|(v, _)| wanted(*v))
        .map(|(_, v)| v)
        .collect()
}

fn revoked(spec: &TlsSpec) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let mut all = Vec::new();
    for path in &spec.crls {
        let wrong = |e: rustls::pki_types::pem::Error| Error::Tls(format!("sslcrl {path}: {e}"));
        for list in CertificateRevocationListDer::pem_file_iter(path).map_err(wrong)? {
            all.push(list.map_err(wrong)?);
        }
    }
    if all.is_empty() && !spec.crls.is_empty() {
        let paths = spec.crls.join(", ");
        return Err(Error::Tls(format!(
            "sslcrl {paths}: holds no list of revoked certificates"
        )));
    }
    Ok(all)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(Error::Tls(format!("{path}: holds no certificate"))),
        Ok(all) => Ok(all),
        Err(e) => Err(Error::Tls(format!("{path}: {e}"))),
    }
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| Error::Tls(format!("{path}: {e}")))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn tls_error(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

/// The error of a failed handshake; common reasons in plain words, with the cure.
fn refused(error: &rustls::Error, name: &ServerName<'_>) -> Error {
    use rustls::CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, Revoked, UnknownIssuer, UnknownRevocationStatus,
    };
    Error::Tls(match Some(error) {
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => format!(
            "the server's certificate does not carry the name {}; connect by a name it has, or use verify-ca",
            name.to_str()
        ),
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "no trusted authority signed the server's certificate; give its authority's as sslrootcert"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(BadSignature)) => {
            "the server does not have the key of the certificate that it presents: is there a proxy in between?"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Revoked)) => {
            "the server's certificate is revoked (sslcrl)".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(UnknownRevocationStatus)) => {
            "sslcrl does not cover the server's certificate: give the list of each authority that signed it"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            "the server's certificate has expired".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. })) => {
            "the server's certificate is not valid yet: are both clocks right?".to_owned()
        }
        _ => error.to_string(),
    })
}

/// TLS over a socket.
pub struct TlsStream {
    connection: ClientConnection,
    socket: Arc<Socket>,
    /// While the socket blocks: until when reading may last.
    pub(crate) deadline: Option<Instant>,
}

/// The socket as rustls wants it.
struct Below<'a>(BorrowedFd<'a>);

impl Read for Below<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::recv(self.0, buffer)
    }
}

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Shakes hands, on a blocking socket.
    ///
    /// # Errors
    /// [`Error::Tls`], [`Error::Lost`] when the other end leaves, or at `deadline`.
    pub fn connect(setup: &TlsSetup, socket: Arc<Socket>, deadline: Instant) -> Result<Self> {
        let connection =
            ClientConnection::new(setup.config.clone(), setup.name.clone()).map_err(tls_error)?;
        let mut stream = Self {
            connection,
            socket,
            deadline: Some(deadline),
        };
        stream.flush().map_err(|e| lost(&e))?;
        while stream.connection.is_handshaking() {
            if stream.read_socket().map_err(|e| lost(&e))? == 0 {
                return Err(Error::Lost(
                    "the server closed the connection during the TLS handshake".to_owned(),
                ));
            }
            let taken = stream.connection.process_new_packets();
            // An alert too; where it cannot be sent the other end is gone, which is no reason of its own.
            let sent = stream.flush();
            taken.map_err(|e| refused(&e, &setup.name))?;
            sent.map_err(|e| lost(&e))?;
        }
        if setup.direct && stream.connection.alpn_protocol() != Some(PROTOCOL) {
            return Err(Error::Tls(
                "sslnegotiation=direct: what answers does not speak PostgreSQL's protocol under TLS"
                    .to_owned(),
            ));
        }
        Ok(stream)
    }

    /// `tls-server-end-point` (RFC 5929): what SCRAM binds to; `None` for a certificate without such a hash.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        x509::end_point(self.connection.peer_certificates()?.first()?)
    }

    fn read_socket(&mut self) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            socket::arm(&self.socket, deadline)?;
        }
        self.connection.read_tls(&mut Below(self.socket.as_fd()))
    }

    /// The socket below.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Reads plain text; 0 is the end of the stream.
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without a closing alert, as after a crash: the end all the same.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if self.read_socket()? == 0 {
                return Ok(0);
            }
            self.connection.process_new_packets().map_err(io::Error::other)?;
            self.flush_if_possible()?;
        }
    }

    /// Takes plain text and sends what the socket takes of it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.connection.writer().write(bytes)?;
        self.flush_if_possible()?;
        Ok(taken)
    }

    /// Sends what is still to be sent.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut below = Below(self.socket.as_fd());
        while self.connection.wants_write() {
            self.connection.write_tls(&mut below)?;
        }
        Ok(())
    }

    fn flush_if_possible(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }
}
