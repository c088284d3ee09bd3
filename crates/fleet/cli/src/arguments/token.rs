//! `ringway token`.

use crate::values::name;
use clap::{Subcommand, ValueEnum};
use ringway_control::api::Role;
use std::path::PathBuf;

/// What to do with clients of the API at its TCP address.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// List the clients; tokens are not stored, only their hashes.
    #[command(after_help = "\
Examples:
  ringway token list
  ringway token list --json")]
    List,
    /// Show a client.
    #[command(after_help = "\
Examples:
  ringway token show grafana")]
    Show {
        /// Its name.
        name: String,
    },
    /// Add a client, and print its token, which is not shown again.
    #[command(after_help = "\
Examples:
  ringway token add grafana --role read > grafana.token
  ringway token add laptop --role admin --certificate laptop.crt   of an authority in `client-ca`")]
    Add {
        /// Its name, which the audit log has.
        #[arg(value_parser = name)]
        name: String,
        /// What it may do: see the fabric, change what is there, everything.
        #[arg(long, value_enum)]
        role: RoleWord,
        /// It proves itself by this certificate (PEM), instead of a token.
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
    },
    /// Remove clients; their next request is refused.
    #[command(after_help = "\
Examples:
  ringway token remove grafana")]
    Remove {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// A role, as a word of the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum RoleWord {
    /// To see the fabric.
    Read,
    /// To change what is there, to start and to stop.
    Operate,
    /// Everything.
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Read => Role::Read,
            RoleWord::Operate => Role::Operate,
            RoleWord::Admin => Role::Admin,
        }
    }
}
