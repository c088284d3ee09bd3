use super::{Parser, Within};
use crate::Landmark;
use crate::lexer::Token;
use crate::tree::{Body, Compound, CompoundId, TUNNEL, TypeId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// State of the enclosing scope, restored at the end of a compound.
struct Outer {
    current: CompoundId,
    groups: usize,
    anonymous_offset: usize,
    last_connection_ends_output: bool,
    shadowed: usize,
}

impl Parser<'_> {
    /// Parses `elementclass NAME {...}` or `elementclass NAME OTHER`, after the keyword.
    pub(super) fn element_class(&mut self) {
        let lexeme = self.lex();
        let (start, mut name) = (lexeme.landmark.clone(), String::new());
        if lexeme.token != Token::Identifier {
            self.unlex(lexeme);
            self.error("expected element type name");
        } else if self.is_tool() && self.compound().names.contains_key(&lexeme.text) {
            self.error(format!("'{}' already used as an element name", lexeme.text));
        } else {
            name = lexeme.text;
        }
        let lexeme = self.lex();
        match lexeme.token {
            Token::Char('{') => {
                self.compound_class(&name, &start);
            }
            Token::Identifier => {
                let class = self.force_type(&lexeme.text, true);
                let body = self.types[class].body.clone();
                self.declare(&name, body);
            }
            _ => {
                self.syntax_error(&lexeme);
                if !self.is_tool() {
                    self.declare(&name, Body::Error);
                }
            }
        }
    }

    /// Parses `{...}` after the brace: compounds separated by `||`, possibly with `...` as the last. Returns
    /// the type.
    pub(super) fn compound_class(&mut self, name: &str, start: &Landmark) -> TypeId {
        let outer = Outer {
            current: self.current,
            groups: core::mem::take(&mut self.groups),
            anonymous_offset: self.anonymous_offset,
            last_connection_ends_output: self.last_connection_ends_output,
            shadowed: self.shadowed.len(),
        };
        if name.is_empty() {
            self.anonymous_classes += 1;
        }
        let mut chain: Vec<CompoundId> = Vec::new();
        let mut extension = None;
        loop {
            let lexeme = self.lex();
            let landmark = if self.is_tool() { start.clone() } else { self.reader.landmark() };
            if lexeme.token == Token::Dots {
                extension = Some(self.extension(name, chain.is_empty()));
                if !self.is_tool() {
                    // Click's router parser continues with a compound, usually an empty one before the brace.
                    continue;
                }
                if !chain.is_empty() && self.expect(Token::Char('}'), true) {
                    break;
                }
            } else {
                self.unlex(lexeme);
            }
            let (id, end) = self.one_compound(name, landmark, &outer);
            if let Some(&last) = chain.last() {
                let class = self.declare_overload(name, id);
                self.compounds[last].overload = Some(class);
            }
            chain.push(id);
            if end != Token::DoubleBar {
                break;
            }
        }
        self.current = outer.current;
        self.groups = outer.groups;
        if let (Some(&last), Some(class)) = (chain.last(), extension) {
            self.compounds[last].overload = Some(class);
        }
        let first = chain.first().copied();
        self.declare(name, first.map_or(Body::Error, Body::Compound))
    }

    /// Declares a further overload, which is found through the first one. In Click's router parser, each
    /// overload also shadows the previous class of its name.
    fn declare_overload(&mut self, name: &str, id: CompoundId) -> TypeId {
        let body = Body::Compound(id);
        if self.is_tool() { self.add_type(name, body) } else { self.declare(name, body) }
    }

    /// Handles `...`, already read: returns the class that has the name so far.
    fn extension(&mut self, name: &str, first: bool) -> TypeId {
        let class = if self.is_tool() && name.is_empty() {
            self.error("cannot extend anonymous compound element class");
            crate::tree::ERROR
        } else if self.is_tool() {
            self.force_type(name, false)
        } else {
            match self.find_type(name) {
                Some(class) => class,
                None => {
                    self.error(match name {
                        "" => "cannot extend anonymous compound element class".into(),
                        _ => format!("cannot extend unknown element class '{name}'"),
                    });
                    self.declare(name, Body::Error)
                }
            }
        };
        let next = self.lex();
        if first || next.token != Token::Char('}') {
            self.error("'...' should occur last, after one or more compounds");
        }
        self.unlex(next);
        class
    }

    /// Parses one compound up to its `||` or `}`.
    fn one_compound(&mut self, name: &str, landmark: Landmark, outer: &Outer) -> (CompoundId, Token) {
        let depth = self.compounds[outer.current].depth + 1;
        let mut compound = Compound::new(name, landmark.clone(), depth);
        if self.is_tool() && name.is_empty() {
            compound.printable = format!("<anonymous{}>", self.anonymous_classes);
        }
        compound.add("input", TUNNEL, "", landmark.clone());
        compound.add("output", TUNNEL, "", landmark);
        self.compounds.push(compound);
        let id = self.compounds.len() - 1;
        self.current = id;
        self.groups = 0;
        self.anonymous_offset = 2;
        self.last_connection_ends_output = true;
        self.depth += 1;
        self.formals();
        let end = if self.depth >= self.limits.depth {
            self.error("maximum compound element nesting depth exceeded");
            Token::End
        } else {
            self.statements(Within::Compound)
        };
        self.depth -= 1;
        self.leave_scope(outer.shadowed);
        self.current = outer.current;
        self.anonymous_offset = outer.anonymous_offset;
        self.last_connection_ends_output = outer.last_connection_ends_output;
        self.finish_compound(id);
        (id, end)
    }

    /// Parses formals: `$a, KEY $b, __REST__ $c |`.
    fn formals(&mut self) {
        let mut order_reported = false;
        loop {
            let first = self.lex();
            let any = !self.compound().formals.is_empty();
            let (keyword, name) = match first.token {
                Token::Identifier => {
                    let second = self.lex();
                    if second.token != Token::Variable {
                        if any {
                            self.error("expected variable");
                        }
                        self.unlex(second);
                        self.unlex(first);
                        return;
                    }
                    (first.text, second.text)
                }
                Token::Variable => (String::new(), first.text),
                Token::Char('|') => return,
                _ => {
                    if any {
                        self.error("expected variable");
                    }
                    self.unlex(first);
                    return;
                }
            };
            self.formal(&name, &keyword, &mut order_reported);
            let separator = self.lex();
            match separator.token {
                Token::Char('|') => return,
                Token::Char(',') => {}
                _ => {
                    self.error("expected ',' or '|'");
                    self.unlex(separator);
                    return;
                }
            }
        }
    }

    fn formal(&mut self, name: &str, keyword: &str, order_reported: &mut bool) {
        let before = self.compound().formals.last().map(|formal| formal.keyword.clone());
        let (new_name, new_keyword) = self.compound().add_formal(name, keyword);
        if !new_name {
            self.error(format!("parameter '${name}' multiply defined"));
            return;
        }
        if !new_keyword {
            self.error(format!("repeated keyword parameter '{keyword}' in compound element"));
        }
        let misplaced = before.is_some_and(|before| {
            (keyword.is_empty() && !before.is_empty()) || before == crate::config::REST
        });
        if misplaced && !*order_reported {
            self.error(
                "compound element parameters out of order\n\
                 (The correct order is '[positional], [keywords], [__REST__]'.)",
            );
            *order_reported = true;
        }
    }
}
