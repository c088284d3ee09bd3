//! Functions: Click configurations that run on ring ports.

use crate::Instance;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The configuration; empty if it is a program.
    pub configuration: Configuration,
    /// What it runs instead of a configuration.
    #[serde(default)]
    pub program: Option<Program>,
    /// What separates it from the rest of the fabric.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether it runs as a process where the host has no KVM for its virtual machine.
    #[serde(default)]
    pub fallback: bool,
    /// Whether snapshots of its virtual machine may be taken, and so clones made. It moves all the same.
    #[serde(default = "may_be_cloned")]
    pub snapshots: bool,
    /// The configuration's parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// Names of the ring ports; in a chain, names of its two ends, by which only its configuration knows them.
    pub ports: Vec<String>,
    /// Whether it is in a chain.
    #[serde(default)]
    pub chained: bool,
    /// Devices that the configuration names, and the port that each stands for.
    #[serde(default)]
    pub devices: Vec<(String, String)>,
    /// Maximum memory in bytes.
    pub memory: u64,
    /// The core that the function is pinned to.
    pub core: Option<usize>,
    /// Maximum number of frames handled at once.
    pub burst: u32,
    /// Whether the function starts with the fabric.
    pub start: bool,
    /// Whether it starts with the first frame for it instead, which waits until it runs.
    #[serde(default)]
    pub first_frame: bool,
    /// Nanoseconds without a frame after which such a function ends, until the next frame for it; 0: it does not.
    #[serde(default)]
    pub idle: u64,
    /// Which instance it is, if the function multiplies under load.
    #[serde(default)]
    pub instance: Option<Instance>,
}

impl Default for Function {
    /// A function that the file gives nothing but what it requires.
    fn default() -> Function {
        Function {
            name: String::new(),
            configuration: Configuration::default(),
            program: None,
            isolation: Isolation::default(),
            fallback: false,
            snapshots: true,
            parameters: Vec::new(),
            ports: Vec::new(),
            chained: false,
            devices: Vec::new(),
            memory: Function::MEMORY,
            core: None,
            burst: Function::BURST,
            start: true,
            first_frame: false,
            idle: 0,
            instance: None,
        }
    }
}

fn may_be_cloned() -> bool {
    true
}

/// What separates a function from the rest of the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A confined process of its own.
    #[default]
    Process,
    /// A virtual machine of its own, whose monitor is a confined process.
    Vm,
    /// None: it runs in the data path's process, on a worker, for configurations that the operator trusts.
    Worker,
}

impl Isolation {
    /// Every isolation, with its name.
    pub const ALL: &[(&'static str, Isolation)] =
        &[("process", Isolation::Process), ("vm", Isolation::Vm), ("worker", Isolation::Worker)];

    /// The name.
    pub fn name(self) -> &'static str {
        Isolation::ALL.iter().find(|(_, own)| *own == self).map_or("", |(name, _)| name)
    }
}

/// A Click configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The file of the configuration, if any.
    pub file: Option<PathBuf>,
    /// Where the text comes from, as who gave it says; for people only.
    #[serde(default)]
    pub source: Option<String>,
    /// The text.
    pub text: String,
}

/// A program of its own, in a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The file of its image.
    pub file: PathBuf,
    /// The image.
    #[serde(skip)]
    pub image: Image,
    /// What it finds out about its network and its arguments, names and values; a name may be there several times.
    pub settings: Vec<(String, String)>,
}

/// A program's image.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Image(pub Arc<Vec<u8>>);

impl fmt::Debug for Image {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.0.len())
    }
}

impl Function {
    /// Default memory, in bytes.
    pub const MEMORY: u64 = 256 << 20;
    /// The most frames that a function may handle at once, which is the default.
    pub const BURST: u32 = 64;

    /// The configuration's name in error messages: its file, or else the function's name.
    pub fn title(&self) -> &str {
        self.file().and_then(|file| file.to_str()).unwrap_or(&self.name)
    }

    /// The file of its configuration or of its program's image, if any.
    pub fn file(&self) -> Option<&PathBuf> {
        self.program.as_ref().map(|program| &program.file).or(self.configuration.file.as_ref())
    }

    /// The names in the fabric of its ports, in the order of `ports`. No port of the file can have the name of a
    /// function's end in a chain.
    pub fn fabric_ports(&self) -> Vec<String> {
        let name = |port: &String| if self.chained { self.end(port) } else { port.clone() };
        self.ports.iter().map(name).collect()
    }

    /// The name of its files.
    pub fn file_name(&self) -> String {
        self.name.replace('/', "@")
    }

    /// Whether it is another instance than the first one.
    pub fn is_further_instance(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.number > 1)
    }

    /// The name in the fabric of an end of a function in a chain.
    pub fn end(&self, port: &str) -> String {
        format!("{}.{port}", self.name)
    }
}
