//! Functions that run on workers: where they run, and their ports.

use super::{Fabric, FabricError, Job};
use crate::bell::Line;
use crate::function::Order;
use crate::proto::{Event, FunctionReport};
use crate::worker::Command;
use ringway_port::Doorbell;
use ringway_port::lane::Inside;
use ringway_spec::Function;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where a function runs.
pub(super) struct FunctionRecord {
    worker: usize,
    bit: usize,
    /// Its doorbell, which watches the socket by which connections to its handlers come.
    line: Arc<Line>,
    ports: Vec<Arc<Inside>>,
}

impl Fabric {
    /// Starts function `number` on the worker of its first port. `handlers` is the place of its handlers, with the
    /// socket by which connections to them come. Returns the jobs that give it its ports.
    ///
    /// # Errors
    /// A port does not exist, or the worker has no room.
    pub fn start_function(
        &mut self,
        number: u64,
        function: Function,
        handlers: (String, OwnedFd),
    ) -> Result<Vec<(String, Job)>, FabricError> {
        let unknown = |port: &String| FabricError::Unknown("port", port.clone());
        let missing = function.ports.iter().find(|port| !self.ports.contains_key(*port));
        if let Some(missing) = missing {
            return Err(unknown(missing));
        }
        let first = function.ports.first().and_then(|port| self.ports.get(port)?.slots.first());
        let worker = first.map_or(0, |slot| slot.worker);
        let name = self.workers[worker].spec.name.clone();
        let (place, callers) = handlers;
        let watched = callers.try_clone().map_err(|_| FabricError::Limit("no descriptor is free"))?;
        let bit = self.take_bits(Some(&name), 1)?.first().map_or(0, |(_, bit)| *bit);
        let line = Arc::new(Line::new(self.workers[worker].handle.bell.clone(), bit, &function.name));
        let bell: Arc<dyn Doorbell> = line.clone();
        let ports: Vec<Arc<Inside>> =
            function.ports.iter().map(|port| Inside::new(&function.name, port, &bell)).collect();
        line.watch(Arc::new(watched));
        let order = Order {
            number,
            bit,
            function,
            ports: ports.clone(),
            handlers: (place, callers.into()),
            reports: self.reports.clone(),
        };
        let joins = |inside: &Arc<Inside>| (inside.port.clone(), Job::Join(inside.clone()));
        let jobs = ports.iter().map(joins).collect();
        self.workers[worker].handle.send(Command::AddFunction(Box::new(order)));
        self.functions.insert(number, FunctionRecord { worker, bit, line, ports });
        Ok(jobs)
    }

    /// Ends a function. Returns the jobs that take its ports back.
    pub fn stop_function(&mut self, number: u64) -> Vec<(String, Job)> {
        let Some(FunctionRecord { worker, bit, line, ports }) = self.functions.remove(&number) else {
            return Vec::new();
        };
        line.unwatch();
        self.workers[worker].handle.send(Command::RemoveFunction(number));
        self.free_bits([(worker, bit)]);
        let there = ports.iter().filter(|inside| self.ports.contains_key(&inside.port));
        there.map(|inside| (inside.port.clone(), Job::Leave(inside.clone()))).collect()
    }

    /// Starts a function, as [`Fabric::start_function`], and gives it its ports.
    ///
    /// # Errors
    /// As there.
    pub fn add_function(
        &mut self,
        number: u64,
        function: Function,
        handlers: (String, OwnedFd),
    ) -> Result<(), FabricError> {
        let jobs = self.start_function(number, function, handlers)?;
        jobs.into_iter().try_for_each(|(port, job)| self.now(&port, job).map(drop))
    }

    /// Ends a function, and takes its ports back.
    pub fn remove_function(&mut self, number: u64) -> Result<(), FabricError> {
        let jobs = self.stop_function(number);
        jobs.into_iter().try_for_each(|(port, job)| self.now(&port, job).map(drop))
    }

    /// Suspends a function, or lets it go on.
    pub fn suspend_function(&mut self, number: u64, suspended: bool) {
        if let Some(record) = self.functions.get(&number) {
            self.workers[record.worker].handle.send(Command::SuspendFunction(number, suspended));
        }
    }

    /// What happened to functions since the last call.
    pub(super) fn function_events(&self) -> impl Iterator<Item = Event> + use<> {
        self.reports.take().into_iter().map(|(number, report)| Event::Function { number, report })
    }

    /// Reports the end of every function of a worker that failed.
    pub(super) fn report_lost_functions(&self, worker: usize) {
        let its = self.functions.iter().filter(|(_, record)| record.worker == worker);
        for (number, _) in its {
            let reason = "its worker failed; see the log".to_string();
            self.reports.add(*number, FunctionReport::Ended(reason));
        }
    }

    /// The lanes of the function that has this port.
    pub(super) fn inside_of(&self, port: &str) -> Option<Arc<Inside>> {
        let mut all = self.functions.values().flat_map(|record| &record.ports);
        all.find(|inside| inside.port == port).cloned()
    }
}
