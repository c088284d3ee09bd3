//! `ringway doctor`: checks this host, and gives advice.

mod cards;

use crate::command_error::CommandError;
use crate::text::{self, Table, cell};
use anstyle::Style;
use ringway_host::jail::{ControlGroup, Fence, Limits, can_change_user, fence};
use ringway_host::{Access, Machine, kvm};
use ringway_linux_guests::kvm_known;
use serde::Serialize;
use std::path::Path;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    /// The host is as it should be.
    Good,
    /// Ringway works, but could work better, or some kinds of port do not work.
    Fair,
    /// Ringway doesn't work.
    Bad,
}

impl Grade {
    fn style(self) -> Style {
        match self {
            Grade::Good => text::GOOD,
            Grade::Fair => text::FAIR,
            Grade::Bad => text::BAD,
        }
    }
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    grade: Grade,
    /// What was found on the host.
    found: String,
    /// What the finding means and what to do; empty if nothing needs to be done.
    advice: String,
}

/// File descriptors that a fabric of 1024 ports needs: sockets, memory, kicks and calls of each port.
const DESCRIPTORS: u64 = 16_384;

/// Checks this host.
pub fn doctor(json: bool) -> Result<(), CommandError> {
    let findings = examine(&Machine::gather());
    if json {
        text::json(&findings);
    } else {
        let mut table = Table::new(&["", "WHAT", "FOUND"]);
        for finding in &findings {
            let mark = match finding.grade {
                Grade::Good => "good",
                Grade::Fair => "fair",
                Grade::Bad => "bad",
            };
            table.row(vec![(mark.into(), finding.grade.style()), cell(finding.what), cell(&finding.found)]);
        }
        table.print();
        for finding in findings.iter().filter(|finding| !finding.advice.is_empty()) {
            let style = finding.grade.style();
            println!("\n{style}{}:{style:#} {}", finding.what, finding.advice);
        }
    }
    match findings.iter().find(|finding| finding.grade == Grade::Bad) {
        Some(bad) => Err(CommandError::Failed(format!("Ringway does not work on this host: {}", bad.what))),
        None => Ok(()),
    }
}

fn finding(what: &'static str, good: bool, otherwise: Grade, found: impl ToString, advice: &str) -> Finding {
    let grade = if good { Grade::Good } else { otherwise };
    let advice = if good { String::new() } else { advice.into() };
    Finding { what, grade, found: found.to_string(), advice }
}

fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![cores(machine), isolation(machine), huge_pages(machine), descriptors(machine)];
    findings.extend(kernel(machine));
    findings.push(tun(machine));
    findings.push(cards::check(Path::new("/"), &machine.cores.allowed, &machine.cores.isolated));
    let made = kvm::Machine::new().map(drop).map_err(|error| error.to_string());
    findings.push(virtualization(machine.kvm, &made, kvm_known()));
    let limits = Limits { memory: 64 << 20, threads: 1 };
    let bounded = ControlGroup::new(limits).map(drop).map_err(|error| error.to_string());
    findings.extend(guests(fence(), can_change_user(), &bounded));
    findings
}

fn cores(machine: &Machine) -> Finding {
    let found = format!("{} of {} cores allowed", machine.cores.allowed.len(), machine.cores.online.len());
    let advice = "a worker that polls needs a core of its own beside those of guests; allow more cores \
                  (taskset, cpuset)";
    finding("cores", machine.cores.allowed.len() >= 2, Grade::Fair, found, advice)
}

fn isolation(machine: &Machine) -> Finding {
    let isolated = machine.cores.isolated.len();
    let advice = "other programs may run on a worker's core, which costs its slowest frames time; boot with \
                  isolcpus= and nohz_full= for the cores that [worker] tables name";
    let found = format!("{isolated} isolated, {} without ticks", machine.cores.tickless.len());
    finding("isolation", isolated > 0, Grade::Fair, found, advice)
}

fn huge_pages(machine: &Machine) -> Finding {
    let sizes: Vec<String> = machine
        .huge_pages
        .iter()
        .map(|pages| format!("{} of {} pages of {} MB free", pages.free, pages.total, pages.size >> 20))
        .collect();
    let found = if sizes.is_empty() { "none".into() } else { sizes.join(", ") };
    let advice = "memory of guests and rings has ordinary pages, and large working sets are slower; \
                  get 2 MB pages with `sysctl vm.nr_hugepages=512`";
    finding("huge pages", machine.huge_pages.iter().any(|pages| pages.free > 0), Grade::Fair, found, advice)
}

