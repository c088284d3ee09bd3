//! A way to ask units: requests out, answers back, each in bounded time.

use std::time::Duration;

/// Attack: an answer without end.
pub(super) const LONGEST: usize = 8 << 20;

/// A request: what is asked, and the rest of it as a JSON object.
pub(super) struct Request {
    pub op: &'static str,
    pub body: Vec<u8>,
    /// How long the answer may take.
    pub within: Duration,
}

/// Why there is no answer. What was behind the link is gone then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkError {
    /// It did not answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// It can't be started or reached.
    #[error("{0}")]
    Gone(String),
}

/// What answers: a plugin host's process, or a service.
pub(super) trait Link: Send {
    /// Sends requests, and takes the answer to each in turn; the first one missing ends it.
    fn exchange(&mut self, requests: &[Request]) -> Vec<Result<Vec<u8>, LinkError>>;

    /// Whether its units may have changed since this was last asked.
    fn changed(&mut self) -> bool;

    /// Whether it has ended by itself.
    fn ended(&self) -> bool;
}
