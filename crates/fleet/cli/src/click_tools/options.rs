//! Command-line options in the style of Click's programs: long options may be abbreviated and negated by `--no-`,
//! short options may be joined, and have their value in the same word or the next.

/// An option.
pub struct Opt<T> {
    /// The long name.
    pub long: &'static str,
    /// The short name.
    pub short: Option<char>,
    /// Whether a value follows.
    pub value: bool,
    /// Whether `--no-NAME` and `+X` turn it off.
    pub negatable: bool,
    /// Identifies the option to the program.
    pub id: T,
}

/// An option without a value.
pub const fn flag<T>(long: &'static str, short: Option<char>, id: T) -> Opt<T> {
    Opt { long, short, value: false, negatable: false, id }
}

/// An option without a value that can be turned off.
pub const fn switch<T>(long: &'static str, short: Option<char>, id: T) -> Opt<T> {
    Opt { long, short, value: false, negatable: true, id }
}

/// An option with a value.
pub const fn valued<T>(long: &'static str, short: Option<char>, id: T) -> Opt<T> {
    Opt { long, short, value: true, negatable: false, id }
}

/// An item of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Word<T> {
    /// An option, its value, and whether it is negated.
    Option(T, String, bool),
    /// Something else.
    Argument(String),
}

/// Iterates over a command line; ends after the first error.
pub struct Words<'a, T> {
    options: &'a [Opt<T>],
    rest: std::vec::IntoIter<String>,
    /// The rest of a word after a short option, and whether the word began with `+`.
    joined: Option<(bool, String)>,
    ended: bool,
}

impl<'a, T: Copy> Words<'a, T> {
    /// The words of `arguments`.
    pub fn new(options: &'a [Opt<T>], arguments: Vec<String>) -> Self {
        Self { options, rest: arguments.into_iter(), joined: None, ended: false }
    }

    /// The next word, or what is wrong with it.
    fn word(&mut self) -> Option<Result<Word<T>, String>> {
        if let Some((negated, letters)) = self.joined.take() {
            return Some(self.short(negated, &letters));
        }
        let word = self.rest.next()?;
        if self.ended || word == "-" || word == "+" || !word.starts_with(['-', '+']) {
            return Some(Ok(Word::Argument(word)));
        }
        if word == "--" {
            self.ended = true;
            return self.word();
        }
        Some(match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => self.long(long),
            (_, Some(letters)) => self.short(false, letters),
            _ => self.short(true, &word[1..]),
        })
    }

    fn long(&mut self, text: &str) -> Result<Word<T>, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (text, None),
        };
        let (option, negated) = match self.lookup(name, false)? {
            Some(option) => (option, false),
            None => match name.strip_prefix("no-").map(|name| self.lookup(name, true)).transpose()?.flatten()
            {
                Some(option) => (option, true),
                None => return Err(format!("unrecognized option '--{name}'")),
            },
        };
        if value.is_some() && (negated || !option.value) {
            return Err(format!("'--{name}' can't take an argument"));
        }
        self.finish(option, value, negated, &format!("--{name}"))
    }

    /// The option with this name, or the only one whose name has it as a prefix.
    fn lookup(&self, name: &str, negated: bool) -> Result<Option<&'a Opt<T>>, String> {
        let mut found = self.options.iter().filter(|option| option.negatable || !negated);
        if let Some(exact) = found.clone().find(|option| option.long == name) {
            return Ok(Some(exact));
        }
        let begun: Vec<&Opt<T>> = found.by_ref().filter(|option| option.long.starts_with(name)).collect();
        match begun[..] {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ => {
                let names: Vec<String> = begun.iter().map(|option| format!("'--{}'", option.long)).collect();
                Err(format!("option '--{name}' is ambiguous\n(Possibilities are {}.)", names.join(", ")))
            }
        }
    }

    fn short(&mut self, negated: bool, letters: &str) -> Result<Word<T>, String> {
        let Some(letter) = letters.chars().next() else { return Err("unrecognized option '-'".into()) };
        let rest = &letters[letter.len_utf8()..];
        let sign = if negated { '+' } else { '-' };
        let found = self.options.iter().find(|it| it.short == Some(letter) && (it.negatable || !negated));
        let Some(option) = found else { return Err(format!("unrecognized option '{sign}{letter}'")) };
        let mut value = None;
        if option.value && !rest.is_empty() {
            value = Some(rest.to_string());
        } else if !rest.is_empty() {
            self.joined = Some((negated, rest.into()));
        }
        self.finish(option, value, negated, &format!("{sign}{letter}"))
    }

    fn finish(
        &mut self,
        option: &Opt<T>,
        value: Option<String>,
        negated: bool,
        shown: &str,
    ) -> Result<Word<T>, String> {
        let value = match value {
            Some(value) => value,
            None if option.value && !negated => {
                self.rest.next().ok_or_else(|| format!("'{shown}' requires an argument"))?
            }
            None => String::new(),
        };
        Ok(Word::Option(option.id, value, negated))
    }
}

impl<T: Copy> Iterator for Words<'_, T> {
    type Item = Result<Word<T>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let word = self.word();
        if matches!(word, Some(Err(_))) {
            self.rest = Vec::new().into_iter();
            self.joined = None;
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &[&str]) -> Vec<Result<Word<u8>, String>> {
        let options = [
            valued("output", Some('o'), 1),
            switch("quit", Some('q'), 2),
            flag("expression", Some('e'), 3),
            flag("expand", None, 4),
        ];
        Words::new(&options, arguments.iter().map(|&word| word.into()).collect()).collect()
    }

    #[test]
    fn forms() {
        let option = |id, value: &str, negated| Ok(Word::Option(id, value.into(), negated));
        assert_eq!(
            words(&["-qo-", "-"]),
            [option(2, "", false), option(1, "-", false), Ok(Word::Argument("-".into()))]
        );
        assert_eq!(words(&["--out=x", "--output", "y"]), [option(1, "x", false), option(1, "y", false)]);
        assert_eq!(
            words(&["--no-quit", "+q", "-o", "z"]),
            [option(2, "", true), option(2, "", true), option(1, "z", false)]
        );
        assert_eq!(words(&["--", "-q"]), [Ok(Word::Argument("-q".into()))]);
    }

    #[test]
    fn errors() {
        let error = |arguments: &[&str]| words(arguments).pop().unwrap().unwrap_err();
        assert_eq!(error(&["--nope", "x"]), "unrecognized option '--nope'");
        assert_eq!(error(&["-x"]), "unrecognized option '-x'");
        assert_eq!(error(&["-o"]), "'-o' requires an argument");
        assert_eq!(error(&["--quit=1"]), "'--quit' can't take an argument");
        assert!(error(&["--exp"]).starts_with("option '--exp' is ambiguous"));
    }
}
