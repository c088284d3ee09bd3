//! `ringway function`.

use crate::arguments::{CreateFunction, FunctionCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::input;
use crate::logs;
use crate::object_kind::{FUNCTION, SNAPSHOT, escaped};
use crate::run_function;
use crate::show;
use crate::text::{self, Table, cell};
use anstream::eprintln;
use ringway_click_driver::click::{self, Configuration};
use ringway_click_driver::golden;
use ringway_control::api::{
    Departure, FunctionView, GraphView, HandlerValue, NewClone, NewConfiguration, NewFunction, NewSnapshot,
};
use ringway_control::file::Complaint;
use ringway_host::read_whole;
use ringway_spec::{Function, Isolation};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Largest value of a handler in bytes. Attack: endless standard input.
const MAX_VALUE_LEN: usize = 16 << 20;

/// All errors of a function's configuration.
pub fn check(function: &Function) -> Vec<Complaint> {
    if let Some(program) = &function.program {
        let wrong = run_function::check_image(&program.image.0, function.memory).err();
        let complaint = |what| Complaint { file: String::new(), line: 0, column: 0, what };
        return wrong.map(complaint).into_iter().collect();
    }
    let configuration = Configuration {
        text: &function.configuration.text,
        file: function.title(),
        parameters: &function.parameters,
        ports: &function.ports,
        devices: &function.devices,
        resident: function.isolation != Isolation::Process,
    };
    let complaint = |click::Complaint { file, line, column, what }| Complaint { file, line, column, what };
    let complaints = match function.isolation {
        Isolation::Vm if crate::kinds().image.is_none() => click::check_for_image(configuration),
        Isolation::Vm | Isolation::Process | Isolation::Worker => click::check(configuration),
    };
    complaints.into_iter().map(complaint).collect()
}

/// Runs `ringway function`.
pub fn function(target: &Target, json: bool, command: FunctionCommand) -> Result<(), CommandError> {
    match command {
        FunctionCommand::List => show::list(&FUNCTION, target, json, table),
        FunctionCommand::Show { name } => show::show(&FUNCTION, target, json, &name),
        FunctionCommand::Logs { name, logs } => logs::function(target, json, &name, &logs),
        FunctionCommand::Start { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("start", "starting"))
        }
        FunctionCommand::Stop { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("stop", "stopping"))
        }
        FunctionCommand::Restart { names } => {
            FUNCTION.send_orders(&mut Client::connect(target)?, json, &names, ("stop", "stopping"))?;
            FUNCTION.order::<FunctionView>(target, json, &names, ("start", "starting"))
        }
        FunctionCommand::Create(new) => create(target, new),
        FunctionCommand::Snapshot { name, snapshot } => Client::connect(target)?
            .post_only(&FUNCTION.path(&name, "snapshot")?, &NewSnapshot { name: snapshot }),
        FunctionCommand::Clone { snapshot, name, ports } => {
            Client::connect(target)?.post_only(&SNAPSHOT.path(&snapshot, "clone")?, &NewClone { name, ports })
        }
        FunctionCommand::Migrate { name, to } => migrate(target, &name, to),
        FunctionCommand::Destroy { names } => {
            let mut client = Client::connect(target)?;
            names.iter().try_for_each(|name| {
                client.delete(&FUNCTION.object(name)?)?;
                if !json {
                    println!("destroyed {name}");
                }
                Ok(())
            })
        }
        FunctionCommand::Suspend { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("suspend", "suspended"))
        }
        FunctionCommand::Resume { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("resume", "resumed"))
        }
        FunctionCommand::Update { name, file } => {
            let configuration = configuration(&file)?;
            let path = FUNCTION.path(&name, "configuration")?;
            let new = NewConfiguration { configuration, source: source(&file) };
            let updated = Client::connect(target)?.put_only(&path, &new);
            updated.map_err(|fail| fail.map(|why| in_file(&why, &name, &file)))
        }
        FunctionCommand::Image { output } => image(&output),
        FunctionCommand::Graph { name, seconds } => graph(target, json, &name, seconds),
        FunctionCommand::Test { files, write } => test(json, &files, write),
        FunctionCommand::Read { name, handler } => read(target, json, &name, &handler),
        FunctionCommand::Write { name, handler, value } => write(target, &name, &handler, value),
    }
}

