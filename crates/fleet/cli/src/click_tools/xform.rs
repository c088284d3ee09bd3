//! `click-xform`: replaces patterns of elements.
use super::command::{About, OptionId, end, read};
use super::files::{Libraries, load};
use super::options::{Word, switch, valued};
use ringway_click_lang::tools::xform::{Pattern, transform};
use ringway_click_lang::{Diagnostics, Limits};
use std::process::ExitCode;

const USAGE: &str = "\
'click-xform' replaces patterns of elements by others. Patterns and what
replaces them are compound elements, X and X_Replacement, in files of their own.

Usage: click-xform [OPTION]... [ROUTERFILE] [PATTERNFILE]... [NAME=VALUE]...

Options:
  -p, --patterns FILE       Read patterns from FILE; may be given again.
  -r, --reverse             Replace replacements by patterns.
  -f, --file FILE           Read the configuration from FILE.
  -e, --expression EXPR     Read the configuration EXPR.
  -o, --output FILE         Write to FILE.
  -C, --clickpath PATH      Use PATH for CLICKPATH.
      --help                Print this message.
  -v, --version             Print the version.
";

#[derive(Clone, Copy)]
enum OwnOption {
    Patterns,
    Reverse,
}

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let options = vec![
        valued("patterns", Some('p'), OptionId::Own(OwnOption::Patterns)),
        switch("reverse", Some('r'), OptionId::Own(OwnOption::Reverse)),
    ];
    let (mut files, mut reverse, mut any_argument) = (Vec::new(), false, false);
    let common = read(&About { program, usage: USAGE }, options, arguments, |common, word| {
        match word {
            Word::Option(OwnOption::Patterns, file, _) => files.push(file),
            Word::Option(OwnOption::Reverse, _, negated) => reverse = !negated,
            Word::Argument(text) => {
                if common.variable(&text)? {
                    return Ok(());
                }
                if any_argument {
                    files.push(text);
                } else {
                    any_argument = true;
                    common.set_router(text, false)?;
                }
            }
        }
        Ok(())
    });
    let common = match common {
        Ok(common) => common,
        Err(code) => return code,
    };
    let limits = Limits::default();
    let mut diagnostics = Diagnostics::new(limits.diagnostics);
    let mut libraries = Libraries { click_path: common.click_path.clone() };
    let mut patterns: Vec<Pattern> = Vec::new();
    for file in &files {
        if let Some(loaded) = load(file, false, true, &[], &mut libraries, &mut diagnostics) {
            patterns.extend(loaded.patterns(&mut diagnostics));
        }
    }
    if reverse {
        // The names stay in their order, as in Click's tool.
        let names: Vec<String> = patterns.iter().map(|pattern| pattern.name.clone()).collect();
        patterns.reverse();
        for (pattern, name) in patterns.iter_mut().zip(names) {
            std::mem::swap(&mut pattern.pattern, &mut pattern.replacement);
            pattern.name = name;
        }
    }
    eprint!("{diagnostics}");
    let router = common.read_flat(false).filter(|_| diagnostics.errors() == 0);
    let Some(mut router) = router else { return ExitCode::FAILURE };
    if files.is_empty() {
        eprintln!("warning: no patterns read");
    }
    let mut diagnostics = Diagnostics::new(limits.diagnostics);
    transform(&mut router, &patterns, &limits, &mut diagnostics);
    eprint!("{diagnostics}");
    end(diagnostics.errors() == 0 && common.write(&router, true))
}
