use crate::Landmark;
use crate::config::{is_space, unquote_text};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    End,
    Identifier,
    Variable,
    Arrow,
    DoubleArrow,
    DoubleColon,
    DoubleBar,
    Dots,
    Elementclass,
    Require,
    Provide,
    Define,
    Char(char),
}

impl Token {
    /// The token's name in "expected ..." errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Char('(') => "'('",
            Self::Char(')') => "')'",
            Self::Char('[') => "'['",
            Self::Char('}') => "'}'",
            Self::Char(';') => "';'",
            _ => "token",
        }
    }

    pub fn is_connector(self) -> bool {
        matches!(self, Self::Arrow | Self::DoubleArrow)
    }
}

/// A token with its text (a variable's without `$`) and position.
#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub text: String,
    pub landmark: Landmark,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// A text with a read position. Cheap to clone, for lookahead.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    text: Rc<str>,
    at: usize,
    file: Arc<str>,
    original: Arc<str>,
    line: u32,
    line_start: usize,
    /// Start of the last token, which gives the column of errors.
    token_start: usize,
    ignore_line_directives: bool,
    /// Whether a `$` alone is a variable with an empty name, as in Click's router parser.
    bare_dollar: bool,
    /// Positions of invalid line directives, not reported yet.
    bad_directives: Vec<Landmark>,
}

