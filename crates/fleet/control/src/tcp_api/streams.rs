//! How many streams the clients of a token follow.

use super::gate::Caller;
use crate::engine::Failure;
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Streams of one token at the same time. Attack: one token takes the places of all.
const MOST: usize = 32;

/// How many there are, by the token's name.
static STREAMS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn streams() -> MutexGuard<'static, BTreeMap<String, usize>> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a stream among those of its token, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace(Option<String>);

impl StreamPlace {
    /// A place for another stream. Clients of the fabric's socket have no token, and are not counted.
    ///
    /// # Errors
    /// The token has as many as it may have.
    pub fn of(caller: Option<&Caller>) -> Result<StreamPlace, Failure> {
        let Some(Caller { name, .. }) = caller else { return Ok(StreamPlace(None)) };
        let mut streams = streams();
        let count = streams.entry(name.clone()).or_default();
        if *count >= MOST {
            let what = format!("token {name} has {MOST} streams already; end one of them");
            return Err(Failure::request(StatusCode::SERVICE_UNAVAILABLE, what));
        }
        *count += 1;
        Ok(StreamPlace(Some(name.clone())))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let Some(name) = &self.0 else { return };
        let mut streams = streams();
        if let Some(count) = streams.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                streams.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_api::Role;

    #[test]
    fn a_token_has_so_many_streams_and_others_have_theirs() {
        let [one, other] =
            ["one of streams", "other of streams"].map(|name| Caller { name: name.into(), role: Role::Read });
        let place = StreamPlace::of;
        let places: Vec<_> = (0..MOST).map(|_| place(Some(&one)).unwrap()).collect();
        assert!(matches!(place(Some(&one)), Err(Failure::Request(503, _))));
        assert!(place(Some(&other)).is_ok() && place(None).is_ok());
        drop(places);
        assert!(place(Some(&one)).is_ok());
        assert!(!streams().keys().any(|name| name.ends_with("of streams")), "none is left");
    }
}
