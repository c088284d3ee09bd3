//! The examples for rings in C and in Python, each with each; what the C library exports; Python's buffers.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_ring_client::Ring;
use ringway_tests::fabric::Fabric;
use ringway_tests::folder::Folder;
use ringway_tests::returned::give_back;
use ringway_tests::{c_library, eventually};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(60);

/// Left and right, with a bridge of a program between them; a pipe; a port for Python's buffers.
const FABRIC: &str = "[port.left]\nkind = \"ring\"\nsocket = \"left.sock\"\n\
    [port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\n[patch.one]\nports = [\"left\", \"one\"]\n\
    [port.two]\nkind = \"ring\"\nsocket = \"two.sock\"\n\
    [port.right]\nkind = \"ring\"\nsocket = \"right.sock\"\n[patch.two]\nports = [\"two\", \"right\"]\n\
    [port.p]\nkind = \"pipe\"\nsocket = \"p.sock\"\n\
    [switch.main]\n\
    [port.own]\nkind = \"ring\"\nsocket = \"own.sock\"\nslot-size = \"256B\"\nswitch = \"main\"\n\
    [port.back]\nkind = \"ring\"\nsocket = \"back.sock\"\nswitch = \"main\"\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Python with the library of `folder`.
fn python(folder: &Path) -> Command {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", root().join("python")).env("RINGWAY_LIBRARY", folder.join("libringway.so.0"));
    python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    python
}

