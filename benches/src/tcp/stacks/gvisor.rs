//! gVisor's stack, in a Go program (`benches/gvisor`).

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program with Go, which gets the module of gVisor's stack.
pub fn build() -> Result<PathBuf, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("gvisor");
    let program = std::env::current_exe()?.with_file_name("gvisor-peer");
    let mut command = Command::new("go");
    command.current_dir(folder).args(["build", "-o"]).arg(&program).arg(".");
    let output = command.output().map_err(|error| format!("go: {error}"))?;
    if !output.status.success() {
        return Err(format!("go build: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(program)
}

/// The figure of a case, for so many seconds or connections.
pub fn run(program: &Path, case: &str, amount: f64) -> Result<f64, Failure> {
    let output = Command::new(program).args([case, &amount.to_string()]).env("GOMAXPROCS", "1").output()?;
    let text = String::from_utf8(output.stdout)?;
    let figure = text.trim().parse();
    Ok(figure.map_err(|_| format!("gVisor's stack: {}", String::from_utf8_lossy(&output.stderr).trim()))?)
}
