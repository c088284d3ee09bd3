use super::Parser;
use super::element::Item;
use crate::lexer::Token;
use crate::tree::Link;
use alloc::format;
use alloc::vec::Vec;

/// One side of a connection between sets of elements, with an iteration over its ports.
struct Side<'a> {
    items: &'a [Item],
    output: bool,
    /// Minimum number of connections.
    least: usize,
    expands: bool,
    /// Whether each connection advances to the next port.
    steps: bool,
    /// Number of additional connections still permitted.
    extra: usize,
    item: usize,
    place: usize,
    port: usize,
}

impl<'a> Side<'a> {
    /// The side, and the number of its expandable port lists.
    fn new(items: &'a [Item], output: bool) -> (Self, usize) {
        let least = items.iter().map(|item| item.ports(output).least()).sum();
        let expanding = items.iter().filter(|item| item.ports(output).expands).count();
        let side = Self {
            items,
            output,
            least,
            expands: expanding > 0,
            steps: false,
            extra: 0,
            item: 0,
            place: 0,
            port: 0,
        };
        (side, expanding)
    }

    /// Starts the iteration, after `expands` is determined.
    fn start(&mut self, other_least: usize) {
        self.steps = self.least > 1 || self.expands;
        self.extra = if self.expands { other_least.saturating_sub(self.least) } else { 0 };
        self.enter(0);
    }

    fn enter(&mut self, item: usize) {
        self.item = item;
        self.place = 0;
        let first = self.items.get(item).and_then(|item| item.ports(self.output).list.first());
        self.port = first.copied().unwrap_or(0);
    }

    /// The current port, by node and number.
    fn current(&self) -> Option<(usize, usize)> {
        self.items.get(self.item).map(|item| (item.node, self.port))
    }

    fn advance(&mut self) {
        let Some(item) = self.items.get(self.item) else { return };
        let ports = item.ports(self.output);
        self.place += 1;
        if let Some(&port) = ports.list.get(self.place) {
            self.port = port;
        } else if self.extra > 0 && ports.given() && ports.expands {
            self.port = ports.list.last().map_or(0, |last| last + self.place + 1 - ports.list.len());
            self.extra -= 1;
        } else if self.extra > 0 && !ports.given() && self.least == 1 {
            self.port = self.place;
            self.extra -= 1;
        } else {
            self.enter(self.item + 1);
        }
    }
}

impl Parser<'_> {
    /// Connects two sets of elements: one to one, one to many, or many to many with `=>`.
    pub(super) fn connect_all(&mut self, outputs: &[Item], inputs: &[Item], connector: Token) {
        let (mut from, from_expanding) = Side::new(outputs, true);
        let (mut to, to_expanding) = Side::new(inputs, false);
        if from_expanding + to_expanding > 1 {
            self.error("at most one expandable port allowed per connection");
            if to.least < from.least {
                from.expands = false;
            } else {
                to.expands = false;
            }
        }
        if connector == Token::DoubleArrow {
            let (from_least, to_least) = (from.least, to.least);
            for (side, other) in [(&mut to, from_least), (&mut from, to_least)] {
                let missing = side.items.first().is_none_or(|item| !item.ports(side.output).given());
                if side.least == 1 && other > 1 && missing {
                    side.expands = true;
                }
            }
        }
        from.start(to.least);
        to.start(from.least);
        if from.steps && to.steps {
            self.check_many(&from, &to, connector);
        } else if !from.steps && !to.steps {
            to.steps = true;
        }
        self.walk(from, to);
    }

    fn check_many(&mut self, from: &Side, to: &Side, connector: Token) {
        let (outputs, inputs) = (from.least, to.least);
        if connector != Token::DoubleArrow {
            self.error("syntax error: many-to-many connections require '=>'");
        }
        if !to.expands && !from.expands && inputs != outputs {
            self.error(format!("connection mismatch: {outputs} outputs connected to {inputs} inputs"));
        } else if !to.expands && inputs < outputs {
            self.error(format!(
                "connection mismatch: {outputs} or more outputs connected to {inputs} inputs"
            ));
        } else if !from.expands && outputs < inputs {
            self.error(format!(
                "connection mismatch: {outputs} outputs connected to {inputs} or more inputs"
            ));
        }
    }

    fn walk(&mut self, mut from: Side, mut to: Side) {
        let landmark = self.reader.landmark();
        let mut links: Vec<Link> = Vec::new();
        while let (Some(output), Some(input)) = (from.current(), to.current()) {
            if !self.take_work(1) {
                return;
            }
            links.push(Link { from: output, to: input, landmark: landmark.clone() });
            if from.steps {
                from.advance();
            }
            if to.steps {
                to.advance();
            }
        }
        for Link { from, to, landmark } in links {
            self.compound().connect(from, to, landmark);
        }
    }
}
