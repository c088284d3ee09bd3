//! `ringway graph`.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text;
use ringway_control::api::FabricGraphView;

/// Prints the drawing of a fabric, or the counts in it.
pub fn graph(target: &Target, json: bool, seconds: f64) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    client.expect(seconds);
    if json {
        text::json(&client.get::<FabricGraphView>(&format!("/v1/graph?seconds={seconds}"))?);
    } else {
        print!("{}", client.text(&format!("/v1/graph.svg?seconds={seconds}"))?);
    }
    Ok(())
}
