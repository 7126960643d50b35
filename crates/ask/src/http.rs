//! Fetches a page over HTTP/1.1 (RFC 9112), without TLS.

use hugeleaf_sys::Deadline;

use crate::base64::encoded;
use crate::percent_encoding::decoded_bytes;
use crate::{Endpoint, Exchange, QueryError, Transport};

/// The default port.
pub const PORT: u16 = 80;
/// Maximum number of redirects.
const MOST_REDIRECTS: usize = 10;

/// The address and the login of a page. No `Debug`, because it holds a password.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAddress {
    /// Host and port, as written in the URL.
    pub authority: String,
    pub path: String,
    /// The part after the question mark. It may contain a key.
    pub query: Option<String>,
    place: Endpoint,
    /// `user:password`.
    login: Option<Vec<u8>>,
}

impl HttpAddress {
    /// Parses `http://USER:PASSWORD@host:port/path?query`.
    ///
    /// # Errors
    /// The problem with the text, without quoting it.
    pub fn parse(text: &str) -> Result<HttpAddress, String> {
        let wrong = || Err("invalid address".to_owned());
        let Some(rest) = text.strip_prefix("http://") else {
            return wrong();
        };
        // A line end would start another line of the request.
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong();
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = rest
            .split_once('?')
            .map_or((rest, None), |(p, q)| (p, Some(q)));
        // A password may contain an @, so the last @ counts.
        let (login, authority) = match authority.rsplit_once('@') {
            Some((login, authority)) => (Some(decoded_bytes(login)), authority),
            None => (None, authority),
        };
        Ok(HttpAddress {
            place: Endpoint::parse(authority, PORT)?,
            authority: authority.to_owned(),
            path: match path {
                "" => "/".to_owned(),
                path => path.to_owned(),
            },
            query: query.map(str::to_owned),
            login,
        })
    }

    /// Returns the target of a redirect, without the login, which is not meant for it.
    fn redirect_target(&self, location: &str) -> Result<HttpAddress, QueryError> {
        let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = match location {
            whole if whole.contains("://") => whole.to_owned(),
            path if path.starts_with('/') => format!("http://{}{path}", self.authority),
            path => format!("http://{}{folder}/{path}", self.authority),
        };
        let wrong = |_| QueryError::new("redirects to an address other than plain http://");
        HttpAddress::parse(&text).map_err(wrong)
    }

    fn request(&self) -> String {
        let query = self
            .query
            .as_ref()
            .map_or(String::new(), |query| format!("?{query}"));
        let login = self.login.as_deref().map_or(String::new(), |login| {
            format!("Authorization: Basic {}\r\n", encoded(login))
        });
        format!(
            "GET {}{query} HTTP/1.1\r\nHost: {}\r\nUser-Agent: hugeleaf\r\nAccept: */*\r\n{login}Connection: close\r\n\r\n",
            self.path, self.authority
        )
    }
}

/// Returns the page at an address, at most `longest` bytes. Invalid UTF-8 is replaced.
///
/// # Errors
/// The server cannot be reached, or has no such page.
pub fn page(
    address: &HttpAddress,
    question: Deadline<'_>,
    longest: usize,
) -> Result<String, QueryError> {
    let mut address = address.clone();
    for _ in 0..=MOST_REDIRECTS {
        let mut wire = Transport::connect(&address.place, question)?;
        let mut exchange = wire.begin_exchange(question);
        exchange.max_bytes = longest;
        exchange.send(address.request().as_bytes())?;
        match answer(&mut exchange)? {
            HttpResponse::Page(bytes) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            HttpResponse::Redirect(location) => address = address.redirect_target(&location)?,
        }
    }
    Err(QueryError::new("too many redirects"))
}

#[derive(Debug, PartialEq)]
enum HttpResponse {
    Page(Vec<u8>),
    Redirect(String),
}

fn invalid_answer() -> QueryError {
    QueryError::new("the answer is not valid HTTP")
}

