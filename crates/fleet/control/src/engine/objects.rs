//! Switches and ports that are added and removed on request while the fabric runs.

use super::{Engine, Failure};
use crate::file::{self, Host, Outside, RemoveError, SetError};
use serde_json::{Map, Value};
use std::path::Path;

/// What to add or to remove.
#[derive(Debug)]
pub enum ObjectOrder {
    /// Add the switch that these keys describe.
    AddSwitch(Map<String, Value>),
    /// Add the port that these keys describe.
    AddPort(Map<String, Value>),
    /// Remove the switch of this name.
    RemoveSwitch(String),
    /// Remove the port of this name.
    RemovePort(String),
    /// Change these keys of the port of this name.
    SetPort(String, Map<String, Value>),
}

impl Engine {
    /// Adds or removes an object. What is refused changes nothing.
    pub(super) async fn change_objects(&mut self, order: ObjectOrder) -> Result<(), Failure> {
        let fabric = self.fabric.clone();
        let (table, gone) = match &order {
            ObjectOrder::AddSwitch(keys) => (file::table_of("switch", keys.clone()), None),
            ObjectOrder::AddPort(keys) => (file::table_of("port", keys.clone()), None),
            ObjectOrder::RemoveSwitch(name) => (None, Some(file::table_name("switch", name))),
            ObjectOrder::RemovePort(name) => (None, Some(file::table_name("port", name))),
            ObjectOrder::SetPort(..) => (None, None),
        };
        let target = match order {
            ObjectOrder::RemoveSwitch(name) => file::without_switch(&name, &fabric)?,
            ObjectOrder::RemovePort(name) => file::without_port(&name, &fabric)?,
            ObjectOrder::SetPort(name, keys) => file::with_port_keys(&name, keys, &fabric)?,
            added => {
                let host = Host { run: Some(self.run.path().into()), ..self.host.clone() };
                let own = self.file.clone();
                // Long keys take a while, and so may the files that they name.
                let read = tokio::task::spawn_blocking(move || {
                    let folder = Path::new(&own).parent().unwrap_or(Path::new("/"));
                    let outside = Outside::of_this_host(folder, &|_| Vec::new());
                    match added {
                        ObjectOrder::AddPort(keys) => file::with_port(keys, &fabric, &host, &outside),
                        ObjectOrder::AddSwitch(keys) => file::with_switch(keys, &fabric, &host, &outside),
                        _ => Ok(fabric),
                    }
                });
                let read = self.await_with_queries(read).await;
                let read = read.map_err(Failure::conflict)?;
                read.map_err(Failure::wrong)?
            }
        };
        self.move_to(&target).await.map_err(Failure::conflict)?;
        self.added.extend(table);
        gone.iter().for_each(|gone| drop(self.added.remove(gone)));
        self.is_changed = true;
        Ok(())
    }
}

impl From<SetError> for Failure {
    fn from(error: SetError) -> Failure {
        match error {
            SetError::Unknown(unknown) => unknown.into(),
            SetError::Wrong(wrong) => Failure::wrong(wrong),
        }
    }
}

impl From<RemoveError> for Failure {
    fn from(error: RemoveError) -> Failure {
        match error {
            RemoveError::Unknown { .. } => Failure::unknown(error),
            RemoveError::Used(..) => Failure::conflict(error),
        }
    }
}
