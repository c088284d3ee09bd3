//! Checks of things outside the file that it names: users and groups, files of guests, existing files at socket paths.

use super::Outside;
use super::desired::Fabric;
use crate::kinds;
use crate::run_dir::FUNCTIONS;
use ringway_spec::file::Diagnostics;
use ringway_spec::{Guest, Port};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Checks everything outside the file that `fabric` names.
pub fn check(fabric: &Fabric, outside: &Outside<'_>, host: &super::Host, diagnostics: &Diagnostics) {
    let names = Names::read(outside);
    let run = host.run_of(fabric);
    // The default is checked when it is taken: the file has no place for it.
    if let Some(run) = run.as_ref().filter(|run| fabric.run.as_ref() == Some(*run))
        && let Err(error) = (outside.own)(run)
    {
        let fix = "choose another one, such as /run/ringway/NAME";
        diagnostics.error(&diagnostics.of("fabric.run"), error.to_string(), fix);
    }
    ports(&fabric.ports, &names, (outside, host), run.as_deref(), diagnostics);
    for guest in &fabric.guests {
        files(guest, outside, diagnostics);
        names.user(&guest.user, &format!("guest.{}.user", guest.name), diagnostics);
    }
    groups(fabric, &names, diagnostics);
    for program in &fabric.programs {
        names.user(&program.user, &format!("program.{}.user", program.name), diagnostics);
    }
}

/// Checks the groups that may open ports on switches.
pub fn check_openings(fabric: &Fabric, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    groups(fabric, &Names::read(outside), diagnostics);
}

fn groups(fabric: &Fabric, names: &Names, diagnostics: &Diagnostics) {
    for (switch, open) in &fabric.openings {
        names.group(&open.group, &format!("switch.{switch}.open-group"), diagnostics);
    }
}

