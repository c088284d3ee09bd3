//! Orders to what a fabric runs: guests and functions.

use crate::arguments::Target;
use crate::client::Client;
use crate::fail::Fail;
use crate::text;
use anstream::println;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What can be started and stopped by its name.
pub struct Kind {
    /// What one is called.
    word: &'static str,
    /// All of them, in the API.
    all: &'static str,
}

/// A guest.
pub const GUEST: Kind = Kind { word: "guest", all: "/v1/guests" };
/// A function.
pub const FUNCTION: Kind = Kind { word: "function", all: "/v1/functions" };

impl Kind {
    /// The API's path of something about `name`.
    pub fn path(&self, name: &str, what: &str) -> Result<String, Fail> {
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(self.unknown(name));
        }
        Ok(format!("{}/{name}/{what}", self.all))
    }

    /// There is none of this name.
    pub fn unknown(&self, name: &str) -> Fail {
        let Kind { word, .. } = self;
        let name = name.escape_debug();
        Fail::Unknown(format!("there is no {word} \"{name}\"; `ringway {word} list` shows those there are"))
    }

    /// Gives an order to each of `names`, and says so to people.
    pub fn give(
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

    /// Gives an order to each of `names`; as JSON, what all of them are like then, a `View` each.
    pub fn order<View: Serialize + DeserializeOwned>(
        &self,
        target: &Target,
        json: bool,
        names: &[String],
        words: (&str, &str),
    ) -> Result<(), Fail> {
        let mut client = Client::connect(target)?;
        self.give(&mut client, json, names, words)?;
        if json {
            let all: Vec<View> = client.get(self.all)?;
            text::json(&all);
        }
        Ok(())
    }
}
