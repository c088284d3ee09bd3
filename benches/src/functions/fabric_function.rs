//! A fabric with two programs and, between them, the two ports of a function.

use crate::Failure;
use crate::harness::WORKER;
use crate::harness::fabric::Harness;
use crate::harness::program::{OnPort, connected, welcome};
use crate::keys::Folder;
use crate::vms::WIRE;
use crate::vms::piped_function::{MEMORY, Plan as Order, Side, open_doors, started};
use ringway_fabric::MessageStream;
use ringway_fabric::proto::{Event, FunctionReport};
use ringway_host::send_with;
use ringway_port::ring::open::RingListener;
use ringway_ring_client::RingOptions;
use ringway_spec::{Configuration, Function, Isolation, Kind, Poll, Port, To};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsIn {
    /// The worker of its ports.
    Worker,
    /// A process of its own.
    Process,
    /// A VM of its own, as the fabric starts it.
    Vm,
}

/// The fabric.
pub struct FabricFunction {
    harness: Harness,
    folder: Folder,
    /// The program that sends.
    pub from: OnPort,
    /// The program that receives.
    pub to: OnPort,
    number: u64,
    /// Passes connections to the function's handlers.
    callers: Vec<UnixStream>,
    processes: Vec<Child>,
    /// Monitors of VMs end with their links.
    links: Vec<MessageStream>,
    /// What keeps the rings of the function's process.
    programs: Vec<ringway_port::ring::open::Program>,
}

impl FabricFunction {
    /// A fabric without a function.
    pub fn new() -> Result<FabricFunction, Failure> {
        FabricFunction::between(["in", "out"])
    }

    /// A fabric without a function, for a function with ports of these names.
    pub fn between(ports: [&str; 2]) -> Result<FabricFunction, Failure> {
        FabricFunction::with(&ports.map(String::from))
    }

    /// A fabric with programs at both ends of a row of ports, of which each has one function with the next.
    fn with(row: &[String]) -> Result<FabricFunction, Failure> {
        let mut harness = Harness::start(&[WORKER], row.len() + 2, Poll::Adaptive)?;
        let port =
            |name: &str, peer: &str| Port::new(name, Kind::new("ring", &()), Some(To::Patch(peer.into())));
        let (first, last) = (row.first().ok_or("no ports")?, row.last().ok_or("no ports")?);
        let from = connected(&mut harness, port("load", first), RingOptions::default())?;
        let to = connected(&mut harness, port("sink", last), RingOptions::default())?;
        harness.add_port(port(first, "load"))?;
        for [one, other] in row[1..row.len() - 1].as_chunks().0 {
            harness.add_port(port(one, other))?;
            harness.add_port(port(other, one))?;
        }
        harness.add_port(port(last, "sink"))?;
        let (number, folder) = (0, Folder::new()?);
        let (callers, processes, links, programs) = Default::default();
        Ok(FabricFunction { harness, folder, from, to, number, callers, processes, links, programs })
    }

    /// A fabric with a chain of wires, which run.
    pub fn chain(count: usize, place: RunsIn) -> Result<FabricFunction, Failure> {
        let names: Vec<String> = (0..count).map(|at| format!("wire{at}")).collect();
        let row: Vec<String> =
            names.iter().flat_map(|name| ["l", "r"].map(|end| format!("{name}.{end}"))).collect();
        let mut function = FabricFunction::with(&row)?;
        for (name, ends) in names.iter().zip(row.as_chunks::<2>().0) {
            match place {
                RunsIn::Process => {
                    let text = |from: &str, to: &str| format!("{from} -> {to};");
                    function.start_process(&ends[0], &ends[1], text)?;
                }
                RunsIn::Vm => function.start_vm(ends)?,
                RunsIn::Worker => {
                    let text = "FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);";
                    let ports = ["l", "r"].map(String::from).into();
                    function.start_function(Function {
                        name: name.clone(),
                        ports,
                        chained: true,
                        ..on_worker(text.into())
                    })?;
                }
            }
        }
        Ok(function)
    }

    /// Starts a function on the worker; its configuration runs when this returns.
    pub fn start(&mut self, text: String) -> Result<(), Failure> {
        self.start_function(on_worker(text))
    }

    /// Starts a function with parameters and the ports `ports` on the worker; its configuration runs when this returns.
    pub fn start_with(
        &mut self,
        text: &str,
        ports: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let parameters = parameters.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        self.start_function(Function {
            ports: ports.iter().map(ToString::to_string).collect(),
            parameters: parameters.collect(),
            ..on_worker(text.into())
        })
    }

    fn start_function(&mut self, function: Function) -> Result<(), Failure> {
        self.number += 1;
        self.callers.push(start_on_worker(&mut self.harness, self.number, function)?);
        Ok(())
    }

