//! `click-flatten`: expands compound elements.
use super::command::{About, OptionId, end, read};
use super::options::{Word, flag, switch};
use std::process::ExitCode;

const USAGE: &str = "\
'click-flatten' reads a Click configuration, expands its compound elements, and
writes what is equivalent without them.

Usage: click-flatten [OPTION]... [ROUTERFILE] [NAME=VALUE]...

Options:
  -c, --classes             List the classes used.
  -n, --names               List the names of elements.
  -d, --declarations        List the elements, as NAME :: CLASS.
      --config              Write the configuration only, no archive.
      --expand-vars         Expand variables of the file.
  -f, --file FILE           Read the configuration from FILE.
  -e, --expression EXPR     Read the configuration EXPR.
  -o, --output FILE         Write to FILE.
  -C, --clickpath PATH      Use PATH for CLICKPATH.
      --help                Print this message.
  -v, --version             Print the version.
";

#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnOption {
    Show(Show),
    ExpandVariables,
}

/// What to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Archive,
    Configuration,
    Classes,
    Declarations,
    Names,
}

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let show = |show| OptionId::Own(OwnOption::Show(show));
    let options = vec![
        flag("classes", Some('c'), show(Show::Classes)),
        flag("config", None, show(Show::Configuration)),
        flag("declarations", Some('d'), show(Show::Declarations)),
        flag("elements", Some('n'), show(Show::Names)),
        flag("names", Some('n'), show(Show::Names)),
        switch("expand-vars", None, OptionId::Own(OwnOption::ExpandVariables)),
    ];
    let (mut show, mut expand) = (Show::Archive, false);
    let common = read(&About { program, usage: USAGE }, options, arguments, |common, word| {
        match word {
            Word::Argument(text) => return common.argument(text),
            Word::Option(OwnOption::Show(what), ..) => show = what,
            Word::Option(OwnOption::ExpandVariables, _, negated) => expand = !negated,
        }
        Ok(())
    });
    let common = match common {
        Ok(common) => common,
        Err(code) => return code,
    };
    let Some(router) = common.read_flat(expand) else { return ExitCode::FAILURE };
    let graph = router.graph();
    let list = |mut lines: Vec<String>| {
        lines.sort();
        lines.dedup();
        lines.into_iter().map(|line| line + "\n").collect::<String>()
    };
    let elements = graph.elements.iter();
    let text = match show {
        Show::Archive => return end(common.write(&router, true)),
        Show::Configuration => return end(common.write(&router, false)),
        Show::Classes => list(elements.map(|element| element.class.clone()).collect()),
        Show::Declarations => list(elements.map(|it| format!("{} :: {}", it.name, it.class)).collect()),
        Show::Names => list(elements.map(|element| element.name.clone()).collect()),
    };
    end(common.write_bytes(text.as_bytes()))
}
