//! Advice for commands that other tools have: an unknown command is answered with the one that does it here.

use crate::arguments::Arguments;
use anstream::eprintln;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::ffi::OsString;
use std::process::exit;

/// The command below which the words are unknown, the words, and the advice.
type Row = (&'static str, &'static str, &'static str);

/// The rows, below each command in brackets.
const ADVICE: &str = include_str!("advice.txt");

fn rows() -> impl Iterator<Item = Row> {
    let mut below = "";
    ADVICE.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        if let Some(command) = line.strip_prefix('[') {
            below = command.trim_end_matches(']');
            return None;
        }
        let (words, advice) = line.split_once(": ")?;
        Some((below, words, advice))
    })
}

/// Any word, if clap knows none that is similar; as a command, each one below which a word has no row of its own.
const ANY: &str = "*";
/// Options that have a value, and may stand before the command.
const WITH_VALUE: [&str; 5] = ["--socket", "--fabric", "--api", "--token-file", "--ca"];

/// Prints why the command line is refused, and ends this process.
pub fn explain(error: &clap::Error, words: &[OsString]) -> ! {
    if let Some(why) = unwanted_name(error, words) {
        eprintln!("{}error:{:#} {why}", crate::text::BAD, crate::text::BAD);
        exit(error.exit_code())
    }
    let Some((below, word, advice)) = advice(error, words) else { error.exit() };
    let space = if below.is_empty() { "" } else { " " };
    eprintln!(
        "{}error:{:#} `ringway {below}{space}{word}` is no command; {advice}",
        crate::text::BAD,
        crate::text::BAD
    );
    exit(error.exit_code())
}

/// Where an unknown word stands, the word, and the advice, if there is some.
fn advice(error: &clap::Error, words: &[OsString]) -> Option<(String, String, &'static str)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let below = command_above(&Arguments::command(), words, word);
    let of = |command: &str, wanted: &str| {
        rows().find(|(own, known, _)| *own == command && known.split(' ').any(|one| one == wanted))
    };
    let is_like_none = error.get(ContextKind::SuggestedSubcommand).is_none();
    let of_any = || of(ANY, word).filter(|_| !below.is_empty());
    let row = of(&below, word).or_else(of_any).or_else(|| of(&below, ANY).filter(|_| is_like_none));
    row.map(|(_, _, advice)| (below, word.clone(), advice))
}

/// What to do about a name after a command that has none, which other tools take for that of the fabric.
fn unwanted_name(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return None;
    }
    let (mut command, mut above) = (&Arguments::command(), Vec::new());
    for known in words.iter().filter_map(|word| word.to_str()).take_while(|own| own != word) {
        if let Some(next) = command.find_subcommand(known) {
            command = next;
            above.push(known);
        }
    }
    let above = above.join(" ");
    // These are not about a fabric.
    let is_about_one = !above.is_empty() && !matches!(&*above, "doctor" | "openapi");
    let takes_none = command.get_positionals().next().is_none() && !command.has_subcommands();
    (is_about_one && takes_none).then(|| {
        format!(
            "`ringway {above}` takes no name; write `ringway --fabric {word} {above}` if it is a fabric's"
        )
    })
}

