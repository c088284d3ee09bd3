//! Who a request is from: looked at before its body is received.

use super::listener::Arrived;
use super::page;
use super::roles::Role;
use super::tokens::{Hash, TokenFile, hash};
use crate::api::ErrorBody;
use axum::Json;
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN,
    REFERRER_POLICY, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ringway_scheduler::{Gate, network};
use ringway_spec::LineLimit;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Different wrong tokens from an address within [`WINDOW`] after which it is refused without a look at its token.
/// Attack: guesses without end.
const GUESSES: usize = 10;
/// How long wrong tokens count.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose wrong tokens are counted. Attack: guesses from many addresses; the oldest is forgotten.
const ADDRESSES: usize = 4096;
/// Time in which the log has one line about addresses that are refused. Attack: guesses from many addresses, which
/// fill the disk.
const QUIET: Duration = Duration::from_secs(1);

/// Whose request it is; an extension of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of its token.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

impl Caller {
    /// Whether it may change how frames pass.
    pub fn may_operate(&self) -> bool {
        self.role >= Role::Operate
    }
}

/// Who may use the API at a TCP address.
pub(super) struct Access {
    tokens: Mutex<TokenFile>,
    /// Names by which clients may call this host.
    hosts: Vec<String>,
    guesses: Mutex<Guesses>,
    /// The page's address, as a URL, if it is served.
    page: Option<String>,
}

impl Access {
    pub fn new(tokens: TokenFile, hosts: Vec<String>, page: Option<String>) -> Access {
        Access { tokens: Mutex::new(tokens), hosts, guesses: Mutex::default(), page }
    }

    /// The page's address, as a URL, if it is served.
    pub fn page(&self) -> Option<&str> {
        self.page.as_deref()
    }

    /// The tokens.
    pub fn tokens(&self) -> MutexGuard<'_, TokenFile> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guesses(&self) -> MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wrong tokens.
struct Guesses {
    /// By network: their hashes, since when.
    wrong: HashMap<IpAddr, (Vec<Hash>, Instant)>,
    /// Of the log's lines about networks that are refused.
    lines: LineLimit,
}

impl Default for Guesses {
    fn default() -> Guesses {
        Guesses { wrong: HashMap::new(), lines: LineLimit::new(1, QUIET) }
    }
}

impl Guesses {
    /// How long an address has to wait, if it has guessed too often.
    fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let (wrong, since) = self.wrong.get(&network(address))?;
        let left = WINDOW.checked_sub(now.duration_since(*since))?;
        (wrong.len() >= GUESSES).then_some(left)
    }

    /// Notes a wrong token. The same one again is no other guess: a program that has a former one tries it often.
    /// Returns how many networks are refused of which the log has no line, if it is to have one of this address.
    fn note(&mut self, address: IpAddr, token: &[u8], now: Instant) -> Option<u64> {
        let address = network(address);
        if self.wrong.len() >= ADDRESSES && !self.wrong.contains_key(&address) {
            self.wrong.retain(|_, (_, since)| now.duration_since(*since) < WINDOW);
            let oldest = self.wrong.iter().min_by_key(|(_, (_, since))| *since).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| self.wrong.len() >= ADDRESSES) {
                self.wrong.remove(&oldest);
            }
        }
        let (wrong, since) = self.wrong.entry(address).or_insert_with(|| (Vec::new(), now));
        if now.duration_since(*since) >= WINDOW {
            (*wrong, *since) = (Vec::new(), now);
        }
        let guess = hash(token);
        if wrong.len() >= GUESSES || wrong.contains(&guess) {
            return None;
        }
        wrong.push(guess);
        if wrong.len() < GUESSES {
            return None;
        }
        self.lines.take(now)
    }
}

/// What an address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// How its URLs begin: `https`, or `http` without TLS.
    pub scheme: &'static str,
    /// Whether it has the page's files.
    pub page: bool,
}

/// What decides about the requests of a connection.
pub(super) struct ClientGate {
    access: Arc<Access>,
    served: Served,
    address: IpAddr,
    certificate: Arc<OnceLock<Hash>>,
}

