//! TLS with rustls (provider `ring`), buffered: works on blocking and non-blocking sockets alike.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use dyno_model::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection};
use socket2::Socket;

use crate::target::{TlsSpec, Verify};
use crate::verify::{Anything, Trusted};
use crate::wire;

/// What every TLS connection of a load shares.
#[derive(Clone)]
pub struct TlsSetup {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
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
                spec.verify == Verify::Full,
            )?),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (&spec.cert, &spec.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(tls_error)?,
            _ => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(spec.server_name.clone())
            .map_err(|e| Error::Tls(format!("server name {:?}: {e}", spec.server_name)))?;
        Ok(Self {
            config: Arc::new(config),
            name,
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

/// Why hands were not shaken; the two common reasons in plain words, with the cure.
fn refused(error: &io::Error, name: &ServerName<'_>) -> Error {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let inner = error.get_ref().and_then(|e| e.downcast_ref());
    Error::Tls(match inner {
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => format!(
            "the server's certificate does not carry the name {}; connect by a name it has, or use verify-ca",
            name.to_str()
        ),
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "no trusted authority signed the server's certificate; give its authority's as sslrootcert"
                .to_owned()
        }
        _ => error.to_string(),
    })
}

/// TLS over a socket.
pub struct TlsStream {
    connection: ClientConnection,
    socket: Arc<Socket>,
}

/// The socket as rustls wants it.
struct Below(RawFd);

impl Read for Below {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wire::recv(self.0, buffer)
    }
}

impl Write for Below {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wire::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Shakes hands, on a blocking socket.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn connect(setup: &TlsSetup, socket: Arc<Socket>) -> Result<Self> {
        let connection =
            ClientConnection::new(setup.config.clone(), setup.name.clone()).map_err(tls_error)?;
        let mut stream = Self { connection, socket };
        while stream.connection.is_handshaking() {
            let mut below = stream.below();
            stream
                .connection
                .complete_io(&mut below)
                .map_err(|e| refused(&e, &setup.name))?;
        }
        Ok(stream)
    }

    /// The socket below.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    fn below(&self) -> Below {
        Below(self.socket.as_raw_fd())
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
            let mut below = self.below();
            if self.connection.read_tls(&mut below)? == 0 {
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
        let mut below = self.below();
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
