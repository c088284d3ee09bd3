use super::quote::quote;
use super::scan::{comment_at, skip_comments};
use super::split::slice;
use alloc::string::String;
use core::cell::Cell;

/// Maximum depth of variables within the values of variables, as in Click.
const DEPTH: u32 = 10;

/// Syntax of a variable reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableSyntax {
    /// `$name`, `$?`, `$#`, `$$`
    Name,
    /// `${...}`
    Braces,
    /// `$(...)`
    Parentheses,
}

/// The number of bytes that expansions may still read and write.
#[derive(Debug)]
pub struct Budget(Cell<Option<usize>>);

impl Budget {
    /// A budget of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Cell::new(Some(bytes)))
    }

    /// Takes `bytes` from the budget. Returns `false`, from then on always, if the budget is exceeded.
    pub fn spend(&self, bytes: usize) -> bool {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(bytes)));
        !self.exceeded()
    }

    /// Whether the budget is exceeded.
    pub fn exceeded(&self) -> bool {
        self.0.get().is_none()
    }
}

/// Values of variables.
pub trait Variables {
    /// The value of a variable; `None` leaves the reference unchanged. `name` is the reference's text without
    /// `$` and brackets, so in `${..}` and `$(..)` it is all of the text between them. `depth` and `budget`
    /// are for nested expansions.
    fn value(&self, name: &str, kind: VariableSyntax, depth: u32, budget: &Budget) -> Option<String>;
}

/// Replaces the variables in a configuration string (`cp_expand`), except in single quotes and comments.
/// Values within double quotes are escaped. The result is cut off where the budget is exceeded.
pub fn expand(text: &str, variables: &dyn Variables, budget: &Budget) -> String {
    expand_at(text, variables, false, 0, budget)
}

/// As [`expand`], quoting the values of unquoted variables, as needed in handler calls.
pub fn expand_quoted(text: &str, variables: &dyn Variables, budget: &Budget) -> String {
    expand_at(text, variables, true, 0, budget)
}

/// As [`expand`], within an expansion of depth `depth`.
pub fn expand_at(
    text: &str,
    variables: &dyn Variables,
    quoting: bool,
    depth: u32,
    budget: &Budget,
) -> String {
    // Attack: variables of variables, which multiply a few bytes by a thousand at each of ten levels.
    if !budget.spend(text.len() + 1) {
        return String::new();
    }
    if !text.contains('$') {
        return text.into();
    }
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut at, mut copied, mut open) = (0, 0, None);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if open == Some(b'"') && at + 1 < bytes.len() => at += 2,
            b'\'' | b'"' => {
                open = match open {
                    None => Some(byte),
                    Some(quote) if quote == byte => None,
                    other => other,
                };
                at += 1;
            }
            b'/' if open.is_none() && comment_at(bytes, at) => at = skip_comments(bytes, at),
            b'$' if open != Some(b'\'') && depth <= DEPTH => match Reference::at(text, at) {
                Found::Reference(reference) => {
                    out.push_str(slice(text, copied, at));
                    let within = (open == Some(b'"'), quoting && open.is_none());
                    copied = reference.replace(text, at, variables, within, depth, budget, &mut out);
                    at = reference.end;
                }
                Found::Nothing => at += 1,
                Found::Unclosed => break,
            },
            _ => at += 1,
        }
        if budget.exceeded() {
            return out;
        }
    }
    out.push_str(slice(text, copied, bytes.len()));
    out
}

/// A reference to a variable.
struct Reference<'a> {
    name: &'a str,
    kind: VariableSyntax,
    nested: bool,
    end: usize,
}

enum Found<'a> {
    Reference(Reference<'a>),
    Nothing,
    Unclosed,
}

impl<'a> Reference<'a> {
    /// The reference whose `$` is at `at`.
    fn at(text: &'a str, at: usize) -> Found<'a> {
        let bytes = text.as_bytes();
        let (kind, start, length, end) = match bytes.get(at + 1) {
            Some(b'{') => {
                let Some(length) = bytes[at + 2..].iter().position(|&byte| byte == b'}') else {
                    return Found::Unclosed;
                };
                (VariableSyntax::Braces, at + 2, length, at + 3 + length)
            }
            Some(b'(') => {
                let Some(end) = parenthesis_end(bytes, at + 2) else { return Found::Unclosed };
                (VariableSyntax::Parentheses, at + 2, end - 1 - (at + 2), end)
            }
            Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => {
                let length = name_length(&bytes[at + 1..]);
                (VariableSyntax::Name, at + 1, length, at + 1 + length)
            }
            Some(b'?' | b'#' | b'$') => (VariableSyntax::Name, at + 1, 1, at + 2),
            _ => return Found::Nothing,
        };
        let name = slice(text, start, start + length);
        let nested = match kind {
            VariableSyntax::Name => false,
            VariableSyntax::Braces => name.contains('$'),
            VariableSyntax::Parentheses => unquoted_dollar(name.as_bytes()),
        };
        Found::Reference(Self { name, kind, nested, end })
    }

    /// Appends the value of the reference at `at`; returns the position after the text that it replaces.
    #[allow(clippy::too_many_arguments)]
    fn replace(
        &self,
        text: &str,
        at: usize,
        variables: &dyn Variables,
        (in_quotes, quoting): (bool, bool),
        depth: u32,
        budget: &Budget,
        out: &mut String,
    ) -> usize {
        let expanded = self.nested.then(|| expand_at(self.name, variables, false, depth + 1, budget));
        let name = expanded.as_deref().unwrap_or(self.name);
        let Some(value) = variables.value(name, self.kind, depth, budget) else {
            let Some(name) = expanded else { return at };
            out.push_str(slice(text, at, at + 2));
            out.push_str(&name);
            out.push_str(slice(text, self.end - 1, self.end));
            return self.end;
        };
        budget.spend(value.len());
        if in_quotes {
            let quoted = quote(value.as_bytes());
            out.push_str(slice(&quoted, 1, quoted.len() - 1));
        } else if quoting {
            out.push_str(&quote(value.as_bytes()));
        } else {
            out.push_str(&value);
        }
        self.end
    }
}

/// Number of leading letters, digits and underscores.
pub(crate) fn name_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
}

/// The position after the parenthesis that closes the one before `at`, outside quotes and escapes.
fn parenthesis_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let (mut level, mut open) = (1, None);
    while level > 0 {
        let byte = *bytes.get(at)?;
        match byte {
            b'(' if open.is_none() => level += 1,
            b')' if open.is_none() => level -= 1,
            b'"' | b'\'' if open.is_none() => open = Some(byte),
            b'"' | b'\'' if open == Some(byte) => open = None,
            b'\\' if open != Some(b'\'') && at + 1 < bytes.len() => at += 1,
            _ => {}
        }
        at += 1;
    }
    Some(at)
}

/// Whether the text has a `$` outside single quotes.
fn unquoted_dollar(bytes: &[u8]) -> bool {
    let (mut open, mut at) = (None, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'$' if open != Some(b'\'') => return true,
            b'"' | b'\'' if open.is_none() => open = Some(byte),
            b'"' | b'\'' if open == Some(byte) => open = None,
            b'\\' if open != Some(b'\'') => at += 1,
            _ => {}
        }
        at += 1;
    }
    false
}
