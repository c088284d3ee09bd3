//! Reading and writing of configurations.
use ringway_click_driver::click::clickpath;
use ringway_click_lang::tools::{Loaded, Router, ToolSource};
use ringway_click_lang::{Diagnostics, Environment, Limits, archive};
use std::io::{Read, Write};

/// Values of the options that all tools share.
#[derive(Default)]
pub struct Common {
    /// The configuration's file, or with `-e` its text.
    pub router: Option<(String, bool)>,
    /// File for the result; `-` or `None` for standard output.
    pub output: Option<String>,
    /// `NAME=VALUE` arguments.
    pub variables: Vec<(String, String)>,
    /// Used instead of `CLICKPATH` of the environment.
    pub click_path: Option<String>,
}

impl Common {
    /// Sets the configuration to read; an error if it was set before.
    pub fn set_router(&mut self, file: String, is_text: bool) -> Result<(), String> {
        if self.router.is_some() {
            return Err("router configuration specified twice".into());
        }
        self.router = Some((file, is_text));
        Ok(())
    }

    /// Sets the file to write; an error if it was set before.
    pub fn set_output(&mut self, file: String) -> Result<(), String> {
        if self.output.is_some() {
            return Err("output file specified twice".into());
        }
        self.output = Some(file);
        Ok(())
    }

    /// Handles an argument that is not an option: a variable, or else the configuration to read.
    pub fn argument(&mut self, text: String) -> Result<(), String> {
        match self.variable(&text)? {
            true => Ok(()),
            false => self.set_router(text, false),
        }
    }

    /// Handles `NAME=VALUE`; returns false for any other text.
    pub fn variable(&mut self, text: &str) -> Result<bool, String> {
        let Some((name, value)) = text.split_once('=') else { return Ok(false) };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Ok(false);
        }
        if self.variables.iter().any(|(other, _)| other == name) {
            return Err(format!("parameter '{name}' multiply defined"));
        }
        self.variables.push((name.into(), value.into()));
        Ok(true)
    }

    /// Reads the configuration and flattens it. Prints its errors; `None` if it can't be used.
    pub fn read_flat(&self, expand_variables: bool) -> Option<Router> {
        let mut diagnostics = Diagnostics::new(Limits::default().diagnostics);
        let loaded = self.load(&mut diagnostics);
        let router = loaded.map(|loaded| loaded.flatten(expand_variables, &mut diagnostics));
        eprint!("{diagnostics}");
        router.filter(|_| diagnostics.errors() == 0)
    }

    fn load(&self, diagnostics: &mut Diagnostics) -> Option<Loaded> {
        let (file, is_text) = self.router.clone().unwrap_or_default();
        let mut surroundings = Surroundings { click_path: self.click_path.clone() };
        load(&file, is_text, false, &self.variables, &mut surroundings, diagnostics)
    }

    /// Writes a configuration, as an archive if `in_archive` is set and the router has further files. Prints errors.
    pub fn write(&self, router: &Router, in_archive: bool) -> bool {
        let text = router.graph().unparse_for_tools().into_bytes();
        if !in_archive || router.archive.is_empty() {
            return self.write_bytes(&text);
        }
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let date = now.map_or(0, |now| now.as_secs());
        let config = archive::Member { name: "config".into(), date, uid, gid, mode: 0o644, data: text };
        let mut members = vec![config];
        members.extend(router.archive.iter().cloned());
        self.write_bytes(&archive::unparse(&members))
    }

    /// Writes bytes to the output. Prints errors.
    pub fn write_bytes(&self, bytes: &[u8]) -> bool {
        let (name, result) = match self.output.as_deref() {
            None | Some("-") => {
                let mut out = std::io::stdout().lock();
                ("<stdout>", out.write_all(bytes).and_then(|()| out.flush()))
            }
            Some(file) => (file, std::fs::write(file, bytes)),
        };
        match result {
            Ok(()) => true,
            // A reader that closed the pipe early is not an error.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => true,
            Err(error) => {
                eprintln!("{name}: {}", reason(&error));
                false
            }
        }
    }
}

/// Loads a configuration from a file or a text, as tools do.
pub fn load(
    file: &str,
    is_text: bool,
    may_be_empty: bool,
    variables: &[(String, String)],
    surroundings: &mut Surroundings,
    diagnostics: &mut Diagnostics,
) -> Option<Loaded> {
    let (bytes, name) = if is_text {
        (file.as_bytes().to_vec(), "config")
    } else {
        let name = if matches!(file, "" | "-") { "<stdin>" } else { file };
        match bytes_of(file) {
            Ok(bytes) => (bytes, name),
            Err(error) => {
                diagnostics.error(None, format!("{name}: {}", reason(&error)));
                return None;
            }
        }
    };
    let limits = Limits::default();
    let source = ToolSource { bytes: &bytes, file: name, variables, may_be_empty, limits };
    Some(source.load(surroundings, diagnostics))
}

/// The bytes of a file, or of standard input, up to the largest size of a configuration.
pub fn bytes_of(file: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = Limits::default().text as u64 * 4;
    match file {
        "" | "-" => std::io::stdin().lock().take(most).read_to_end(&mut bytes)?,
        file => std::fs::File::open(file)?.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// The operating system's message for an error, as Click's programs print it.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// Access to the libraries that a configuration requires, in Click's search path.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Used instead of `CLICKPATH` of the environment.
    pub click_path: Option<String>,
}

impl Environment for Surroundings {
    fn has_class(&self, _: &str) -> bool {
        true
    }

    fn has_package(&mut self, _: &str) -> bool {
        true
    }

    fn library(&mut self, name: &str, directory: &str) -> Option<(String, Result<String, String>)> {
        let path = clickpath::find(self.click_path.as_deref(), name, "conf", directory)?;
        let text = bytes_of(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some((path, text.map_err(|error| reason(&error))))
    }
}
