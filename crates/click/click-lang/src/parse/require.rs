use super::{Parser, Within};
use crate::Requirement;
use crate::config::{parse_string, parse_word, shift_word, split_arguments, split_words};
use crate::lexer::{Reader, Token};
use crate::tree::ROOT;
use alloc::format;
use alloc::string::String;

impl Parser<'_> {
    /// Parses `require(...)`, after the keyword.
    pub(super) fn require(&mut self) {
        if !self.expect(Token::Char('('), false) {
            return;
        }
        let requirements = self.configuration();
        self.expect(Token::Char(')'), false);
        self.expect(Token::Char(';'), true);
        for requirement in split_arguments(&requirements) {
            let words = split_words(&requirement);
            if !words.is_empty() && !self.requirement(&words) {
                self.error("syntax error at requirement");
            }
        }
    }

    /// Parses one requirement; returns `false` if it is invalid. A single unknown word is a package.
    fn requirement(&mut self, words: &[String]) -> bool {
        let whole =
            |text: &str| parse_string(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value);
        let kind = parse_word(&words[0])
            .filter(|(_, rest)| rest.is_empty())
            .map_or_else(String::new, |(kind, _)| kind);
        let known =
            matches!(&kind[..], "compact_config" | "package") || (kind == "library" && !self.is_tool());
        let (kind, value) = match words {
            [_] if kind == "compact_config" => (kind, String::new()),
            [_] if !kind.is_empty() && !known => ("package".into(), kind),
            [_, value] if matches!(&kind[..], "package" | "library") => match whole(value) {
                Some(value) => (kind, value),
                None => return false,
            },
            _ => return false,
        };
        if kind == "library" {
            self.library(&value);
            return true;
        }
        if kind == "package" && !self.is_tool() && !self.environment.has_package(&value) {
            let landmark = self.reader.landmark();
            let text = match &value[..] {
                "" => "requirement without a name".into(),
                _ => format!("requirement '{value}' not available"),
            };
            self.diagnostics.error_at(landmark, text);
        }
        let requirement = Requirement { kind, value };
        if self.is_tool() {
            self.compound().requirements.push(requirement);
        } else {
            self.requirements.push(requirement);
        }
        true
    }

    fn library(&mut self, name: &str) {
        if self.current != ROOT {
            self.error("'require library' must be used at file scope");
            return;
        }
        let directory = match self.reader.file().rfind('/') {
            Some(end) if end > 0 => String::from(&self.reader.file()[..end]),
            _ => ".".into(),
        };
        let Some((path, text)) = self.environment.library(name, &directory) else {
            self.error(match name {
                "" => "library without a name".into(),
                _ => format!("library '{}' not found in CLICKPATH/conf", super::printable(name)),
            });
            return;
        };
        if self.libraries.insert(path.clone(), 0).is_some() {
            return;
        }
        match text {
            Err(error) => self.error(format!("{path}: {error}")),
            Ok(text) => self.read_library(&text, &path),
        }
    }

    fn read_library(&mut self, text: &str, path: &str) {
        // Attack: a long chain of libraries that each require the next one.
        if self.depth >= self.limits.depth {
            self.error("libraries nested too deeply");
            return;
        }
        if !self.take_text(text.len()) {
            return;
        }
        let reader = Reader::new(text, path, self.ignore_line_directives);
        let reader = reader.with_bare_dollar(!self.is_tool());
        let before = core::mem::replace(&mut self.reader, reader);
        self.depth += 1;
        self.statements(Within::File);
        self.depth -= 1;
        self.reader = before;
        if self.work_left == 0 {
            self.reader.stop();
        }
    }

    /// Parses `define($name value, ...)`, after the keyword.
    pub(super) fn define(&mut self) {
        if !self.expect(Token::Char('('), false) {
            return;
        }
        let definitions = self.configuration();
        self.expect(Token::Char(')'), false);
        for definition in split_arguments(&definitions).iter().filter(|definition| !definition.is_empty()) {
            let (variable, value) = shift_word(definition);
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            match variable.strip_prefix('$').filter(|name| !name.is_empty() && name.bytes().all(legal)) {
                None => self.error("bad 'define' declaration: not a variable"),
                Some(name) => {
                    if !self.compound().define(name, value) {
                        let sigil = if self.is_tool() { "" } else { "$" };
                        self.error(format!("parameter '{sigil}{name}' multiply defined"));
                    }
                }
            }
        }
    }
}