/// The last command before `word`; nothing if there is none.
fn command_above(root: &Command, words: &[OsString], word: &str) -> String {
    let (mut command, mut above) = (root, String::new());
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(next) = words.next() {
        if WITH_VALUE.contains(&next) {
            words.next();
        } else if let Some(known) = command.find_subcommand(next) {
            (command, above) = (known, next.into());
        } else if next == word {
            break;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn answer(line: &str) -> Option<&'static str> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::try_parse_from([OsString::from("ringway")].iter().chain(&words)).err()?;
        advice(&error, &words).map(|(_, _, advice)| advice)
    }

    #[test]
    fn words_of_other_tools_are_answered_with_commands() {
        let is = |line: &str, start: &str| {
            let found = answer(line).unwrap_or_default();
            assert!(found.starts_with(start), "{line}: {found}");
        };
        is("status", "`ringway ps` shows");
        is("ls", "`ringway ps` shows");
        is("ssh left ip addr", "`ringway guest exec NAME COMMAND`");
        is("drain", "`ringway place drain HOST`");
        is("tcpdump left", "`ringway capture PORT` shows");
        is("--fabric guest --json status", "`ringway ps` shows");
        is("function ls", "`ringway function list`");
        is("guest status", "`ringway guest list`");
        is("port ls", "`ringway port list`");
        is("guest console left", "`ringway guest logs NAME`");
        is("export", "`ringway save FILE`");
        is("place add", "`ringway place put FILE`");
        is("link stop wan", "`ringway link set NAME loss=100%`");
        is("tiny list", "a program that runs is a function");
        is("host set h1", "describe hosts in the fabric file");
        is("host h1 ping -c 1 h2", "`ringway host exec NAME -- COMMAND`");
        is("host shell h1", "`ringway host exec NAME -- COMMAND`");
        is("switch tcpdump s", "`ringway capture PORT` shows");
        is("chain exec c ls", "`ringway guest exec NAME COMMAND`");
        is("port trace p", "`ringway trace PORT FRAME`");
        is("guest pause vm", "the monitor of the guest");
        is("ss -tin", "`ringway stack --help`");
        is("link down wan", "`ringway link set NAME loss=100%`");
        assert_eq!(answer("host lst"), None, "clap has a similar word");
        assert_eq!(answer("frobnicate"), None, "clap's own message");
        assert_eq!(answer("ps --wrong"), None);
    }

    #[test]
    fn every_noun_has_or_answers_every_common_verb() {
        let verbs = "list ls show status add create rm remove delete set start stop log logs";
        let mut root = Arguments::command();
        root.build();
        let mut missing = Vec::new();
        let is_noun = |command: &&Command| command.has_subcommands() && command.get_name() != "help";
        for noun in root.get_subcommands().filter(is_noun) {
            let name = noun.get_name();
            let mut verbs: Vec<&str> = verbs.split(' ').collect();
            // A tiny program, and what placement decides on, are listed by other commands; generators are not kept.
            if !["tiny", "place", "pktgen"].contains(&name) {
                for verb in ["list", "show"] {
                    assert!(noun.find_subcommand(verb).is_some(), "{name} {verb}");
                    verbs.retain(|other| *other != verb);
                }
            }
            let unanswered =
                verbs.into_iter().filter(|verb| noun.find_subcommand(verb).is_none() && !has_row(name, verb));
            missing.extend(unanswered.map(|verb| format!("{name} {verb}")));
        }
        let known = |verb: &&str| root.find_subcommand(verb).is_none() && !has_row("", verb);
        missing.extend(verbs.split(' ').filter(known).map(String::from));
        assert_eq!(missing, [] as [String; 0]);
    }

    fn has_row(below: &str, word: &str) -> bool {
        rows().any(|(own, words, _)| own == below && words.split(' ').any(|one| one == word))
    }

    #[test]
    fn a_fabric_that_is_named_as_for_other_tools_is_answered_with_the_option() {
        let answer = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Arguments::try_parse_from([OsString::from("ringway")].iter().chain(&words)).err()?;
            unwanted_name(&error, &words)
        };
        for (line, right) in [
            ("down lab", "--fabric lab down"),
            ("ps lab", "--fabric lab ps"),
            ("host list lab", "--fabric lab host list"),
        ] {
            assert!(answer(line).is_some_and(|why| why.contains(&format!("`ringway {right}`"))), "{line}");
        }
        for line in ["ps --lab", "openapi lab", "down", "stats left right", "frobnicate lab"] {
            assert_eq!(answer(line), None, "{line}");
        }
    }

    #[test]
    fn every_row_is_of_unknown_words_and_names_commands_that_exist() {
        let mut root = Arguments::command();
        root.build();
        let mut seen = std::collections::HashSet::new();
        for (below, words, advice) in rows() {
            let of_any = below == ANY;
            let above = if below.is_empty() || of_any { Some(&root) } else { root.find_subcommand(below) };
            let above = above.unwrap_or_else(|| panic!("{below}"));
            for word in words.split(' ') {
                assert!(of_any || above.find_subcommand(word).is_none(), "`{below} {word}` is a command");
                assert!(seen.insert((below, word)), "`{below} {word}` is in two rows");
            }
            assert!(advice.contains('`') && !advice.ends_with('.'), "{advice}");
            for quoted in advice.split('`').skip(1).step_by(2) {
                for line in quoted.split(" && ") {
                    let Some(rest) = line.strip_prefix("ringway ") else { continue };
                    let is_command =
                        |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
                    let mut command = &root;
                    for word in rest.split(' ').take_while(is_command).filter(|word| !word.starts_with('-')) {
                        // A value, such as `list` of `read NAME list`, follows words in capitals.
                        command = command.find_subcommand(word).unwrap_or_else(|| panic!("{quoted}: {word}"));
                    }
                }
            }
        }
    }
}
