//! A connection to units: requests and answers, with time limits.

use std::time::Duration;

/// Attack: an endless answer. Largest size in bytes.
pub(super) const LONGEST: usize = 8 << 20;

/// A request: the operation, and its fields as a JSON object.
pub(super) struct Request {
    pub op: &'static str,
    pub body: Vec<u8>,
    /// How long the answer may take.
    pub within: Duration,
}

/// Why there is no reply. The other end is gone then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkError {
    /// There was no answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The other end can't be started or reached.
    #[error("{0}")]
    Gone(String),
}

/// The other end: a plugin host's process, or a service.
pub(super) trait Link: Send {
    /// Sends requests and receives the answers in order; the first failure ends it.
    fn exchange(&mut self, requests: &[Request]) -> Vec<Result<Vec<u8>, LinkError>>;

    /// Whether its units may have changed since the last call.
    fn changed(&mut self) -> bool;

    /// Whether the other end has ended.
    fn ended(&self) -> bool;
}
