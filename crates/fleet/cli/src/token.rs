//! `ringway token`: clients of the API at its TCP address.

use crate::arguments::{Target, TokenCommand};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::TOKEN;
use crate::remote::{certificates, fingerprint};
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::{CreatedToken, NewToken, TokenView};

/// Runs `ringway token`.
pub fn token(target: &Target, json: bool, command: TokenCommand) -> Result<(), CommandError> {
    match command {
        TokenCommand::List => show::list(&TOKEN, target, json, table),
        TokenCommand::Show { name } => show::show(&TOKEN, target, json, &name),
        TokenCommand::Add { name, role, certificate } => {
            let chain = certificate.as_deref().map(certificates).transpose()?;
            let certificate = chain.map(|chain| fingerprint(&chain[0]));
            let new = NewToken { name, role: role.into(), certificate };
            let created: CreatedToken = Client::connect(target)?.ask(TOKEN.all, &new)?;
            match (json, created) {
                (true, created) => text::json(&created),
                (false, CreatedToken { token: Some(token), .. }) => println!("{token}"),
                (false, CreatedToken { name, .. }) => println!("added {name}"),
            }
            Ok(())
        }
        TokenCommand::Remove { names } => TOKEN.remove(target, json, &names),
    }
}

fn table(tokens: Vec<TokenView>) -> Table {
    let mut table = Table::new(&["TOKEN", "ROLE", "CERTIFICATE"]);
    for TokenView { name, role, certificate } in tokens {
        table.row(vec![cell(name), cell(role), cell(certificate.unwrap_or_default())]);
    }
    table
}
