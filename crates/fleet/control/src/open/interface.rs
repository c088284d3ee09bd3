//! Ports on interfaces that the host has already: opens each, tells `data` and people what changes, and opens it again
//! when it is gone.

use super::{EngineHandle, PAUSE, Watched};
use ringway_host::{InterfaceWatch, NetworkInterface, on_node};
use ringway_port::interface_open::{
    InterfaceError, InterfaceName, OpenedInterface, adopt_interface, state_of,
};
use std::io;
use std::sync::Arc;

/// How an interface is opened.
pub type Open = Arc<dyn Fn() -> Result<OpenedInterface, InterfaceError> + Send + Sync>;

/// What a change of an interface means for its port.
enum Verdict {
    /// `data` goes on; what happened, for people.
    Goes(Vec<String>),
    /// It must be opened again.
    Again(String),
}

/// What differs between two states of an interface. `is_other`: it has other addresses, with which what was opened fits
/// no longer; `by_mtu`: nor does it with another MTU.
fn compare(
    before: &NetworkInterface,
    now: Option<&NetworkInterface>,
    is_other: bool,
    by_mtu: bool,
) -> Verdict {
    let name = &before.name;
    let Some(now) = now else {
        return Verdict::Again(format!("interface {name} is gone; the port goes on when it is there again"));
    };
    if is_other {
        return Verdict::Again(format!("interface {name} has other addresses"));
    }
    let mut said = Vec::new();
    if now.name != *name {
        said.push(format!("interface {name} is called {} now; the port goes on with it", now.name));
    }
    match (before.has_carrier, now.has_carrier) {
        (true, false) if !now.is_up => said.push(format!("interface {} is down", now.name)),
        (true, false) => said.push(format!("interface {} has no carrier", now.name)),
        (false, true) => said.push(format!("interface {} has its carrier again", now.name)),
        _ => {}
    }
    if before.mtu != now.mtu {
        let text = format!("interface {} has MTU {} now, before {}", now.name, now.mtu, before.mtu);
        if by_mtu {
            return Verdict::Again(text);
        }
        said.push(text);
    }
    Verdict::Goes(said)
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, InterfaceError> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(run).await;
    done.map_err(io::Error::other).and_then(|done| done.map_err(io::Error::other))
}

/// How a kind goes on with its interfaces.
#[derive(Clone, Copy)]
pub struct Conduct {
    /// Whether a restarted `data` goes on with the same descriptors.
    pub keep: bool,
    /// Whether the interface is opened again when its Ethernet or IP addresses change.
    pub by_addresses: bool,
    /// Whether it is opened again when its MTU changes.
    pub by_mtu: bool,
}

/// Opens the interface, and opens it again whenever it is gone.
pub async fn keep(mut engine: EngineHandle, wanted: InterfaceName, conduct: Conduct, open: Open) {
    let mut adopted = match engine.adopted_descriptor(0) {
        Some(page) => adopt(&wanted, page).await,
        None => None,
    };
    if adopted.is_none() && engine.has_peer() {
        engine.left("the interface is opened again");
        engine.wait().await;
    }
    loop {
        let mut opened = match adopted.take() {
            Some(opened) => opened,
            None => {
                let (open, node) = (open.clone(), engine.node());
                match blocking(move || on_node(node, || open())).await {
                    Ok(mut opened) => {
                        engine.arrived(std::mem::take(&mut opened.descriptors), conduct.keep);
                        opened
                    }
                    Err(error) => {
                        engine.report(error).await;
                        continue;
                    }
                }
            }
        };
        // Dropped when the interface is given up: it detaches what was attached to it.
        let _held = match opened.finish.take() {
            None => None,
            Some(finish) => {
                let page = opened.page.clone();
                match blocking(move || finish(&page)).await {
                    Ok(held) => Some(held),
                    Err(error) => {
                        engine.left(&error.to_string());
                        engine.wait().await;
                        engine.report(error).await;
                        continue;
                    }
                }
            }
        };
        let reason = follow(&mut engine, opened, conduct).await;
        if let Some(reason) = reason {
            engine.left(&reason);
            engine.wait().await;
        }
        // An interface that comes and goes must not keep this task busy.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Goes on with the interface of a former `control`.
async fn adopt(wanted: &InterfaceName, page: std::os::fd::OwnedFd) -> Option<OpenedInterface> {
    let wanted = wanted.clone();
    let adopted = blocking(move || adopt_interface(&wanted, &page)).await;
    adopted.inspect_err(|error| tracing::info!(%error, "the interface is opened again")).ok()
}

/// Follows an interface until `data` has detached it (`None`), or it must be opened again.
async fn follow(engine: &mut EngineHandle, opened: OpenedInterface, conduct: Conduct) -> Option<String> {
    let OpenedInterface { page, watch, mut interface, .. } = opened;
    let addresses = |watch: &InterfaceWatch| watch.addresses(interface.index).unwrap_or_default();
    let first = addresses(&watch);
    let index = interface.index;
    let mut watch = match Watched::new(watch) {
        Ok(watch) => watch,
        Err(error) => return Some(error.to_string()),
    };
    loop {
        let look = watch.until(|watch: &mut InterfaceWatch| {
            if !watch.drain() {
                return Ok(None);
            }
            let now = watch.by_index(index).map_err(io::Error::other)?;
            let others = watch.addresses(index).unwrap_or_default();
            Ok(Some((now, others)))
        });
        let (now, others) = tokio::select! {
            () = engine.wait() => return None,
            seen = look => match seen {
                Ok(seen) => seen,
                Err(error) => return Some(error.to_string()),
            },
        };
        let is_other = now.as_ref().is_some_and(|now| now.mac != interface.mac) || others != first;
        match compare(&interface, now.as_ref(), conduct.by_addresses && is_other, conduct.by_mtu) {
            Verdict::Again(reason) => return Some(reason),
            Verdict::Goes(said) => said.into_iter().for_each(|text| engine.note(text)),
        }
        if let Some(now) = now {
            page.set(&state_of(&now, &page.get()));
            interface = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(change: impl FnOnce(&mut NetworkInterface)) -> Vec<String> {
        let before = NetworkInterface {
            name: "eth0".into(),
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            ..NetworkInterface::default()
        };
        let mut now = before.clone();
        change(&mut now);
        match compare(&before, Some(&now), false, false) {
            Verdict::Goes(said) => said,
            Verdict::Again(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn each_change_is_said() {
        assert!(said(|_| ()).is_empty());
        assert_eq!(said(|now| now.mtu = 9000), ["interface eth0 has MTU 9000 now, before 1500"]);
        assert_eq!(said(|now| now.has_carrier = false), ["interface eth0 has no carrier"]);
        let down = said(|now| (now.has_carrier, now.is_up) = (false, false));
        assert_eq!(down, ["interface eth0 is down"]);
        let renamed = said(|now| now.name = "wan".into());
        assert_eq!(renamed, ["interface eth0 is called wan now; the port goes on with it"]);
    }

    #[test]
    fn an_interface_that_is_gone_is_opened_again() {
        let before = NetworkInterface { name: "eth0".into(), ..NetworkInterface::default() };
        assert!(
            matches!(compare(&before, None, false, false), Verdict::Again(why) if why.contains("is gone"))
        );
        assert!(matches!(compare(&before, Some(&before), true, false), Verdict::Again(_)));
        let longer = NetworkInterface { mtu: 9000, ..before.clone() };
        let verdict = compare(&before, Some(&longer), false, true);
        assert!(matches!(verdict, Verdict::Again(why) if why.contains("MTU 9000")));
    }
}
