//! Bodies of requests: received within bounds, and answered beside other requests if they are large.

use super::share::{Share, SharedBytes};
use super::streamed::IsStreamed;
use super::{Bounds, ErrorBody};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Bodies of more bytes are parsed and answered on another thread, few at the same time.
pub(crate) const SMALL: usize = 64 << 10;
/// Bytes of all small bodies, and of all small answers that are not sent yet.
const SMALL_BYTES: usize = 4 << 20;
/// Requests whose answers may be long that are answered at the same time.
const ASIDE: usize = 16;

/// Attack: millions of objects of a few bytes each, such as `{"vm":{}}`, which take a hundred times as much memory once
/// they are parsed. Largest number of objects, facts or VMs in a request.
pub(crate) const OBJECTS: usize = 15_000;

/// Why a body was not received or answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The body has more than this many bytes.
    Long(usize),
    /// The body has more than this many values.
    Many(usize),
    /// Other bodies take too many bytes.
    Full(usize),
    /// The body was not received or answered in time.
    Late(Duration),
    /// Its connection broke, or its encoding is wrong.
    Broken(String),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let megabytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let (status, error) = match self {
            Refused::Long(most) => {
                let what = format!("the body is too long; it may have {} MB at most", megabytes(most));
                (StatusCode::PAYLOAD_TOO_LARGE, what)
            }
            Refused::Many(most) => {
                let what = format!("the body has more than {most} values; send less at a time");
                (StatusCode::UNPROCESSABLE_ENTITY, what)
            }
            Refused::Full(most) => {
                let what = format!(
                    "requests and answers of {} MB are under way, and this would be more; try again",
                    megabytes(most)
                );
                (StatusCode::SERVICE_UNAVAILABLE, what)
            }
            Refused::Late(within) => {
                (StatusCode::REQUEST_TIMEOUT, format!("it took more than {} s", within.as_secs_f64()))
            }
            Refused::Broken(why) => (StatusCode::BAD_REQUEST, why),
        };
        let mut response = (status, Json(ErrorBody::new(error))).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What all connections of a server share.
#[derive(Clone)]
pub(crate) struct Service {
    router: Router,
    pub bounds: Bounds,
    /// For large bodies.
    bytes: SharedBytes,
    /// For large answers.
    answers: SharedBytes,
    /// For small bodies and answers, which large ones can't take.
    small: SharedBytes,
    large: Arc<Semaphore>,
    aside: Arc<Semaphore>,
}

impl Service {
    pub fn new(router: Router, bounds: Bounds) -> Service {
        Service {
            router,
            bytes: SharedBytes::new(bounds.bytes),
            answers: SharedBytes::new(bounds.answers),
            small: SharedBytes::new(SMALL_BYTES),
            large: Arc::new(Semaphore::new(bounds.large)),
            aside: Arc::new(Semaphore::new(ASIDE)),
            bounds,
        }
    }

    /// Receives a body.
    pub async fn receive(&self, body: Incoming, length: Option<&HeaderValue>) -> Result<Bytes, Refused> {
        let within = self.bounds.timeouts.whole;
        let promised = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let (of, most) = match promised {
            Some(0..=SMALL) => (&self.small, SMALL_BYTES),
            _ => (&self.bytes, self.bounds.bytes),
        };
        let mut share = of.none();
        if promised.is_some_and(|promised| promised > self.bounds.body) {
            return Err(Refused::Long(self.bounds.body));
        }
        // Before anything is read: what will be refused takes no time of others.
        if !share.grow(promised.unwrap_or(0)) {
            return Err(Refused::Full(most));
        }
        let received = timeout(within, collect(body, promised, &self.bounds, share)).await;
        received.unwrap_or(Err(Refused::Late(within)))
    }

    /// The answer to a request whose body has been received.
    pub async fn answer(&self, request: Request<Body>, length: usize) -> Result<Response, Refused> {
        let is_large = length > SMALL;
        let room = match (is_large, self.bounds.aside) {
            (true, _) => &self.large,
            (_, Some(path)) if request.uri().path().starts_with(path) => &self.aside,
            _ => return self.in_time(call(self.router.clone(), request)).await,
        };
        let answered = async {
            // The semaphores are never closed.
            let permit = room.clone().acquire_owned().await;
            let (handle, router) = (Handle::current(), self.router.clone());
            let work = move || {
                let answer = handle.block_on(call(router, request));
                // What a large request took is not kept for others, which are small.
                if is_large {
                    ringway_host::give_memory_back();
                }
                drop(permit);
                answer
            };
            let answered = match is_large {
                true => behind_others(work).await,
                false => tokio::task::spawn_blocking(work).await.map_err(io::Error::other),
            };
            answered.unwrap_or_else(|error| Refused::Broken(error.to_string()).into_response())
        };
        self.in_time(answered).await
    }

