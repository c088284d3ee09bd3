//! Guests that can't run, by the real program: what the commands say of them. Programs of this host stand for QEMU.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::{Lab, until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// A fabric with a guest on a port.
pub fn file(port: &str, guest: &str) -> String {
    format!(
        "[switch.main]\n[port.left]\nsocket = \"left.sock\"\nswitch = \"main\"\n{port}\n\
         [guest.left]\nkind = \"qemu\"\nport = \"left\"\n{guest}\n"
    )
}

const CARD: &str = "kind = \"e1000\"\nmodel = \"82540em\"\nmac = \"02:00:00:00:00:01\"";

#[test]
fn a_qemu_without_the_device_for_cards_is_refused_before_anything_starts() {
    // Prints nothing and exits with 0 when it is asked for the device, as QEMU 7 does.
    let lab = Lab::new("guest-lacks", &file(CARD, "program = \"/bin/true\""));
    let lacks = |(code, words): (i32, String)| {
        for part in
            ["guest left: /bin/true", "no device vfio-user-pci", "10.1", "program = ", "newer-qemu.sh"]
        {
            assert!(code == 1 && words.contains(part), "{words}");
        }
    };
    lacks(lab.fails(&["up", "lab.toml"]));
    lacks(lab.fails(&["up", "lab.toml", "--detach"]));
    assert!(!lab.folder.join("run/lab").exists());
    assert!(!lab.log().contains("starting"), "{}", lab.log());

    lab.write(&file(CARD, "program = \"/bin/true\"\nstart = false"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lacks(lab.fails(&["guest", "start", "left"]));
    assert_eq!(lab.json(&["ps"])["guests"][0]["state"], "stopped");
    lab.write(&file(CARD, "program = \"/bin/true\""));
    lacks(lab.fails(&["apply", "lab.toml"]));
    assert_eq!(lab.json(&["guest", "list"])[0]["state"], "stopped", "the fabric is as it was");
    lab.ok(&["down"]);
}

/// Runs the program where KVM counts as tried, so that no kernel is needed for that.
pub fn run(lab: &Lab, words: &[&str]) -> Output {
    let cache = lab.folder.join("cache/ringway");
    std::fs::create_dir_all(&cache).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(cache.join(format!("kvm-{}", boot.trim())), "does not work").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(words).current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    command.env("XDG_CACHE_HOME", lab.folder.join("cache")).output().unwrap()
}

#[test]
fn a_guest_that_ends_at_once_is_reported_with_its_last_lines() {
    let lab = Lab::new("guest-ends", "");
    let program = lab.folder.join("qemu");
    let script = "#!/bin/sh\n\
                  case $* in *--version) echo QEMU emulator version 9.0.1; exit;; esac\n\
                  echo the first line >&2; printf '\\033[31mno such device: x\\n' >&2; exit 3\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(lab.folder.join("modules")).unwrap();
    std::fs::write(lab.folder.join("kernel"), "").unwrap();
    let guest = "program = \"qemu\"\nkernel = \"kernel\"\nmodules = \"modules\"\ninitrd = \"kernel\"";
    lab.write(&file("kind = \"vhost-user\"", guest));

    let up = run(&lab, &["up", "lab.toml", "--detach"]);
    let (out, err) = (String::from_utf8_lossy(&up.stdout), String::from_utf8_lossy(&up.stderr));
    assert!(
        up.status.success() && out.contains("up: fabric lab\n") && out.contains("left: ended\n"),
        "{out}{err}"
    );
    for part in [
        "guest left has ended (exit status: 3)",
        "console.log:\n",
        "\n  the first line\n",
        "no such device: x",
    ] {
        assert!(err.contains(part), "{err}");
    }
    assert!(!err.contains('\u{1b}'), "{err}");
    let ps: Value = lab.json(&["ps"]);
    let (state, reason) = (&ps["guests"][0]["state"], ps["guests"][0]["reason"].as_str().unwrap());
    assert_eq!((state, reason), (&"ended".into(), "exit status: 3: [31mno such device: x"));
    let shown = lab.ok(&["ps"]);
    assert!(shown.contains("GUEST") && shown.contains("exit status: 3: "), "{shown}");
    let (code, words) = lab.fails(&["guest", "wait"]);
    assert!(
        code == 1 && words.contains("guest left has ended") && words.contains("no such device: x"),
        "{words}"
    );
    until("the log has it", || lab.log().contains("no such device: x"));
    assert!(lab.ok(&["guest", "logs", "left"]).starts_with("the first line\n"));
    let last = lab.ok(&["guest", "logs", "left", "--lines", "1"]);
    assert!(last.ends_with("no such device: x\n") && last.lines().count() == 1, "{last}");
    let shown = lab.ok(&["guest", "show", "left"]);
    let state = shown.lines().find(|line| line.starts_with("state ")).unwrap();
    assert!(state.ends_with(" ended") && shown.contains("exit status: 3: "), "{shown}");
    lab.ok(&["down"]);
}

/// A kernel that panics and never ends.
#[cfg(target_arch = "x86_64")]
const SPINNING_KERNEL: &str = r#"
static const char text[] =
  "[    0.5] Kernel panic - not syncing: System is deadlocked on memory\n[    0.6] Call Trace:\n";
void _start(void) {
  long result = 1;
  __asm__ volatile("syscall"
    : "+a"(result) : "D"(2L), "S"(text), "d"(sizeof text - 1) : "rcx", "r11", "memory");
  for (;;) ;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_user_mode_linux_guest_whose_kernel_panicked_and_spins_is_ended() {
    let lab = Lab::new("guest-panics", "");
    let kernel = lab.folder.join("kernel");
    let source = lab.folder.join("kernel.c");
    std::fs::write(&source, SPINNING_KERNEL).unwrap();
    // Its process sees no shell and no library.
    let compiled = Command::new("cc").args(["-static", "-nostdlib", "-o"]).args([&kernel, &source]).status();
    assert!(compiled.unwrap().success());
    std::fs::create_dir(lab.folder.join("modules")).unwrap();
    std::fs::write(lab.folder.join("initrd"), "").unwrap();
    let guest = "kernel = \"kernel\"\nmodules = \"modules\"\ninitrd = \"initrd\"";
    lab.write(&file("kind = \"vhost-user\"", guest).replace("\"qemu\"", "\"uml\""));
    run(&lab, &["up", "lab.toml", "--detach"]);
    let state = || lab.json(&["guest", "list"])[0].clone();
    until("the guest has ended", || state()["state"] == "ended");
    assert_eq!(state()["reason"], "Kernel panic - not syncing: System is deadlocked on memory");
    let (code, words) = lab.fails(&["guest", "wait"]);
    assert!(code == 1 && words.contains("guest left has ended") && words.contains("Call Trace:"), "{words}");
    lab.ok(&["down"]);
}
