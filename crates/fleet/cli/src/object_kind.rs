//! Kinds of a fabric's objects: their words, their paths in the API, and orders for objects by name.

use crate::arguments::Target;
use crate::client::Client;
use crate::fail::Fail;
use crate::text;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
/// A worker, which the API shows as a part of the fabric.
pub const WORKER: ObjectKind = ObjectKind { word: "worker", all: "/v1/fabric", list: "worker list" };

impl ObjectKind {
    /// The API's path of `what` of the object `name`.
    pub fn path(&self, name: &str, what: &str) -> Result<String, Fail> {
        Ok(format!("{}/{what}", self.object(name)?))
    }

    /// The API's path of the object `name`.
    pub fn object(&self, name: &str) -> Result<String, Fail> {
        // Further instances of a function have a `/` in their names.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_/".contains(c)) {
            return Err(self.unknown(name));
        }
        Ok(format!("{}/{}", self.all, name.replace('/', "%2F")))
    }

    /// The error for an unknown name.
    pub fn unknown(&self, name: &str) -> Fail {
        let ObjectKind { word, list, .. } = self;
        let name = name.escape_debug();
        Fail::Unknown(format!("there is no {word} \"{name}\"; `ringway {list}` shows those there are"))
    }

    /// Sends an order for each of `names`, and prints it unless the output is JSON.
    pub fn send_orders(
        &self,
        client: &mut Client,
        json: bool,
        names: &[String],
        (verb, doing): (&str, &str),
    ) -> Result<(), Fail> {
        for name in names {
            client.post(&self.path(name, verb)?)?;
            if !json {
                println!("{doing} {name}");
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
    ) -> Result<(), Fail> {
        let mut client = Client::connect(target)?;
        self.send_orders(&mut client, json, names, words)?;
        if json {
            let all: Vec<View> = client.get(self.all)?;
            text::json(&all);
        }
        Ok(())
    }
}
