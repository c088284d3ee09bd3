//! A connection to units: requests and answers, with time limits.

use std::time::Duration;

/// Attack: an endless answer, or many long ones. Largest size in bytes of an answer, and of all answers of an exchange.
pub(super) const LONGEST: usize = 4 << 20;

/// An answer, unless it and those before it have more bytes together than they may; `bytes` counts them.
pub(super) fn bounded(answer: Result<Vec<u8>, LinkError>, bytes: &mut usize) -> Result<Vec<u8>, LinkError> {
    *bytes += answer.as_ref().map_or(0, Vec::len);
    match *bytes > LONGEST {
        true => Err(LinkError::Gone(format!("answers of more than {} MB at once", LONGEST >> 20))),
        false => answer,
    }
}

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
    /// The plugin did not answer in time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_an_exchange_are_bounded_together() {
        let mut bytes = 0;
        let mut answer = |length| bounded(Ok(vec![0; length]), &mut bytes);
        assert!(answer(LONGEST / 2).is_ok() && answer(LONGEST / 2).is_ok());
        assert!(matches!(answer(1), Err(LinkError::Gone(_))));
    }
}
