//! Reads a table of a file key by key and collects all errors.

use super::key::{Key, Value};
use super::problem::{Problem, nearest};
use super::units;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Attack: a file with an error in each of a million lines. Errors of a file that are told, and warnings.
const MOST: usize = 500;

/// The errors and warnings found so far, and the positions of keys in the file.
#[derive(Default)]
pub struct Diagnostics {
    problems: RefCell<Vec<Problem>>,
    /// Errors beyond the most that are told.
    more: Cell<usize>,
    warnings: RefCell<Vec<Problem>>,
    positions: RefCell<HashMap<String, Range<usize>>>,
}

impl Diagnostics {
    /// For values that no text describes: each of these paths has a position, in their order.
    pub fn of_paths(paths: impl IntoIterator<Item = String>) -> Diagnostics {
        let positions = paths.into_iter().enumerate().map(|(index, path)| (path, index..index + 1));
        Diagnostics { positions: RefCell::new(positions.collect()), ..Diagnostics::default() }
    }

    /// Reports an error.
    pub fn error(&self, at: &Range<usize>, what: impl Into<String>, fix: impl Into<String>) {
        self.push(Problem::new(at.clone(), what, fix));
    }

    fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MOST {
            problems.push(problem);
        } else {
            self.more.update(|more| more + 1);
        }
    }

    /// Reports a warning about a valid setting that may be a mistake.
    pub fn warn(&self, at: &Range<usize>, what: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MOST {
            warnings.push(Problem::new(at.clone(), what, ""));
        }
    }

    /// Takes the warnings, in the order of the file.
    pub fn take_warnings(&self) -> Vec<Problem> {
        let mut warnings = self.warnings.take();
        warnings.sort_by_key(|problem| (problem.at.start, problem.at.end));
        warnings
    }

    /// Whether an error was noted.
    pub fn has_errors(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Adds errors found by other checks.
    pub fn extend(&self, problems: Vec<Problem>) {
        problems.into_iter().for_each(|problem| self.push(problem));
    }

    /// Reports an error in another file, to which this file refers at `at`. `other_file` is that file's name,
    /// line and column.
    pub fn error_in(&self, other_file: (String, usize, usize), at: &Range<usize>, what: String) {
        let problem = Problem { at: at.clone(), what, fix: String::new(), other_file: Some(other_file) };
        self.push(problem);
    }

    /// Records the position of `path` (`port.a` or `port.a.socket`).
    fn record(&self, path: String, at: Range<usize>) {
        self.positions.borrow_mut().insert(path, at);
    }

    /// The position of `path`, or of the innermost known table that contains it.
    pub fn of(&self, path: &str) -> Range<usize> {
        let positions = self.positions.borrow();
        let mut path = path;
        loop {
            if let Some(at) = positions.get(path) {
                return at.clone();
            }
            match path.rsplit_once('.') {
                Some((table, _)) => path = table,
                None => return 0..0,
            }
        }
    }

    /// Whether `path` is in the file.
    pub fn has(&self, path: &str) -> bool {
        self.positions.borrow().contains_key(path)
    }

    /// All errors, for one who has described `table` as JSON: each with the JSON pointer of its value.
    pub fn into_messages(self, table: &str) -> String {
        let positions = self.positions.take();
        let pointer = |at: &Range<usize>| {
            let here = positions.iter().filter(|(_, own)| *own == at);
            let path = here.filter_map(|(path, _)| path.strip_prefix(table)).max_by_key(|path| path.len());
            path.filter(|path| !path.is_empty()).map(|path| path.replace('.', "/") + ": ")
        };
        let message = |Problem { at, what, fix, .. }: Problem| {
            let end = if fix.is_empty() { "" } else { "; " };
            format!("{}{what}{end}{fix}", pointer(&at).unwrap_or_default())
        };
        self.into_problems().into_iter().map(message).collect::<Vec<_>>().join("\n")
    }

    /// All errors, in the order of the file; if there are too many, the last one says how many are left out.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.at.start, problem.at.end));
        problems.dedup();
        if self.more.get() > 0 {
            let at = problems.last().map_or(0..0, |last| last.at.clone());
            problems.push(Problem::new(
                at,
                format!("{} more errors", self.more.get()),
                "correct these first",
            ));
        }
        problems
    }
}