fn answer(wire: &mut Exchange<'_>) -> Result<HttpResponse, QueryError> {
    let line = wire.line()?;
    let code = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1));
    let code: u16 = code
        .and_then(|code| code.parse().ok())
        .ok_or_else(invalid_answer)?;
    let (mut length, mut location, mut is_chunked) = (None, None, false);
    loop {
        let line = wire.line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(invalid_answer)?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse().map_err(|_| invalid_answer())?),
            "location" => location = Some(value.to_owned()),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    match (code, location) {
        (200..=299, _) => {}
        (301 | 302 | 303 | 307 | 308, Some(location)) => {
            return Ok(HttpResponse::Redirect(location));
        }
        _ => return Err(QueryError::new(format!("http status: {code}"))),
    }
    Ok(HttpResponse::Page(match length {
        _ if is_chunked => chunks(wire)?,
        Some(length) => wire.bytes(length)?,
        None => wire.rest()?,
    }))
}

/// Reads a chunked body.
fn chunks(wire: &mut Exchange<'_>) -> Result<Vec<u8>, QueryError> {
    let mut body = Vec::new();
    loop {
        let line = wire.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        match usize::from_str_radix(digits, 16).map_err(|_| invalid_answer())? {
            0 => return Ok(body),
            length => body.extend(wire.bytes(length)?),
        }
        if !wire.line()?.is_empty() {
            return Err(invalid_answer());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    fn parsed(text: &str) -> HttpAddress {
        HttpAddress::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn addresses() {
        let address = parsed("http://me:se%40cret@[::1]:9/a/b?c=d#e");
        assert_eq!(address.place.to_string(), "[::1]:9");
        let request = address.request();
        assert!(
            request.starts_with("GET /a/b?c=d HTTP/1.1\r\nHost: [::1]:9\r\n"),
            "{request}"
        );
        assert!(request.contains("Basic bWU6c2VAY3JldA==\r\n"), "{request}");
        assert!(
            parsed("http://h")
                .request()
                .starts_with("GET / HTTP/1.1\r\nHost: h\r\n")
        );
        for (location, to) in [
            ("http://i/x", "i/x"),
            ("/x?y", "[::1]:9/x"),
            ("x", "[::1]:9/a/x"),
        ] {
            let found = address.redirect_target(location).ok().unwrap();
            assert_eq!(format!("{}{}", found.authority, found.path), to);
            assert_eq!(found.login, None);
        }
        assert!(address.redirect_target("https://h/x").is_err());
        for bad in [
            "h",
            "http://",
            "http:///x",
            "http://h/a b",
            "http://h/\r\nx",
            "http://a b/",
        ] {
            assert!(HttpAddress::parse(bad).is_err(), "{bad:?}");
        }
    }

    fn answered(text: &[u8]) -> Result<HttpResponse, QueryError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(text).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let question = Deadline::new(std::time::Duration::from_secs(60));
        answer(&mut Transport::from_stream(ours, "it").begin_exchange(question))
    }

    #[test]
    fn answers() {
        let page = |text: &str| Ok(HttpResponse::Page(text.into()));
        assert_eq!(answered(b"HTTP/1.0 200 OK\r\n\r\nabc"), page("abc"));
        assert_eq!(
            answered(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 2\r\n\r\nabc"),
            page("ab")
        );
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(answered(chunked), page("abc"));
        let moved = answered(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n");
        assert_eq!(moved, Ok(HttpResponse::Redirect("/x".into())));
        let missing = answered(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err();
        assert_eq!(missing.what, "http status: 404");
        for bad in [
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nab\r\n",
            "HTTP/1.1 200 OK\r\n",
        ] {
            assert!(answered(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".*", bytes: Vec<u8>) {
            if let Ok(address) = HttpAddress::parse(&format!("http://{text}")) {
                let _ = (address.request(), address.redirect_target(&text).is_ok());
            }
            let _ = answered(&bytes);
            let _ = answered(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &bytes].concat());
        }
    }
}
