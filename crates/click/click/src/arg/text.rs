//! Texts, words, Booleans.
use super::{Arg, ArgError, Scope};
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click_lang::config;

/// The text as written, without unquoting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub String);

impl Arg for Raw {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        Ok(Self(text.into()))
    }
}

/// A string: one word, or something in quotes.
impl Arg for String {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        if text.is_empty() {
            return Ok(Self::new());
        }
        match config::parse_string(text) {
            Some((string, rest)) if rest.trim_ascii().is_empty() => Ok(string),
            _ => Err(ArgError::Parse),
        }
    }
}

/// Bytes: a string that need not be text.
impl Arg for Vec<u8> {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        String::parse(text, scope)?;
        Ok(config::unquote(text))
    }
}

/// Any text, unquoted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

impl Arg for Text {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        Ok(Self(config::unquote_text(text)))
    }
}

/// A word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub String);

impl Arg for Word {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        match config::parse_word(text) {
            Some((word, rest)) if rest.trim_ascii().is_empty() => Ok(Self(word)),
            _ => Err(ArgError::Parse),
        }
    }
}

/// A keyword.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyword(pub String);

impl Arg for Keyword {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        match config::parse_keyword(text) {
            Some((keyword, rest)) if rest.trim_ascii().is_empty() => Ok(Self(keyword.into())),
            _ => Err(ArgError::Parse),
        }
    }
}

/// A file's name; not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filename(pub String);

impl Arg for Filename {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let name = String::parse(text, scope)?;
        if name.is_empty() { Err(ArgError::Parse) } else { Ok(Self(name.replace("//", "/"))) }
    }
}

/// A Boolean: true, yes, 1, t, y and their opposites.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "t" | "true" | "yes" => Some(true),
        "0" | "n" | "f" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// A Boolean.
impl Arg for bool {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        parse_bool(text).ok_or(ArgError::Parse)
    }
}
