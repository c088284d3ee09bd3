//! QEMU: a virtual machine, with KVM if it can run guests, else with its translator (TCG).
use super::facts::{Facts, digest, host_processor};
use super::uncompressed::uncompressed;
use super::{Attachment, Error, Interface, Iommu, Launch, Lease, Spec, confine, image, qmp};
use ringway_host::{OwnFile, check_own_folder, open_own, read_whole};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Output of a guest that only tests whether guest code runs.
const PROBE_ANSWER: &str = "ringway: guest code runs";
const PROBE_BOUND: Duration = Duration::from_secs(8);
/// Time for QEMU to print what it is asked, and the most that is read of it.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
const MOST: u64 = 1 << 20;

/// An IOMMU that forwards the guest's unmappings to vhost-user back-ends. It requires a split irqchip.
const INTEL: [&str; 4] = [
    "-machine",
    "kernel-irqchip=split",
    "-device",
    "intel-iommu,intremap=on,device-iotlb=on,caching-mode=on",
];
/// Devices can't access memory before the guest's driver has set up the IOMMU.
const VIRTIO: [&str; 2] = ["-device", "virtio-iommu-pci,boot-bypass=off"];

/// The translated processor for programs of this host.
const CARRYING: &str = "max,la57=off";

/// QEMU's own seccomp filter after start-up: refuses obsolete calls, privilege changes, other programs, and
/// scheduler settings.
const SANDBOX: [&str; 2] =
    ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"];
/// The console's serial line: descriptor 3, which is standard error too. A pipe can't be truncated, but appended to.
const CONSOLE: [&str; 6] = [
    "-add-fd",
    "fd=3,set=1",
    "-chardev",
    "file,id=console,path=/dev/fdset/1,append=on",
    "-serial",
    "chardev:console",
];

/// The program for a guest, and what it says of its device for cards, if the guest has one.
///
/// # Errors
/// There is no QEMU, or it lacks that device.
pub fn suitable(spec: &Spec) -> Result<(PathBuf, String), Error> {
    let program = spec.program.clone().or_else(|| image::program("qemu-system-x86_64"));
    let program = program.ok_or_else(|| image::Error::Missing("qemu-system-x86".into()))?;
    let is_card = |interface: &Interface| matches!(interface.attachment, Attachment::VfioUser { .. });
    if !spec.interfaces.iter().any(is_card) {
        return Ok((program, String::new()));
    }
    let help = card_help(&program);
    if help.is_empty() {
        let version = release(&program, &[]).map_or("no QEMU".into(), |release| format!("QEMU {release}"));
        return Err(Error::NoVfioUser { name: spec.name.clone(), program, version });
    }
    Ok((program, help))
}

/// What a guest is booted with.
struct Booted {
    program: PathBuf,
    /// What the program says of its device for cards.
    help: String,
    kvm: bool,
    kernel: image::Kernel,
    initrd: PathBuf,
    /// The kernel's command line.
    words: Vec<String>,
}

fn booted(spec: &Spec, folder: &Path, user: Option<&Lease>) -> Result<Booted, Error> {
    let (program, help) = suitable(spec)?;
    let kvm = kvm_works(&program, folder);
    let prepared = |image| if kvm { image } else { uncompressed(image) };
    let (kernel, initrd, mut words) = super::image(spec, folder, "ttyS1", user, prepared)?;
    if let Some(iommu) = spec.iommu {
        let more = (iommu == Iommu::Intel).then_some("intel_iommu=on");
        words.extend(["iommu.strict=1", "iommu.passthrough=0"].into_iter().chain(more).map(String::from));
    }
    Ok(Booted { program, help, kvm, kernel, initrd, words })
}