/// Writes the image of functions.
#[cfg(target_arch = "x86_64")]
fn image(output: &Path) -> Result<(), CommandError> {
    use std::io::Write as _;
    let elf = ringway_vmm::click().elf();
    let (written, name) = if output == Path::new("-") {
        (std::io::stdout().write_all(&elf), "standard output".to_string())
    } else {
        (std::fs::write(output, &elf), output.display().to_string())
    };
    written.map_err(|error| CommandError::Failed(format!("{name}: {error}")))
}

#[cfg(not(target_arch = "x86_64"))]
fn image(_: &Path) -> Result<(), CommandError> {
    Err(CommandError::Failed("there is no image of functions for this processor".into()))
}

/// Moves a function; it goes on here if it can't there.
fn migrate(target: &Target, name: &str, to: PathBuf) -> Result<(), CommandError> {
    let shown = to.display().to_string();
    let (mut here, mut there) = (Client::connect(target)?, Client::to(to)?);
    let departure: Departure = here.answer(&FUNCTION.path(name, "depart")?)?;
    if let Err(wrong) = there.post_only("/v1/arrivals", &departure) {
        let state = match here.post(&FUNCTION.path(name, "resume")?) {
            Ok(()) => "goes on here".into(),
            Err(error) => format!("does not go on here: {error}"),
        };
        return Err(wrong.map(|wrong| format!("the fabric of {shown} refuses it: {wrong}\n{name} {state}")));
    }
    here.delete(&FUNCTION.object(name)?)
}

/// The result of a test, as JSON.
#[derive(Serialize)]
struct TestView {
    file: String,
    received: usize,
    sent: usize,
    handlers: usize,
    differences: Vec<DifferenceView>,
}

/// A difference from the expected result, or an error in a file.
#[derive(Serialize)]
struct DifferenceView {
    file: String,
    line: usize,
    column: usize,
    what: String,
}

/// Runs test files.
fn test(json: bool, files: &[PathBuf], write: bool) -> Result<(), CommandError> {
    let mut failed = false;
    for file in files {
        let (passed, complaints) = match golden::run(file, write) {
            Ok(passed) => (passed, Vec::new()),
            Err(complaints) => (golden::Passed::default(), complaints),
        };
        let golden::Passed { received, sent, handlers } = passed;
        failed |= !complaints.is_empty();
        if json {
            let difference =
                |golden::Complaint { file, line, column, what }| DifferenceView { file, line, column, what };
            let differences = complaints.into_iter().map(difference).collect();
            text::json(&TestView { file: file.display().to_string(), received, sent, handlers, differences });
            continue;
        }
        for golden::Complaint { file, line, column, what } in &complaints {
            eprintln!("{file}:{line}:{column}: {what}");
        }
        if complaints.is_empty() {
            let good = text::GOOD;
            println!("{good}good:{good:#} {}: {received} frames received, {sent} sent", file.display());
        }
    }
    if failed { Err(CommandError::Status(1)) } else { Ok(()) }
}

fn create(target: &Target, CreateFunction { name, keys }: CreateFunction) -> Result<(), CommandError> {
    let mut keys = keys.0;
    let path = |value: serde_json::Value| value.as_str().map(PathBuf::from);
    let config = keys.remove("config").and_then(path);
    if let Some(file) = &config {
        keys.insert("click".into(), configuration(file)?.into());
        keys.extend(source(file).map(|source| ("source".into(), source.into())));
    }
    // `control` reads the image, in another folder.
    if let Some(image) = keys.get("image").cloned().and_then(path) {
        let image = std::path::absolute(image).map_err(CommandError::because)?;
        keys.insert("image".into(), image.display().to_string().into());
    }
    keys.insert("name".into(), name.clone().into());
    let created = Client::connect(target)?.post_only("/v1/functions", &NewFunction(keys));
    created.map_err(|fail| fail.map(|why| config.iter().fold(why, |why, file| in_file(&why, &name, file))))
}

/// Names the file of a configuration in place of its function, by which the fabric knows it: `nat:21:1` becomes
/// `new.click:21:1`.
fn in_file(message: &str, name: &str, file: &Path) -> String {
    let shown = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    let title = format!("{name}:");
    let mut parts = message.split(&title);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let is_word = out.is_empty() || out.ends_with([' ', '\n']);
        out += if is_word && part.starts_with(|c: char| c.is_ascii_digit()) { &*shown } else { name };
        out += ":";
        out += part;
    }
    out
}