    async fn in_time(&self, answered: impl Future<Output = Response>) -> Result<Response, Refused> {
        let response = match self.bounds.answer {
            Some(within) => timeout(within, answered).await.map_err(|_| Refused::Late(within))?,
            None => answered.await,
        };
        if response.extensions().get::<IsStreamed>().is_some() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.map_err(|error| Refused::Broken(error.to_string()))?;
        // Attack: long answers that nobody reads.
        let (of, most) = match bytes.len() {
            0..=SMALL => (&self.small, SMALL_BYTES),
            _ => (&self.answers, self.bounds.answers),
        };
        let mut share = of.none();
        if !share.grow(bytes.len()) {
            return Err(Refused::Full(most));
        }
        // The buffer in which it was written may be twice as long.
        let exact = Box::<[u8]>::from(&*bytes);
        Ok(Response::from_parts(head, share.hold(exact).into()))
    }
}

/// Does work on a thread of its own, which gets a processor after all others.
///
/// Attack: large requests one after the other, for whose work small ones and other programs would wait.
async fn behind_others<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    const NICE: i32 = 10;
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("large".into()).spawn(move || {
        // In Linux it is the thread's. Without it, the thread is one like others.
        let _ = rustix::process::nice(NICE);
        // Who waited may have given up.
        let _ = sender.send(work());
    })?;
    receiver.await.map_err(io::Error::other)
}

async fn call(router: Router, request: Request<Body>) -> Response {
    use hyper::service::Service as _;
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Reads a body and counts its values. `share` has the bytes that were `promised`, if any were.
async fn collect(
    mut body: Incoming,
    promised: Option<usize>,
    bounds: &Bounds,
    mut share: Share,
) -> Result<Bytes, Refused> {
    // Pages that are not written take no memory.
    let mut bytes = Vec::with_capacity(promised.unwrap_or(0));
    let mut values = Values::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > bounds.body {
            return Err(Refused::Long(bounds.body));
        }
        // No more than promised come.
        if promised.is_none() && !share.grow(data.len()) {
            return Err(Refused::Full(bounds.bytes));
        }
        values.count(&data);
        if values.count > bounds.values {
            return Err(Refused::Many(bounds.values));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(share.hold(bytes))
}

/// A list of at most `MOST` values; a longer one is refused before the others are parsed.
#[derive(Debug)]
pub(crate) struct AtMost<T, const MOST: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
    }
}

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = AtMost<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            if all.len() == MOST {
                return Err(A::Error::custom(format!(
                    "the list has more than {MOST} entries; send less at a time"
                )));
            }
            all.push(one);
        }
        Ok(AtMost(all))
    }
}

/// The length that a request promises for its body.
pub(crate) fn promised(request: &Request<Incoming>) -> Option<HeaderValue> {
    request.headers().get(CONTENT_LENGTH).cloned()
}

/// Counts the values in JSON while it is received: commas and opening brackets outside of strings.
///
/// Attack: millions of values of two bytes each, such as `{}`, which take a hundred times as much memory once they are
/// parsed.
#[derive(Debug, Default)]
struct Values {
    count: usize,
    in_string: bool,
    escaped: bool,
}

impl Values {
    fn count(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b',' | b'[' | b'{' if !self.in_string => self.count += 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(parts: &[&str]) -> usize {
        let mut values = Values::default();
        parts.iter().for_each(|part| values.count(part.as_bytes()));
        values.count
    }

    #[test]
    fn values_outside_of_strings_are_counted() {
        assert_eq!(values(&["[1,2,{\"a,b\":[]}]"]), 5);
        assert_eq!(values(&["[\"", "\\", "\",[", "\",{", "}]"]), 3, "a string is cut at any place");
        assert_eq!(values(&[&"[{},".repeat(1000)]), 3000);
        assert_eq!(values(&["\"[[[,,,{{{"]), 0);
    }

    #[test]
    fn a_list_has_a_largest_length() {
        let read = |text: &str| serde_json::from_str::<AtMost<u8, 2>>(text).map(|AtMost(list)| list);
        assert_eq!(read("[1, 2]").unwrap(), [1, 2]);
        let refused = read("[1, 2, 3, \"what follows is not looked at").unwrap_err().to_string();
        assert!(refused.starts_with("the list has more than 2 entries; send less at a time"), "{refused}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let busy = Refused::Full(16 << 20).into_response();
        assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(busy.headers()[RETRY_AFTER], "1");
        assert_eq!(Refused::Long(1).into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
