//! The common part of the command lines of Click's tools.
use super::files::Common;
use super::options::{Opt, Word, Words, flag, valued};
use std::process::ExitCode;

/// Options that most tools have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedOption {
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

/// Identifies an option of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionId<T> {
    /// An option that most tools have.
    Shared(SharedOption),
    /// An option of this tool alone.
    Own(T),
}

/// `-f`, `-e`, `-o`, `-C`, `--help` and `-v`.
pub const fn shared<T>() -> [Opt<OptionId<T>>; 6] {
    [
        valued("clickpath", Some('C'), OptionId::Shared(SharedOption::ClickPath)),
        valued("expression", Some('e'), OptionId::Shared(SharedOption::Expression)),
        valued("file", Some('f'), OptionId::Shared(SharedOption::File)),
        flag("help", None, OptionId::Shared(SharedOption::Help)),
        valued("output", Some('o'), OptionId::Shared(SharedOption::Output)),
        flag("version", Some('v'), OptionId::Shared(SharedOption::Version)),
    ]
}

/// Name and help text of a tool.
pub struct About<'a> {
    /// The tool's name.
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
    options: Vec<Opt<OptionId<T>>>,
    arguments: Vec<String>,
    mut own: impl FnMut(&mut Common, Word<T>) -> Taken,
) -> Result<Common, ExitCode> {
    let options: Vec<Opt<OptionId<T>>> = options.into_iter().chain(shared()).collect();
    let mut common = Common::default();
    for word in Words::new(&options, arguments) {
        let taken = match word {
            Err(error) => Err(error),
            Ok(Word::Argument(text)) => own(&mut common, Word::Argument(text)),
            Ok(Word::Option(OptionId::Own(id), value, negated)) => {
                own(&mut common, Word::Option(id, value, negated))
            }
            Ok(Word::Option(OptionId::Shared(SharedOption::Help), ..)) => {
                print!("{}", about.usage);
                return Err(ExitCode::SUCCESS);
            }
            Ok(Word::Option(OptionId::Shared(SharedOption::Version), ..)) => {
                println!("{} (Ringway) {}", about.program, env!("CARGO_PKG_VERSION"));
                return Err(ExitCode::SUCCESS);
            }
            Ok(Word::Option(OptionId::Shared(SharedOption::File), file, _)) => common.set_router(file, false),
            Ok(Word::Option(OptionId::Shared(SharedOption::Expression), text, _)) => {
                common.set_router(text, true)
            }
            Ok(Word::Option(OptionId::Shared(SharedOption::Output), file, _)) => common.set_output(file),
            Ok(Word::Option(OptionId::Shared(SharedOption::ClickPath), path, _)) => {
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
