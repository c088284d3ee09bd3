//! Scanning a field's text.
use alloc::vec::Vec;
use core::fmt::Write;

/// The unparsed rest of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Consumes `word` if it is next.
    pub(super) fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Consumes `word` and `then` if both are next.
    pub(super) fn take_word(&mut self, word: &str, then: &str) -> bool {
        match self.rest.strip_prefix(word).and_then(|rest| rest.strip_prefix(then)) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Consumes `mark` if it is next and a digit follows.
    pub(super) fn follows_number(&mut self, mark: &str) -> bool {
        let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        match self.rest.strip_prefix(mark) {
            Some(rest) if digit(rest) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Parses a decimal number.
    pub(super) fn number(&mut self) -> Option<u64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let number = self.rest[..end].parse().ok()?;
        self.rest = &self.rest[end..];
        Some(number)
    }

    /// Parses an IPv4 address.
    pub(super) fn address(&mut self) -> Option<[u8; 4]> {
        let mut scan = *self;
        let mut address = [0; 4];
        for (index, byte) in address.iter_mut().enumerate() {
            if index > 0 && !scan.take(".") {
                return None;
            }
            *byte = u8::try_from(scan.number()?).ok()?;
        }
        *self = scan;
        Some(address)
    }

    /// Parses an option given by number, with its bytes: `99=0:5:10`.
    pub(super) fn unknown(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let begin = out.len();
        out.extend([u8::try_from(self.number()?).ok()?, 0]);
        let mut mark = "=";
        while self.take(mark) {
            out.push(u8::try_from(self.number()?).ok()?);
            mark = ":";
        }
        out[begin + 1] = u8::try_from(out.len() - begin).ok()?;
        Some(())
    }
}

/// Writes an option by number.
pub(super) fn unparse_unknown(option: &[u8], out: &mut impl Write) -> core::fmt::Result {
    write!(out, "{}", option.first().copied().unwrap_or(0))?;
    for (index, byte) in option.iter().skip(2).enumerate() {
        write!(out, "{}{byte}", if index == 0 { '=' } else { ':' })?;
    }
    Ok(())
}
