//! Filter expressions in libpcap's language (pcap-filter(7)), for Ethernet frames.
//!
//! [`Filter::parse`] reads an expression, [`Filter::matches`] applies it. As in libpcap's programs, a frame that is
//! too short for a byte that is needed does not match at all, whatever the rest of the expression says. Names are not
//! looked up: hosts are addresses, ports are numbers or the names in `names.rs`. Read `node.rs` first.

mod generate;
mod lex;
mod names;
mod node;
mod parse;
#[cfg(test)]
mod tests;

use crate::pcapng::Direction;
use alloc::string::String;
use node::Node;

/// Longest expression in bytes. Attack: an expression whose evaluation takes a worker's time for each frame.
pub const LONGEST: usize = 4096;

/// Why an expression is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct FilterError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

/// A frame to which a filter is applied.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its bytes, possibly not all.
    pub data: &'a [u8],
    /// Its length in bytes.
    pub len: u32,
    /// Its direction.
    pub direction: Direction,
}

/// A filter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// `None` matches every frame.
    root: Option<Node>,
}

impl Filter {
    /// Reads an expression; an empty one matches every frame.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parse::filter(text).map(|root| Filter { root })
    }

    /// Whether it matches every frame.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Whether a frame matches.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.root.as_ref().is_none_or(|root| root.eval(subject).unwrap_or(false))
    }
}