fn descriptors(machine: &Machine) -> Finding {
    let limit = machine.nofile.soft;
    let found = limit.map_or("no limit".into(), |limit| limit.to_string());
    let hard = machine.nofile.hard.map_or("unlimited".into(), |hard| hard.to_string());
    let advice = format!(
        "too few for a fabric of 1024 ports; `ulimit -n {DESCRIPTORS}` before `ringway up` \
         (the hard limit is {hard})"
    );
    finding("open files", limit.is_none_or(|limit| limit >= DESCRIPTORS), Grade::Fair, found, &advice)
}

fn kernel(machine: &Machine) -> Vec<Finding> {
    let has = |has: bool| if has { "yes" } else { "no" };
    let no_filter =
        "the data path would run unconfined, and so it doesn't run; use a kernel with CONFIG_SECCOMP_FILTER";
    let landlock = match machine.landlock {
        0 => "no".to_string(),
        version => format!("version {version}"),
    };
    vec![
        finding("kernel", true, Grade::Good, &machine.kernel, ""),
        finding("seccomp", machine.seccomp, Grade::Bad, has(machine.seccomp), no_filter),
        finding(
            "landlock",
            machine.landlock > 0,
            Grade::Fair,
            landlock,
            "the data path is confined by its filter of system calls alone; boot with lsm=landlock,...",
        ),
        finding(
            "asynchronous I/O",
            machine.aio,
            Grade::Fair,
            format!("{} of {} requests taken", machine.aio_requests.0, machine.aio_requests.1),
            "peers' eventfds are signalled by a thread each, which is slower; allow more with \
             `sysctl fs.aio-max-nr=1048576`, or use a kernel with CONFIG_AIO",
        ),
        finding(
            "membarrier",
            machine.membarrier,
            Grade::Fair,
            has(machine.membarrier),
            "changes to a running fabric wait longer for its workers; use a kernel with CONFIG_MEMBARRIER",
        ),
        finding(
            "steady ticks",
            machine.ticks,
            Grade::Fair,
            has(machine.ticks),
            "the processor's counter is no clock here, and telling the time costs a system call",
        ),
    ]
}

fn describe(access: Access) -> &'static str {
    match access {
        Access::Usable => "usable",
        Access::Missing => "missing",
        Access::Denied => "no permission",
        Access::Broken => "does not work",
    }
}

fn tun(machine: &Machine) -> Finding {
    let found = if machine.tun == Access::Usable && !machine.net_admin {
        "usable, but interfaces can't be made"
    } else {
        describe(machine.tun)
    };
    finding(
        "/dev/net/tun",
        machine.tun == Access::Usable && machine.net_admin,
        Grade::Fair,
        found,
        "tap ports don't work; run as root or with CAP_NET_ADMIN, \
         and `modprobe tun` if the file is missing",
    )
}

/// What needs `/dev/kvm`, and what does not.
const WITHOUT_KVM: &str = "only tiny VMs need it: functions with isolation = \"vm\", and programs of \
                           `ringway tiny`. All else works without it; QEMU guests are slower then";

/// KVM: the access to its file, the result of making a virtual machine, and whether a guest's kernel has booted.
fn virtualization(access: Access, made: &Result<(), String>, boots: Option<bool>) -> Finding {
    let (found, advice): (String, String) = match (access, made, boots) {
        (Access::Usable, Ok(()), Some(false)) => (
            "tiny VMs work; Linux guests don't boot".into(),
            "QEMU guests run without it, which is slower; tiny VMs are not affected. This is usual where a \
             hypervisor offers it without hardware support: enable nested virtualization in that hypervisor"
                .into(),
        ),
        (Access::Usable, Ok(()), boots) => {
            let boots = boots.map_or("", |_| ", and Linux guests boot");
            (format!("a virtual machine can be made{boots}"), String::new())
        }
        (Access::Usable, Err(error), _) => (
            format!("opens, but no virtual machine can be made: {error}"),
            format!(
                "{WITHOUT_KVM}. To use it: end other hypervisors, which may hold the processor, and see \
                 what the kernel says (`dmesg | grep -i kvm`)"
            ),
        ),
        (Access::Missing, ..) => (
            describe(access).into(),
            format!(
                "{WITHOUT_KVM}. To have it: enable virtualization in the firmware, or nested \
                 virtualization in the hypervisor of this host, and `modprobe kvm_intel` or `kvm_amd`; \
                 a container needs --device=/dev/kvm"
            ),
        ),
        (Access::Denied, ..) => (
            describe(access).into(),
            format!("{WITHOUT_KVM}. To use it: `usermod -aG kvm USER`, and log in again"),
        ),
        (Access::Broken, ..) => (
            describe(access).into(),
            format!("{WITHOUT_KVM}. To use it: run a kernel with CONFIG_KVM, and see `dmesg | grep -i kvm`"),
        ),
    };
    finding("/dev/kvm", advice.is_empty(), Grade::Fair, found, &advice)
}