/// A table being read.
pub struct Section<'t> {
    /// The table's path in the file, such as `port.a`.
    pub path: String,
    /// The position of the table's name.
    pub at: Range<usize>,
    table: &'t DeTable<'t>,
    known: Vec<&'static str>,
    /// Those that were read as strings.
    texts: Vec<&'static str>,
    diagnostics: &'t Diagnostics,
}

/// The keys that `read` looks for in a table, which is named `path` and has none.
pub fn keys_of<T>(path: &str, read: impl FnOnce(&mut Section<'_>, &Diagnostics) -> T) -> Vec<&'static str> {
    typed_keys_of(path, read).0
}

/// As [`keys_of`], and those of these keys whose values are strings.
pub fn typed_keys_of<T>(
    path: &str,
    read: impl FnOnce(&mut Section<'_>, &Diagnostics) -> T,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let (table, diagnostics) = (DeTable::new(), Diagnostics::default());
    let mut section = Section::new(path.into(), 0..0, &table, &diagnostics);
    read(&mut section, &diagnostics);
    (section.known, section.texts)
}

/// The type of a value, for messages.
fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl<'t> Section<'t> {
    /// Reads `table`, whose name is at `at`.
    pub fn new(
        path: String,
        at: Range<usize>,
        table: &'t DeTable<'t>,
        diagnostics: &'t Diagnostics,
    ) -> Section<'t> {
        diagnostics.record(path.clone(), at.clone());
        Section { path, at, table, known: Vec::new(), texts: Vec::new(), diagnostics }
    }

    /// Whether the table has the key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        let value = self.table.get(key)?;
        self.diagnostics.record(format!("{}.{key}", self.path), value.span());
        Some(value)
    }

    /// Reports that a key is missing.
    pub fn missing(&self, key: &str, fix: &str) {
        self.diagnostics.error(&self.at, format!("{} has no `{key}`", self.path), fix);
    }

    /// Reports an error in the value of a key.
    pub fn error(&self, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.diagnostics.error(&self.diagnostics.of(&format!("{}.{key}", self.path)), what, fix);
    }

    fn not_a(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str, example: &str) {
        let found = kind_of(value.get_ref());
        self.diagnostics.error(
            &value.span(),
            format!("`{key}` is {wanted}, not {found}"),
            format!("write {key} = {example}"),
        );
    }

    /// The string at `key`.
    pub fn string(&mut self, key: &'static str, example: &str) -> Option<String> {
        self.texts.push(key);
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) if text.trim().is_empty() => {
                self.diagnostics.error(
                    &value.span(),
                    format!("`{key}` is empty"),
                    format!("write {key} = \"{example}\""),
                );
                None
            }
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.not_a(key, value, "a string", &format!("\"{example}\""));
                None
            }
        }
    }

    /// The string at `key` as `parse` reads it.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, units::Wrong>,
    ) -> Option<T> {
        let text = self.string(key, example)?;
        self.checked(key, parse(&text))
    }

    /// The value of a key; reports an error if it is wrong.
    pub fn checked<T>(&self, key: &str, read: Result<T, units::Wrong>) -> Option<T> {
        read.map_err(|(what, fix)| self.error(key, what, fix)).ok()
    }

    /// The strings of the list at `key`; `None` if there is none, or it is not a list.
    pub fn strings(&mut self, key: &'static str, example: &str) -> Option<Vec<String>> {
        self.list(key, example, true)
    }

    /// As [`Section::strings`], for words of a command, which may be empty.
    pub fn words(&mut self, key: &'static str, example: &str) -> Option<Vec<String>> {
        self.list(key, example, false)
    }

    fn list(&mut self, key: &'static str, example: &str, are_names: bool) -> Option<Vec<String>> {
        let value = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            self.not_a(key, value, "a list of strings", example);
            return None;
        };
        let mut list = Vec::new();
        for entry in array.iter() {
            match entry.get_ref() {
                DeValue::String(text) if are_names && text.is_empty() => {
                    let what = format!("an entry of `{key}` is empty");
                    self.diagnostics.error(&entry.span(), what, "take it out, or write what is meant");
                }
                DeValue::String(text) => {
                    self.diagnostics.record(format!("{}.{key}.{}", self.path, list.len()), entry.span());
                    list.push(text.to_string());
                }
                _ => self.not_a(key, entry, "a list of strings", example),
            }
        }
        Some(list)
    }

    /// The list at key `many`, or the string at key `one` as a list.
    pub fn one_or_many(&mut self, one: &'static str, many: &'static str, example: &str) -> Vec<String> {
        if self.has(one) && self.has(many) {
            self.diagnostics.error(
                &self.at,
                format!("{} has both `{one}` and `{many}`", self.path),
                format!("keep `{many}`"),
            );
        }
        let list = self.strings(many, &format!("[\"{example}\"]"));
        let single = self.string(one, example).filter(|name| {
            if name.is_empty() {
                self.error(one, format!("`{one}` is empty"), format!("write {one} = \"{example}\""));
            }
            !name.is_empty()
        });
        list.unwrap_or_else(|| single.into_iter().collect())
    }

    /// The names and string values of the table at `key`.
    pub fn pairs(&mut self, key: &'static str, example: &str) -> Vec<(String, String)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Table(table) = value.get_ref() else {
            self.not_a(key, value, "a table", example);
            return Vec::new();
        };
        let mut pairs = Vec::new();
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, entry) in entries {
            match entry.get_ref() {
                DeValue::String(text) => {
                    self.diagnostics.record(format!("{}.{key}.{}", self.path, pairs.len()), name.span());
                    pairs.push((name.get_ref().to_string(), text.to_string()));
                }
                _ => self.not_a(name.get_ref(), entry, "a string", "\"...\""),
            }
        }
        pairs
    }

    /// The whole number at `key`, if it is in `range`.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.get(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            let meant = match value.get_ref() {
                DeValue::String(text) => text.trim().parse().ok().filter(|read| range.contains(read)),
                _ => None,
            };
            let example = meant.unwrap_or(*range.start().max(&1));
            self.not_a(key, value, "a whole number", &example.to_string());
            return None;
        };
        let read = u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok();
        if read.is_none_or(|read| !range.contains(&read)) {
            self.diagnostics.error(
                &value.span(),
                format!("`{key}` is {}", number.as_str()),
                format!("use a value from {} to {}", range.start(), range.end()),
            );
            return None;
        }
        read
    }

    /// The ranges of numbers at `key`, each within `limits`: a list of numbers and of strings such as "20-29", or one
    /// of them; a string may have several, separated by commas. `None` if one is wrong.
    pub fn ranges(
        &mut self,
        key: &'static str,
        limits: RangeInclusive<u16>,
        example: &str,
    ) -> Option<Vec<(u16, u16)>> {
        let what = "a list of numbers and ranges";
        let parts = self.parts(key, (what, example), |number| Some(number.to_string()))?;
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (limits.contains(&first) && limits.contains(&last) && first <= last).then_some((first, last))
        };
        let read = |part: Option<Part>| {
            let (part, at) = part?;
            let read = range(&part);
            if read.is_none() {
                let (low, high) = (limits.start(), limits.end());
                let what = format!("`{key}` has \"{}\"", part.escape_debug());
                let fix = format!("use numbers and ranges from {low} to {high}, such as {example}");
                self.diagnostics.error(&at, what, fix);
            }
            read
        };
        all(parts.into_iter().map(read))
    }

    /// The texts at `key` as `parse` reads each: those of a list, or of a string that has several, separated by commas.
    /// `None` if one is wrong.
    pub fn all_parsed<T>(
        &mut self,
        key: &'static str,
        what_and_example: (&str, &str),
        parse: impl Fn(&str) -> Result<T, units::Wrong>,
    ) -> Option<Vec<T>> {
        let parts = self.parts(key, what_and_example, |_| None)?;
        let read = |part: Option<Part>| {
            let (part, at) = part?;
            let wrong = |(what, fix)| self.diagnostics.error(&at, format!("`{key}`: {what}"), fix);
            parse(&part).map_err(wrong).ok()
        };
        all(parts.into_iter().map(read))
    }

    /// The parts of the entries of a list at `key`, or of the only entry, separated by commas, with their positions;
    /// `None` for an entry of another type. `number` says what a whole number stands for.
    fn parts(
        &mut self,
        key: &'static str,
        (what, example): (&str, &str),
        number: impl Fn(&str) -> Option<String>,
    ) -> Option<Vec<Option<Part>>> {
        let value = self.get(key)?;
        let entries: Vec<_> = match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        };
        if matches!(value.get_ref(), DeValue::Array(_)) {
            for (index, entry) in entries.iter().enumerate() {
                self.diagnostics.record(format!("{}.{key}.{index}", self.path), entry.span());
            }
        }
        let mut parts = Vec::new();
        for entry in entries {
            let text = match entry.get_ref() {
                DeValue::Integer(whole) => number(whole.as_str()),
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            };
            match text {
                Some(text) => {
                    parts.extend(text.split(',').map(|part| Some((part.trim().to_string(), entry.span()))));
                }
                None => {
                    self.not_a(key, entry, what, example);
                    parts.push(None);
                }
            }
        }
        Some(parts)
    }

    /// The number, size or duration at `key`, if the key's description allows it. `example` is for messages.
    pub fn quantity(&mut self, key: &'static Key, example: &str) -> Option<u64> {
        match &key.value {
            Value::Size(range) => self.size(key.name, range.clone()),
            Value::Duration(range) => self.duration(key.name, range.clone(), example),
            Value::Number(range) => self.number(key.name, range.clone()),
            _ => None,
        }
    }

    /// The table at `key`.
    pub fn table(&mut self, key: &'static str, example: &str) -> Option<Section<'t>> {
        let value = self.get(key)?;
        let DeValue::Table(table) = value.get_ref() else {
            self.not_a(key, value, "a table", example);
            return None;
        };
        Some(Section::new(format!("{}.{key}", self.path), value.span(), table, self.diagnostics))
    }

    /// The tables in the table at `key` with their names, in the order of the file.
    pub fn tables(&mut self, key: &'static str, example: &str) -> Vec<(String, Section<'t>)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Table(tables) = value.get_ref() else {
            self.not_a(key, value, "a table", example);
            return Vec::new();
        };
        let mut entries: Vec<_> = tables.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut list = Vec::new();
        for (name, value) in entries {
            match value.get_ref() {
                DeValue::Table(table) => {
                    let path = format!("{}.{key}.{}", self.path, name.get_ref());
                    let section = Section::new(path, name.span(), table, self.diagnostics);
                    list.push((name.get_ref().to_string(), section));
                }
                _ => self.not_a(name.get_ref(), value, "a table", "{ ... }"),
            }
        }
        list
    }

    /// The string, number or boolean at `key`, as text.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.get(key)?;
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => {
                let read = i128::from_str_radix(&number.as_str().replace('_', ""), number.radix());
                read.ok().map(|read| read.to_string())
            }
            DeValue::Float(number) => Some(number.as_str().replace('_', "")),
            DeValue::Boolean(value) => Some(value.to_string()),
            _ => None,
        };
        if text.is_none() {
            self.not_a(key, value, "a string, a number, true or false", "\"...\"");
        }
        text
    }

    /// `true` or `false` at `key`.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        let read = value.get_ref().as_bool();
        if read.is_none() {
            self.not_a(key, value, "true or false", "true");
        }
        read
    }

    fn with_unit(
        &mut self,
        key: &'static str,
        read: fn(&str) -> Result<u64, units::Wrong>,
        without: impl Fn(&str) -> units::Wrong,
        example: &str,
    ) -> Option<(u64, Range<usize>)> {
        self.texts.push(key);
        let value = self.get(key)?;
        let wrong = match value.get_ref() {
            DeValue::String(text) if is_bare(text) => without(text),
            DeValue::String(text) => match read(text) {
                Ok(read) => return Some((read, value.span())),
                Err(wrong) => wrong,
            },
            DeValue::Integer(number) => without(number.as_str()),
            DeValue::Float(number) => without(number.as_str()),
            _ => {
                self.not_a(key, value, "a number with a unit", &format!("\"{example}\""));
                return None;
            }
        };
        self.diagnostics.error(&value.span(), wrong.0, wrong.1);
        None
    }

    /// The duration at `key` in nanoseconds, if it is in `range`. `example` is for error messages.
    pub fn duration(&mut self, key: &'static str, range: RangeInclusive<u64>, example: &str) -> Option<u64> {
        let without = |number: &str| units::duration_needs_unit(number, example);
        let (read, at) = self.with_unit(key, units::duration, without, example)?;
        self.limit(key, read, &at, &range, units::show_duration)
    }

    /// The size at `key` in bytes, if it is in `range`.
    pub fn size(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (read, at) =
            self.with_unit(key, units::size, |number| units::size_needs_unit(number, &range), "2MB")?;
        self.limit(key, read, &at, &range, units::show_size)
    }

    /// The rate at `key` in frames per second, if it is in `range`.
    pub fn rate(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (read, at) = self.with_unit(key, units::rate, units::rate_needs_unit, "10kpps")?;
        self.limit(key, read, &at, &range, units::show_rate)
    }

    fn limit(
        &self,
        key: &str,
        read: u64,
        at: &Range<usize>,
        range: &RangeInclusive<u64>,
        show: fn(u64) -> String,
    ) -> Option<u64> {
        let checked = units::within(key, read, range, show);
        checked.map_err(|(what, fix)| self.diagnostics.error(at, what, fix)).ok().map(|()| read)
    }

    /// The value that `words` gives for the string at `key`.
    pub fn word<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let list = either(words.iter().map(|(word, _)| *word));
        self.texts.push(key);
        let value = self.get(key)?;
        let DeValue::String(text) = value.get_ref() else {
            self.not_a(key, value, &format!("one of {list}"), &format!("\"{}\"", words[0].0));
            return None;
        };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| word == text) {
            return Some(*meaning);
        }
        let fix = match nearest(text, words.iter().map(|(word, _)| *word)) {
            Some(word) => format!("did you mean \"{word}\"?"),
            None => format!("use {list}"),
        };
        self.diagnostics.error(&value.span(), format!("`{key}` can't be \"{text}\""), fix);
        None
    }

    /// Accepts these keys without reading them.
    pub fn accept(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Ends the table: reports an error for each key that was not read. `remedy` returns the remedy for a
    /// key that belongs to another table.
    pub fn finish(self, remedy: impl Fn(&str) -> Option<String>) {
        for (key, _) in self.table.iter() {
            let name = key.get_ref();
            if self.known.iter().any(|known| *known == &**name) {
                continue;
            }
            let what = format!("{} has no key `{name}`", self.path);
            let fix = if let Some(fix) = remedy(name) {
                fix
            } else if let Some(near) = nearest(name, self.known.iter().copied()) {
                format!("did you mean `{near}`?")
            } else {
                format!("it may have {}", either(self.known.iter().copied()))
            };
            self.diagnostics.error(&key.span(), what, fix);
        }
    }
}

/// A part of a list, and its position.
type Part = (String, Range<usize>);

/// All of them, if all are there; each is asked for.
fn all<T>(read: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    read.collect::<Vec<_>>().into_iter().collect()
}

/// Joins words as in `a, b or c`.
pub fn either<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.split_last() {
        None => "nothing".into(),
        Some((last, [])) => (*last).into(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// Whether a text is a number without a unit.
fn is_bare(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(|number| number >= 0.0) && !text.ends_with(|c: char| !c.is_ascii_digit())
}
