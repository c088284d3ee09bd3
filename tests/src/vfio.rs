//! DPDK's testpmd on vfio in a QEMU guest: a user-space driver behind the guest's IOMMU.
use crate::traffic::Runs;
use ringway_linux_guests::{Guest, Spec, image};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of a command in the guest.
const BOUND: Duration = Duration::from_secs(60);
/// Modules for a user-space driver, in loading order.
const DRIVERS: [&str; 6] =
    ["irqbypass", "vfio", "vfio_virqfd", "vfio_iommu_type1", "vfio_pci_core", "vfio_pci"];
/// DPDK plugins that testpmd loads at its start.
const PLUGINS: [&str; 3] = ["bus_pci", "net_virtio", "mempool_ring"];
/// The library preloaded by `stdbuf`, which makes testpmd flush each line.
const LINES: &str = "/usr/libexec/coreutils/libstdbuf.so";
/// Huge pages of 2 MB that the guest reserves for testpmd.
const PAGES: u32 = 48;
/// The guest's memory in MB.
pub const MEMORY: u32 = 64;

/// Start options.
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    /// Whether testpmd's memory is huge pages of the guest.
    pub huge: bool,
    /// The device's address mode: `"pa"` (physical addresses) or `"va"` (virtual addresses).
    pub addresses: &'static str,
    /// Forwarding mode: `"io"` leaves a frame unchanged, `"macswap"` exchanges its addresses.
    pub mode: &'static str,
}

/// Adds the driver's files to a guest; `false` if testpmd is not installed on this host.
pub fn carry(spec: &mut Spec) -> bool {
    let Some(program) = image::program("dpdk-testpmd") else { return false };
    let Some(loaded) = loaded(&program) else { return false };
    spec.carried.extend([program, LINES.into()].into_iter().chain(loaded));
    spec.drivers.extend(DRIVERS.map(String::from));
    spec.memory = 448;
    spec.processors = 2;
    true
}

/// Files that this host's testpmd loads at run time.
fn loaded(program: &Path) -> Option<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let like = |linked: &str, wanted: &str| {
        let path = text.split_whitespace().find(|word| word.starts_with('/') && word.contains(linked))?;
        Some(PathBuf::from(path.replace(linked, wanted))).filter(|path| path.is_file())
    };
    // The C library loads the last one when a thread is cancelled.
    PLUGINS
        .map(|name| like("bus_pci", name))
        .into_iter()
        .chain([like("libc.so.6", "libgcc_s.so.1")])
        .collect()
}

/// Binds the guest's first `count` network devices to vfio, so that user-space programs can drive them, and
/// reserves huge pages. Fails if vfio would work without an IOMMU.
pub fn bind(guest: &Guest, count: usize) -> Result<Vec<String>, String> {
    let mut devices = Vec::new();
    for index in 0..count {
        let found = ran(guest, &format!("basename $(readlink -f /sys/class/net/eth{index}/device/..)"))?;
        let device = format!("/sys/bus/pci/devices/{found}");
        ran(
            guest,
            &format!("echo vfio-pci >{device}/driver_override && echo {found} >{device}/driver/unbind"),
        )?;
        ran(guest, &format!("echo {found} >/sys/bus/pci/drivers_probe"))?;
        ran(guest, &format!("test -e /dev/vfio/$(basename $(readlink {device}/iommu_group))"))?;
        devices.push(found);
    }
    ran(guest, "! ls /dev/vfio | grep noiommu")?;
    ran(
        guest,
        &format!("echo {PAGES} >/proc/sys/vm/nr_hugepages && grep -q {PAGES} /proc/sys/vm/nr_hugepages"),
    )?;
    ran(guest, "chmod 755 / && mkdir -p /var/run /dev/hugepages && mount -t hugetlbfs huge /dev/hugepages")?;
    Ok(devices)
}

/// A testpmd in a guest that forwards between two of its devices; ended when dropped.
pub struct GuestTestpmd<'g> {
    guest: &'g Guest,
}

impl<'g> GuestTestpmd<'g> {
    /// Starts testpmd on `devices`, named as by [`bind`], and waits until it forwards.
    pub fn start(guest: &'g Guest, devices: &[String], driver: Driver) -> Result<GuestTestpmd<'g>, String> {
        let mut options: String = devices.iter().map(|device| format!("-a {device} ")).collect();
        let plugins = guest.spec().carried.iter().filter(|path| path.to_string_lossy().contains("librte_"));
        options.extend(plugins.map(|path| format!("-d {} ", path.display())));
        let memory = if driver.huge { "--in-memory" } else { "--no-huge" };
        let Driver { addresses, mode, .. } = driver;
        let line = format!(
            "_STDBUF_O=L LD_PRELOAD={LINES} dpdk-testpmd -l 0,1 -m {MEMORY} {memory} --iova-mode={addresses} \
             {options}--no-telemetry -- -i --nb-cores=1 --forward-mode={mode} --total-num-mbufs=4096 \
             --txd=256 --rxd=256 --no-mlockall"
        );
        ran(guest, "rm -f /tmp/typed /tmp/output /tmp/ended && mkfifo /tmp/typed")?;
        // testpmd would end when its input is closed.
        ran(
            guest,
            &format!("({line} <>/tmp/typed >/tmp/output 2>&1; echo $? >/tmp/ended) >/dev/null 2>&1 &"),
        )?;
        let testpmd = GuestTestpmd { guest };
        testpmd.says("testpmd>")?;
        testpmd.types("start")?;
        testpmd.says("packet forwarding - ports=2")?;
        Ok(testpmd)
    }

    /// Quits testpmd, which stops its devices; returns its output, or an error.
    pub fn quit(self) -> Result<String, String> {
        self.types("stop")?;
        self.types("quit")?;
        self.until("test -e /tmp/ended")
            .map_err(|why| format!("testpmd does not end: {why}\n{}", self.output()))?;
        let status = ran(self.guest, "cat /tmp/ended")?;
        if status != "0" {
            return Err(format!("testpmd ends with {status}:\n{}", self.output()));
        }
        Ok(self.output())
    }

    fn types(&self, line: &str) -> Result<(), String> {
        ran(self.guest, &format!("echo {line} >/tmp/typed")).map(drop)
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.guest.run("cat /tmp/output", BOUND).map_or_else(|error| error.to_string(), |output| output.text)
    }

    fn says(&self, words: &str) -> Result<(), String> {
        self.until(&format!("grep -q '{words}' /tmp/output || test -e /tmp/ended"))
            .and_then(|()| ran(self.guest, &format!("grep -q '{words}' /tmp/output")))
            .map(drop)
            .map_err(|why| format!("testpmd does not print {words:?}: {why}\n{}", self.output()))
    }

    /// Waits until a command in the guest succeeds.
    fn until(&self, command: &str) -> Result<(), String> {
        ran(self.guest, &format!("until {command}; do usleep 50000; done")).map(drop)
    }
}

impl Drop for GuestTestpmd<'_> {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.guest.run("killall -9 dpdk-testpmd", BOUND);
    }
}

fn ran(guest: &Guest, command: &str) -> Result<String, String> {
    let output = Runs::run(guest, command, BOUND)?;
    if output.status == 0 {
        return Ok(output.text.trim().to_string());
    }
    Err(format!("{command}: {}: {}", output.status, output.text.trim()))
}