    /// Ends the function on the worker.
    pub fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.harness.fabric.remove_function(self.number)?)
    }

    /// Starts a function in a process of its own, as a program on both ports.
    pub fn start_process(
        &mut self,
        from: &str,
        to: &str,
        text: fn(&str, &str) -> String,
    ) -> Result<(), Failure> {
        let text = text(&format!("FromPort({from})"), &format!("ToPort({to})"));
        self.start_process_with(&text, &[from, to], &[])
    }

    /// Starts a function with parameters in a process of its own, as a program on `ports`.
    pub fn start_process_with(
        &mut self,
        text: &str,
        ports: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let path = |name: &str| self.folder.path().join(name);
        let mut sockets = Vec::new();
        for name in ports {
            sockets.push((*name, RingListener::bind(&path(name), Default::default())?));
        }
        let file = path(&format!("{}.click", ports.join("-")));
        std::fs::write(&file, text)?;
        let mut command = Command::new(std::env::current_exe()?);
        // Its ports are sockets in the folder.
        command.arg("--function").arg(&file).current_dir(self.folder.path()).stdin(Stdio::null());
        command.args(parameters.iter().map(|(name, value)| format!("{name}={value}")));
        self.processes.push(command.spawn()?);
        self.attach(&sockets, || Ok(()))
    }

    /// Starts a wire in a VM of its own, as a program on two ports.
    fn start_vm(&mut self, ends: &[String; 2]) -> Result<(), Failure> {
        let paths: [PathBuf; 2] = ends.each_ref().map(|name| self.folder.path().join(name));
        let listen = |at: usize| RingListener::bind(&paths[at], Default::default());
        let sockets = [(&*ends[0], listen(0)?), (&*ends[1], listen(1)?)];
        let handlers = self.folder.path().join(format!("{}.handlers", ends[0]));
        let listener = UnixListener::bind(&handlers)?;
        let order = Order {
            side: Side::Vm,
            text: &WIRE,
            memory: MEMORY,
            core: None,
            slots: 0,
            single: false,
            snapshot: None,
            spare: false,
        };
        let (child, link) = started(&order, None, self.folder.path(), &handlers, &listener, &["in", "out"])?;
        self.processes.push(child);
        let (link, keeper) = link.ok_or("it has no link")?;
        self.links.push(link);
        self.attach(&sockets, || open_doors(&keeper, &paths))
    }

    /// Waits until a function is on both of its ports; `serve` answers its requests meanwhile.
    fn attach(
        &mut self,
        sockets: &[(&str, RingListener)],
        mut serve: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let end = Instant::now() + START_TIMEOUT;
        let all = self.programs.len() + sockets.len();
        while self.programs.len() < all {
            serve()?;
            for (name, listener) in sockets {
                self.programs.extend(welcome(&mut self.harness, name, listener)?);
            }
            if Instant::now() > end {
                return Err("the function's process does not connect".into());
            }
        }
        Ok(())
    }

    /// Asks the function on the worker for another configuration; the answer comes by the connection.
    pub fn change(&mut self, text: &str) -> Result<UnixStream, Failure> {
        let callers = self.callers.last().ok_or("no function runs")?;
        let (mut ours, theirs) = UnixStream::pair()?;
        send_with(callers.as_fd(), &[0], &[theirs.as_fd()])?;
        ours.write_all(format!("WRITEDATA hotconfig {}\r\n{text}", text.len()).as_bytes())?;
        Ok(ours)
    }
}

/// Starts a function on the worker of its ports; its configuration runs when this returns. It ends with the stream,
/// which is for calls of its handlers.
pub fn start_on_worker(
    harness: &mut Harness,
    number: u64,
    function: Function,
) -> Result<UnixStream, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    harness.fabric.add_function(number, function, ("handlers".into(), theirs.into()))?;
    let end = Instant::now() + START_TIMEOUT;
    while Instant::now() < end {
        for event in harness.fabric.check() {
            match event {
                Event::Function { number: own, report } if own == number => match report {
                    FunctionReport::Up => return Ok(ours),
                    FunctionReport::Wrong(why) | FunctionReport::Ended(why) => return Err(why.into()),
                },
                _ => {}
            }
        }
    }
    Err("the function does not start".into())
}

/// A function with ports `in` and `out` on a worker.
pub fn on_worker(text: String) -> Function {
    Function {
        name: "bench".into(),
        configuration: Configuration { file: None, source: None, text },
        isolation: Isolation::Worker,
        ports: vec!["in".into(), "out".into()],
        ..Function::default()
    }
}

impl Drop for FabricFunction {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
