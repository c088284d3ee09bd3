//! Options made from the keys of `[function.NAME]`.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, Error, FromArgMatches, ValueHint};
use ringway_control::file::FUNCTION_KEYS;
use ringway_spec::file::{Key, Value};
use serde_json::{Map, Value as Json};

/// The keys of a function that the command line has, as a request has them.
#[derive(Clone, Debug, Default)]
pub struct FunctionKeys(pub Map<String, Json>);

fn keys() -> impl Iterator<Item = &'static Key> {
    FUNCTION_KEYS.iter().filter(|key| key.is_option)
}

/// Whether the option of a key may be there several times.
fn is_repeated(key: &Key) -> bool {
    !key.list.is_empty() || matches!(key.value, Value::Texts | Value::Pairs)
}

fn option(key: &'static Key) -> Arg {
    // A default of the reference that is a value is in backticks.
    let default = key.default.strip_prefix('`').map(|value| value.trim_matches(['`', '"']));
    let default = default.map_or(String::new(), |value| format!(" [default: {value}]"));
    let mut help = key.help.to_string() + &default;
    help[..1].make_ascii_uppercase();
    let name = match key.value {
        Value::File => "FILE",
        Value::Pairs => "NAME=VALUE",
        Value::Number(_) => "N",
        Value::Size(_) => "SIZE",
        Value::Duration(_) => "TIME",
        _ if key.name == "click" => "TEXT",
        // Once a key, as long as the program runs.
        _ => &*key.option().to_uppercase().leak(),
    };
    let action = if is_repeated(key) { ArgAction::Append } else { ArgAction::Set };
    let arg = Arg::new(key.name).long(key.option()).value_name(name).help(help).action(action);
    let arg = arg.required(key.default == "required");
    match key.value {
        Value::Words(words) => arg.value_parser(PossibleValuesParser::new(words())),
        Value::File => arg.value_hint(ValueHint::FilePath),
        _ => arg
            .value_parser(move |text: &str| key.parse(text).map_err(|(what, fix)| format!("{what}; {fix}"))),
    }
}

impl Args for FunctionKeys {
    fn augment_args(command: Command) -> Command {
        let configuration = ArgGroup::new("configuration").required(true).args(["config", "click", "image"]);
        command.args(keys().map(option)).group(configuration)
    }

    fn augment_args_for_update(command: Command) -> Command {
        FunctionKeys::augment_args(command)
    }
}

impl FromArgMatches for FunctionKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FunctionKeys, Error> {
        let mut given = Map::new();
        for key in keys() {
            let mut values: Vec<Json> = match key.value {
                Value::Words(_) | Value::File => {
                    let texts = matches.get_many::<String>(key.name).unwrap_or_default();
                    texts.map(|text| text.clone().into()).collect()
                }
                _ => matches.get_many(key.name).unwrap_or_default().cloned().collect(),
            };
            let value = match (key, values.len()) {
                (_, 0) => continue,
                (Key { value: Value::Pairs, .. }, _) => pairs(values)?,
                (key, _) if is_repeated(key) => values.into(),
                _ => values.swap_remove(0),
            };
            given.insert(key.field().into(), value);
        }
        Ok(FunctionKeys(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = FunctionKeys::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The table of names and values.
fn pairs(list: Vec<Json>) -> Result<Json, Error> {
    let list: Vec<(String, Json)> = list
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::raw(ErrorKind::InvalidValue, error))?;
    Ok(Json::Object(list.into_iter().collect()))
}
