//! `click-undead`: removes dead elements.
use super::command::{About, OptionId, end, read};
use super::known::Known;
use super::options::{Word, switch};
use ringway_click_lang::tools::undead::undead;
use ringway_click_lang::{Diagnostics, Limits};
use std::process::ExitCode;

const USAGE: &str = "\
'click-undead' removes elements that no packet can reach from a source or that
lead to no sink, and elements that do nothing, such as Null and StaticSwitch.

Usage: click-undead [OPTION]... [ROUTERFILE] [NAME=VALUE]...

Options:
  -c, --config              Write the configuration only, no archive.
  -f, --file FILE           Read the configuration from FILE.
  -e, --expression EXPR     Read the configuration EXPR.
  -o, --output FILE         Write to FILE.
  -C, --clickpath PATH      Use PATH for CLICKPATH.
  -u, --user                For the user-level driver, the only one there is.
      --help                Print this message.
  -v, --version             Print the version.
";

#[derive(Clone, Copy)]
enum OwnOption {
    Config,
    Ignored,
}

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let options = vec![
        switch("config", Some('c'), OptionId::Own(OwnOption::Config)),
        switch("user", Some('u'), OptionId::Own(OwnOption::Ignored)),
        switch("verbose", Some('V'), OptionId::Own(OwnOption::Ignored)),
    ];
    let mut config_only = false;
    let common = read(&About { program, usage: USAGE }, options, arguments, |common, word| {
        match word {
            Word::Argument(text) => return common.argument(text),
            Word::Option(OwnOption::Config, _, negated) => config_only = !negated,
            Word::Option(OwnOption::Ignored, ..) => {}
        }
        Ok(())
    });
    let common = match common {
        Ok(common) => common,
        Err(code) => return code,
    };
    let Some(mut router) = common.read_flat(false) else { return ExitCode::FAILURE };
    let mut diagnostics = Diagnostics::new(Limits::default().diagnostics);
    let any = undead(&mut router, &Known::default(), &mut diagnostics);
    eprint!("{diagnostics}");
    end(any && common.write(&router, !config_only))
}
