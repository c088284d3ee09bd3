//! Kinds of a fabric's objects: their words, their paths in the API, and orders for objects by name.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text;
use ringway_spec::file::value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A kind of object of a fabric.
pub struct ObjectKind {
    /// The word for one object in messages.
    pub word: &'static str,
    /// The API's path of the objects.
    pub all: &'static str,
    /// The command that lists all objects.
    list: &'static str,
}

/// A guest.
pub const GUEST: ObjectKind = ObjectKind { word: "guest", all: "/v1/guests", list: "guest list" };
/// A function.
pub const FUNCTION: ObjectKind = ObjectKind { word: "function", all: "/v1/functions", list: "function list" };
/// A snapshot.
pub const SNAPSHOT: ObjectKind = ObjectKind { word: "snapshot", all: "/v1/snapshots", list: "snapshot list" };
/// A chain.
pub const CHAIN: ObjectKind = ObjectKind { word: "chain", all: "/v1/chains", list: "chain list" };
/// A port.
pub const PORT: ObjectKind = ObjectKind { word: "port", all: "/v1/ports", list: "port list" };
/// A program.
pub const PROGRAM: ObjectKind = ObjectKind { word: "program", all: "/v1/programs", list: "program list" };
/// A host.
pub const HOST: ObjectKind = ObjectKind { word: "host", all: "/v1/hosts", list: "host list" };
/// A link.
pub const LINK: ObjectKind = ObjectKind { word: "link", all: "/v1/links", list: "link show" };
/// A switch.
pub const SWITCH: ObjectKind = ObjectKind { word: "switch", all: "/v1/switches", list: "switch list" };
/// A client of the API at its TCP address.
pub const TOKEN: ObjectKind = ObjectKind { word: "token", all: "/v1/tokens", list: "token list" };
/// A worker, which the API shows as a part of the fabric.
pub const WORKER: ObjectKind = ObjectKind { word: "worker", all: "/v1/fabric", list: "worker list" };

/// Text as a part of a path or a query.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/@".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

impl ObjectKind {
    /// The API's path of `what` of the object `name`.
    pub fn path(&self, name: &str, what: &str) -> Result<String, CommandError> {
        Ok(format!("{}/{what}", self.object(name)?))
    }

    /// The API's path of the object `name`.
    pub fn object(&self, name: &str) -> Result<String, CommandError> {
        // Further instances of a function have a `/` in their names, ports of programs a `:`.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_/:".contains(c)) {
            return Err(self.unknown(name));
        }
        Ok(format!("{}/{}", self.all, name.replace('/', "%2F")))
    }

    /// The error for an unknown name.
    pub fn unknown(&self, name: &str) -> CommandError {
        let ObjectKind { word, list, .. } = self;
        let name = name.escape_debug();
        CommandError::Unknown(format!(
            "there is no {word} \"{name}\"; `ringway {list}` shows those there are"
        ))
    }

    /// Sends an order for each of `names`, and prints it unless the output is JSON.
    pub fn send_orders(
        &self,
        client: &mut Client,
        json: bool,
        names: &[String],
        (verb, doing): (&str, &str),
    ) -> Result<(), CommandError> {
        for name in names {
            client.post(&self.path(name, verb)?)?;
            if !json {
                println!("{doing} {name}");
            }
        }
        Ok(())
    }

    /// Removes each of `names`, and prints it unless the output is JSON.
    pub fn remove(&self, target: &Target, json: bool, names: &[String]) -> Result<(), CommandError> {
        let mut client = Client::connect(target)?;
        for name in names {
            client.delete(&self.object(name)?)?;
            if !json {
                println!("removed {name}");
            }
        }
        Ok(())
    }

    /// Sends an order for each of `names`. With `json`, prints the states of all objects of the kind, a `View` each.
    pub fn order<View: Serialize + DeserializeOwned>(
        &self,
        target: &Target,
        json: bool,
        names: &[String],
        words: (&str, &str),
    ) -> Result<(), CommandError> {
        let mut client = Client::connect(target)?;
        self.send_orders(&mut client, json, names, words)?;
        if json {
            let all: Vec<View> = client.get(self.all)?;
            text::json(&all);
        }
        Ok(())
    }
}

/// Adds the values of `KEY=VALUE` to `keys`; `TABLE.KEY=VALUE` is a key of a table. A value is written as in a file,
/// but needs no quotes: those of the keys `texts` are strings in any case, others if they are nothing else.
pub fn with_keys(
    mut keys: Map<String, Value>,
    settings: &[String],
    texts: &[&str],
) -> Result<Map<String, Value>, CommandError> {
    for setting in settings {
        let wrong = |what: &str| CommandError::Failed(format!("\"{}\" {what}", setting.escape_debug()));
        let (key, text) =
            setting.split_once('=').ok_or_else(|| wrong("is not a setting; write KEY=VALUE"))?;
        let (table, key) = match key.split_once('.') {
            Some((table, key)) => (Some(table), key),
            None => (None, key),
        };
        let is_text = table.is_none() && texts.contains(&key);
        let value = if is_text { None } else { value(text) };
        let value = value.unwrap_or_else(|| text.into());
        let former = match table {
            None => keys.insert(key.into(), value),
            Some(table) => {
                let table = keys.entry(table).or_insert_with(|| Map::new().into());
                let table = table.as_object_mut().ok_or_else(|| wrong("is a key of no table"))?;
                table.insert(key.into(), value)
            }
        };
        if former.is_some() {
            return Err(wrong("is there twice"));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(settings: &[&str]) -> Result<Value, String> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        with_keys(Map::new(), &settings, &["owner"]).map(Value::Object).map_err(|fail| fail.to_string())
    }

    #[test]
    fn values_are_written_as_in_a_file_or_without_quotes() {
        let all = read(&[
            "socket=a b.sock",
            "slots=64",
            "carrier=false",
            "owner=1000",
            "mode=0660",
            "quoted=\"x\"",
            "members=[\"a\", \"b\"]",
            "link={delay=\"20ms\"}",
            "notify.moderate=50us",
            "notify.batch=false",
            "empty=",
            "day=2026-01-01",
            "line=1\nslots = 2",
        ]);
        let expected = json!({
            "socket": "a b.sock", "slots": 64, "carrier": false, "owner": "1000", "mode": "0660",
            "quoted": "x", "members": ["a", "b"], "link": { "delay": "20ms" },
            "notify": { "moderate": "50us", "batch": false }, "empty": "", "day": "2026-01-01",
            "line": "1\nslots = 2",
        });
        assert_eq!(all, Ok(expected));
        assert!(read(&["slots"]).unwrap_err().contains("\"slots\" is not a setting; write KEY=VALUE"));
        assert!(read(&["a=1", "a=2"]).unwrap_err().contains("is there twice"));
        assert!(read(&["a=1", "a.b=2"]).unwrap_err().contains("is a key of no table"));
    }
}