impl Booted {
    /// What another QEMU must have in common to take the guest over; `macs` are its interfaces' addresses.
    fn facts(&self, spec: &Spec, macs: Vec<String>) -> Result<Facts, Error> {
        let digest = |path: &Path| {
            digest(path).map_err(|source| image::Error::File { path: path.to_path_buf(), source })
        };
        let processor = match self.kvm {
            true => host_processor(),
            false => if spec.carried.is_empty() { "qemu64" } else { CARRYING }.into(),
        };
        Ok(Facts {
            qemu: release(&self.program, &[]).unwrap_or_default(),
            accelerator: if self.kvm { "KVM" } else { "TCG" }.into(),
            processor,
            memory: spec.memory,
            processors: spec.processors,
            kernel: digest(&self.kernel.image)?,
            initrd: digest(&self.initrd)?,
            command_line: self.words.join(" "),
            macs,
        })
    }
}

/// What a guest would be started with here. Its interfaces' addresses are left out, since those that are not configured
/// are chosen at its start. Its initial file system is written to `folder`, and nothing is started.
///
/// # Errors
/// This host lacks what runs it.
pub fn facts(spec: &Spec, folder: &Path) -> Result<Facts, Error> {
    let mut spec = spec.clone();
    confine::resolve(&mut spec);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    std::fs::create_dir_all(&folder).map_err(|source| image::Error::File { path: folder.clone(), source })?;
    let user = confine::user(&spec)?;
    booted(&spec, &folder, user.as_deref())?.facts(&spec, Vec::new())
}

/// The command line. Standard input and output are the agent's serial line, standard error is the console.
pub fn launch(spec: &Spec, folder: &Path, user: Option<&Lease>) -> Result<Launch, Error> {
    let booted = booted(spec, folder, user)?;
    let macs = addresses(spec);
    booted
        .facts(spec, macs.clone())?
        .write(folder)
        .map_err(|source| image::Error::File { path: folder.to_path_buf(), source })?;
    let Booted { program, help, kvm, kernel, initrd, words } = booted;
    let machine_type = spec.arrival.as_ref().map_or("q35", |arrival| &arrival.machine);
    let mut arguments = machine(kvm, machine_type, spec.processors, spec.memory, spec.huge);
    arguments.extend(words_of(match spec.iommu {
        Some(Iommu::Intel) => &INTEL,
        Some(Iommu::Virtio) => &VIRTIO,
        None => &[],
    }));
    if !kvm && !spec.carried.is_empty() {
        // QEMU's default processor is older than the host's programs may require.
        arguments.extend(words_of(&["-cpu", CARRYING]));
    }
    arguments.extend(words_of(&CONSOLE));
    arguments.extend(words_of(&["-chardev", "stdio,id=agent,signal=off", "-serial", "chardev:agent"]));
    arguments.extend(boot(&kernel, &initrd, &words.join(" ")));
    let (version, has_sandbox) = (version(&program, &[]), version(&program, &SANDBOX).is_some());
    match has_sandbox {
        true => arguments.extend(words_of(&SANDBOX)),
        false => tracing::warn!(guest = spec.name, "QEMU has no -sandbox: its system calls are not filtered"),
    }
    let version = version.unwrap_or(0);
    let (sockets, mut names) = (confine::sockets(folder, user)?, Vec::new());
    arguments.extend(qmp::socket(&sockets).iter().flat_map(|socket| qmp::words(socket)));
    if spec.arrival.is_some() {
        // Told to go on, not by itself: only one of the two may run.
        arguments.extend(words_of(&["-S", "-incoming", "defer"]));
    }
    for (index, (interface, mac)) in spec.interfaces.iter().zip(macs).enumerate() {
        let mut interface = Interface { mac: Some(mac).filter(|mac| !mac.is_empty()), ..interface.clone() };
        if spec.iommu.is_some() {
            interface.options.extend(words_of(&["iommu_platform=on", "ats=on"]));
        }
        if let Attachment::VhostUser { socket, listen: true } = &mut interface.attachment {
            let to = sockets.join(index.to_string());
            let failed = |source| Error::Socket { name: spec.name.clone(), source };
            names.push(confine::Named::new(socket, to.clone()).map_err(failed)?);
            *socket = to;
        }
        arguments.extend(network(&format!("net{index}"), &interface, version, &help));
    }
    arguments.extend(spec.words.iter().cloned());
    let (mut reads, links) = system();
    reads.extend(confine::with_libraries(&program));
    // An uninstalled QEMU has its files next to itself.
    reads.extend(program.canonicalize().ok().and_then(|program| Some(program.parent()?.to_path_buf())));
    reads.extend([kernel.image, initrd]);
    let scratch = confine::scratch();
    Ok(Launch {
        program,
        arguments,
        environment: vec![("TMPDIR".into(), scratch.display().to_string())],
        reads,
        links,
        devices: if kvm { vec!["/dev/kvm".into()] } else { Vec::new() },
        scratch,
        preloaded: None,
        sockets: Some(sockets),
        names,
        note: format!("QEMU {version} with {}", if kvm { "KVM" } else { "TCG" }),
    })
}

