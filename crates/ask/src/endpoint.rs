//! The address on which a server listens.

use std::fmt;

/// A TCP port or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A host name or address, without brackets, and a port.
    Tcp {
        /// Name, IPv4 or IPv6 address.
        host: String,
        port: u16,
    },
    Unix(String),
}

impl Endpoint {
    /// Parses `/path/to.sock`, `host`, `host:port` or `[address]:port`. `port` is the default.
    ///
    /// # Errors
    /// The problem with the text.
    pub fn parse(text: &str, port: u16) -> Result<Endpoint, String> {
        if text.starts_with('/') {
            return Ok(Endpoint::Unix(text.to_owned()));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, digits)) if !host.ends_with(':') => {
                let number = digits.parse().map_err(|_| "invalid port".to_owned())?;
                (host, number)
            }
            _ => (text, port),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or("invalid address")?,
            None => host,
        };
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        match !host.is_empty() && host.chars().all(is_part) {
            true => Ok(Endpoint::Tcp {
                host: host.to_owned(),
                port,
            }),
            false => Err("invalid address".into()),
        }
    }
}

/// Formats as `host:port`, `[address]:port` or the path.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => f.write_str(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let tcp = |host: &str, port| Endpoint::Tcp {
            host: host.into(),
            port,
        };
        assert_eq!(Endpoint::parse("a.b", 7), Ok(tcp("a.b", 7)));
        assert_eq!(Endpoint::parse("[::1]:8", 7), Ok(tcp("::1", 8)));
        assert_eq!(
            Endpoint::parse("/run/a", 7),
            Ok(Endpoint::Unix("/run/a".into()))
        );
        for bad in ["", "a b", "[bad", "bad]", "user:pass@host", "a:99999"] {
            assert!(Endpoint::parse(bad, 7).is_err(), "{bad}");
        }
    }
}
