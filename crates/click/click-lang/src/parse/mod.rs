//! Parses the text into a tree of compounds.
mod class;
mod connect;
mod connection;
mod element;
mod group;
mod port;
mod require;

use crate::lexer::{Lexeme, Reader, Token};
use crate::near::proposal;
use crate::tree::{Body, Compound, CompoundId, ERROR, ROOT, Tree, Type, TypeId};
use crate::{Diagnostics, Environment, Landmark, Limits};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Which of Click's two parsers to imitate where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The drivers' parser: classes must be known.
    Router,
    /// The tools' parser: any name can be a class.
    Tools,
}

/// Parses `text` and the libraries that it requires.
pub(crate) fn parse(
    text: &str,
    file: &str,
    dialect: Dialect,
    ignore_line_directives: bool,
    environment: &mut dyn Environment,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) -> Tree {
    let reader = Reader::new(text, file, ignore_line_directives).with_bare_dollar(dialect == Dialect::Router);
    let mut parser = Parser::new(reader, dialect, environment, limits, diagnostics);
    parser.ignore_line_directives = ignore_line_directives;
    if parser.take_text(text.len()) {
        parser.statements(Within::File);
    }
    parser.finish()
}

/// The construct that contains a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    File,
    Compound,
    Group,
}

struct Parser<'a> {
    reader: Reader,
    unread: Vec<Lexeme>,
    dialect: Dialect,
    environment: &'a mut dyn Environment,
    limits: &'a Limits,
    diagnostics: &'a mut Diagnostics,
    ignore_line_directives: bool,

    types: Vec<Type>,
    /// Classes visible in the current scope; `shadowed` restores the outer scope's.
    classes: BTreeMap<String, TypeId>,
    shadowed: Vec<(String, Option<TypeId>)>,
    /// Classes that no compound declares.
    base: BTreeMap<String, TypeId>,
    compounds: Vec<Compound>,
    current: CompoundId,
    /// Number of nodes that numbers of anonymous elements don't count: `input` and `output`.
    anonymous_offset: usize,
    anonymous_classes: usize,
    /// Number of open compounds and groups.
    depth: usize,
    /// Number of open groups of the current compound.
    groups: usize,
    last_connection_ends_output: bool,
    requirements: Vec<crate::Requirement>,
    libraries: BTreeMap<String, usize>,
    text_left: usize,
    work_left: usize,
}

impl<'a> Parser<'a> {
    fn new(
        reader: Reader,
        dialect: Dialect,
        environment: &'a mut dyn Environment,
        limits: &'a Limits,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        let root = Compound::new("", reader.landmark(), 0);
        let special = |name: &str, body| Type { name: name.into(), body };
        Self {
            reader,
            unread: Vec::new(),
            dialect,
            environment,
            limits,
            diagnostics,
            ignore_line_directives: false,
            types: alloc::vec![special("<tunnel>", Body::Tunnel), special("Error", Body::Error)],
            classes: BTreeMap::new(),
            shadowed: Vec::new(),
            base: BTreeMap::new(),
            compounds: alloc::vec![root],
            current: ROOT,
            anonymous_offset: 0,
            anonymous_classes: 0,
            depth: 0,
            groups: 0,
            last_connection_ends_output: true,
            requirements: Vec::new(),
            libraries: BTreeMap::new(),
            text_left: limits.text,
            work_left: limits.connections.saturating_mul(8),
        }
    }

    fn finish(self) -> Tree {
        let end = self.reader.landmark();
        Tree {
            types: self.types,
            classes: self.classes,
            compounds: self.compounds,
            requirements: self.requirements,
            end,
        }
    }

    fn is_tool(&self) -> bool {
        self.dialect == Dialect::Tools
    }

    fn error(&mut self, text: impl Into<String>) {
        let landmark = self.reader.landmark();
        self.diagnostics.error(landmark, text);
    }

    fn syntax_error(&mut self, near: &Lexeme) {
        match near.token {
            Token::End => self.error("syntax error at the end of the configuration"),
            // Of a variable the text is the name.
            Token::Variable if near.text.is_empty() => self.error("syntax error near '$'"),
            _ => self.error(format!("syntax error near '{}'", printable(&near.text))),
        }
    }