/// Programs, libraries and QEMU's own files of this host, and the symbolic links to them.
fn system() -> (Vec<PathBuf>, Vec<(PathBuf, PathBuf)>) {
    let (mut reads, mut links) = (vec![PathBuf::from("/usr"), PathBuf::from("/etc/ld.so.cache")], Vec::new());
    for folder in ["/bin", "/lib", "/lib64", "/etc/alternatives"].map(PathBuf::from) {
        match std::fs::read_link(&folder) {
            Ok(to) => links.push((folder, to)),
            Err(_) => reads.push(folder),
        }
    }
    reads.retain(|path| path.exists());
    (reads, links)
}

/// Modules for the virtual machine's devices other than network devices.
pub fn modules(spec: &Spec) -> Option<&'static str> {
    (spec.iommu == Some(Iommu::Virtio)).then_some("virtio_iommu")
}

fn words_of(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Processor, memory (as a memfd that the back-end can map) and no default devices.
fn machine(kvm: bool, kind: &str, processors: u32, memory: u64, huge: Option<u64>) -> Vec<String> {
    let mut words = words_of(&["-nodefaults", "-no-user-config", "-display", "none", "-M", kind]);
    words.extend(words_of(if kvm {
        &["-accel", "kvm", "-cpu", "host"]
    } else {
        &["-accel", "tcg,thread=multi"]
    }));
    words.extend(["-smp".into(), processors.to_string(), "-m".into(), format!("{memory}M")]);
    let pages = huge.map(|size| format!(",hugetlb=on,hugetlbsize={size}K,prealloc=on")).unwrap_or_default();
    let backend = format!("memory-backend-memfd,id=mem,size={memory}M,share=on{pages}");
    words.extend(["-object".into(), backend, "-numa".into(), "node,memdev=mem".into()]);
    words
}

fn boot(kernel: &image::Kernel, initramfs: &Path, words: &str) -> Vec<String> {
    let append = format!("console=ttyS0 panic=-1 {words}");
    let path = |path: &Path| path.display().to_string();
    vec!["-kernel".into(), path(&kernel.image), "-initrd".into(), path(initramfs), "-append".into(), append]
}

/// What this QEMU says of its device for cards over vfio-user; nothing if it has none. A program is asked once, and
/// again when its file has changed.
fn card_help(program: &Path) -> String {
    static SAID: Mutex<BTreeMap<(PathBuf, SystemTime), String>> = Mutex::new(BTreeMap::new());
    let Ok(written) = program.metadata().and_then(|seen| seen.modified()) else { return String::new() };
    // Guests that start at the same time wait for one answer.
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (program.to_path_buf(), written);
    if let Some(help) = said.get(&key) {
        return help.clone();
    }
    // QEMU 7 exits with 0, and prints nothing, for a device that it lacks. What fails may not the next time.
    let help = asked(program, &["-M", "none", "-device", "vfio-user-pci,help"]);
    if let Some(help) = &help {
        said.insert(key, help.clone());
    }
    help.unwrap_or_default()
}

/// What this QEMU prints with these options; `None` if it fails, or does not end: a program that hangs must not stop
/// whoever asks.
fn asked(program: &Path, options: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    // Read meanwhile, so that a full pipe does not stop it.
    let (sender, text) = std::sync::mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if output.take(MOST).read_to_end(&mut bytes).is_ok() {
                // Nobody waits for it after the bound.
                let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            }
        });
    }
    let end = Instant::now() + ANSWER_BOUND;
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    if status.is_none() {
        tracing::warn!("{} {} did not end within {ANSWER_BOUND:?}", program.display(), options.join(" "));
        // The process may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    if status?.success() { text.recv_timeout(ANSWER_BOUND).ok() } else { None }
}

