//! Click's tools. This program acts as one of them when it is called by the tool's name, through a link, or as
//! `ringway NAME`. Click's driver is in [`crate::click`].
/// Prints to standard error, for the tools, without what a terminal would obey: messages have words of configurations.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::text::complain(format_args!($($text)*)) };
}
/// As `eprint!`, with a line's end.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::text::complain(format_args!("{}\n", format_args!($($text)*))) };
}

mod align;
mod buildtool;
mod combine;
mod command;
mod files;
mod flatten;
mod known;
mod options;
mod uncombine;
mod undead;
mod xform;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The main function of a tool. Its parameters are the tool's name, for messages, and the arguments.
type Program = fn(&str, Vec<String>) -> ExitCode;

/// Click's tools by name.
const PROGRAMS: &[(&str, Program)] = &[
    ("click-align", align::run),
    ("click-buildtool", buildtool::run),
    ("click-combine", combine::run),
    ("click-flatten", flatten::run),
    ("click-uncombine", uncombine::run),
    ("click-undead", undead::run),
    ("click-xform", xform::run),
];

/// If a command line is for one of Click's tools, runs it.
pub fn dispatch(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let called = arguments.next()?;
    let called = Path::new(&called).file_name()?.to_str()?.to_string();
    let mut rest: Vec<String> = arguments.collect();
    let name = if find(&called).is_some() {
        called
    } else if rest.first().is_some_and(|first| find(first).is_some()) {
        rest.remove(0)
    } else {
        return None;
    };
    find(&name).map(|run| run(&name, rest))
}

fn find(name: &str) -> Option<Program> {
    PROGRAMS.iter().find(|(other, _)| *other == name).map(|(_, run)| *run)
}
