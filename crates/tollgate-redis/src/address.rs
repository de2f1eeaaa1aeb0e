//! The address of the engine, as an operator writes it.
//!
//! Invariant: an unreadable address is an error that gives the reason and never contains a
//! password.
//!
//! | address | engine |
//! |---|---|
//! | `redis://[user:password@]host[:port][/database]` | one node |
//! | `rediss://...` | the same over TLS |
//! | `redis+sentinel://[...@]host[:port],host[:port]/name[/database]` | the primary, by sentinels |
//! | `redis+cluster://[...@]host[:port],host[:port]` | a cluster; these nodes are queried first |
//!
//! `valkey` may replace `redis` in each; `rediss+sentinel` and `rediss+cluster` are over TLS.
//! Characters of a password that have a meaning here are percent-encoded.

use std::fmt;

use tollgate_http_syntax::percent::decoded;

/// The kind of engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One node.
    Node,
    /// Sentinels, which know the address of the primary with this name.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

/// The address of the engine.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The kind of engine at [`Address::hosts`].
    pub kind: Kind,
    /// `host:port` of each.
    pub hosts: Vec<String>,
    /// Connections are over TLS.
    pub is_tls: bool,
    /// The user, if any.
    pub user: Option<String>,
    /// The password, if any.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, hosts, is_tls, .. } = self;
        write!(f, "Address({kind:?}, {hosts:?}, tls: {is_tls})")
    }
}

/// Why a text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAddress {
    /// It does not begin with any of the schemes.
    Scheme,
    /// It has no host, or an invalid one.
    Host,
    /// The text after a colon is not a port.
    Port,
    /// The text after the slash is not the number of a database, or a cluster has one.
    Database,
    /// The name of the sentinels' primary is missing.
    Name,
    /// User or password is not percent-encoded.
    Encoding,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "does not begin with redis://, rediss://, redis+sentinel://, redis+cluster://"
            }
            Self::Host => "has no host; write redis://host:6379",
            Self::Port => "has no port after its colon; use 1 to 65535",
            Self::Database => "has no number of a database after its slash; a cluster has only 0",
            Self::Name => "does not name the primary; write redis+sentinel://host:26379/name",
            Self::Encoding => "has a user or password that is not percent-encoded",
        })
    }
}

impl std::error::Error for BadAddress {}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// It is not an address.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(BadAddress::Scheme)?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match base {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(BadAddress::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (kind, database, port) = match kind {
            "" => (Kind::Node, path, "6379"),
            "cluster" => (Kind::Cluster, path, "6379"),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                let name = Some(name).filter(|name| !name.is_empty()).ok_or(BadAddress::Name)?;
                (Kind::Sentinel(name.to_owned()), database, "26379")
            }
            _ => return Err(BadAddress::Scheme),
        };
        let database = match database {
            "" => 0,
            digits => digits.parse().map_err(|_| BadAddress::Database)?,
        };
        if kind == Kind::Cluster && database != 0 {
            return Err(BadAddress::Database);
        }
        let hosts =
            hosts.split(',').map(|host| host_and_port(host, port)).collect::<Result<_, _>>()?;
        let (user, password) = login.map_or(Ok((None, None)), user_and_password)?;
        Ok(Self { kind, hosts, is_tls, user, password, database })
    }
}

fn host_and_port(text: &str, port: &str) -> Result<String, BadAddress> {
    // An IPv6 address is in brackets.
    let (host, given) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, after)) => (host, after.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(BadAddress::Host);
    }
    let port: u16 = given.unwrap_or(port).parse().map_err(|_| BadAddress::Port)?;
    if port == 0 {
        return Err(BadAddress::Port);
    }
    let is_six = host.contains(':');
    Ok(if is_six { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

fn user_and_password(login: &str) -> Result<(Option<String>, Option<String>), BadAddress> {
    let (user, password) = login.split_once(':').ok_or(BadAddress::Encoding)?;
    let part = |text| decoded(text).ok_or(BadAddress::Encoding);
    let user = Some(part(user)?).filter(|user| !user.is_empty());
    Ok((user, Some(part(password)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Address::parse(text) {
            Ok(a) => {
                let login = (a.user.as_deref(), a.password.as_deref());
                format!(
                    "{:?} {} tls {} {login:?} {}",
                    a.kind,
                    a.hosts.join(" "),
                    a.is_tls,
                    a.database
                )
            }
            Err(error) => format!("error: {error:?}"),
        }
    }

    #[test]
    fn addresses_are_read_or_refused() {
        for (text, expected) in [
            ("redis://h", "Node h:6379 tls false (None, None) 0"),
            ("valkey://10.0.0.1:7000/3", "Node 10.0.0.1:7000 tls false (None, None) 3"),
            ("rediss://u:p%40%2f@[::1]:1", "Node [::1]:1 tls true (Some(\"u\"), Some(\"p@/\")) 0"),
            ("redis://:p@h", "Node h:6379 tls false (None, Some(\"p\")) 0"),
            ("redis+cluster://a,b:7001", "Cluster a:6379 b:7001 tls false (None, None) 0"),
            (
                "redis+sentinel://a,b/main/2",
                "Sentinel(\"main\") a:26379 b:26379 tls false (None, None) 2",
            ),
            ("http://h", "error: Scheme"),
            ("redis+x://h", "error: Scheme"),
            ("h:6379", "error: Scheme"),
            ("redis://", "error: Host"),
            ("redis://a b", "error: Host"),
            ("redis://a,", "error: Host"),
            ("redis://h:0", "error: Port"),
            ("redis://h:65536", "error: Port"),
            ("redis://h/x", "error: Database"),
            ("redis+cluster://h/1", "error: Database"),
            ("redis+sentinel://h", "error: Name"),
            ("redis://p@h", "error: Encoding"),
            ("redis://:%zz@h", "error: Encoding"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let address = Address::parse("redis://user:secret@h").map(|a| format!("{a:?}"));
        assert_eq!(address.as_deref(), Ok("Address(Node, [\"h:6379\"], tls: false)"));
    }
}
