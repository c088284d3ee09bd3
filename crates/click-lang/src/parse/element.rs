use super::Parser;
use super::port::Ports;
use crate::Landmark;
use crate::lexer::{Lexeme, Token};
use crate::tree::{TUNNEL, TypeId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// An element of a comma-separated set, with the ports in use.
#[derive(Debug)]
pub(super) struct Item {
    pub node: usize,
    pub inputs: Ports,
    pub outputs: Ports,
}

impl Item {
    pub fn ports(&self, output: bool) -> &Ports {
        if output { &self.outputs } else { &self.inputs }
    }
}

/// An element as written, before it is known to be new.
struct Written {
    name: String,
    /// The class of that name.
    class: Option<TypeId>,
    /// The class after `::`.
    declared: Option<TypeId>,
    /// Whether it is only a name.
    bare: bool,
    configuration: String,
    landmark: Landmark,
    inputs: Ports,
    outputs: Ports,
}

/// A set of elements being read.
struct Set {
    /// Whether it begins a connection.
    first: bool,
    written: Vec<Written>,
    any_implicit: bool,
}

/// The first part of an element.
enum Head {
    Named { name: String, class: Option<TypeId>, bare: bool, outputs: Ports },
    Implicit,
    None,
}

impl Parser<'_> {
    /// Elements with ports, separated by commas. `None` if there is none.
    pub(super) fn element_set(&mut self, first: bool) -> Option<Vec<Item>> {
        let mut set = Set { first, written: Vec::new(), any_implicit: false };
        loop {
            if !self.written(&mut set) {
                if set.written.is_empty() {
                    return None;
                }
                // Click's router parser skips a token that can't begin an element, and continues after it.
                if self.is_tool() {
                    break;
                }
            }
            let lexeme = self.lex();
            if lexeme.token != Token::Char(',') {
                self.unlex(lexeme);
                break;
            }
        }
        self.check_and_spread(&mut set);
        Some(set.written.into_iter().map(|written| self.resolve(written)).collect())
    }

    /// Parses one element; false if there is none.
    fn written(&mut self, set: &mut Set) -> bool {
        let mut inputs = self.ports().unwrap_or_default();
        let lexeme = self.lex();
        let start = lexeme.landmark.clone();
        let (name, class, bare, outputs, implicit) = match self.head(lexeme, set, &mut inputs) {
            Head::Named { name, class, bare, outputs } => (name, class, bare, outputs, false),
            Head::Implicit => {
                set.any_implicit = true;
                let name = if set.first { "input" } else { "output" };
                let class = if self.is_tool() { None } else { self.find_type(name) };
                let mut outputs = Ports::default();
                if set.first {
                    core::mem::swap(&mut inputs, &mut outputs);
                }
                (name.into(), class, false, outputs, true)
            }
            Head::None => return false,
        };
        let landmark = if self.is_tool() { start.clone() } else { self.landmark_from(&start) };
        let configuration = String::new();
        let mut written =
            Written { name, class, declared: None, bare, configuration, landmark, inputs, outputs };
        if !implicit {
            self.declaration(&mut written);
        }
        set.written.push(written);
        true
    }

    /// The current position, with the column of the element's start if that is on the same line.
    fn landmark_from(&self, start: &Landmark) -> Landmark {
        let here = self.reader.landmark();
        if here.line == start.line && here.file == start.file { start.clone() } else { here }
    }

    fn head(&mut self, lexeme: Lexeme, set: &Set, inputs: &mut Ports) -> Head {
        match lexeme.token {
            Token::Identifier => {
                let class = self.find_type(&lexeme.text);
                Head::Named { name: lexeme.text, class, bare: true, outputs: Ports::default() }
            }
            Token::Char('{') => {
                let class = self.compound_class("", &lexeme.landmark);
                // The tools take every element but a name for one that carries its class.
                Head::Named {
                    name: String::new(),
                    class: Some(class),
                    bare: false,
                    outputs: Ports::default(),
                }
            }
            Token::Char('(') => {
                let name = self.anonymous_name("");
                let counts = self.group(&name);
                if !inputs.given() {
                    *inputs = Ports::first(counts[0]);
                }
                Head::Named { name, class: None, bare: false, outputs: Ports::first(counts[1]) }
            }
            _ => self.implied_or_none(lexeme, set, inputs),
        }
    }

    /// Handles a connector, comma or end in place of an element: `input` or `output` inside compounds.
    fn implied_or_none(&mut self, lexeme: Lexeme, set: &Set, inputs: &Ports) -> Head {
        let nested = self.nested();
        let alone = inputs.given() || set.written.is_empty();
        let implicit = nested
            && match lexeme.token {
                token if token.is_connector() => set.first && alone,
                Token::Char(',') => inputs.given(),
                Token::DoubleColon => false,
                _ => !set.first && alone,
            };
        if implicit {
            let suggest = lexeme.token.is_connector() && !inputs.given() && !self.last_connection_ends_output;
            if suggest {
                let (landmark, arrow) = (self.reader.landmark(), &lexeme.text);
                let text = format!("suggest 'input {arrow}' or '[0] {arrow}' to start connection");
                self.diagnostics.warning(landmark, text);
            }
            self.unlex(lexeme);
            return Head::Implicit;
        }
        if inputs.given() {
            self.error("stranded port ignored");
        }
        if set.written.is_empty() {
            let silent = if self.is_tool() { !set.first } else { nested && set.first };
            if silent {
                self.unlex(lexeme);
            } else {
                self.syntax_error(&lexeme);
            }
        } else if self.is_tool() {
            self.unlex(lexeme);
        }
        Head::None
    }

    /// Parses what may follow a name: `:: Class`, a configuration, ports.
    fn declaration(&mut self, written: &mut Written) {
        let mut lexeme = self.lex();
        if lexeme.token == Token::DoubleColon {
            written.bare = false;
            lexeme = self.lex();
            match lexeme.token {
                Token::Identifier => {
                    written.declared = Some(self.force_type(&lexeme.text, true));
                    lexeme = self.lex();
                }
                Token::Char('{') => {
                    written.declared = Some(self.compound_class("", &lexeme.landmark));
                    lexeme = self.lex();
                }
                _ => {
                    self.error("missing element type in declaration");
                    written.declared = Some(self.force_type(&written.name, true));
                }
            }
        }
        if lexeme.token == Token::Char('(') {
            if self.compound().names.contains_key(&written.name) {
                self.error("configuration string ignored on element reference");
            }
            written.configuration = self.configuration();
            self.expect(Token::Char(')'), false);
            written.bare = false;
            lexeme = self.lex();
        }
        let ports_follow = lexeme.token == Token::Char('[');
        self.unlex(lexeme);
        if ports_follow {
            written.outputs = self.ports().unwrap_or_default();
        }
    }

    /// `a, b :: Class(configuration)` declares both; implied ports end a chain.
    fn check_and_spread(&mut self, set: &mut Set) {
        let next = self.lex();
        let connects = next.token.is_connector();
        self.unlex(next);
        if set.any_implicit && !set.first && connects {
            self.error("implicit ports used in the middle of a chain");
        }
        let any_ports = set.written.iter().any(|written| written.inputs.given() || written.outputs.given());
        if set.written.len() < 2 || !set.first || connects || any_ports || set.any_implicit {
            return;
        }
        let Some((last, others)) = set.written.split_last_mut() else { return };
        if others.iter().all(|written| written.bare) && (last.declared.is_some() || !self.is_tool()) {
            for written in others {
                written.declared = last.declared;
                written.configuration.clone_from(&last.configuration);
            }
        }
    }

    /// Finds or adds the element.
    fn resolve(&mut self, mut written: Written) -> Item {
        let known = self.compound().names.get(&written.name).copied().filter(|_| written.class.is_none());
        let node = match known {
            Some(node) => {
                if written.declared.is_some() {
                    self.redeclared(&written, node);
                }
                node
            }
            None => {
                self.class_of(&mut written);
                let class = written.class.or(written.declared).unwrap_or(crate::tree::ERROR);
                self.add_node(&written.name, class, &written.configuration, written.landmark)
            }
        };
        Item { node, inputs: written.inputs, outputs: written.outputs }
    }

    /// Settles whether a new element's name is its class.
    fn class_of(&mut self, written: &mut Written) {
        let tool = self.is_tool();
        let landmark = if tool { self.reader.landmark() } else { written.landmark.clone() };
        let named_so = |class: TypeId| tool && self.types[class].name == written.name;
        match written.declared {
            Some(declared) if written.class.is_some() || named_so(declared) => {
                self.diagnostics.error(landmark, format!("class '{}' used as element name", written.name));
            }
            None if written.class.is_none() => {
                if !tool {
                    self.diagnostics.error(landmark, format!("undeclared element '{}'", written.name));
                }
                written.class = Some(self.force_type(&written.name, false));
            }
            _ => {}
        }
        if let Some(class) = written.class {
            let class = if tool { self.types[class].name.clone() } else { written.name.clone() };
            written.name = self.anonymous_name(&class);
        }
    }

    fn redeclared(&mut self, written: &Written, node: usize) {
        let (name, tool) = (&written.name, self.is_tool());
        let old = self.compounds[self.current].nodes[node].clone();
        let landmark = if tool { self.reader.landmark() } else { written.landmark.clone() };
        self.diagnostics.error(landmark, format!("redeclaration of element '{name}'"));
        let element = if tool { "" } else { "element " };
        let before = format!("{element}'{name}' previously declared here");
        if tool || old.class != TUNNEL {
            self.diagnostics.error(old.landmark, before);
        }
    }
}
