use super::Parser;
use super::element::Item;
use crate::lexer::Token;
use alloc::format;
use alloc::vec::Vec;

/// The token after a set of elements.
enum Next {
    Connector(Token),
    End,
    /// An invalid token, already reported. Click's tools report no further errors of the chain.
    Error,
}

impl Parser<'_> {
    /// Parses a chain of element sets, or a single set.
    pub(super) fn connection(&mut self) {
        let mut previous: Vec<Item> = Vec::new();
        let mut connector = Token::Arrow;
        while let Some(items) = self.element_set(previous.is_empty()) {
            if previous.is_empty() {
                self.check_useless(&items, false);
            } else {
                self.connect_all(&previous, &items, connector);
            }
            previous = items;
            match self.connector() {
                Next::Connector(token) => connector = token,
                Next::End => break,
                Next::Error if self.is_tool() => return,
                Next::Error => break,
            }
        }
        self.check_useless(&previous, true);
        let output = self.compound().names.get("output").copied();
        self.last_connection_ends_output = match &previous[..] {
            [only] => Some(only.node) == output,
            _ => false,
        };
    }

    /// Parses the arrow that continues the chain, or the semicolon that ends it.
    fn connector(&mut self) -> Next {
        loop {
            let lexeme = self.lex();
            match lexeme.token {
                Token::Char(',') | Token::DoubleColon if self.is_tool() => {
                    self.error(format!("syntax error before '{}'", lexeme.text));
                }
                Token::Char(',') | Token::DoubleColon => self.syntax_error(&lexeme),
                token if token.is_connector() => return Next::Connector(token),
                Token::Char(';') | Token::End => return Next::End,
                Token::Identifier
                | Token::Char('{' | '}' | '[' | ')')
                | Token::DoubleBar
                | Token::Elementclass
                | Token::Require
                | Token::Provide
                | Token::Define => {
                    self.unlex(lexeme);
                    return Next::End;
                }
                token => {
                    self.syntax_error(&lexeme);
                    if !matches!(token, Token::Char(_)) {
                        self.unlex(lexeme);
                    }
                    return Next::Error;
                }
            }
        }
    }

    fn check_useless(&mut self, items: &[Item], output: bool) {
        if items.iter().any(|item| item.ports(output).given()) {
            self.error(if output {
                "output ports ignored at end of chain"
            } else {
                "input ports ignored at start of chain"
            });
        }
    }
}
