//! Configuration strings: splitting, quoting, comments, variables.
//!
//! Texts are split into arguments at unquoted commas, and into words at unquoted spaces. `'..'` is literal,
//! `".."` has backslash escapes, and `\<48 65>` is a sequence of hexadecimal bytes.
mod assign;
mod expand;
mod integer;
mod quote;
mod scan;
mod scope;
mod split;

pub(crate) use assign::REST;
pub use assign::assign_arguments;
pub use expand::{Budget, VariableSyntax, Variables, expand, expand_at, expand_quoted};
pub use integer::integer;
pub use quote::{quote, quote_lines, unquote, unquote_text};
pub(crate) use scan::is_space;
pub use scan::{skip_comments, skip_double_quoted, skip_space};
pub use scope::Scope;
pub use split::{
    arguments, is_identifier, is_word, join_arguments, parse_keyword, parse_string, parse_word, shift_word,
    split_arguments, split_words, uncomment,
};
