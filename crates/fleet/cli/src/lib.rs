//! The `ringway` program, as a library: a program with additional kinds of port calls [`main`] with them.
//!
//! Each command has a file named after it; `arguments` declares all of them. Read `arguments.rs` first.

/// Prints to standard output; ends the program if nobody reads it.
macro_rules! print {
    ($($text:tt)*) => { $crate::text::print(format_args!($($text)*)) };
}
/// As `print!`, with a line's end.
macro_rules! println {
    () => { $crate::text::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::text::print(format_args!("{}\n", format_args!($($text)*))) };
}

mod advice;
mod arguments;
mod audit;
mod capture;
mod chain;
mod check;
mod click;
mod click_tools;
mod client;
mod command_error;
mod doctor;
mod empty_values;
mod events;
mod exec;
mod flow;
mod function;
mod graph;
mod guest;
mod guest_start;
mod host;
mod input;
mod link;
mod log;
mod logs;
mod man;
mod migrate;
mod object_kind;
mod page;
mod pktgen;
mod place;
mod port;
mod profile;
mod program;
mod ps;
mod remote;
mod ring_wait;
mod run_data;
mod run_function;
mod save;
mod show;
mod snapshot;
mod stack;
mod stats;
mod switch;
mod target;
mod text;
mod tiny;
mod token;
mod top;
mod topo;
mod trace;
mod up;
mod upgrade;
mod values;
mod worker;

use arguments::{Arguments, Command, GuestCommand, PluginHost, Target};
use clap::{CommandFactory, Parser};
use command_error::CommandError;
use ringway_click_driver::click::{OwnClasses, add_classes};
use ringway_control::kinds::PortControl;
use ringway_control::lookups::LookupKeys;
use ringway_scheduler::plugins::{Folder, Options, become_host};
use std::ffi::{CString, OsString};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Kinds of port, lookups and elements that are not the project's: both sides of each port and lookup.
#[derive(Clone, Copy, Default)]
pub struct Kinds {
    /// The side of `control`.
    pub control: &'static [&'static dyn PortControl],
    /// The side of the data path.
    pub data: &'static [ringway_port::PortKind],
    /// Lookups of switches: the side of the data path.
    pub lookups: &'static [ringway_switch::LookupKind],
    /// The side of `control`.
    pub lookup_keys: &'static [&'static dyn LookupKeys],
    /// Classes of elements. Functions have them in processes and on workers, and in VMs if `image` has them.
    pub classes: &'static [&'static ringway_click::Class],
    /// The documentation of these classes.
    pub documentation: ringway_click::Documentation,
    /// The image of functions in VMs, by `ringway_tiny::click_image!`; without it they have the project's classes only.
    pub image: Option<&'static [u8]>,
}

static KINDS: OnceLock<Kinds> = OnceLock::new();

/// The kinds that [`main`] was called with.
fn kinds() -> Kinds {
    KINDS.get().copied().unwrap_or_default()
}

/// Runs the program with its command line, with `kinds` in addition to the project's own.
pub fn main(kinds: Kinds) -> ExitCode {
    ringway_exec::be_first_process();
    // Later calls have no effect; a program calls this function once.
    let _ = KINDS.set(kinds);
    let Kinds { lookups, lookup_keys, classes, documentation, image, .. } = kinds;
    add_classes(OwnClasses { classes, documentation });
    ringway_switch::add_lookups(lookups);
    ringway_control::lookups::add(lookup_keys);
    #[cfg(target_arch = "x86_64")]
    if let Some(image) = image {
        ringway_vmm::set_click(image);
    }
    if let Some(code) = click::called_so() {
        return code;
    }
    if let Some(code) = click_tools::dispatch(std::env::args_os()) {
        return code;
    }
    // Hundreds of them may start at once, and each keeps what reading a command line takes.
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.last().is_some_and(|word| word == "run-function") && matches!(words.len(), 1 | 3) {
        return exit(run_function::run(), false);
    }
    let arguments = empty_values::check(&words).and_then(|()| Arguments::try_parse());
    let arguments = arguments.unwrap_or_else(|error| advice::explain(&error, &words));
    let json = arguments.json;
    match catch_unwind(AssertUnwindSafe(|| run(arguments))) {
        Ok(result) => exit(result, json),
        Err(reason) if reason.is::<text::ClosedOutput>() => ExitCode::FAILURE,
        Err(reason) => resume_unwind(reason),
    }
}

/// Names this process for `ps`; one that /proc/self/exe started would be called `exe`. The kernel keeps 15 bytes.
fn name_process(name: &str) {
    // A process without a name of its own works as well.
    let _ = CString::new(name).map(|name| rustix::thread::set_name(&name));
}

