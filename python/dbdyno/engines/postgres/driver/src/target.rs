//! Which server, as libpq resolved it for the control connection.

use std::fmt;

use serde::Deserialize;

/// One server and who we are there. `Debug` leaves the password out.
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
    /// Longest wait for each answer while connecting; also of the activity probe for each sample.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
}

/// TLS as asked for by `sslmode`: `require`, `verify-ca`, `verify-full`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// What of the server's certificate is checked.
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
}

/// What of the server's certificate is checked.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Nothing (`sslmode=require` without a root certificate).
    None,
    /// That a trusted authority signed it (`verify-ca`).
    Ca,
    /// And that it carries the server's name (`verify-full`).
    Full,
}

fn default_application_name() -> String {
    "dbdyno".to_owned()
}

fn default_connect_timeout_ms() -> u64 {
    10_000
}

impl TargetSpec {
    /// Path of the unix socket, where the host is a directory.
    pub(crate) fn socket_path(&self) -> Option<String> {
        self.host
            .starts_with(['/', '@'])
            .then(|| format!("{}/.s.PGSQL.{}", self.host, self.port))
    }

    /// Where we connect to, in words.
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
