//! Keys of an object, described once for everything that reads or shows them: the file, the API, the command line and
//! the reference pages.

use super::section::either;
use super::units::{self, Wrong};
use serde_json::{Value as Json, json};
use std::ops::RangeInclusive;

/// A key of an object.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its name if it has several values; empty if it has one.
    pub list: &'static str,
    /// Its values.
    pub value: Value,
    /// What it is without the key, as the reference shows it.
    pub default: &'static str,
    /// What it means, in one sentence.
    pub help: &'static str,
    /// What the reference says in addition.
    pub more: &'static str,
    /// Whether the command line has it.
    pub is_option: bool,
}

/// Values of a key.
#[derive(Debug)]
pub enum Value {
    /// A text.
    Text,
    /// The path of a file.
    File,
    /// One of these words.
    Words(fn() -> Vec<&'static str>),
    /// A whole number.
    Number(RangeInclusive<u64>),
    /// Bytes, with a unit.
    Size(RangeInclusive<u64>),
    /// Nanoseconds, as a number with a unit.
    Duration(RangeInclusive<u64>),
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    Texts,
    /// Names and texts.
    Pairs,
    /// A table of its own.
    Table,
}

impl Key {
    /// A key with a single value.
    pub const fn new(name: &'static str, value: Value, default: &'static str, help: &'static str) -> Key {
        Key { name, list: "", value, default, help, more: "", is_option: true }
    }

    /// A key that has another name for several values.
    pub const fn list(mut self, list: &'static str) -> Key {
        self.list = list;
        self
    }

    /// With more for the reference.
    pub const fn more(mut self, more: &'static str) -> Key {
        self.more = more;
        self
    }

    /// Without an option of the command line.
    pub const fn without_option(mut self) -> Key {
        self.is_option = false;
        self
    }

    /// Its name in the API, which has lists.
    pub fn field(&self) -> &'static str {
        if self.list.is_empty() { self.name } else { self.list }
    }

    /// The name of its option; one that has several values is repeated.
    pub fn option(&self) -> &'static str {
        let is_plural = matches!(self.value, Value::Texts | Value::Pairs);
        self.name.strip_suffix('s').filter(|_| is_plural).unwrap_or(self.name)
    }

    /// Its row in the reference.
    pub fn row(&self) -> String {
        let Key { name, list, default, help, more, .. } = self;
        let list = if list.is_empty() { String::new() } else { format!(", or `{list}`") };
        let more = if more.is_empty() { String::new() } else { format!("; {more}") };
        format!("| `{name}`{list} | {default} | {help}{more} |")
    }

    /// Its JSON schema.
    pub fn schema(&self) -> Json {
        let mut schema = match &self.value {
            _ if !self.list.is_empty() => json!({ "type": "array", "items": { "type": "string" } }),
            Value::Text | Value::File | Value::Words(_) | Value::Duration(_) => {
                json!({ "type": ["string", "null"] })
            }
            Value::Number(_) => json!({ "type": ["integer", "null"] }),
            Value::Size(_) => json!({ "type": ["integer", "string", "null"] }),
            Value::Boolean => json!({ "type": ["boolean", "null"] }),
            Value::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Value::Pairs => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            Value::Table => json!({ "type": "object", "additionalProperties": true }),
        };
        schema["description"] = self.help.into();
        schema
    }

    /// Checks a number, a size or a duration that is read already.
    ///
    /// # Errors
    /// The key can't have it.
    pub fn check(&self, value: u64) -> Result<(), Wrong> {
        match &self.value {
            Value::Number(range) => units::within(self.name, value, range, |number| number.to_string()),
            Value::Size(range) => units::within(self.name, value, range, units::show_size),
            Value::Duration(range) => units::within(self.name, value, range, units::show_duration),
            _ => Ok(()),
        }
    }

    /// The value of a word of the command line, for a request.
    ///
    /// # Errors
    /// The key can't have it.
    pub fn parse(&self, text: &str) -> Result<Json, Wrong> {
        let limit = |read: u64, range: &RangeInclusive<u64>, show: fn(u64) -> String| {
            let [least, most] = [*range.start(), *range.end()].map(show);
            let wrong = || (format!("{text} is out of range"), format!("use a value from {least} to {most}"));
            range.contains(&read).then_some(()).ok_or_else(wrong)
        };
        match &self.value {
            Value::Number(range) => {
                let wrong = |_| (format!("\"{text}\" is not a whole number"), "write one such as 1".into());
                let read = text.parse().map_err(wrong)?;
                limit(read, range, |number| number.to_string()).map(|()| read.into())
            }
            Value::Size(range) => limit(units::size(text)?, range, units::show_size).map(|()| text.into()),
            Value::Duration(range) => {
                limit(units::duration(text)?, range, units::show_duration).map(|()| text.into())
            }
            Value::Boolean => text
                .parse::<bool>()
                .map(Json::from)
                .map_err(|_| (format!("\"{text}\" is neither true nor false"), "write one of them".into())),
            Value::Words(words) if !words().contains(&text) => {
                Err((format!("there is no \"{text}\""), format!("use {}", either(words()))))
            }
            Value::Pairs => {
                let pair = text.split_once('=').map(|(name, value)| json!([name, value]));
                pair.ok_or_else(|| ("there is no `=`".into(), "write NAME=VALUE".into()))
            }
            _ => Ok(text.into()),
        }
    }
}
