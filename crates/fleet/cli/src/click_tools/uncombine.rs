//! `click-uncombine`: takes a component out of a combined configuration.
use super::command::{About, OptionId, end, read};
use super::options::{Word, valued};
use ringway_click_lang::tools::combine::uncombine;
use ringway_click_lang::{Diagnostics, Limits};
use std::process::ExitCode;

const USAGE: &str = "\
'click-uncombine' reads what 'click-combine' wrote and writes one of its
components.

Usage: click-uncombine [OPTION]... [ROUTERFILE [COMPONENT]]

Options:
  -n, --name NAME           Write the component NAME.
  -f, --file FILE           Read the configuration from FILE.
  -o, --output FILE         Write to FILE.
      --help                Print this message.
  -v, --version             Print the version.
";

#[derive(Clone, Copy)]
enum OwnOption {
    Name,
}

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let options = vec![valued("name", Some('n'), OptionId::Own(OwnOption::Name))];
    let mut component: Option<String> = None;
    let common = read(&About { program, usage: USAGE }, options, arguments, |common, word| {
        let (Word::Argument(name) | Word::Option(OwnOption::Name, name, _)) = match word {
            Word::Argument(file) if common.router.is_none() => return common.set_router(file, false),
            other => other,
        };
        match component.replace(name) {
            Some(_) => Err("component name specified twice".into()),
            None => Ok(()),
        }
    });
    let common = match common {
        Ok(common) => common,
        Err(code) => return code,
    };
    let Some(mut router) = common.read_flat(false) else { return ExitCode::FAILURE };
    let Some(component) = component else {
        eprintln!("{program}: no component specified");
        return ExitCode::FAILURE;
    };
    let file =
        common.router.as_ref().map_or("<stdin>", |(file, _)| if file == "-" { "<stdin>" } else { file });
    let limits = Limits::default();
    let mut diagnostics = Diagnostics::new(limits.diagnostics);
    uncombine(&mut router, &component, file, &limits, &mut diagnostics);
    eprint!("{diagnostics}");
    end(diagnostics.errors() == 0 && common.write(&router, true))
}
