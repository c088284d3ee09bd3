//! User-Mode Linux: a kernel that is an ordinary program, needs no virtualization and boots in a second.
use super::{Attachment, Error, Launch, Lease, Spec, confine};
use ringway_host::uml_needs_ptrace_library;
use std::path::Path;

/// The command line. Standard input and output are the agent's serial line, standard error is the console.
pub fn launch(spec: &Spec, folder: &Path, user: Option<&Lease>) -> Result<Launch, Error> {
    let (kernel, initrd, words) = super::image(spec, folder, "ttyS0", user, |image| image)?;
    let scratch = confine::scratch();
    let mut arguments: Vec<String> = vec![
        format!("mem={}M", spec.memory),
        format!("initrd={}", initrd.display()),
        format!("umid={}", spec.name),
        format!("uml_dir={}", scratch.display()),
        "con=null".into(),
        "con0=null,fd:2".into(),
        "ssl=null".into(),
        "ssl0=fd:0,fd:1".into(),
        "console=tty0".into(),
        // A panic ends the process instead of waiting.
        "panic=-1".into(),
    ];
    for (index, interface) in spec.interfaces.iter().enumerate() {
        match &interface.attachment {
            // User-Mode Linux can only connect, so the port must listen.
            Attachment::VhostUser { listen: true, .. } => return Err(Error::CannotListen(spec.name.clone())),
            Attachment::VfioUser { .. } => return Err(Error::NoCards(spec.name.clone())),
            Attachment::VhostUser { socket, .. } => {
                arguments.push(format!("virtio_uml.device={}:1", socket.display()));
            }
            Attachment::Tap { interface } => {
                arguments.push(format!("vec{index}:transport=tap,ifname={interface},depth=128,gro=1"));
            }
        }
    }
    arguments.extend(words);
    // The guest's memory is a file, which must be shareable and not on a disk.
    let mut environment = vec![("TMPDIR".to_string(), scratch.display().to_string())];
    let preloaded = uml_needs_ptrace_library().then(|| scratch.join("ptrace.so"));
    environment.extend(preloaded.iter().map(|path| ("LD_PRELOAD".into(), path.display().to_string())));
    let mut reads = confine::with_libraries(&kernel.image);
    // /proc/cpuinfo is read for processor features.
    reads.extend([initrd, "/proc/cpuinfo".into()]);
    Ok(Launch {
        program: kernel.image,
        arguments,
        environment,
        reads,
        links: Vec::new(),
        devices: Vec::new(),
        scratch,
        preloaded,
        sockets: None,
        names: Vec::new(),
        note: "User-Mode Linux".into(),
    })
}
