//! `ringway switch table`.

use crate::arguments::Target;
use crate::client::Client;
use crate::fail::Fail;
use crate::text::{self, Table, cell};
use ringway_control::api::TableView;

/// Shows the address table of a switch.
pub fn table(target: &Target, json: bool, name: &str) -> Result<(), Fail> {
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Err(Fail::Unknown(format!("there is no switch \"{name}\"")));
    }
    let view: TableView = Client::connect(target)?.get(&format!("/v1/switches/{name}/table"))?;
    if json {
        text::json(&view);
        return Ok(());
    }
    let mut table = Table::new(&["ADDRESS", ">VLAN", "PORT", ">AGE"]);
    for entry in view.entries {
        let age = entry.age.map_or("static".into(), |age| format!("{age} s"));
        let vlan = if entry.vlan == 0 { "-".into() } else { entry.vlan.to_string() };
        table.row(vec![cell(entry.mac), cell(vlan), cell(entry.port), cell(age)]);
    }
    table.print();
    Ok(())
}
