//! `ringway port`.

use crate::arguments::{PortCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::{PORT, with_keys};
use crate::{kinds, ps, show, text};
use ringway_control::api::{NewPort, PortChange, PortView};
use ringway_control::file::port_keys;
use serde_json::{Map, Value};

/// Runs `ringway port`.
pub fn port(target: &Target, json: bool, command: PortCommand) -> Result<(), CommandError> {
    let order = |names: Vec<String>, words| PORT.order::<PortView>(target, json, &names, words);
    match command {
        PortCommand::List => ps::ports(target, json),
        PortCommand::Show { name } => show::show(&PORT, target, json, &name),
        PortCommand::Up { names } => order(names, ("up", "connecting")),
        PortCommand::Down { names } => order(names, ("down", "disconnecting")),
        PortCommand::Add { name, kind, switch, settings } => {
            let mut keys = Map::new();
            let switch = switch.map(|switch| ("switch".into(), switch.into()));
            keys.extend([("name".into(), name.into()), ("kind".into(), kind.clone().into())]);
            keys.extend(switch);
            let (_, texts) = port_keys(Some(&kind), kinds().control);
            let new = NewPort(with_keys(keys, &settings, &texts)?);
            Client::connect(target)?.post_only(PORT.all, &new)
        }
        PortCommand::Set { name, settings } => {
            if ringway_spec::names::name(&name).is_err() {
                return Err(PORT.unknown(&name));
            }
            let mut keys = with_keys(Map::new(), &settings, &[])?;
            keys.values_mut().filter(|value| *value == "").for_each(|value| *value = Value::Null);
            let port: PortView = Client::connect(target)?.patch(&PORT.object(&name)?, &PortChange(keys))?;
            if json {
                text::json(&port);
            }
            Ok(())
        }
        PortCommand::Remove { names } => PORT.remove(target, json, &names),
    }
}
