//! Lists of objects, and all values of one object.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::ObjectKind;
use crate::text::{self, Table, cell};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Lists all objects of a kind: as JSON, or in a table.
pub fn list<View: Serialize + DeserializeOwned>(
    kind: &ObjectKind,
    target: &Target,
    json: bool,
    table: fn(Vec<View>) -> Table,
) -> Result<(), CommandError> {
    let all: Vec<View> = Client::connect(target)?.get(kind.all)?;
    match json {
        true => text::json(&all),
        false => table(all).print(),
    }
    Ok(())
}

/// Shows the object `name`.
pub fn show(kind: &ObjectKind, target: &Target, json: bool, name: &str) -> Result<(), CommandError> {
    let all: Vec<Value> = Client::connect(target)?.get(kind.all)?;
    let found = all.iter().find(|object| object["name"] == name);
    print(found.ok_or_else(|| kind.unknown(name))?, json);
    Ok(())
}

/// Prints an object: its name, then its other values.
pub fn print(object: &Value, json: bool) {
    if json {
        return text::json(object);
    }
    let mut table = Table::new(&["KEY", "VALUE"]);
    for (key, value) in rows(object) {
        table.row(vec![cell(key), cell(value)]);
    }
    table.print();
}

/// The keys and values that are not empty; of a list of objects a row for each.
fn rows(object: &Value) -> Vec<(&str, String)> {
    let mut rows = Vec::new();
    let all = object.as_object().into_iter().flatten();
    let (names, others): (Vec<_>, Vec<_>) = all.partition(|(key, _)| *key == "name");
    for (key, value) in names.into_iter().chain(others) {
        let lines = match value {
            Value::Array(all) if all.iter().any(Value::is_object) => all.iter().map(line).collect(),
            other => vec![line(other)],
        };
        let lines = lines.into_iter().filter(|line| !line.is_empty()).enumerate();
        rows.extend(lines.map(|(index, line)| (if index == 0 { &**key } else { "" }, line)));
    }
    rows
}

fn line(value: &Value) -> String {
    let pair = |(key, value): (&String, &Value)| match line(value) {
        value if value.is_empty() => None,
        value if value.contains(' ') => Some(format!("{key}='{value}'")),
        value => Some(format!("{key}={value}")),
    };
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(line).collect::<Vec<_>>().join(" "),
        Value::Object(map) => map.iter().filter_map(pair).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_shown_by_its_name_and_what_is_not_empty() {
        let host = serde_json::json!({
            "interfaces": [
                { "name": "eth0", "addresses": ["10.0.0.1/24", "fd00::1/64"], "port": "" },
                { "name": "eth1", "addresses": [], "port": "p" },
            ],
            "name": "h1", "pid": 0, "programs": [], "reason": "", "up": true, "why": null,
        });
        let expected = [
            ("name", "h1"),
            ("interfaces", "addresses='10.0.0.1/24 fd00::1/64' name=eth0"),
            ("", "name=eth1 port=p"),
            ("pid", "0"),
            ("up", "true"),
        ];
        assert_eq!(rows(&host), expected.map(|(key, value)| (key, value.to_string())));
    }
}
