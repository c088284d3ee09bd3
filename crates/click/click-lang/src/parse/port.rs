use super::Parser;
use crate::config::integer;
use crate::lexer::Token;
use alloc::format;
use alloc::vec::Vec;

/// A port list such as `[0, 2-4]`; expandable if its last entry is empty, as in `[1,]` or `[]`.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports {
    pub list: Vec<usize>,
    pub expands: bool,
}

impl Ports {
    pub fn given(&self) -> bool {
        !self.list.is_empty()
    }

    /// Minimum number of connections.
    pub fn least(&self) -> usize {
        self.list.len().max(1)
    }

    /// Ports 0 to `count`, exclusive.
    pub fn first(count: usize) -> Self {
        Self { list: (0..count).collect(), expands: false }
    }
}

impl Parser<'_> {
    /// Parses a port list if there is one.
    pub(super) fn ports(&mut self) -> Option<Ports> {
        if !self.expect(Token::Char('['), true) {
            return None;
        }
        let mut ports = Ports::default();
        let mut from = None;
        loop {
            let lexeme = self.lex();
            match lexeme.token {
                Token::Identifier => {
                    let port = self.port_number(&lexeme.text);
                    let first = from.take().map_or(port, |last: usize| last + 1);
                    if !self.take_work((port + 1).saturating_sub(first)) {
                        return Some(ports);
                    }
                    ports.list.extend(first..=port);
                }
                Token::Char(']') => {
                    if ports.list.is_empty() {
                        ports.list.push(0);
                    }
                    ports.expands = true;
                    return Some(ports);
                }
                _ => {
                    self.error("syntax error: expected port number");
                    self.unlex(lexeme);
                    return Some(ports);
                }
            }
            let lexeme = self.lex();
            match lexeme.token {
                Token::Char(']') => return Some(ports),
                Token::Char('-') if from.is_none() => from = ports.list.last().copied(),
                Token::Char(',') => from = None,
                _ => {
                    self.error("syntax error: expected ','");
                    self.unlex(lexeme);
                }
            }
        }
    }

    fn port_number(&mut self, text: &str) -> usize {
        match integer(text).and_then(|number| usize::try_from(number).ok()) {
            Some(port) if port < self.limits.ports => port,
            Some(_) => {
                self.error(format!("port number {text} too large (at most {})", self.limits.ports - 1));
                0
            }
            None => {
                self.error("syntax error: port number should be integer");
                0
            }
        }
    }
}
