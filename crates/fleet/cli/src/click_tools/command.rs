//! The common part of the command lines of Click's tools.
use super::files::Common;
use super::options::{Opt, Word, Words, flag, valued};
use std::process::ExitCode;

/// Options that most tools have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// `-f FILE`
    File,
    /// `-e EXPRESSION`
    Expression,
    /// `-o FILE`
    Output,
    /// `-C PATH`
    ClickPath,
    /// `--help`
    Help,
    /// `-v`
    Version,
}

/// An option: one that most tools have, or the tool's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<T> {
    /// Shared.
    Shared(Shared),
    /// Own.
    Own(T),
}

/// `-f`, `-e`, `-o`, `-C`, `--help` and `-v`.
pub const fn shared<T>() -> [Opt<Id<T>>; 6] {
    [
        valued("clickpath", Some('C'), Id::Shared(Shared::ClickPath)),
        valued("expression", Some('e'), Id::Shared(Shared::Expression)),
        valued("file", Some('f'), Id::Shared(Shared::File)),
        flag("help", None, Id::Shared(Shared::Help)),
        valued("output", Some('o'), Id::Shared(Shared::Output)),
        flag("version", Some('v'), Id::Shared(Shared::Version)),
    ]
}

/// Name and help text of a tool.
pub struct About<'a> {
    /// Its name.
    pub program: &'a str,
    /// What `--help` prints.
    pub usage: &'a str,
}

/// Result of handling one of the tool's own options or an argument: the error, if it is invalid.
pub type Taken = Result<(), String>;

/// Reads a command line. `own` handles the tool's own options and all arguments. An error is the exit code of a tool
/// that must not continue, for example after `--help`.
pub fn read<T: Copy>(
    about: &About,
    options: Vec<Opt<Id<T>>>,
    arguments: Vec<String>,
    mut own: impl FnMut(&mut Common, Word<T>) -> Taken,
) -> Result<Common, ExitCode> {
    let options: Vec<Opt<Id<T>>> = options.into_iter().chain(shared()).collect();
    let mut common = Common::default();
    for word in Words::new(&options, arguments) {
        let taken = match word {
            Err(error) => Err(error),
            Ok(Word::Argument(text)) => own(&mut common, Word::Argument(text)),
            Ok(Word::Option(Id::Own(id), value, negated)) => {
                own(&mut common, Word::Option(id, value, negated))
            }
            Ok(Word::Option(Id::Shared(Shared::Help), ..)) => {
                print!("{}", about.usage);
                return Err(ExitCode::SUCCESS);
            }
            Ok(Word::Option(Id::Shared(Shared::Version), ..)) => {
                println!("{} (Ringway) {}", about.program, env!("CARGO_PKG_VERSION"));
                return Err(ExitCode::SUCCESS);
            }
            Ok(Word::Option(Id::Shared(Shared::File), file, _)) => common.set_router(file, false),
            Ok(Word::Option(Id::Shared(Shared::Expression), text, _)) => common.set_router(text, true),
            Ok(Word::Option(Id::Shared(Shared::Output), file, _)) => common.set_output(file),
            Ok(Word::Option(Id::Shared(Shared::ClickPath), path, _)) => {
                common.click_path = Some(path);
                Ok(())
            }
        };
        if let Err(error) = taken {
            eprintln!("{}: {error}", about.program);
            let synopsis = about.usage.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
            eprintln!("{synopsis}\nTry '{} --help' for more information.", about.program);
            return Err(ExitCode::FAILURE);
        }
    }
    Ok(common)
}

/// The exit code for success or failure.
pub fn end(done: bool) -> ExitCode {
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