/// Checks everything outside the file that these ports name.
pub fn check_ports(
    list: &[Port],
    fabric: &Fabric,
    (outside, host): (&Outside<'_>, &super::Host),
    diagnostics: &Diagnostics,
) {
    ports(list, &Names::read(outside), (outside, host), host.run_of(fabric).as_deref(), diagnostics);
}

fn ports(
    list: &[Port],
    names: &Names,
    (outside, host): (&Outside<'_>, &super::Host),
    run: Option<&Path>,
    diagnostics: &Diagnostics,
) {
    for port in list {
        let needed = kinds::find(port.kind.name(), host.kinds).and_then(|kind| kind.needs(port));
        if let Some((key, path)) = needed
            && is_absent(&path, outside)
        {
            let at = diagnostics.of(&format!("port.{}.{key}", port.name));
            let fix = format!("create it, or change `{key}`");
            let what = match path.strip_prefix(kinds::INTERFACES) {
                Ok(name) => format!("there is no interface {}", name.display()),
                Err(_) => format!("there is no {}", path.display()),
            };
            diagnostics.error(&at, what, fix);
        }
        let Some(socket) = &port.socket else { continue };
        let place = format!("port.{}", port.name);
        names.user(&socket.owner, &format!("{place}.owner"), diagnostics);
        names.group(&socket.group, &format!("{place}.group"), diagnostics);
        if let Some(run) = run {
            let path = run.join(&socket.path);
            in_the_way(&path, &format!("{place}.socket"), outside, diagnostics);
            // These are created with the fabric; a missing key was reported.
            let made = [run.to_path_buf(), run.join(FUNCTIONS)];
            let folder =
                path.parent().filter(|folder| path != run && !made.iter().any(|made| made == folder));
            if let Some(folder) = folder.filter(|folder| is_absent(folder, outside)) {
                let what = format!("there is no folder {}", folder.display());
                let at = diagnostics.of(&format!("{place}.socket"));
                diagnostics.error(&at, what, "create it, or choose another path");
            }
        }
    }
}

/// The number of `name` in a text such as passwd(5) or group(5); `name` itself if it is a number.
pub fn number(name: &str, text: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Users and groups of this host; `None` if the file can't be read: its names are not checked then.
struct Names {
    users: Option<String>,
    groups: Option<String>,
}

impl Names {
    fn read(outside: &Outside<'_>) -> Names {
        let read = |path| String::from_utf8((outside.read)(Path::new(path)).ok()?).ok();
        Names { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    fn user(&self, name: &Option<String>, place: &str, diagnostics: &Diagnostics) {
        missing(["user", "passwd"], name, &self.users, place, diagnostics);
    }

    fn group(&self, name: &Option<String>, place: &str, diagnostics: &Diagnostics) {
        missing(["group", "group"], name, &self.groups, place, diagnostics);
    }
}

/// Reports a name that a file of the host, such as passwd(5), does not have.
fn missing(
    [what, file]: [&str; 2],
    name: &Option<String>,
    known: &Option<String>,
    place: &str,
    diagnostics: &Diagnostics,
) {
    let (Some(name), Some(known)) = (name, known) else { return };
    if number(name, known).is_none() {
        let fix = format!("use a name that /etc/{file} has, or a number");
        diagnostics.error(&diagnostics.of(place), format!("there is no {what} \"{name}\""), fix);
    }
}

fn is_absent(path: &Path, outside: &Outside<'_>) -> bool {
    (outside.look)(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Reports a file at a socket's path, unless it is a socket, left by an earlier run.
fn in_the_way(path: &Path, place: &str, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    if (outside.look)(path).is_ok_and(|found| !found.is_socket()) {
        let what = format!("{} is there already, and is no socket", path.display());
        diagnostics.error(&diagnostics.of(place), what, "remove it, or choose another path");
    }
}

/// Checks that the files from which a guest boots exist.
fn files(guest: &Guest, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    let named = [
        ("program", &guest.program, false),
        ("kernel", &guest.kernel, false),
        ("modules", &guest.modules, true),
        ("initrd", &guest.initrd, false),
        ("init", &guest.init, false),
    ];
    for (key, path, folder) in named {
        let Some(path) = path else { continue };
        let at = diagnostics.of(&format!("guest.{}.{key}", guest.name));
        let shown = path.display();
        let fix = "a relative path is relative to the folder of this file";
        match (outside.look)(&outside.folder.join(path)) {
            Ok(found) if found.is_dir() && !folder => {
                diagnostics.error(&at, format!("{shown} is a folder"), fix)
            }
            Ok(found) if !found.is_file() && !folder => {
                diagnostics.error(&at, format!("{shown} is not a regular file"), "name a file");
            }
            Ok(found) if !found.is_dir() && folder => {
                diagnostics.error(&at, format!("{shown} is not a folder"), fix);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                diagnostics.error(&at, format!("there is no {shown}"), fix);
            }
            Err(error) => diagnostics.error(&at, format!("{shown}: {error}"), fix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;
    use crate::file::{Host, Outside, read_with};
    use rustix::fs::FileType;
    use std::path::Path;

    #[test]
    fn user_names_and_numbers_are_resolved() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nkvm:x:107:\n";
        assert_eq!(number("kvm", passwd), Some(107));
        assert_eq!(number("1000", passwd), Some(1000));
        assert_eq!(number("nobody", passwd), None);
        assert_eq!(number("", "\n:::\n"), None);
    }

    const FABRIC: &str = r#"
[switch.s]

[port.a]
kind = "vhost-user"
socket = "taken"
owner = "kvm"
group = "nobody-of-that-name"
switch = "s"

[guest.g]
kind = "qemu"
port = "a"
kernel = "no-kernel"
modules = "taken"
init = "."
user = "kvm"
"#;

    const ABSENT: &str = r#"
[switch.s]

[port.b]
kind = "ring"
socket = "no-folder/b.sock"
switch = "s"

[port.t]
kind = "tap"
interface = "rw0"
namespace = "/run/no-namespace"
switch = "s"
"#;

    #[test]
    fn missing_folders_and_namespaces_are_reported() {
        let folder = std::env::temp_dir().join(format!("ringway-absent-{}", std::process::id()));
        let outside = Outside::of_this_host(&folder, &|_| Vec::new());
        let host = Host { cores: vec![0], base: Some(folder.clone()), ..Host::default() };
        let problems = read_with("f", ABSENT, &host, Some(&outside)).unwrap_err().to_string();
        let run = folder.join("default/no-folder");
        let expected = format!(
            "f:6:10: there is no folder {}; create it, or choose another path\n\
             f:12:13: there is no /run/no-namespace; create it, or change `namespace`",
            run.display()
        );
        assert_eq!(problems, expected);
        let empty = read_with("f", "", &host, Some(&outside)).unwrap();
        assert_eq!(empty.warnings, ["f:1:1: no port is described: nothing can connect"]);
    }

    #[test]
    fn a_run_directory_that_others_can_exchange_is_reported_with_its_place() {
        let folder = Path::new("/nowhere");
        let own = |path: &Path| match path == Path::new("/par/sw") {
            true => Err(std::io::Error::other("/par belongs to user 7")),
            false => Ok(()),
        };
        let outside = Outside { own: &own, ..Outside::of_this_host(folder, &|_| Vec::new()) };
        let host = Host { cores: vec![0], ..Host::default() };
        let text = "[fabric]\nrun = \"/par/sw\"\n";
        let problems = read_with("f", text, &host, Some(&outside)).unwrap_err().to_string();
        let fix = "choose another one, such as /run/ringway/NAME";
        assert_eq!(problems, format!("f:2:7: /par belongs to user 7; {fix}"));
        // `--fabric` names another one.
        let host = Host { run: Some("/run/ringway/lab".into()), ..host };
        assert!(read_with("f", text, &host, Some(&outside)).is_ok());
    }

    #[test]
    fn missing_files_are_reported_with_positions() {
        let folder = std::env::temp_dir().join(format!("ringway-outside-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("default")).unwrap();
        std::fs::write(folder.join("default/taken"), "").unwrap();
        std::fs::write(folder.join("taken"), "").unwrap();
        let outside = Outside {
            folder: &folder,
            read: &|path| match path == Path::new("/etc/passwd") {
                true => Ok(b"kvm:x:107:\n".to_vec()),
                false => Ok(b"kvm:x:108:\n".to_vec()),
            },
            look: &|path| std::fs::metadata(path).map(|seen| seen.file_type()),
            own: &|_| Ok(()),
            check: &|_| Vec::new(),
        };
        let host = Host { cores: vec![0], base: Some(folder.clone()), ..Host::default() };
        let problems = read_with("f", FABRIC, &host, Some(&outside)).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        let lines: Vec<&str> = problems.lines().collect();
        let relative = "a relative path is relative to the folder of this file";
        assert_eq!(lines.len(), 5, "{problems}");
        assert!(lines[0].starts_with("f:6:10: ") && lines[0].contains("default/taken is there already"));
        assert!(lines[1].starts_with("f:8:9: there is no group \"nobody-of-that-name\"; use a name"));
        assert_eq!(lines[2], format!("f:14:10: there is no no-kernel; {relative}"));
        assert_eq!(lines[3], format!("f:15:11: taken is not a folder; {relative}"));
        assert_eq!(lines[4], format!("f:16:8: . is a folder; {relative}"));
    }

    #[test]
    fn endless_files_are_refused() {
        let folder = std::env::temp_dir().join(format!("ringway-endless-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), FileType::Fifo, mode, 0).unwrap();
        // A sparse file, which uses no disk space.
        std::fs::File::create(folder.join("large")).unwrap().set_len((16 << 20) + 1).unwrap();
        let host = Host { cores: vec![0], ..Host::default() };
        for (file, wrong) in [
            ("/dev/zero", "a device, not a file; name a file with Click's language in it"),
            ("fifo", "a pipe, not a file; name a file with Click's language in it"),
            ("large", "larger than 16777216 bytes; name a file with Click's language in it"),
            ("missing", "No such file or directory (os error 2); it is relative to the folder of this file"),
        ] {
            let text = format!(
                "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nswitch = \"s\"\n\
                 [function.f]\nport = \"a\"\nconfig = \"{file}\"\n"
            );
            let outside = Outside::of_this_host(&folder, &|_| Vec::new());
            let problems = read_with("f", &text, &host, Some(&outside)).unwrap_err().to_string();
            assert_eq!(problems, format!("f:8:10: {file}: {wrong}"));
        }
        let guest = FABRIC.replace("\nowner = \"kvm\"\ngroup = \"nobody-of-that-name\"", "");
        let guest = guest.replace("no-kernel", "/dev/zero").replace("\".\"", "\"fifo\"");
        let outside = Outside::of_this_host(&folder, &|_| Vec::new());
        let problems = read_with("f", &guest, &host, Some(&outside)).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(problems.contains("f:12:10: /dev/zero is not a regular file; name a file"), "{problems}");
        assert!(problems.contains("f:14:8: fifo is not a regular file; name a file"), "{problems}");
    }
}
