use super::expand::{Budget, VariableSyntax, Variables, expand_at, name_length};
use super::scan::skip_space;
use super::split::{shift_word, slice};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

/// A lexical scope of variables.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    depth: usize,
    /// Places in `values`, by name.
    names: BTreeMap<String, usize>,
    values: Vec<String>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    /// An empty scope within `parent`, or of depth 0.
    pub fn new(parent: Option<Rc<Scope>>) -> Self {
        Self { depth: parent.as_ref().map_or(0, |parent| parent.depth + 1), parent, ..Self::default() }
    }

    /// Number of enclosing scopes.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Defines or redefines a variable.
    pub fn define(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let place = *self.names.entry(name.into()).or_insert(self.values.len());
        match self.values.get_mut(place) {
            Some(old) => *old = value.into(),
            None => self.values.push(value.into()),
        }
    }

    /// This scope or the innermost enclosing one whose depth is less than `depth`.
    pub fn above(self: &Rc<Self>, depth: usize) -> Option<Rc<Scope>> {
        let mut scope = Some(self.clone());
        while let Some(found) = &scope {
            if found.depth < depth {
                break;
            }
            scope = found.parent.clone();
        }
        scope
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut scope = Some(self);
        while let Some(current) = scope {
            if let Some(place) = current.names.get(name) {
                return current.values.get(*place).map(String::as_str);
            }
            scope = current.parent.as_deref();
        }
        None
    }
}

impl Variables for Scope {
    /// Supports `name`, and in braces also `name[index]`, a word of the value, and `name-default`.
    fn value(&self, text: &str, kind: VariableSyntax, depth: u32, budget: &Budget) -> Option<String> {
        let braces = if kind == VariableSyntax::Braces { Braces::parse(text) } else { Braces::plain(text) };
        if let Some(value) = self.get(braces.name) {
            let value = expand_at(value, self, false, depth + 1, budget);
            return Some(match braces.index {
                Some(index) => word(&value, index).into(),
                None => value,
            });
        }
        braces.default.map(|default| expand_at(default, self, false, depth + 1, budget))
    }
}

/// The contents of `${...}`.
struct Braces<'a> {
    name: &'a str,
    index: Option<usize>,
    default: Option<&'a str>,
}

impl<'a> Braces<'a> {
    fn plain(name: &'a str) -> Self {
        Self { name, index: None, default: None }
    }

    fn parse(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let start = skip_space(bytes, 0);
        let end = start + name_length(&bytes[start..]);
        let mut at = skip_space(bytes, end);
        let mut index = None;
        if bytes.get(at) == Some(&b'[') {
            let digits = skip_space(bytes, at + 1);
            let length = bytes[digits..].iter().take_while(|byte| !matches!(byte, b']')).count();
            let closed = bytes.get(digits + length) == Some(&b']');
            if let Some(number) = super::integer(slice(text, digits, digits + length)).filter(|_| closed) {
                index = usize::try_from(number).ok();
                at = skip_space(bytes, digits + length + 1);
            }
        }
        let default = (bytes.get(at) == Some(&b'-')).then(|| slice(text, at + 1, text.len()));
        Self { name: slice(text, start, end), index, default }
    }
}

/// Word number `index`, or an empty string.
fn word(text: &str, index: usize) -> &str {
    let mut rest = text;
    for _ in 0..index {
        if rest.is_empty() {
            return "";
        }
        rest = shift_word(rest).1;
    }
    shift_word(rest).0
}

#[cfg(test)]
mod tests {
    use super::super::expand;
    use super::*;

    fn expanded(text: &str) -> String {
        let mut outer = Scope::new(None);
        outer.define("out", "far");
        let mut scope = Scope::new(Some(Rc::new(outer)));
        for (name, value) in
            [("a", "A 'B c' C"), ("n", "2"), ("q", "say \"x\""), ("loop", "$loop$loop"), ("i", "$out")]
        {
            scope.define(name, value);
        }
        expand(text, &scope, &Budget::new(1 << 20))
    }

    #[test]
    fn forms() {
        assert_eq!(expanded("$a/${a}/$none/${none}"), "A 'B c' C/A 'B c' C/$none/${none}");
        assert_eq!(expanded("${a[0]},${ a [ 1] },${a[$n]},${a[9]}"), "A,'B c',C,");
        assert_eq!(expanded("${none-x$n},${a-x},${none[1]-y}"), "x2,A 'B c' C,y");
        assert_eq!(expanded("$i $$ $(x $n) \\$n"), "far $$ $(x 2) \\2");
        assert_eq!(expanded("${none$n}"), "${none2}");
    }

    #[test]
    fn quotes_and_comments() {
        assert_eq!(expanded("\"$q\" '$q' // $q\n $n"), "\"say \\\"x\\\"\" '$q' // $q\n 2");
        assert_eq!(expanded("\"\\$n\""), "\"\\$n\"");
        assert_eq!(expanded("a ${n"), "a ${n");
    }

    #[test]
    fn bounded() {
        let mut scope = Scope::new(None);
        scope.define("x", "$x".repeat(1000));
        let budget = Budget::new(100_000);
        assert!(expand("$x", &scope, &budget).len() <= 200_000);
        assert!(budget.exceeded());
        assert!(expanded("$loop").contains("$loop"));
    }

    #[test]
    fn depth() {
        let outer = Rc::new(Scope::new(None));
        let inner = Rc::new(Scope::new(Some(outer)));
        assert_eq!((inner.depth(), inner.above(1).map(|scope| scope.depth())), (1, Some(0)));
        assert!(inner.above(0).is_none());
    }
}
