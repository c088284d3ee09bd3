use super::*;
use alloc::format;
use proptest::prelude::*;

fn member(name: &str) -> Member<'_> {
    Member { name, ..Member::default() }
}

/// The threads of these elements, some of which have a requested thread.
fn homes(members: &[Member<'_>], connections: &[(usize, usize)], balanced: bool) -> Vec<Option<usize>> {
    let division = Division::new(members, connections.iter().copied(), 3, balanced);
    (0..members.len()).map(|at| division.home(at)).collect()
}

#[test]
fn connected_elements_share_a_thread() {
    let mut members = ["a", "b", "c", "d"].map(member);
    members[1].thread = Some(1);
    members[2].thread = Some(2);
    assert_eq!(homes(&members, &[(0, 1)], false), [Some(1), Some(1), Some(2), Some(0)]);
    assert_eq!(homes(&members, &[(2, 0), (0, 1)], false), [Some(1), Some(1), Some(1), Some(0)]);
    let division = Division::new(&members, [(2, 0), (0, 1)].into_iter(), 3, false);
    assert_eq!(
        (division.strays(), division.others(), division.is_whole()),
        (&[2][..], alloc::vec![1], false)
    );
    assert!(Division::new(&[member("a")], core::iter::empty(), 3, true).is_whole());
}

#[test]
fn mentioned_elements_are_found_as_by_the_router() {
    let texts = [
        ("COUNT_CALL 5 b.reset", true),
        ("\"$(b.count)\", x", true),
        ("'b'", true),
        ("goto b", true),
        ("\"\\x62.count\"", true),
        ("\"\"b\"\"", true),
        ("bb, xb, b_, c/b.count, stop", false),
        ("C/b.count", false),
        ("", false),
    ];
    for (text, joined) in texts {
        let mut members = [member("a"), member("b")];
        (members[0].configuration, members[1].thread) = (text, Some(1));
        let expected = if joined { Some(1) } else { Some(0) };
        assert_eq!(homes(&members, &[], false)[0], expected, "{text}");
    }
    let mut members = ["c/a", "b", "c/b", "c/d/b"].map(member);
    members[0].configuration = "b.count";
    members[2].thread = Some(1);
    assert_eq!(homes(&members, &[], false), [Some(1), Some(0), Some(1), Some(0)]);
    members[0].configuration = "d/b.count";
    assert_eq!(homes(&members, &[], false)[0], Some(0));
}

#[test]
fn elements_with_a_common_resource_share_a_thread() {
    let mut members = ["a", "b", "c"].map(member);
    for (member, key) in members.iter_mut().zip(["port x", "port y", "port x"]) {
        member.shares = Some(key.into());
    }
    members[2].thread = Some(2);
    assert_eq!(homes(&members, &[], false), [Some(2), Some(0), Some(2)]);
}

#[test]
fn router_wide_elements_run_on_the_first_thread() {
    let mut members = ["s", "a", "b", "t", "i"].map(member);
    members[0].reach = Reach::Whole;
    members[0].configuration = "print a.count, print b.count";
    members[3].reach = Reach::Whole;
    members[3].thread = Some(2);
    members[4].reach = Reach::Each;
    members[4].configuration = "a 1, b 2";
    members[2].thread = Some(1);
    // The element is requested on another thread by name, and the script mentions it.
    assert_eq!(homes(&members, &[], true), [Some(0), Some(0), Some(1), Some(0), None]);
    // An element that mentions the script is on the script's thread, whatever is requested.
    members[2].configuration = "s.run";
    let division = Division::new(&members, core::iter::empty(), 3, false);
    assert_eq!(division.home(2), Some(0));
    assert_eq!(division.strays(), [2, 3]);
}

#[test]
fn parts_are_distributed_by_their_driving_elements() {
    let mut members = ["a", "b", "c", "d", "e"].map(member);
    for at in [0, 1, 2, 3] {
        members[at].drives = true;
    }
    let dealt = homes(&members, &[(1, 2)], true);
    assert_eq!(dealt, [Some(1), Some(0), Some(0), Some(2), Some(0)]);
    members[0].thread = Some(0);
    assert_eq!(homes(&members, &[(1, 2)], true), [Some(0), Some(1), Some(1), Some(2), Some(0)]);
}

proptest! {
    /// Connected or mentioned elements are on one thread, and all assigned threads exist.
    #[test]
    fn divisions_never_separate_connected_elements(
        count in 1..12_usize,
        edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..12),
        mentions in prop::collection::vec((0..12_usize, 0..12_usize), 0..6),
        requested in prop::collection::vec((0..12_usize, 0..3_usize), 0..6),
        drives in prop::collection::vec(any::<bool>(), 12),
        balanced: bool,
    ) {
        let names: Vec<String> = (0..count).map(|at| format!("e{at}")).collect();
        let mut texts = alloc::vec![String::new(); count];
        let inside = |&(one, other): &(usize, usize)| one < count && other < count;
        for (by, named) in mentions.iter().copied().filter(inside) {
            texts[by] += &format!(" x {}.count,", names[named]);
        }
        let edges: Vec<(usize, usize)> = edges.into_iter().filter(inside).collect();
        let members: Vec<Member<'_>> = (0..count)
            .map(|at| Member {
                configuration: &texts[at],
                thread: requested.iter().find(|(own, _)| *own == at).map(|(_, thread)| *thread),
                drives: drives[at],
                ..member(&names[at])
            })
            .collect();
        let homes = homes(&members, &edges, balanced);
        for (one, other) in edges.iter().chain(mentions.iter().filter(|pair| inside(pair))) {
            prop_assert_eq!(homes[*one], homes[*other]);
        }
        prop_assert!(homes.iter().all(|home| home.is_some_and(|home| home < 3)));
        // An element without any relation is on its requested thread.
        for (at, member) in members.iter().enumerate().filter(|(_, member)| member.thread.is_some()) {
            let alone = |pairs: &[(usize, usize)]| {
                pairs.iter().filter(|pair| inside(pair)).all(|(one, other)| *one != at && *other != at)
            };
            prop_assert!(!alone(&edges) || !alone(&mentions) || homes[at] == member.thread);
        }
    }
}