impl Reader {
    pub fn new(text: &str, file: &str, ignore_line_directives: bool) -> Self {
        let file: Arc<str> = file.into();
        Self {
            // Editors on some systems begin files with a byte-order mark.
            text: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).into(),
            at: 0,
            original: file.clone(),
            file,
            line: 1,
            line_start: 0,
            token_start: 0,
            ignore_line_directives,
            bare_dollar: false,
            bad_directives: Vec::new(),
        }
    }

    /// Sets whether a `$` alone is a variable with an empty name.
    pub fn with_bare_dollar(mut self, bare_dollar: bool) -> Self {
        self.bare_dollar = bare_dollar;
        self
    }

    /// Takes the positions of invalid line directives.
    pub fn take_bad_directives(&mut self) -> Vec<Landmark> {
        core::mem::take(&mut self.bad_directives)
    }

    /// The current position, with the column of the last token.
    pub fn landmark(&self) -> Landmark {
        let column = self.token_start.saturating_sub(self.line_start) + 1;
        Landmark { file: self.file.clone(), line: self.line, column: u32::try_from(column).unwrap_or(0) }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// Skips the rest of the text.
    pub fn stop(&mut self) {
        self.at = self.text.len();
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn new_line(&mut self, start: usize) {
        self.line = self.line.saturating_add(1);
        self.line_start = start;
    }

    /// Counts the newline (LF, CR or CR LF) at `at`, if there is one, and returns the position after it.
    fn newline(&mut self, at: usize) -> Option<usize> {
        let end = match self.byte(at)? {
            b'\n' => at + 1,
            b'\r' if self.byte(at + 1) == Some(b'\n') => at + 2,
            b'\r' => at + 1,
            _ => return None,
        };
        self.new_line(end);
        Some(end)
    }

    fn skip_line(&mut self, mut at: usize) -> usize {
        while at < self.text.len() {
            if let Some(end) = self.newline(at) {
                return end;
            }
            at += 1;
        }
        at
    }

    fn skip_block_comment(&mut self, mut at: usize) -> usize {
        while let Some(byte) = self.byte(at) {
            if byte == b'*' && self.byte(at + 1) == Some(b'/') {
                return at + 2;
            }
            at = self.newline(at).unwrap_or(at + 1);
        }
        at
    }

    /// Skips the comment at `at`, if there is one.
    fn skip_comment(&mut self, at: usize) -> Option<usize> {
        match (self.byte(at), self.byte(at + 1)) {
            (Some(b'/'), Some(b'/')) => Some(self.skip_line(at + 2)),
            (Some(b'/'), Some(b'*')) => Some(self.skip_block_comment(at + 2)),
            _ => None,
        }
    }

    fn skip_angle(&mut self, mut at: usize) -> usize {
        while let Some(byte) = self.byte(at) {
            if byte == b'>' {
                return at + 1;
            }
            at = self.newline(at).or_else(|| self.skip_comment(at)).unwrap_or(at + 1);
        }
        at
    }

    fn skip_quoted(&mut self, mut at: usize, quote: u8) -> usize {
        while let Some(byte) = self.byte(at) {
            if byte == quote {
                return at + 1;
            }
            at = match (byte, self.byte(at + 1)) {
                (b'\\', Some(b'<')) if quote == b'"' => self.skip_angle(at + 2),
                (b'\\', Some(_)) if quote == b'"' => at + 2,
                _ => self.newline(at).unwrap_or(at + 1),
            };
        }
        at.min(self.text.len())
    }

    /// Parses `# 3 "file"` or `# line 3 "file"`, from the `#` on. Returns the position of the newline, which
    /// is not counted yet, or of the next line.
    fn line_directive(&mut self, at: usize) -> usize {
        let blank = |byte: Option<u8>| matches!(byte, Some(b' ' | b'\t'));
        let text = self.text.clone();
        let bytes = text.as_bytes();
        let skip_blank = |mut at: usize| {
            while blank(bytes.get(at).copied()) {
                at += 1;
            }
            at
        };
        let mut at = skip_blank(at + 1);
        if bytes[at..].starts_with(b"line") && blank(self.byte(at + 4)) {
            at = skip_blank(at + 4);
        }
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
        let (count, number) = digits.fold((0, 0u32), |(count, number), digit| {
            (count + 1, number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
        });
        if count == 0 || self.ignore_line_directives {
            if count == 0 {
                self.token_start = at;
                self.bad_directives.push(self.landmark());
            }
            return self.skip_line(at);
        }
        self.line = number.saturating_sub(1);
        at = skip_blank(at + count);
        let line_end = |byte: Option<u8>| matches!(byte, None | Some(b'\n' | b'\r'));
        if self.byte(at) == Some(b'"') {
            let start = at;
            at += 1;
            while !line_end(self.byte(at)) && self.byte(at) != Some(b'"') {
                at += 1 + usize::from(self.byte(at) == Some(b'\\') && !line_end(self.byte(at + 1)));
            }
            let mut name = String::from(text.get(start..at).unwrap_or_default());
            name.push('"');
            let name = unquote_text(&name);
            self.file = if name.is_empty() { self.original.clone() } else { name.into() };
        }
        while !line_end(self.byte(at)) {
            at += 1;
        }
        at
    }

    /// Skips spaces, comments and line directives.
    fn skip_blank(&mut self) {
        loop {
            let at = self.at;
            let at_line_start = at == 0 || matches!(self.byte(at - 1), Some(b'\n' | b'\r'));
            self.at = match self.byte(at) {
                Some(byte) if is_space(byte) => self.newline(at).unwrap_or(at + 1),
                Some(b'#') if at_line_start => self.line_directive(at),
                _ => match self.skip_comment(at) {
                    Some(end) => end,
                    None => return,
                },
            };
        }
    }

    /// The next token.
    pub fn next(&mut self) -> Lexeme {
        self.skip_blank();
        self.token_start = self.at;
        let landmark = self.landmark();
        let start = self.at;
        let Some(first) = self.text[start..].chars().next() else {
            return Lexeme { token: Token::End, text: String::new(), landmark };
        };
        let (token, length) = self.token(start, first);
        self.at = start + length;
        let from = start + usize::from(token == Token::Variable);
        let text = String::from(&self.text[from..self.at]);
        let token = keyword(&text).filter(|_| token == Token::Identifier).unwrap_or(token);
        Lexeme { token, text, landmark }
    }

    fn token(&self, start: usize, first: char) -> (Token, usize) {
        let rest = &self.text.as_bytes()[start..];
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@');
        if word(rest[0]) {
            let mut length = 1;
            while rest.get(length).is_some_and(|&byte| word(byte))
                || (rest.get(length) == Some(&b'/') && rest.get(length + 1).is_some_and(|&byte| word(byte)))
            {
                length += 1;
            }
            return (Token::Identifier, length);
        }
        if first == '$' {
            let name =
                rest[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            if name > 0 || self.bare_dollar {
                return (Token::Variable, 1 + name);
            }
        }
        match rest {
            [b'-', b'>', ..] => (Token::Arrow, 2),
            [b'=', b'>', ..] => (Token::DoubleArrow, 2),
            [b':', b':', ..] => (Token::DoubleColon, 2),
            [b'|', b'|', ..] => (Token::DoubleBar, 2),
            [b'.', b'.', b'.', ..] => (Token::Dots, 3),
            _ => (Token::Char(first), first.len_utf8()),
        }
    }

    /// Reads a configuration string up to its closing parenthesis, exclusive; removes line directives.
    pub fn configuration(&mut self) -> String {
        let (mut out, mut depth) = (String::new(), 1);
        let (mut at, mut copied) = (self.at, self.at);
        let text = self.text.clone();
        while let Some(byte) = self.byte(at) {
            at = match byte {
                b'(' => {
                    depth += 1;
                    at + 1
                }
                b')' if depth == 1 => break,
                b')' => {
                    depth -= 1;
                    at + 1
                }
                b'#' if matches!(self.byte(at.wrapping_sub(1)), Some(b'\n' | b'\r')) => {
                    out.push_str(&text[copied..at]);
                    copied = self.line_directive(at);
                    copied
                }
                b'\'' | b'"' => self.skip_quoted(at + 1, byte),
                b'\\' if self.byte(at + 1) == Some(b'<') => self.skip_angle(at + 2),
                _ => self.newline(at).or_else(|| self.skip_comment(at)).unwrap_or(at + 1),
            };
        }
        let at = at.min(text.len());
        out.push_str(text.get(copied..at).unwrap_or_default());
        (self.at, self.token_start) = (at, at);
        out
    }
}

fn keyword(text: &str) -> Option<Token> {
    Some(match text {
        "elementclass" => Token::Elementclass,
        "require" => Token::Require,
        "provide" => Token::Provide,
        "define" => Token::Define,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Token, String, u32, u32)> {
        let mut reader = Reader::new(text, "f", false);
        let mut all = Vec::new();
        loop {
            let lexeme = reader.next();
            if lexeme.token == Token::End {
                return all;
            }
            all.push((lexeme.token, lexeme.text, lexeme.landmark.line, lexeme.landmark.column));
        }
    }

    #[test]
    fn tokens_have_positions() {
        let found = tokens("a/b@1 -> $x\r\n// c\n/* \n */ [3]é||...define");
        let text: Vec<_> =
            found.iter().map(|(_, text, line, column)| (text.as_str(), *line, *column)).collect();
        let expected = [
            ("a/b@1", 1, 1),
            ("->", 1, 7),
            ("x", 1, 10),
            ("[", 4, 5),
            ("3", 4, 6),
            ("]", 4, 7),
            ("é", 4, 8),
            ("||", 4, 10),
            ("...", 4, 12),
            ("define", 4, 15),
        ];
        assert_eq!(text, expected);
        assert_eq!(found[9].0, Token::Define);
    }

    #[test]
    fn line_directives() {
        let mut reader = Reader::new("a\n# 10 \"g h\"\nb\n# line 7 \"\"\nc\n# x\nd", "f", false);
        let places: Vec<String> = (0..4).map(|_| alloc::format!("{}", reader.next().landmark)).collect();
        assert_eq!(places, ["f:1", "g h:10", "f:7", "f:9"]);
    }

    #[test]
    fn configurations() {
        let mut reader = Reader::new("a ( (\")\" /* ) */ \\<)> ')')\n# 9 \"q\"\n x) b", "f", false);
        reader.next();
        reader.next();
        assert_eq!(reader.configuration(), " (\")\" /* ) */ \\<)> ')')\n\n x");
        assert_eq!(alloc::format!("{}", reader.landmark()), "q:9");
        let mut open = Reader::new("(\"\\", "f", false);
        open.next();
        assert_eq!(open.configuration(), "\"\\");
    }
}
