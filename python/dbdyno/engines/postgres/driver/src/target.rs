//! Which server, as libpq resolved it for the control connection.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

/// A server and our identity there. `Debug` leaves the password out.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Directory of the unix socket (begins with `/`, or `@` for an abstract one), or a host name or address.
    pub host: String,
    /// TCP port, or the number in the socket's name.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Its password, if one is known.
    #[serde(default)]
    pub password: Option<String>,
    /// Database.
    pub database: String,
    /// `None`: no TLS.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
    /// Shown in the server's views and logs.
    #[serde(default = "default_application_name")]
    pub application_name: String,
    /// Time limit of connecting, start to end, and of a sample of the activity probe.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Authentication that the server may ask for.
    #[serde(default)]
    pub auth: AuthSpec,
    /// `requirepeer`: the user id of who listens at the unix socket.
    #[serde(default)]
    pub peer_uid: Option<u32>,
    /// `tcp_user_timeout`, `keepalives` and their kind.
    #[serde(default)]
    pub tcp: TcpSpec,
}

/// Authentication that is allowed: `require_auth`, `channel_binding`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSpec {
    /// `None`: any that the driver knows.
    pub methods: Option<Vec<Method>>,
    /// Channel binding of SCRAM under TLS.
    pub channel_binding: Binding,
}

/// A method of authentication, by the names of libpq's `require_auth`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The server asks for nothing.
    None,
    /// The password itself.
    Password,
    /// Its MD5 hash, salted.
    Md5,
    /// SCRAM-SHA-256, with or without channel binding.
    #[serde(rename = "scram-sha-256")]
    Scram,
}

/// `channel_binding`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// Never.
    Disable,
    /// Used if the server offers it.
    #[default]
    Prefer,
    /// Or there is no connection.
    Require,
}

/// Options of TCP sockets; 0 is the operating system's default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSpec {
    /// Time that sent data may stay unacknowledged.
    pub user_timeout_ms: u64,
    /// Whether an idle connection is checked.
    pub keepalives: bool,
    /// After how long.
    pub idle_s: u64,
    /// Interval of keepalives.
    pub interval_s: u64,
    /// Number of keepalives.
    pub count: u32,
}

impl Default for TcpSpec {
    fn default() -> Self {
        Self {
            user_timeout_ms: 0,
            keepalives: true,
            idle_s: 0,
            interval_s: 0,
            count: 0,
        }
    }
}

/// TLS as asked for by `sslmode`: `require`, `verify-ca`, `verify-full`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Checks of the server's certificate.
    pub verify: Verify,
    /// PEM file of trusted certificates; `system`: the operating system's.
    #[serde(default)]
    pub root_cert: Option<String>,
    /// PEM file of our certificate, with its chain.
    #[serde(default)]
    pub cert: Option<String>,
    /// PEM file of its private key.
    #[serde(default)]
    pub key: Option<String>,
    /// The name the certificate must carry, and the one we ask for.
    pub server_name: String,
    /// PEM files of revoked certificates; where there is one, all that are not known to be good are refused.
    #[serde(default)]
    pub crls: Vec<String>,
    /// Versions of the protocol; empty: both.
    #[serde(default)]
    pub versions: Vec<Version>,
    /// Whether the host name is sent to the server (SNI).
    #[serde(default = "yes")]
    pub sni: bool,
    /// TLS from the first byte (`sslnegotiation=direct`).
    #[serde(default)]
    pub direct: bool,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Version {
    /// 1.2.
    #[serde(rename = "TLSv1.2")]
    Tls12,
    /// 1.3.
    #[serde(rename = "TLSv1.3")]
    Tls13,
}

fn yes() -> bool {
    true
}

/// Checks of the server's certificate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Nothing (`sslmode=require` without a root certificate).
    None,
    /// That a trusted authority signed it (`verify-ca`).
    Ca,
    /// A trusted authority signed it, and it carries the server's name (`verify-full`).
    Full,
}

fn default_application_name() -> String {
    "dbdyno".to_owned()
}

fn default_connect_timeout_ms() -> u64 {
    10_000
}

impl TargetSpec {
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.max(1))
    }

    /// Path of the unix socket, where the host is a directory.
    pub(crate) fn socket_path(&self) -> Option<String> {
        self.host
            .starts_with(['/', '@'])
            .then(|| format!("{}/.s.PGSQL.{}", self.host, self.port))
    }

    /// Place that we connect to, in words.
    pub(crate) fn place(&self) -> String {
        self.socket_path()
            .unwrap_or_else(|| format!("{}:{}", self.host, self.port))
    }
}

impl fmt::Debug for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetSpec")
            .field("place", &self.place())
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = r#"{"host": "/run/x", "port": 5433, "user": "u", "password": "hush", "database": "d",
        "tls": {"verify": "full", "root_cert": "system", "server_name": "db"}}"#;

    #[test]
    fn debug_output_has_no_password() {
        let target: TargetSpec = serde_json::from_str(SPEC).unwrap();
        let text = format!("{target:?}");
        assert!(!text.contains("hush") && text.contains("***"), "{text}");
    }

    #[test]
    fn a_directory_is_a_unix_socket_and_defaults_are_filled_in() {
        let target: TargetSpec = serde_json::from_str(SPEC).unwrap();
        assert_eq!(target.place(), "/run/x/.s.PGSQL.5433");
        assert_eq!(target.connect_timeout_ms, 10_000);
        assert_eq!(target.tls.unwrap().verify, Verify::Full);
    }

    #[test]
    fn unknown_keys_are_refused() {
        let wrong = SPEC.replace("\"user\"", "\"usr\": 1, \"user\"");
        assert!(
            serde_json::from_str::<TargetSpec>(&wrong)
                .unwrap_err()
                .to_string()
                .contains("unknown field")
        );
    }
}