impl ClientGate {
    pub fn new(access: Arc<Access>, served: Served, client: &Arrived) -> ClientGate {
        ClientGate { access, served, address: client.address.ip(), certificate: client.certificate.clone() }
    }

    /// Whose request this is.
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let now = Instant::now();
        if let Some(left) = self.access.guesses().wait(self.address, now) {
            return Err(Refused::Waits(left));
        }
        let caller = |token: &super::tokens::Token| Caller { name: token.name.clone(), role: token.role };
        let Some(given) = headers.get(AUTHORIZATION) else {
            let tokens = self.access.tokens();
            let known = self.certificate.get().and_then(|hash| tokens.of_certificate(hash));
            return known.map(caller).ok_or(Refused::Nobody);
        };
        let token = given.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
        if let Some(known) = self.access.tokens().of_token(token) {
            return Ok(caller(known));
        }
        let refused = self.access.guesses().note(self.address, token, now);
        if let Some(others) = refused {
            let address = self.address;
            tracing::warn!(%address, others, "wrong tokens for the API; it is refused for a minute");
        }
        Err(Refused::Unknown)
    }
}

impl Gate for ClientGate {
    fn admit(&self, head: &mut Parts) -> Result<(), Box<Response>> {
        // Attack: bodies that nobody reads take the room for those of others. A file is asked for without one.
        let is_empty = head.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
            && !head.headers.contains_key(TRANSFER_ENCODING);
        let is_file = self.served.page && is_empty && page::is_file(&head.method, head.uri.path());
        let hosts = &self.access.hosts;
        let here = check_host(&head.headers, hosts);
        if is_file && here.is_ok() {
            // Links of other pages may lead here: nothing of the fabric is in the files.
            return Ok(());
        }
        let here = here.and_then(|host| check_origin(&head.headers, self.served.scheme, host));
        let admitted = here.and_then(|()| self.caller(&head.headers));
        let caller = admitted.map_err(|refused| Box::new(refused.into_response()))?;
        head.extensions.insert(caller);
        Ok(())
    }

    fn finish(&self, answer: &mut Response) {
        // Attack: an answer, such as a drawing or the text of an error, that a browser takes for a page of this origin.
        for (name, value) in HEADERS {
            answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
}

/// Headers of each answer that has not its own.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// It names another host, or none.
    Host,
    /// It is a browser's, from a page of another origin.
    Origin,
    /// It has no token.
    Nobody,
    /// Its token is none of those there are.
    Unknown,
    /// Its address has sent too many wrong tokens.
    Waits(Duration),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Refused::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "name this host by its address, as localhost, or by a name of `hosts` in [api]",
            ),
            Refused::Origin => (StatusCode::FORBIDDEN, "pages of other origins may not use this"),
            Refused::Nobody => (StatusCode::UNAUTHORIZED, "a token is needed; `ringway token add` makes one"),
            Refused::Unknown => (StatusCode::UNAUTHORIZED, "the token is unknown"),
            Refused::Waits(left) => {
                let seconds = left.as_secs() + 1;
                let error = format!("too many wrong tokens from this address; wait for {seconds} s");
                let mut answer = (StatusCode::TOO_MANY_REQUESTS, Json(ErrorBody::new(error))).into_response();
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
                return answer;
            }
        };
        let mut answer = (status, Json(ErrorBody::new(error))).into_response();
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// The only value of a header; an error if there are several, or it is no text.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut all = headers.get_all(name).iter();
    let first = all.next().map(HeaderValue::to_str).transpose().map_err(drop)?;
    if all.next().is_some() { Err(()) } else { Ok(first) }
}

/// Checks which host a request names, and returns it.
///
/// Attack: a page whose name was made to mean this host's address (DNS rebinding).
fn check_host<'h>(headers: &'h HeaderMap, hosts: &[String]) -> Result<&'h str, Refused> {
    let host = single(headers, HOST).map_err(|()| Refused::Host)?.ok_or(Refused::Host)?;
    let authority: Authority = host.parse().map_err(|_| Refused::Host)?;
    let name = authority.host();
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_named = |own: &String| name.eq_ignore_ascii_case(own);
    let is_here = is_address || name.eq_ignore_ascii_case("localhost") || hosts.iter().any(is_named);
    if is_here && !host.contains('@') { Ok(host) } else { Err(Refused::Host) }
}

