//! `click-buildtool provides`: whether this Click provides the features that tests and configurations require.
use ringway_click_driver::click::PROVIDED;
use std::process::ExitCode;

const USAGE: &str = "\
'click-buildtool provides' ends with 0 if everything required is provided, and
with 1 if not.

Usage: click-buildtool provides [OPTION]... [REQUIREMENT]...

Options:
  -q, --query               List what is provided.
  -r, --provide NAME        Provide NAME too.
  -l, --print               Print 1 or 0 too.
  -h, --help                Print this message.
";

/// Runs it.
pub fn run(program: &str, arguments: Vec<String>) -> ExitCode {
    let mut words = arguments.into_iter();
    match words.next().as_deref() {
        Some("provides") => {}
        Some("-h" | "--help") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("Usage: {program} provides [OPTION]... [REQUIREMENT]...");
            return ExitCode::FAILURE;
        }
    }
    let mut provided: Vec<String> = PROVIDED.iter().map(|&name| name.into()).collect();
    let (mut required, mut query, mut print) = (Vec::new(), false, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-q" | "--query" => query = true,
            "-l" | "--print" => print = true,
            "-r" | "--provide" => provided.extend(words.next()),
            "-h" | "--help" => {
                print!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            option if option.starts_with('-') => {
                eprintln!("{program}: unrecognized option '{option}'\n{USAGE}");
                return ExitCode::FAILURE;
            }
            names => required.extend(names.split_whitespace().map(String::from)),
        }
    }
    if query {
        provided.sort();
        provided.iter().for_each(|name| println!("{name}"));
    }
    let classes = ringway_click_driver::click::registry();
    let fulfilled = required.iter().all(|name| provided.contains(name) || classes.find(name).is_some());
    if print {
        println!("{}", u8::from(fulfilled));
    }
    super::command::end(fulfilled)
}
