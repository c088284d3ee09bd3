//! Network cards of this host: on which node they are, and which cores handle their interrupts.

use super::{Finding, Grade, finding};
use std::collections::BTreeSet;
use std::path::Path;

/// A card with message-signalled interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    interface: String,
    /// The NUMA node that it is attached to, if there are several.
    node: Option<usize>,
    /// The cores that handle each of its interrupts.
    interrupts: Vec<Vec<usize>>,
}

/// The first line of a file; empty if there is none.
fn line(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().trim().into()
}

/// Reads `0-3,8,10-11`.
fn cores(text: &str) -> Vec<usize> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().collect()
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The cards whose interrupts `root` names, this host's `/` outside of tests.
fn list(root: &Path) -> Vec<Card> {
    let net = root.join("sys/class/net");
    let card = |interface: String| {
        let device = net.join(&interface).join("device");
        // A virtio device's interrupts are those of the PCI device around it.
        let device =
            [device.clone(), device.join("..")].into_iter().find(|at| at.join("msi_irqs").is_dir())?;
        let interrupts = entries(&device.join("msi_irqs")).into_iter().map(|number| {
            let folder = root.join("proc/irq").join(number);
            let effective = line(folder.join("effective_affinity_list"));
            let permitted = || line(folder.join("smp_affinity_list"));
            cores(&if effective.is_empty() { permitted() } else { effective })
        });
        let interrupts: Vec<Vec<usize>> = interrupts.filter(|cores| !cores.is_empty()).collect();
        let node = line(device.join("numa_node")).parse().ok();
        (!interrupts.is_empty()).then_some(Card { interface, node, interrupts })
    };
    entries(&net).into_iter().filter_map(card).collect()
}

/// The cores of each NUMA node.
fn nodes(root: &Path) -> Vec<Vec<usize>> {
    let folder = root.join("sys/devices/system/node");
    let numbers = (0..).map_while(|number| {
        let list = folder.join(format!("node{number}/cpulist"));
        list.exists().then(|| cores(&line(list)))
    });
    numbers.collect()
}

/// What is found of the cards, and where their interrupts would be better.
pub(super) fn check(root: &Path, allowed: &[usize], isolated: &[usize]) -> Finding {
    judge(&list(root), &nodes(root), allowed, isolated)
}

fn judge(cards: &[Card], nodes: &[Vec<usize>], allowed: &[usize], isolated: &[usize]) -> Finding {
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    for Card { interface, node, interrupts } in cards {
        let used: BTreeSet<usize> = interrupts.iter().flatten().copied().collect();
        let list: Vec<String> = used.iter().map(usize::to_string).collect();
        let place = node.filter(|_| nodes.len() > 1).map_or(String::new(), |node| format!(", node {node}"));
        found.push(format!(
            "{interface}: {} interrupts on cores {}{place}",
            interrupts.len(),
            list.join(",")
        ));
        let near = node.and_then(|node| nodes.get(node)).filter(|_| nodes.len() > 1);
        let far = near.is_some_and(|near| used.iter().any(|core| !near.contains(core)));
        if far {
            advice.push(format!("{interface} interrupts cores of another node than its own"));
        }
        if used.len() == 1 && interrupts.len() > 1 && allowed.len() > 1 {
            advice.push(format!("one core handles all interrupts of {interface}"));
        }
        if used.iter().any(|core| isolated.contains(core)) {
            advice.push(format!("{interface} interrupts isolated cores, which are for workers"));
        }
    }
    let found = if found.is_empty() { "none with interrupts of its own".into() } else { found.join("; ") };
    let text = format!(
        "{}; for ports on that card (kinds xdp and packet), stop irqbalance and give each interrupt a core \
         of the card's node beside the worker's: `echo CORE >/proc/irq/NUMBER/smp_affinity_list`, with the \
         numbers in /sys/class/net/CARD/device/msi_irqs (docs/cards.md)",
        advice.join("; ")
    );
    finding("cards", advice.is_empty(), Grade::Fair, found, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(node: usize, interrupts: &[&[usize]]) -> Card {
        let interrupts = interrupts.iter().map(|cores| cores.to_vec()).collect();
        Card { interface: "eth7".into(), node: Some(node), interrupts }
    }

    #[test]
    fn advice_names_the_card_and_what_is_wrong() {
        let nodes = [vec![0, 1], vec![2, 3]];
        let all = [0, 1, 2, 3];
        let judged = |card: Card, isolated: &[usize]| judge(&[card], &nodes, &all, isolated);
        let good = judged(card(1, &[&[2], &[3]]), &[]);
        assert_eq!((good.grade, good.advice.as_str()), (Grade::Good, ""));
        assert_eq!(good.found, "eth7: 2 interrupts on cores 2,3, node 1");
        for (card, isolated, expected) in [
            (card(0, &[&[2], &[1]]), &[][..], "eth7 interrupts cores of another node"),
            (card(0, &[&[1], &[1]]), &[], "one core handles all interrupts of eth7"),
            (card(0, &[&[0], &[1]]), &[1], "eth7 interrupts isolated cores"),
        ] {
            let finding = judged(card, isolated);
            assert_eq!(finding.grade, Grade::Fair);
            assert!(finding.advice.starts_with(expected), "{finding:?}");
        }
        // Without a second node or a second core there is no better place.
        assert_eq!(judge(&[card(0, &[&[0], &[0]])], &[vec![0]], &[0], &[]).grade, Grade::Good);
        let none = judge(&[], &nodes, &all, &[]);
        assert_eq!((none.grade, none.found.as_str()), (Grade::Good, "none with interrupts of its own"));
    }

    #[test]
    fn cards_and_nodes_are_read_from_the_kernels_files() {
        let root = std::env::temp_dir().join(format!("ringway-cards-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/class/net/eth7/device/msi_irqs/31", "msix\n");
        write("sys/class/net/eth7/device/msi_irqs/32", "msix\n");
        write("sys/class/net/eth7/device/numa_node", "1\n");
        write("sys/class/net/lo/type", "772\n");
        write("proc/irq/31/effective_affinity_list", "2\n");
        write("proc/irq/31/smp_affinity_list", "0-3\n");
        write("proc/irq/32/smp_affinity_list", "0,2-3\n");
        write("sys/devices/system/node/node0/cpulist", "0-1\n");
        write("sys/devices/system/node/node1/cpulist", "2-3\n");
        let (cards, found) = (list(&root), nodes(&root));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(cards, [card(1, &[&[2], &[0, 2, 3]])]);
        assert_eq!(found, [[0, 1], [2, 3]]);
    }
}
