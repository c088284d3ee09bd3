//! `ringway function`.

use crate::arguments::{FunctionCommand, Target};
use crate::client::Client;
use crate::fail::Fail;
use crate::order::FUNCTION;
use crate::text::{self, Table, cell};
use anstream::print;
use ringway_control::api::{FunctionView, HandlerValue};
use ringway_control::file::Complaint;
use ringway_function::click::{self, Configuration};
use ringway_host::read_whole;
use ringway_spec::Function;

/// Largest value of a handler in bytes. Attack: endless standard input.
const LARGEST_VALUE: usize = 16 << 20;

/// All errors of a function's configuration.
pub fn check(function: &Function) -> Vec<Complaint> {
    let configuration = Configuration {
        text: &function.configuration.text,
        file: function.title(),
        parameters: &function.parameters,
        ports: &function.ports,
    };
    let complaint = |click::Complaint { file, line, column, what }| Complaint { file, line, column, what };
    click::check(configuration).into_iter().map(complaint).collect()
}

/// Runs `ringway function`.
pub fn function(target: &Target, json: bool, command: FunctionCommand) -> Result<(), Fail> {
    match command {
        FunctionCommand::List => list(target, json),
        FunctionCommand::Start { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("start", "starting"))
        }
        FunctionCommand::Stop { names } => {
            FUNCTION.order::<FunctionView>(target, json, &names, ("stop", "stopping"))
        }
        FunctionCommand::Read { name, handler } => read(target, json, &name, &handler),
        FunctionCommand::Write { name, handler, value } => write(target, &name, &handler, value),
    }
}

fn list(target: &Target, json: bool) -> Result<(), Fail> {
    let functions: Vec<FunctionView> = Client::connect(target)?.get("/v1/functions")?;
    if json {
        text::json(&functions);
    } else {
        table(functions).print();
    }
    Ok(())
}

/// The table of functions.
pub fn table(functions: Vec<FunctionView>) -> Table {
    let mut table =
        Table::new(&["FUNCTION", "STATE", ">PID", "PORTS", ">RESTARTS", "CONFIGURATION", "REASON"]);
    for function in functions {
        table.row(vec![
            cell(function.name),
            text::state(&function.state),
            cell(if function.pid == 0 { String::new() } else { function.pid.to_string() }),
            cell(function.ports.join(" ")),
            cell(function.restarts.to_string()),
            cell(function.configuration),
            cell(function.reason),
        ]);
    }
    table
}

fn read(target: &Target, json: bool, name: &str, handler: &str) -> Result<(), Fail> {
    let value: HandlerValue = Client::connect(target)?.get(&handler_path(name, handler)?)?;
    if json {
        text::json(&value);
        return Ok(());
    }
    // Values of Click's handlers may lack a line feed at the end.
    print!("{}{}", value.value, if value.value.ends_with('\n') { "" } else { "\n" });
    Ok(())
}

fn write(target: &Target, name: &str, handler: &str, value: Option<String>) -> Result<(), Fail> {
    let value = match value.as_deref() {
        Some("-") => {
            let wrong = |error: std::io::Error| Fail::Failed(format!("standard input: {error}"));
            let bytes = read_whole(std::io::stdin(), LARGEST_VALUE).map_err(wrong)?;
            String::from_utf8(bytes).map_err(|error| wrong(std::io::Error::other(error)))?
        }
        value => value.unwrap_or_default().to_string(),
    };
    Client::connect(target)?.put_only(&handler_path(name, handler)?, &HandlerValue { value })
}

/// The API's path of a function's handler.
fn handler_path(name: &str, handler: &str) -> Result<String, Fail> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/@".contains(&byte);
    let encoded: String = handler
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    FUNCTION.path(name, &format!("handlers/{encoded}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_paths() {
        let path = |handler| handler_path("f", handler).ok();
        assert_eq!(path("in/c@1.count").as_deref(), Some("/v1/functions/f/handlers/in/c@1.count"));
        assert_eq!(path("a b?").as_deref(), Some("/v1/functions/f/handlers/a%20b%3F"));
        assert!(handler_path("../x", "a").is_err());
    }
}
