use super::Parser;
use super::port::Ports;
use crate::Landmark;
use crate::lexer::{Lexeme, Token};
use crate::near::proposal;
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

/// A parsed element, not looked up yet.
struct ParsedElement {
    name: String,
    /// The class with this name, if any.
    class: Option<TypeId>,
    /// The class after `::`.
    declared: Option<TypeId>,
    /// Whether there is only a name.
    bare: bool,
    configuration: String,
    landmark: Landmark,
    inputs: Ports,
    outputs: Ports,
}

/// A comma-separated set of elements being parsed.
struct Set {
    /// Whether the set begins a connection.
    first: bool,
    elements: Vec<ParsedElement>,
    any_implicit: bool,
}

/// The first part of an element.
enum Head {
    Named { name: String, class: Option<TypeId>, bare: bool, outputs: Ports },
    Implicit,
    None,
}

impl Parser<'_> {
    /// Parses elements with ports, separated by commas. `None` if there is none.
    pub(super) fn element_set(&mut self, first: bool) -> Option<Vec<Item>> {
        let mut set = Set { first, elements: Vec::new(), any_implicit: false };
        loop {
            if !self.parse_element(&mut set) {
                if set.elements.is_empty() {
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
        self.apply_common_declaration(&mut set);
        Some(set.elements.into_iter().map(|element| self.resolve(element)).collect())
    }

    /// Parses one element; returns `false` if there is none.
    fn parse_element(&mut self, set: &mut Set) -> bool {
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
        let mut element =
            ParsedElement { name, class, declared: None, bare, configuration, landmark, inputs, outputs };
        if !implicit {
            self.declaration(&mut element);
        }
        set.elements.push(element);
        true
    }

    /// The current position; on the line of the element's start, with that column.
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
                // Click's tools treat every element except a name as one that has a class.
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
            _ => self.implicit_or_none(lexeme, set, inputs),
        }
    }

    /// Handles a connector, comma or end in place of an element, which means `input` or `output` in
    /// compounds.
    fn implicit_or_none(&mut self, lexeme: Lexeme, set: &Set, inputs: &Ports) -> Head {
        let nested = self.nested();
        let alone = inputs.given() || set.elements.is_empty();
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
        if set.elements.is_empty() {
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

    /// Parses the optional parts after a name: `:: Class`, a configuration, ports.
    fn declaration(&mut self, element: &mut ParsedElement) {
        let mut lexeme = self.lex();
        if lexeme.token == Token::DoubleColon {
            element.bare = false;
            lexeme = self.lex();
            match lexeme.token {
                Token::Identifier => {
                    element.declared = Some(self.force_type(&lexeme.text, true));
                    lexeme = self.lex();
                }
                Token::Char('{') => {
                    element.declared = Some(self.compound_class("", &lexeme.landmark));
                    lexeme = self.lex();
                }
                _ => {
                    self.error("missing element type in declaration");
                    element.declared = Some(self.force_type(&element.name, true));
                }
            }
        }
        if lexeme.token == Token::Char('(') {
            if self.compound().names.contains_key(&element.name) {
                self.error("configuration string ignored on element reference");
            }
            element.configuration = self.configuration();
            self.expect(Token::Char(')'), false);
            element.bare = false;
            lexeme = self.lex();
        }
        let ports_follow = lexeme.token == Token::Char('[');
        self.unlex(lexeme);
        if ports_follow {
            element.outputs = self.ports().unwrap_or_default();
        }
    }

    /// Applies the declaration of `a, b :: Class(configuration)` to both; checks that implicit ports end a
    /// chain.
    fn apply_common_declaration(&mut self, set: &mut Set) {
        let next = self.lex();
        let connects = next.token.is_connector();
        self.unlex(next);
        if set.any_implicit && !set.first && connects {
            self.error("implicit ports used in the middle of a chain");
        }
        let any_ports = set.elements.iter().any(|element| element.inputs.given() || element.outputs.given());
        if set.elements.len() < 2 || !set.first || connects || any_ports || set.any_implicit {
            return;
        }
        let Some((last, others)) = set.elements.split_last_mut() else { return };
        if others.iter().all(|element| element.bare) && (last.declared.is_some() || !self.is_tool()) {
            for element in others {
                element.declared = last.declared;
                element.configuration.clone_from(&last.configuration);
            }
        }
    }

    /// Finds the element, or adds it.
    fn resolve(&mut self, mut element: ParsedElement) -> Item {
        let known = self.compound().names.get(&element.name).copied().filter(|_| element.class.is_none());
        let node = match known {
            Some(node) => {
                if element.declared.is_some() {
                    self.redeclared(&element, node);
                }
                node
            }
            None => {
                self.resolve_class(&mut element);
                let class = element.class.or(element.declared).unwrap_or(crate::tree::ERROR);
                self.add_node(&element.name, class, &element.configuration, element.landmark)
            }
        };
        Item { node, inputs: element.inputs, outputs: element.outputs }
    }

    /// Determines whether a new element's name is its class.
    fn resolve_class(&mut self, element: &mut ParsedElement) {
        let tool = self.is_tool();
        let landmark = if tool { self.reader.landmark() } else { element.landmark.clone() };
        let named_so = |class: TypeId| tool && self.types[class].name == element.name;
        match element.declared {
            Some(declared) if element.class.is_some() || named_so(declared) => {
                let name = shown(&element.name);
                self.diagnostics.error(landmark, format!("class '{name}' used as element name"));
            }
            None if element.class.is_none() => {
                if !tool {
                    let name = shown(&element.name);
                    self.diagnostics.error(landmark, format!("undeclared element '{name}'"));
                    let declared = self.compounds[self.current].names.keys().map(String::as_str);
                    let hint =
                        proposal(&element.name, self.environment.classes().into_iter().chain(declared));
                    self.diagnostics.hint(hint);
                }
                element.class = Some(self.force_type(&element.name, false));
            }
            _ => {}
        }
        if let Some(class) = element.class {
            let class = if tool { self.types[class].name.clone() } else { element.name.clone() };
            element.name = self.anonymous_name(&class);
        }
    }

    fn redeclared(&mut self, element: &ParsedElement, node: usize) {
        let (name, tool) = (shown(&element.name), self.is_tool());
        let old = self.compounds[self.current].nodes[node].clone();
        let landmark = if tool { self.reader.landmark() } else { element.landmark.clone() };
        self.diagnostics.error(landmark, format!("redeclaration of element '{name}'"));
        let prefix = if tool { "" } else { "element " };
        let before = format!("{prefix}'{name}' previously declared here");
        if tool || old.class != TUNNEL {
            self.diagnostics.error(old.landmark, before);
        }
    }
}

/// A name in a message; that of a variable `$` is empty.
fn shown(name: &str) -> &str {
    if name.is_empty() { "$" } else { name }
}
