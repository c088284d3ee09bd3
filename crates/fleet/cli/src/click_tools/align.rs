//! `click-align`: adds Align elements where they are needed.
use super::command::{About, OptionId, end, read};
use super::known::Known;
use super::options::{Word, flag};
use ringway_click_lang::tools::align::align;
use ringway_click_lang::{Diagnostics, Limits};
use std::process::ExitCode;

const USAGE: &str = "\
'click-align' adds the Align elements that a configuration needs on machines
that can't read unaligned words, and an AlignmentInfo that says what elements
can count on. On other machines, such as x86, it only costs.

Usage: click-align [OPTION]... [ROUTERFILE] [NAME=VALUE]...

Options:
  -f, --file FILE           Read the configuration from FILE.
  -e, --expression EXPR     Read the configuration EXPR.
  -o, --output FILE         Write to FILE.
  -C, --clickpath PATH      Use PATH for CLICKPATH.
  -u, --userlevel           For the user-level driver, the only one there is.
      --help                Print this message.
  -v, --version             Print the version.
";

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let options =
        vec![flag("userlevel", Some('u'), OptionId::Own(())), flag("verbose", Some('V'), OptionId::Own(()))];
    let common = read(&About { program, usage: USAGE }, options, arguments, |common, word| match word {
        Word::Argument(text) => common.argument(text),
        Word::Option((), ..) => Ok(()),
    });
    let common = match common {
        Ok(common) => common,
        Err(code) => return code,
    };
    let Some(mut router) = common.read_flat(false) else { return ExitCode::FAILURE };
    let mut diagnostics = Diagnostics::new(Limits::default().diagnostics);
    align(&mut router, &Known::default(), &mut diagnostics);
    eprint!("{diagnostics}");
    end(common.write(&router, true))
}