/// Milliseconds that QEMU waits for an answer of a card's port. After its default, five seconds, it gives up the card,
/// and at the first message itself: too early on a machine that boots many guests at once.
const CARD_TIMEOUT_MS: u32 = 60_000;
/// The property for it, which a QEMU may lack.
const CARD_TIMEOUT: &str = "x-msg-timeout";

/// An emulated card. Only JSON describes its socket.
fn card(socket: &Path, help: &str) -> Vec<String> {
    let socket = serde_json::json!({ "type": "unix", "path": socket.display().to_string() });
    let mut device = serde_json::json!({ "driver": "vfio-user-pci", "socket": socket });
    if help.contains(CARD_TIMEOUT) {
        device[CARD_TIMEOUT] = CARD_TIMEOUT_MS.into();
    }
    vec!["-device".into(), device.to_string()]
}

/// `help`: what this QEMU says of its device for cards.
fn network(id: &str, interface: &Interface, version: u32, help: &str) -> Vec<String> {
    let queues = interface.queues;
    let mut words = Vec::new();
    let netdev = match &interface.attachment {
        Attachment::VfioUser { socket, .. } => return card(socket, help),
        Attachment::Tap { interface } => {
            let queues = if queues > 1 { format!(",queues={queues}") } else { String::new() };
            format!("tap,id={id},ifname={interface},script=no,downscript=no,vhost=off{queues}")
        }
        Attachment::VhostUser { socket, listen } => {
            // As client, QEMU reconnects when the back-end was restarted; as server it waits for the
            // back-end.
            let role = match (*listen, version) {
                (true, _) => "server=on",
                (false, ..10) => "reconnect=1",
                (false, _) => "reconnect-ms=1000",
            };
            words.extend(["-chardev".into(), format!("socket,id={id},path={},{role}", socket.display())]);
            format!("vhost-user,id={id},chardev={id},queues={queues}")
        }
    };
    let mut device = match &interface.card {
        Some(card) => format!("{card},netdev={id}"),
        None => format!("virtio-net-pci,netdev={id},disable-legacy=on"),
    };
    if let Some(mac) = &interface.mac {
        device.push_str(&format!(",mac={mac}"));
    }
    if queues > 1 {
        device.push_str(",mq=on");
    }
    // QEMU before 8 stops at an assertion when a guest's driver starts on vhost-user with MSI-X under TCG.
    if version < 8 && interface.card.is_none() {
        device.push_str(",vectors=0");
    } else if queues > 1 {
        device.push_str(&format!(",vectors={}", 2 * queues + 2));
    }
    for option in &interface.options {
        device.push_str(&format!(",{option}"));
    }
    words.extend(["-netdev".into(), netdev, "-device".into(), device]);
    words
}

/// The addresses of a guest's interfaces: those that it arrives with, the configured ones, or random ones, since QEMU
/// would give all its guests the same one.
fn addresses(spec: &Spec) -> Vec<String> {
    let arrived = |index: usize| spec.arrival.as_ref().and_then(|arrival| arrival.macs.get(index).cloned());
    let known = spec.interfaces.iter().enumerate();
    let known = known.map(|(index, one)| arrived(index).or_else(|| one.mac.clone()).or_else(random_mac));
    known.map(Option::unwrap_or_default).collect()
}