/// The path of a configuration's file, for `ringway function list`; none of standard input.
fn source(file: &Path) -> Option<String> {
    let path = std::path::absolute(file).ok().filter(|_| file != Path::new("-"));
    path.map(|path| path.display().to_string())
}

/// The text of a configuration; `-` is standard input.
fn configuration(file: &Path) -> Result<String, CommandError> {
    if file != Path::new("-") {
        return input::text(file, MAX_VALUE_LEN, "a file with Click's language in it");
    }
    standard_input()
}

fn standard_input() -> Result<String, CommandError> {
    let wrong = |error: std::io::Error| CommandError::Failed(format!("standard input: {error}"));
    let bytes = read_whole(std::io::stdin(), MAX_VALUE_LEN).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|error| wrong(std::io::Error::other(error)))
}

fn graph(target: &Target, json: bool, name: &str, seconds: f64) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let path = |what: &str| FUNCTION.path(name, &format!("{what}?seconds={seconds}"));
    if json {
        text::json(&client.get::<GraphView>(&path("graph")?)?);
    } else {
        print!("{}", client.text(&path("graph.svg")?)?);
    }
    Ok(())
}

/// The table of functions.
pub fn table(functions: Vec<FunctionView>) -> Table {
    let mut table = Table::new(&[
        "FUNCTION",
        "STATE",
        "ISOLATION",
        ">PID",
        "PORTS",
        ">RESTARTS",
        "CONFIGURATION",
        "REASON",
    ]);
    for function in functions {
        table.row(vec![
            cell(function.name),
            text::state(&function.state),
            cell(function.isolation),
            cell(if function.pid == 0 { String::new() } else { function.pid.to_string() }),
            cell(function.ports.join(" ")),
            cell(function.restarts.to_string()),
            cell(function.configuration),
            cell(function.reason),
        ]);
    }
    table
}

fn read(target: &Target, json: bool, name: &str, handler: &str) -> Result<(), CommandError> {
    let value: HandlerValue = Client::connect(target)?.get(&handler_path(name, handler)?)?;
    if json {
        text::json(&value);
        return Ok(());
    }
    // Values of Click's handlers may lack a line feed at the end.
    text::foreign(&value.value);
    if !value.value.ends_with('\n') {
        println!();
    }
    Ok(())
}

fn write(target: &Target, name: &str, handler: &str, value: Option<String>) -> Result<(), CommandError> {
    let value = match value.as_deref() {
        Some("-") => standard_input()?,
        value => value.unwrap_or_default().to_string(),
    };
    Client::connect(target)?.put_only(&handler_path(name, handler)?, &HandlerValue { value })
}

/// The API's path of a function's handler.
fn handler_path(name: &str, handler: &str) -> Result<String, CommandError> {
    FUNCTION.path(name, &format!("handlers/{}", escaped(handler)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_of_a_configuration() {
        let named = |message, name| in_file(message, name, Path::new("new.click"));
        let refused = "function nat goes on as it was: nat:21:1: no element\nnat:22:3: no port";
        let expected = "function nat goes on as it was: new.click:21:1: no element\nnew.click:22:3: no port";
        assert_eq!(named(refused, "nat"), expected);
        assert_eq!(named("function nat: ghost", "nat"), "function nat: ghost");
        assert_eq!(named("cgnat:2:1: no", "nat"), "cgnat:2:1: no");
        assert_eq!(in_file("f:1:1: no", "f", Path::new("-")), "standard input:1:1: no");
    }

    #[test]
    fn handlers_are_paths() {
        let path = |handler| handler_path("f", handler).ok();
        assert_eq!(path("in/c@1.count").as_deref(), Some("/v1/functions/f/handlers/in/c@1.count"));
        assert_eq!(path("a b?").as_deref(), Some("/v1/functions/f/handlers/a%20b%3F"));
        let further = handler_path("fw/2", "c.count").ok();
        assert_eq!(further.as_deref(), Some("/v1/functions/fw%2F2/handlers/c.count"));
        assert!(handler_path("../x", "a").is_err());
    }
}