/// The confinement that is available for guests.
fn guests(fence: Fence, own_user: bool, bounded: &Result<(), String>) -> [Finding; 2] {
    let found = match (fence, own_user) {
        (Fence::Namespaces, true) => "a user and namespaces of its own for each",
        (Fence::Namespaces, false) => "namespaces of its own for each",
        (Fence::Landlock, true) => "a user of its own for each, and landlock",
        (Fence::Landlock, false) => "landlock",
        (Fence::None, _) => "nothing",
    };
    let memory = match bounded {
        Ok(()) => "each guest has a control group".to_string(),
        Err(error) => format!("no control group can be made: {error}"),
    };
    [
        finding(
            "guests' confinement",
            fence == Fence::Namespaces,
            Grade::Fair,
            found,
            "a guest that takes over what runs it reaches more of this host; User-Mode Linux guests do not \
             start without namespaces, unless as users of their own; run as root, or allow user \
             namespaces (sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns)",
        ),
        finding(
            "guests' memory",
            bounded.is_ok(),
            Grade::Fair,
            memory,
            "NOTHING BOUNDS what a guest takes of this host's memory; run where control groups with the \
             memory controller can be made: as root, or by `systemd-run --user`",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_finding_has_advice() {
        let mut machine = Machine::gather();
        machine.seccomp = false;
        machine.huge_pages.clear();
        machine.nofile.soft = Some(1024);
        machine.kvm = Access::Denied;
        let findings = examine(&machine);
        for finding in &findings {
            assert_eq!(finding.grade == Grade::Good, finding.advice.is_empty(), "{finding:?}");
        }
        let bad: Vec<&str> = findings.iter().filter(|f| f.grade == Grade::Bad).map(|f| f.what).collect();
        assert_eq!(bad, ["seccomp"]);
        let [fenced, bounded] = guests(Fence::Landlock, true, &Err("read-only".into()));
        assert!(fenced.found.contains("landlock") && !fenced.advice.is_empty());
        assert!(bounded.found.contains("read-only") && bounded.advice.contains("NOTHING BOUNDS"));
        let [fenced, bounded] = guests(Fence::Namespaces, false, &Ok(()));
        assert_eq!((fenced.grade, bounded.grade), (Grade::Good, Grade::Good));
        let kvm = findings.iter().find(|finding| finding.what == "/dev/kvm").unwrap();
        assert_eq!((kvm.grade, kvm.found.as_str()), (Grade::Fair, "no permission"));
    }

    #[test]
    fn advice_about_kvm_says_what_needs_it() {
        let (usable, no) = (Access::Usable, Err("KVM_CREATE_VM: busy".to_string()));
        let good = virtualization(usable, &Ok(()), None);
        assert_eq!((good.grade, good.found.as_str()), (Grade::Good, "a virtual machine can be made"));
        assert!(virtualization(usable, &Ok(()), Some(true)).found.contains("Linux guests boot"));
        let nested = virtualization(usable, &Ok(()), Some(false));
        assert!(nested.found.contains("tiny VMs work") && nested.advice.contains("nested"), "{nested:?}");
        let busy = virtualization(usable, &no, None);
        assert!(busy.found.contains("KVM_CREATE_VM: busy"), "{busy:?}");
        for (access, remedy) in
            [(Access::Missing, "modprobe"), (Access::Denied, "usermod"), (Access::Broken, "CONFIG_KVM")]
        {
            let found = virtualization(access, &no, None);
            assert_eq!(found.grade, Grade::Fair, "nobody needs it for anything else");
            assert!(
                found.advice.starts_with("only tiny VMs need it") && found.advice.contains(remedy),
                "{found:?}"
            );
        }
    }
}