/// A language's example.
fn example(language: &str, name: &str, folder: &Path) -> Command {
    let mut command = match language {
        "c" => Command::new(folder.join(name)),
        _ => {
            let mut python = python(folder);
            python.arg(root().join("examples/rings").join(format!("{name}.py")));
            python
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until a program ends; it is killed if that takes too long. It prints less than fits in a pipe.
fn ended(mut child: Child) -> Output {
    if !eventually(BOUND, || child.try_wait().unwrap().is_some()) {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

fn works(child: Child) -> String {
    let output = ended(child);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_up(fabric: &Fabric, port: &str) {
    let is_up = || {
        let ports = fabric.ask(&["ps", "--json"]).unwrap()["ports"].clone();
        ports.as_array().unwrap().iter().any(|one| one["name"] == port && one["state"] == "up")
    };
    assert!(eventually(BOUND, is_up), "nobody comes to port {port}");
}

#[test]
fn every_sender_reaches_every_receiver_through_every_bridge() {
    let folder = Folder::new("ring-programs").unwrap();
    if c_library::example(folder.path()).is_none() {
        return;
    }
    let fabric = Fabric::up(folder.path(), "ring-programs", FABRIC).unwrap();
    let at = |port: &str| OsString::from(fabric.socket(&format!("{port}.sock")));
    let expected =
        |count: usize| (0..count).map(|number| format!("{number}: 60 bytes\n")).collect::<String>();
    for bridge in ["c", "python"] {
        let passes = example(bridge, "bridge", folder.path()).args([at("one"), at("two")]).spawn().unwrap();
        ["one", "two"].iter().for_each(|port| is_up(&fabric, port));
        for (sender, receiver) in [("c", "python"), ("python", "c")] {
            // A bridge drops what finds no room: not more than a ring has.
            let receives = example(receiver, "receiver", folder.path()).arg(at("right")).arg("200").spawn();
            is_up(&fabric, "right");
            works(example(sender, "sender", folder.path()).arg(at("left")).arg("200").spawn().unwrap());
            assert_eq!(works(receives.unwrap()), expected(200), "{sender}, {bridge}, {receiver}");
        }
        let mut passes = passes;
        passes.kill().unwrap();
        passes.wait().unwrap();
    }
    // On a pipe a sender waits for its receiver: more frames than a ring has slots.
    for (sender, receiver) in [("c", "python"), ("python", "c")] {
        let receives = example(receiver, "receiver", folder.path()).arg(at("p")).arg("2000").spawn();
        works(example(sender, "sender", folder.path()).arg(at("p")).arg("2000").spawn().unwrap());
        assert_eq!(works(receives.unwrap()), expected(2000), "{sender}, {receiver}");
    }
    // A bridge ends when its port does, and says why.
    for bridge in ["c", "python"] {
        let passes = example(bridge, "bridge", folder.path()).args([at("one"), at("nowhere")]).spawn();
        let text = String::from_utf8_lossy(&ended(passes.unwrap()).stderr).into_owned();
        assert!(text.contains("nowhere.sock: No such file or directory"), "{text}");
    }
}

#[test]
fn the_page_shows_the_receiver() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let receiver = read("examples/rings/receiver.py");
    assert!(read("docs/programs.md").contains(&format!("```python\n{receiver}```")));
}

#[test]
fn python_sees_frames_where_they_are() {
    let folder = Folder::new("ring-python").unwrap();
    if c_library::example(folder.path()).is_none() {
        return;
    }
    let fabric = Fabric::up(folder.path(), "ring-python", FABRIC).unwrap();
    let [own, back] = ["own.sock", "back.sock"].map(|name| fabric.socket(name));
    let mut ring = Ring::open(&back).unwrap();
    is_up(&fabric, "back");
    let returns = std::thread::spawn(move || give_back(&mut ring, 100));
    let script = root().join("python/tests/ring_buffers.py");
    let output = ended(python(folder.path()).arg(script).arg(own).spawn().unwrap());
    assert!(String::from_utf8_lossy(&output.stderr).contains("\nOK\n"), "{output:?}");
    returns.join().unwrap().unwrap();
}

#[test]
fn the_library_is_installed_with_a_version_and_found_by_pkg_config() {
    let folder = Folder::new("ring-library").unwrap();
    if c_library::example(folder.path()).is_none() {
        return;
    }
    let installed = folder.path().join("root");
    let mut make = Command::new("make");
    make.arg("-C").arg(root().join("clients/c")).args(["install", "PREFIX=/usr"]);
    make.arg(format!("OUT={}", folder.path().display())).arg(format!("DESTDIR={}", installed.display()));
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let described = std::fs::read_to_string(installed.join("usr/lib/pkgconfig/ringway.pc")).unwrap();
    assert!(described.starts_with("prefix=/usr\n") && described.contains("-lringway\n"), "{described}");
    let prefix = format!("{}/usr", installed.display());
    let mut asking = Command::new("pkg-config");
    asking.arg(format!("--define-variable=prefix={prefix}")).args(["--cflags", "--libs", "ringway"]);
    match asking.env("PKG_CONFIG_PATH", installed.join("usr/lib/pkgconfig")).output() {
        Ok(said) => assert_eq!(
            String::from_utf8_lossy(&said.stdout).trim_end(),
            format!("-I{prefix}/include -L{prefix}/lib -lringway")
        ),
        Err(error) => eprintln!("pkg-config: {error}; its file was only read"),
    }
    let named = std::fs::read_link(installed.join("usr/lib/libringway.so")).unwrap();
    assert_eq!(named, Path::new("libringway.so.0"));
    let library = installed.join("usr/lib/libringway.so.0");
    // Every function of the header is exported with its version, and nothing else is.
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" T "))
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let header = std::fs::read_to_string(installed.join("usr/include/ringway.h")).unwrap();
    for name in &exported {
        let (name, version) = name.split_once("@@").unwrap();
        assert!(version == "RINGWAY_0" && header.contains(&format!("{name}(")), "{name}@@{version}");
    }
    let is_declaration =
        |line: &&str| line.contains("ringway_") && line.ends_with(");") && !line.starts_with(' ');
    assert_eq!(exported.len(), header.lines().filter(is_declaration).count(), "{exported:?}");
    // A program is linked with it, and starts.
    let program = folder.path().join("shared");
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(installed.join("usr/include")).arg("-o").arg(&program);
    cc.arg(root().join("clients/c/examples/sender.c")).arg("-L").arg(installed.join("usr/lib"));
    let linked = cc.arg("-lringway").output().unwrap();
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", installed.join("usr/lib")).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stderr).contains("name PORT and COUNT"), "{ran:?}");
}
