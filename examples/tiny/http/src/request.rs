//! The head of a request (RFC 9112).

/// Most bytes of a head. Attack: an endless one.
pub const MOST: usize = 8 << 10;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The page.
    Get,
    /// Its head only.
    Head,
    /// Something else.
    Other,
}

/// A request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// What it asks for.
    pub method: Method,
    /// The path, without a query.
    pub path: &'a str,
    /// The lines of its headers.
    pub headers: &'a str,
    /// Whether the connection goes on after the answer.
    pub keeps_alive: bool,
    /// Whether bytes of its own follow, which this server does not read.
    pub has_body: bool,
}

/// Where the head ends, if it is complete.
pub fn end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

impl<'a> Head<'a> {
    /// Reads a complete head; `None` if it is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Head<'a>> {
        let text = core::str::from_utf8(bytes).ok()?;
        let (line, headers) = text.split_once("\r\n")?;
        let mut words = line.split(' ');
        let (method, path, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !path.starts_with('/') {
            return None;
        }
        let is_new = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return None,
        };
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        };
        let mut head = Head {
            method,
            path: path.split('?').next().unwrap_or(path),
            headers: headers.trim_end(),
            keeps_alive: is_new,
            has_body: false,
        };
        for line in head.headers.lines() {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("connection") {
                let has = |word: &str| value.split(',').any(|own| own.trim().eq_ignore_ascii_case(word));
                head.keeps_alive = (is_new || has("keep-alive")) && !has("close");
            }
            // Attack: a body that would be read as the next request.
            head.has_body |= name.eq_ignore_ascii_case("transfer-encoding")
                || name.eq_ignore_ascii_case("content-length") && value != "0";
        }
        Some(head)
    }
}