fn exit(result: Result<(), CommandError>, json: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            fail.print(json);
            ExitCode::from(fail.code())
        }
    }
}

fn run(arguments: Arguments) -> Result<(), CommandError> {
    let Arguments { target, json, command } = arguments;
    if target.api.is_some() && !remote::is_for(&command) {
        return Err(remote::local_only());
    }
    match command {
        Command::Up(up) => up::up(&target, json, up),
        Command::Apply { file, dry_run } => up::apply(&target, json, &file, dry_run),
        Command::Save { file } => save::save(&target, json, file.as_deref()),
        Command::Down => up::down(&target, json),
        Command::Upgrade(options) => upgrade::upgrade(&target, json, &options),
        Command::Check { file } => check::check(&target, json, &file),
        Command::Ps => ps::ps(&target, json),
        Command::Stats(options) => stats::stats(&target, json, &options),
        Command::Top(options) => top::top(&target, json, &options),
        Command::Graph { seconds } => graph::graph(&target, json, seconds),
        Command::Capture(arguments) => capture::capture(&target, json, *arguments),
        Command::Trace(arguments) => trace::trace(&target, json, &arguments),
        Command::Pktgen { command } => pktgen::pktgen(&target, json, *command),
        Command::Profile(arguments) => profile::profile(&target, json, &arguments),
        Command::Switch { command } => switch::switch(&target, json, command),
        Command::Flow { command } => flow::flow(&target, json, command),
        Command::Chain { command } => chain::chain(&target, json, command),
        Command::Worker { command } => worker::worker(&target, json, command),
        Command::Snapshot { command } => snapshot::snapshot(&target, json, command),
        Command::Page { role, name } => page::page(&target, json, role, &name),
        Command::Token { command } => token::token(&target, json, command),
        Command::Audit { count } => audit::audit(&target, json, count),
        Command::Events(options) => events::events(&target, json, &options),
        Command::Logs(logs) => logs::fabric(&target, json, &logs),
        Command::Link { command } => link::link(&target, json, command),
        Command::Host { command } => host::host(&target, json, command),
        Command::Program { command } => program::program(&target, json, command),
        Command::Exec(arguments) => exec::exec(&target, *arguments),
        Command::Stack { command } => stack::stack(json, command),
        Command::Topo(topo) => topo::topo(&target, json, topo),
        Command::Port { command } => port::port(&target, json, command),
        Command::Guest { command } => run_guest(&target, json, command),
        Command::Function { command } => function::function(&target, json, command),
        Command::Tiny { command } => tiny::tiny(json, command),
        Command::Click { arguments } => click::run(&arguments),
        Command::Place(arguments) => place::place(&target, json, *arguments),
        Command::PluginHost(arguments) => plugin_host(arguments),
        Command::Doctor => doctor::doctor(json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "ringway", &mut script);
            match std::io::stdout().write_all(&script) {
                // As in `ringway completions bash | head`.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(CommandError::because),
            }
        }
        Command::Man { folder } => man::write(&folder),
        Command::Openapi => {
            text::json(&ringway_control::api::description());
            Ok(())
        }
        Command::Data { log } => run_data::run(log),
        Command::UpgradeCheck => upgrade::check(),
        Command::RunFunction => run_function::run(),
    }
}

/// Runs a command of `ringway guest`.
fn run_guest(target: &Target, json: bool, command: GuestCommand) -> Result<(), CommandError> {
    match command {
        GuestCommand::List => guest::list(target, json),
        GuestCommand::Show { name } => show::show(&object_kind::GUEST, target, json, &name),
        GuestCommand::Logs { name, logs } => logs::guest(target, json, &name, &logs),
        GuestCommand::Start { names } => guest::start(target, json, &names),
        GuestCommand::Stop { names } => guest::stop(target, json, &names),
        GuestCommand::Restart { names } => guest::restart(target, json, &names),
        GuestCommand::Exec { name, timeout, command } => {
            guest::exec(target, json, &name, timeout, &command.join(" "))
        }
        GuestCommand::Migrate(arguments) => migrate::migrate(target, json, arguments),
        GuestCommand::Receive => migrate::receive(target),
        GuestCommand::Wait { names, timeout } => guest::wait(target, json, &names, timeout),
    }
}

/// Runs as the plugin host of a folder.
fn plugin_host(arguments: PluginHost) -> Result<(), CommandError> {
    let PluginHost { folder, memory, network, unconfined } = arguments;
    let folder = Folder { memory_mb: memory, network, unconfined, ..Folder::new(folder) };
    Err(CommandError::Failed(become_host(&Options::default(), &folder)))
}