/// A MAC address below QEMU's own prefix.
fn random_mac() -> Option<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").ok()?;
    let [a, b, c] = [0..2, 2..4, 4..6].map(|digits| uuid.get(digits));
    Some(format!("52:54:00:{}:{}:{}", a?, b?, c?))
}

/// The version of this QEMU, such as "7.2.22"; `None` if it can't be determined, for example because of an unknown
/// option.
fn release(program: &Path, options: &[&str]) -> Option<String> {
    let text = asked(program, &[options, &["--version"]].concat())?;
    Some(text.split_once("emulator version ")?.1.split_whitespace().next()?.to_string())
}

/// The major version of this QEMU.
fn version(program: &Path, options: &[&str]) -> Option<u32> {
    release(program, options)?.split('.').next()?.parse().ok()
}

/// Whether KVM can run a kernel: `/dev/kvm` may be accessible, but not work. Tested once per boot of the
/// host.
fn kvm_works(program: &Path, folder: &Path) -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        if std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return false;
        }
        if let Some(works) = kvm_known() {
            return works;
        }
        let works = probe(program, folder).unwrap_or(false);
        // If the result can't be stored, it is determined again.
        let _ = std::fs::create_dir_all(image::cache());
        let answer: &[u8] = if works { b"works" } else { b"does not work" };
        let _ = open_kept(OwnFile::Rewrite).and_then(|mut file| file.write_all(answer));
        works
    })
}

/// The file that stores the answer until the host's next boot.
fn kept() -> PathBuf {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    image::cache().join(format!("kvm-{}", boot.trim()))
}

/// Opens that file.
fn open_kept(what: OwnFile) -> std::io::Result<std::fs::File> {
    // Attack: another user's folder, such as in /tmp if there is no home, or another user's file in it.
    check_own_folder(&image::cache())?;
    open_own(&kept(), what, 0o644)
}

/// Whether KVM can run a kernel here, if a guest has tested it since the host's boot.
pub fn kvm_known() -> Option<bool> {
    let file = open_kept(OwnFile::Read).ok()?;
    Some(read_whole(file, 64).ok()? == b"works")
}

