//! Traces of frames: from a port to the next ones, and what is behind these.

use super::{Engine, EngineError, Failure};
use crate::data::DataError;
use crate::kinds::link;
use ringway_fabric::proto::{LearnedAddress, Reply, Request, State, Trace, Traced};
use ringway_spec::{Function, Port, To};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// A frame to trace to the next ports.
#[derive(Clone, Debug)]
pub struct Step {
    /// The port that it enters.
    pub port: String,
    /// The frame.
    pub frame: Vec<u8>,
    /// Its offload header.
    pub offload: [u8; 10],
    /// Whether it is sent.
    pub inject: bool,
    /// What the frames that were traced before make switches learn: what the port is connected to, and the address.
    pub learned: Vec<(String, LearnedAddress)>,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct TracedStep {
    /// What `data` says.
    pub traced: Traced,
    /// What the port is connected to.
    pub to: String,
    /// The switch's lookup.
    pub table: String,
    /// What has each destination port.
    pub next_hops: BTreeMap<String, NextHop>,
    /// Arguments that make this program a function's process.
    pub arguments: Vec<OsString>,
    /// The fabric's name.
    pub fabric: String,
}

/// What has a destination port, and forwards its frames.
#[derive(Clone, Debug)]
pub struct NextHop {
    /// The port's kind.
    pub kind: String,
    /// The function that has the port, and its state.
    pub function: Option<(Box<Function>, String)>,
    /// The link's direction: the link, the port whose frames it gets, its settings, and bytes that wait in it.
    pub link: Option<(String, String, BTreeMap<String, String>, u64)>,
}

impl Engine {
    /// Traces a frame to the next ports, and sends it if requested.
    pub(super) async fn trace(&mut self, step: Step) -> Result<TracedStep, Failure> {
        let port = self.port(&step.port)?;
        let (to, table) = match &port.to {
            Some(To::Switch(name)) => {
                let switch = self.fabric.switches.iter().find(|switch| switch.name == *name);
                let table = switch.map(|switch| switch.lookup.name().to_string());
                (format!("switch {name}"), table.unwrap_or_default())
            }
            Some(To::Patch(peer)) => (format!("patch {peer}"), String::new()),
            None => (String::new(), String::new()),
        };
        let Step { port, frame, offload, inject, learned } = step;
        let learned = learned.into_iter().filter(|(switch, _)| *switch == to).map(|(_, one)| one).collect();
        let trace = Trace { port: port.clone(), frame, offload, inject, learned };
        let request = Request::Trace(Box::new(trace));
        let reply = self.call(&port, request).await.map_err(|error| match error {
            EngineError::Data(_, DataError::Refused(why)) => Failure::wrong(why),
            error => Failure::conflict(error),
        })?;
        let Reply::Traced(traced) = reply else {
            return Err(Failure::conflict("the data process gave another answer"));
        };
        let state = self.state().await;
        let behind = |name: &String| Some((name.clone(), self.next_hop(self.fabric.port(name)?, &state)));
        let next_hops = traced.copies.iter().filter_map(|copy| behind(&copy.port)).collect();
        let (arguments, fabric) = (self.program.function.clone(), self.fabric.name.clone());
        Ok(TracedStep { traced, to, table, next_hops, arguments, fabric })
    }

    /// What has a destination port, and forwards its frames.
    fn next_hop(&self, port: &Port, state: &State) -> NextHop {
        let has = |function: &&Function| function.fabric_ports().contains(&port.name);
        let function = self.fabric.functions.iter().find(has).map(|function| {
            let views = self.functions.view();
            let view = views.into_iter().find(|view| view.name == function.name);
            (Box::new(function.clone()), view.map(|view| view.state).unwrap_or_default())
        });
        let link = link::of(port).map(|(name, from, settings)| {
            let gauges = state.ports.iter().find(|other| other.name == port.name).map(|other| &other.gauges);
            let queued = gauges.and_then(|gauges| gauges.get("queued-bytes")).copied().unwrap_or(0);
            (name.to_string(), from.to_string(), settings, queued)
        });
        NextHop { kind: port.kind.name().into(), function, link }
    }
}
