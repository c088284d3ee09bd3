//! `ringway profile`: where the time of the data path, or of a guest, goes.

mod data_path;
mod flame;
mod guest;

use crate::arguments::{ProfileArguments, Target};
use crate::command_error::CommandError;

/// Runs `ringway profile`.
pub fn profile(target: &Target, json: bool, arguments: &ProfileArguments) -> Result<(), CommandError> {
    match &arguments.name {
        Some(name) => guest::profile(target, json, name, arguments.seconds),
        None => data_path::profile(target, json, arguments),
    }
}