    /// Counts text against its limit; returns `false` if it is exceeded.
    fn take_text(&mut self, length: usize) -> bool {
        let left = self.text_left.checked_sub(length);
        if left.is_none() {
            self.error(format!("configuration too long (at most {} bytes)", self.limits.text));
        }
        self.text_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Counts work that is not bounded by the length of the text; stops parsing at the limit.
    fn take_work(&mut self, amount: usize) -> bool {
        // Attack: `[0-65535]` many times, or connected to each other.
        match self.work_left.checked_sub(amount) {
            Some(left) => {
                self.work_left = left;
                true
            }
            None => {
                if self.work_left > 0 {
                    self.error("configuration too large");
                }
                self.work_left = 0;
                self.reader.stop();
                self.unread.clear();
                false
            }
        }
    }

    fn lex(&mut self) -> Lexeme {
        if let Some(lexeme) = self.unread.pop() {
            return lexeme;
        }
        let lexeme = self.reader.next();
        self.bad_directives();
        lexeme
    }

    fn unlex(&mut self, lexeme: Lexeme) {
        self.unread.push(lexeme);
    }

    fn bad_directives(&mut self) {
        for landmark in self.reader.take_bad_directives() {
            self.diagnostics.error(landmark, "unknown preprocessor directive");
        }
    }

    /// Consumes the next token if it is `token`; otherwise reports an error unless `quietly`.
    fn expect(&mut self, token: Token, quietly: bool) -> bool {
        if let Some(next) = self.unread.last() {
            if next.token == token {
                self.unread.pop();
                return true;
            }
        } else {
            let before = self.reader.clone();
            if self.lex().token == token {
                return true;
            }
            self.reader = before;
        }
        if !quietly {
            self.error(format!("expected {}", token.name()));
        }
        false
    }

    fn configuration(&mut self) -> String {
        let text = self.reader.configuration();
        self.bad_directives();
        text
    }

    fn compound(&mut self) -> &mut Compound {
        &mut self.compounds[self.current]
    }

    /// Whether the current scope has `input` and `output`.
    fn nested(&self) -> bool {
        self.current != ROOT || self.groups > 0
    }

    /// Parses statements up to the end of the enclosing construct; returns the final token.
    fn statements(&mut self, within: Within) -> Token {
        loop {
            if let Some(end) = self.statement(within) {
                return end;
            }
        }
    }

    fn statement(&mut self, within: Within) -> Option<Token> {
        let lexeme = self.lex();
        match lexeme.token {
            Token::Identifier | Token::Char('[' | '{' | '(') | Token::Arrow | Token::DoubleArrow => {
                self.unlex(lexeme);
                self.connection();
            }
            Token::Elementclass => self.element_class(),
            Token::Require => self.require(),
            Token::Define => self.define(),
            Token::Char(';') => {}
            Token::Char('}') | Token::DoubleBar if within == Within::Compound => return Some(lexeme.token),
            Token::Char('}') | Token::DoubleBar => {
                self.syntax_error(&lexeme);
                if within == Within::Group && !self.is_tool() {
                    let token = lexeme.token;
                    self.unlex(lexeme);
                    return Some(token);
                }
            }
            Token::Char(')') if within == Within::Group => return Some(lexeme.token),
            Token::End => {
                let missing = match within {
                    Within::File => return Some(Token::End),
                    Within::Group => ')',
                    Within::Compound => '}',
                };
                self.error(format!("expected '{missing}'"));
                return Some(Token::End);
            }
            _ => self.syntax_error(&lexeme),
        }
        None
    }

    fn add_type(&mut self, name: &str, body: Body) -> TypeId {
        self.types.push(Type { name: name.into(), body });
        self.types.len() - 1
    }

    /// Declares a class in the current scope; an anonymous class can't be found by name.
    fn declare(&mut self, name: &str, body: Body) -> TypeId {
        let class = self.add_type(name, body);
        if !name.is_empty() {
            let before = self.classes.insert(name.into(), class);
            self.shadowed.push((name.into(), before));
        }
        class
    }

    /// Removes the classes declared since `shadowed` had length `mark`.
    fn leave_scope(&mut self, mark: usize) {
        while self.shadowed.len() > mark {
            let Some((name, before)) = self.shadowed.pop() else { return };
            match before {
                Some(class) => self.classes.insert(name, class),
                None => self.classes.remove(&name),
            };
        }
    }

    /// The class called `name`, if there is one.
    fn find_type(&mut self, name: &str) -> Option<TypeId> {
        if let Some(&class) = self.classes.get(name).or_else(|| self.base.get(name)) {
            return Some(class);
        }
        match self.dialect {
            Dialect::Router if name == "Error" => Some(ERROR),
            Dialect::Router if self.environment.has_class(name) => Some(self.add_base(name)),
            _ => None,
        }
    }

    fn add_base(&mut self, name: &str) -> TypeId {
        let class = self.add_type(name, Body::Class(name.into()));
        self.base.insert(name.into(), class);
        class
    }

    /// The class called `name`; if there is none, the error class, or for tools a new class.
    fn force_type(&mut self, name: &str, report: bool) -> TypeId {
        if let Some(class) = self.find_type(name) {
            return class;
        }
        if self.is_tool() {
            if self.compound().names.contains_key(name) {
                self.error(format!("'{name}' was previously used as an element name"));
            }
            return self.add_base(name);
        }
        if report {
            self.error(match name {
                "" => "missing element class".into(),
                _ => format!("unknown element class '{name}'"),
            });
            let hint = proposal(name, self.environment.classes());
            self.diagnostics.hint(hint);
        }
        self.declare(name, Body::Error)
    }

    /// A name for an anonymous element, which is made unique at the end of the compound.
    fn anonymous_name(&self, class: &str) -> String {
        format!(";{class}@{}", self.compounds[self.current].nodes.len() - self.anonymous_offset + 1)
    }

    /// Finds the element called `name`, or adds it.
    fn add_node(&mut self, name: &str, class: TypeId, configuration: &str, landmark: Landmark) -> usize {
        if let Some(&place) = self.compound().names.get(name) {
            return place;
        }
        if name.split('/').any(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
            self.error(format!("element name '{name}' has all-digit component"));
        }
        if self.compound().nodes.len() == self.limits.elements {
            self.error(format!("too many elements (at most {})", self.limits.elements));
            self.reader.stop();
            self.unread.clear();
        }
        self.compound().add(name, class, configuration, landmark)
    }
}

/// Replaces control characters by `^X` and non-ASCII bytes by octal escapes.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            32..127 => out.push(char::from(byte)),
            0..32 => out.extend(['^', char::from(byte + 64)]),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}