/// Boots our kernel under KVM; its first process reports success and stops.
fn probe(program: &Path, folder: &Path) -> Result<bool, Error> {
    let kernel = image::qemu(&[])?;
    let (initrd, console) = (folder.join("probe.cpio"), folder.join("probe.log"));
    image::write(&kernel, &image::More::default(), &initrd)?;
    let mut arguments = machine(true, "q35", 1, 192, None);
    arguments.extend(["-no-reboot".into(), "-serial".into(), format!("file:{}", console.display())]);
    arguments.extend(boot(&kernel, &initrd, "quiet ringway.probe"));
    let start = |source| Error::Start { name: "probe".into(), program: program.to_path_buf(), source };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(start)?;
    let end = Instant::now() + PROBE_BOUND;
    while child.try_wait().map_err(start)?.is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The process may have ended already.
    let _ = child.kill();
    child.wait().map_err(start)?;
    let output = std::fs::read(&console).unwrap_or_default();
    for path in [&initrd, &console] {
        // The files are small, and in the guest's own folder.
        let _ = std::fs::remove_file(path);
    }
    Ok(String::from_utf8_lossy(&output).contains(PROBE_ANSWER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        let attachment = Attachment::VhostUser { socket: "/run/a.sock".into(), listen: false };
        Interface { mac: Some("02:00:00:00:00:01".into()), ..Interface::new(attachment) }
    }

    #[test]
    fn the_qemu_device_depends_on_the_version() {
        let old = network("n", &interface(), 7, "").join(" ");
        assert!(old.contains("socket,id=n,path=/run/a.sock,reconnect=1"), "{old}");
        assert!(old.contains("mac=02:00:00:00:00:01,vectors=0"), "{old}");
        let two = Interface { queues: 2, options: vec!["packed=on".into()], ..interface() };
        let new = network("n", &two, 11, "").join(" ");
        assert!(new.contains("path=/run/a.sock,reconnect-ms=1000"), "{new}");
        assert!(new.contains("queues=2") && new.contains("mq=on,vectors=6,packed=on"), "{new}");
    }

    #[test]
    fn guests_without_a_configured_address_get_different_ones() {
        let plain = Interface { mac: None, ..interface() };
        let mut spec = Spec::new("g", crate::Runner::Qemu, vec![plain, interface()]);
        let (one, other) = (addresses(&spec), addresses(&spec));
        assert!(one[0].starts_with("52:54:00:"), "{one:?}");
        assert!(one[0] != other[0] && one[1] == "02:00:00:00:00:01", "{one:?} {other:?}");
        let macs = vec!["02:00:00:00:00:07".into(), "02:00:00:00:00:08".into()];
        spec.arrival = Some(crate::Arrival { machine: "pc-q35-7.2".into(), macs: macs.clone() });
        assert_eq!(addresses(&spec), macs);
    }

    #[test]
    fn a_card_is_described_by_json() {
        let attachment =
            Attachment::VfioUser { socket: "/run/a \"b\",c.sock".into(), driver: "e1000e".into() };
        let interface = Interface::new(attachment);
        let socket = serde_json::json!({ "type": "unix", "path": "/run/a \"b\",c.sock" });
        let plain = serde_json::json!({ "driver": "vfio-user-pci", "socket": socket });
        let mut patient = plain.clone();
        patient["x-msg-timeout"] = 60_000.into();
        for (help, wanted) in
            [("  addr=<int32>", plain), ("  x-msg-timeout=<uint32> - (default: 5000)", patient)]
        {
            let words = network("n", &interface, 11, help);
            let [option, device] = &words[..] else { panic!("{words:?}") };
            assert_eq!(option, "-device");
            assert_eq!(serde_json::from_str::<serde_json::Value>(device).unwrap(), wanted);
        }
    }

    #[test]
    fn a_program_without_the_device_for_cards_is_refused_only_for_guests_with_cards() {
        let card = Attachment::VfioUser { socket: "/run/a.sock".into(), driver: "e1000".into() };
        let check = |attachment: Attachment, program: &str| {
            let spec = Spec::new("left", crate::Runner::Qemu, vec![Interface::new(attachment)]);
            crate::check(&Spec { program: Some(program.into()), ..spec }).map_err(|error| error.to_string())
        };
        // Prints nothing and exits with 0, as QEMU 7 does when it is asked for the device.
        let why = check(card.clone(), "/bin/true").unwrap_err();
        for part in
            ["guest left: /bin/true (no QEMU) has no device vfio-user-pci", "program = ", "newer-qemu.sh"]
        {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(check(card.clone(), "/bin/true"), Err(why));
        assert_eq!(check(card.clone(), "/bin/echo"), Ok(()));
        assert!(check(card, "/no/program").is_err());
        assert_eq!(check(interface().attachment, "/bin/true"), Ok(()));
    }

    #[test]
    fn a_tap_needs_no_socket() {
        let tap = Interface::new(Attachment::Tap { interface: "t0".into() });
        let words = network("n", &tap, 8, "").join(" ");
        assert!(words.contains("tap,id=n,ifname=t0") && !words.contains("-chardev"), "{words}");
        let card = Interface { card: Some("e1000".into()), mac: Some("02:00:00:00:00:01".into()), ..tap };
        assert!(network("n", &card, 7, "").ends_with(&["e1000,netdev=n,mac=02:00:00:00:00:01".into()]));
    }
}
