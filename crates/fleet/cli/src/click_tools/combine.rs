//! `click-combine`: several configurations as one, joined at their devices.
use super::command::{About, OptionId, end, read};
use super::files::{Common, Libraries, load};
use super::options::{Word, flag, valued};
use ringway_click_lang::tools::combine::{Component, combine};
use ringway_click_lang::{Diagnostics, Limits, config};
use std::process::ExitCode;

const USAGE: &str = "\
'click-combine' combines configurations at their devices, by links of the form
NAME1.DEVICE1=NAME2.DEVICE2: what NAME1 sends by DEVICE1, NAME2 receives by
DEVICE2. 'click-uncombine' takes a component out again.

Usage: click-combine [OPTION]... [ROUTERFILE | NAME=FILE | LINK]...

Options:
  -n, --name NAME           The next configuration is called NAME.
  -f, --file FILE           Read a configuration from FILE.
  -e, --expression EXPR     Read a configuration EXPR.
  -l, --link LINK           Add a link.
  -c, --config              Write the configuration only, no archive.
  -o, --output FILE         Write to FILE.
      --help                Print this message.
  -v, --version             Print the version.
";

#[derive(Clone, Copy)]
enum OwnOption {
    Name,
    Link,
    Config,
    File,
    Expression,
}

/// Configurations and links, as the command line names them.
#[derive(Default)]
struct Parts {
    components: Vec<Component>,
    links: Vec<String>,
    next_name: Option<String>,
    read: usize,
    config_only: bool,
    failed: bool,
}

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    // Unlike the shared ones, its `-f` and `-e` may be repeated.
    let options = vec![
        flag("config", Some('c'), OptionId::Own(OwnOption::Config)),
        valued("expression", Some('e'), OptionId::Own(OwnOption::Expression)),
        valued("file", Some('f'), OptionId::Own(OwnOption::File)),
        valued("link", Some('l'), OptionId::Own(OwnOption::Link)),
        valued("name", Some('n'), OptionId::Own(OwnOption::Name)),
    ];
    let mut parts = Parts::default();
    let common = read(&About { program, usage: USAGE }, options, arguments, |_, word| {
        parts.take(word);
        Ok(())
    });
    match common {
        Ok(common) => end(parts.finish(program, &common)),
        Err(code) => code,
    }
}

impl Parts {
    fn take(&mut self, word: Word<OwnOption>) {
        match word {
            Word::Option(OwnOption::Config, ..) => self.config_only = true,
            Word::Option(OwnOption::Link, text, _) => self.links.push(text),
            Word::Option(OwnOption::Name, name, _) => {
                if self.next_name.replace(name).is_some() {
                    eprintln!("click-combine: warning: router name specified twice");
                }
            }
            Word::Option(OwnOption::File, file, _) => self.component("", &file, false),
            Word::Option(OwnOption::Expression, text, _) => self.component("", &text, true),
            Word::Argument(text) => match (text.split_once(':'), text.split_once('=')) {
                (Some((name, file)), _) => self.component(name, file, false),
                (None, Some((name, file))) if !name.contains('.') => self.component(name, file, false),
                (None, Some(_)) => self.links.push(text),
                (None, None) => self.component("", &text, false),
            },
        }
    }

    fn component(&mut self, name: &str, source: &str, is_text: bool) {
        self.read += 1;
        let name = match (self.next_name.take(), name) {
            (Some(next), "") => next,
            (Some(next), name) => {
                eprintln!("warning: router name specified twice ('{next}' and '{name}')");
                next
            }
            (None, "") => self.read.to_string(),
            (None, name) => name.into(),
        };
        let mut diagnostics = Diagnostics::new(Limits::default().diagnostics);
        if !config::is_identifier(&name) {
            diagnostics.error(None, format!("router name '{name}' is not a legal Click identifier"));
        }
        let loaded = load(source, is_text, false, &[], &mut Libraries::default(), &mut diagnostics);
        let router = loaded.map(|loaded| loaded.flatten(false, &mut diagnostics));
        eprint!("{diagnostics}");
        self.failed |= diagnostics.errors() > 0;
        self.components.extend(router.map(|router| Component { name, router }));
    }

    fn finish(&self, program: &str, common: &Common) -> bool {
        let fail = |text: String| {
            eprintln!("{program}: {text}");
            false
        };
        if self.components.is_empty() {
            return fail("no routers specified".into());
        }
        for (number, Component { name, .. }) in self.components.iter().enumerate() {
            if self.components[..number].iter().any(|other| other.name == *name) {
                return fail(format!("two routers named '{name}'"));
            }
        }
        if self.failed {
            return false;
        }
        let limits = Limits::default();
        let mut diagnostics = Diagnostics::new(limits.diagnostics);
        let combined = combine(&self.components, &self.links, &limits, &mut diagnostics);
        for diagnostic in &diagnostics {
            eprintln!("{program}: {diagnostic}");
        }
        combined.is_some_and(|combined| common.write(&combined, !self.config_only))
    }
}
