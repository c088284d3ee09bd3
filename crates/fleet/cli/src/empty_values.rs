//! Empty values on the command line, such as that of a shell's variable that was not set: messages about what they name
//! would have an empty word.

use crate::arguments::Arguments;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, CommandFactory, Error};
use std::ffi::OsString;

/// What may be empty: a value that is written to a handler, and the filter of libpcap's programs, which then takes all.
const MAY_BE_EMPTY: [&str; 2] = ["value", "filter"];

/// Reports the first argument with an empty value, by its name. Words of a program that a command runs may be empty.
///
/// # Errors
/// There is one.
pub fn check(words: &[OsString]) -> Result<(), Error> {
    // Most command lines have none.
    if !words.iter().any(|word| word.is_empty() || word.as_encoded_bytes().ends_with(b"=")) {
        return Ok(());
    }
    let mut command = Arguments::command();
    command.build();
    // What else is wrong is reported after this.
    let lenient = command.clone().ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from([&OsString::from("ringway")].into_iter().chain(words))
    else {
        return Ok(());
    };
    match find(&command, &matches) {
        None => Ok(()),
        Some((of, argument)) => Err(error(of, argument)),
    }
}

/// The first argument with an empty value, and its command.
fn find<'c>(command: &'c Command, matches: &ArgMatches) -> Option<(&'c Command, &'c Arg)> {
    let is_empty = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        let values = matches.try_get_raw(id).ok().flatten();
        values.is_some_and(|mut values| values.any(|value| value.is_empty()))
    };
    let names = command.get_arguments().filter(|argument| {
        !argument.is_trailing_var_arg_set() && !MAY_BE_EMPTY.contains(&argument.get_id().as_str())
    });
    let own = names.filter(|argument| argument.get_action().takes_values()).find(is_empty);
    own.map(|argument| (command, argument)).or_else(|| {
        let (name, below) = matches.subcommand()?;
        find(command.find_subcommand(name)?, below)
    })
}

/// As clap reports a value that is refused.
fn error(command: &Command, argument: &Arg) -> Error {
    let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
    error.insert(ContextKind::InvalidArg, ContextValue::String(argument.to_string()));
    error.insert(ContextKind::InvalidValue, ContextValue::String(String::new()));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// A word that an argument takes.
    fn good(argument: &Arg) -> String {
        let possible = argument.get_possible_values();
        possible.first().map_or("1".into(), |value| value.get_name().to_string())
    }

    fn refusal(words: &[String]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let parsed = check(&words).and_then(|()| {
            Arguments::try_parse_from([&OsString::from("ringway")].into_iter().chain(&words)).map(drop)
        });
        parsed.err().map(|error| error.to_string()).unwrap_or_default()
    }

    /// Gives each argument of a command and of those below an empty value; returns how many.
    fn walk(command: &Command, path: &[String]) -> usize {
        let mut tried = 0;
        let mut before = path.to_vec();
        for argument in command.get_positionals() {
            let may_be =
                argument.is_trailing_var_arg_set() || MAY_BE_EMPTY.contains(&argument.get_id().as_str());
            if !may_be {
                // A missing argument would be reported first.
                let after: Vec<String> =
                    command.get_positionals().skip(before.len() + 1 - path.len()).map(good).collect();
                let said = refusal(&[&before[..], &[String::new()], &after].concat());
                let named = argument.to_string();
                let is_named = said.contains(&format!("for '{named}'"));
                // What a command lacks as well is reported first.
                assert!(is_named || said.contains("required arguments"), "{before:?} {named}: {said}");
                tried += 1;
            }
            before.push(good(argument));
        }
        let options = command.get_opts().filter(|option| {
            let may_be = MAY_BE_EMPTY.contains(&option.get_id().as_str());
            option.get_long().is_some() && !option.is_hide_set() && !may_be
        });
        for option in options {
            let named: Vec<String> = command.get_positionals().map(good).collect();
            let given = [format!("--{}=", option.get_long().unwrap())];
            let said = refusal(&[path, &given, &named].concat());
            // An option that needs another one, or conflicts with a name, is reported with that.
            let is_named = said.contains(&format!("for '{option}'"));
            let is_alone = !said.contains("required arguments") && !said.contains("cannot be used with");
            assert!(is_named || !is_alone, "{path:?} {option}: {said}");
            tried += 1;
        }
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            tried += walk(below, &[path, &[below.get_name().to_string()]].concat());
        }
        tried
    }

    #[test]
    fn every_argument_with_an_empty_value_is_named() {
        let mut command = Arguments::command();
        command.build();
        let tried = walk(&command, &[]);
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn words_of_programs_and_values_of_handlers_may_be_empty() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        for line in ["exec -- echo ", "host exec h -- echo ", "function write wall a.b ", "click "] {
            assert!(check(&words(line)).is_ok(), "{line}");
        }
        assert!(check(&words("place why-not  ")).is_err());
    }
}