/// Checks of which origin the page is that makes a request.
///
/// Attack: a page of another origin uses the certificate or the connection of a browser's user.
fn check_origin(headers: &HeaderMap, scheme: &str, host: &str) -> Result<(), Refused> {
    let origin = single(headers, ORIGIN).map_err(|()| Refused::Origin)?;
    if origin.is_some_and(|origin| !origin.eq_ignore_ascii_case(&format!("{scheme}://{host}"))) {
        return Err(Refused::Origin);
    }
    // Browsers say so of requests that have no `Origin`, such as those for pictures.
    let site = single(headers, HeaderName::from_static("sec-fetch-site")).map_err(|()| Refused::Origin)?;
    match site {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(Refused::Origin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn other_hosts_and_origins_are_refused() {
        let hosts = ["lab.example".to_string()];
        let check = |list: &[(&'static str, &str)]| {
            let headers = headers(list);
            let host = check_host(&headers, &hosts)?;
            check_origin(&headers, "https", host)
        };
        for host in
            ["127.0.0.1:9467", "[::1]:9467", "localhost", "LOCALHOST:1", "Lab.example:9467", "10.0.0.1"]
        {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
            let origin = format!("https://{host}");
            let whole = [("host", host), ("origin", &*origin), ("sec-fetch-site", "same-origin")];
            assert_eq!(check(&whole), Ok(()), "{host}");
        }
        for host in
            ["evil.example:9467", "lab.example.evil", "", "a@127.0.0.1", "127.0.0.1.nip.io", "localhost."]
        {
            assert_eq!(check(&[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(check(&[]), Err(Refused::Host));
        assert_eq!(check(&[("host", "localhost"), ("host", "evil")]), Err(Refused::Host));
        for origin in ["null", "https://evil.example", "http://localhost:1", "https://localhost:2"] {
            let list = [("host", "localhost:1"), ("origin", origin)];
            assert_eq!(check(&list), Err(Refused::Origin), "{origin}");
        }
        for site in ["cross-site", "same-site", "x"] {
            let list = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(check(&list), Err(Refused::Origin), "{site}");
        }
    }

    #[test]
    fn an_address_that_guesses_waits_and_others_do_not() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        // A page that is still open tries its former token again and again.
        assert!((0..3 * GUESSES).all(|_| guesses.note(one, b"former", now).is_none()));
        assert_eq!(guesses.wait(one, now), None);
        let told: Vec<_> =
            (1..GUESSES).filter_map(|guess| guesses.note(one, &guess.to_ne_bytes(), now)).collect();
        assert_eq!(told, [0]);
        assert_eq!(guesses.wait(one, now), Some(WINDOW));
        assert_eq!(guesses.wait("::ffff:10.0.0.1".parse().unwrap(), now), Some(WINDOW), "the same host");
        assert_eq!(guesses.wait(other, now), None);
        assert_eq!(guesses.wait(one, now + WINDOW), Some(Duration::ZERO));
        assert_eq!(guesses.wait(one, now + 2 * WINDOW), None);
        assert!(guesses.note(one, b"former", now + 2 * WINDOW).is_none(), "it begins anew");
        // All of a network of IPv6 are one client. The log has a line a second.
        for host in 0..GUESSES as u128 {
            let address = Ipv6Addr::from((0x2001_0db8_u128 << 96) + host).into();
            assert_eq!(guesses.note(address, &host.to_ne_bytes(), now), None);
        }
        assert!(guesses.wait("2001:db8::ffff".parse().unwrap(), now).is_some());
        assert!(guesses.wait("2001:db8:0:1::".parse().unwrap(), now).is_none());
        let later = now + QUIET;
        let told = (0..GUESSES).find_map(|guess| guesses.note(other, &guess.to_ne_bytes(), later));
        assert_eq!(told, Some(1), "the network's");
        // Many addresses take no more memory.
        for host in 0..3 * ADDRESSES as u32 {
            guesses.note(std::net::Ipv4Addr::from(host).into(), b"", now);
        }
        assert!(guesses.wrong.len() <= ADDRESSES);
    }
}
