//! `ringway page`: the address of the page for browsers.

use crate::arguments::{RoleWord, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::TOKEN;
use crate::text;
use ringway_control::api::{CreatedToken, NewToken, PageView};
use rustix::fs::fstat;

/// Prints the page's address.
pub fn page(target: &Target, json: bool, role: RoleWord, name: &str) -> Result<(), CommandError> {
    let url = address(&mut Client::connect(target)?, role, name)?;
    match json {
        true => text::json(&PageView { url }),
        false => println!("{url}"),
    }
    Ok(())
}

/// The page's address for whoever brought the fabric up: with a token, unless the journal would keep it for others.
pub fn first_address(client: &mut Client) -> Result<String, CommandError> {
    if is_journal() {
        let page: PageView = client.get("/v1/page")?;
        return Ok(page.url);
    }
    address(client, RoleWord::Operate, "page")
}

/// Whether standard output is a service's connection to systemd's journal, which has this name.
fn is_journal() -> bool {
    let Ok(seen) = fstat(rustix::stdio::stdout()) else { return false };
    std::env::var("JOURNAL_STREAM").is_ok_and(|name| name == format!("{}:{}", seen.st_dev, seen.st_ino))
}

/// The page's address with a new token of this name. The token is in the fragment, which browsers send to nobody.
fn address(client: &mut Client, role: RoleWord, name: &str) -> Result<String, CommandError> {
    let page: PageView = client.get("/v1/page")?;
    match client.delete(&TOKEN.object(name)?) {
        Ok(()) | Err(CommandError::Unknown(_)) => {}
        Err(error) => return Err(error),
    }
    let new = NewToken { name: name.into(), role: role.into(), certificate: None };
    let created: CreatedToken = client.ask(TOKEN.all, &new)?;
    Ok(format!("{}#token={}", page.url, created.token.unwrap_or_default()))
}
