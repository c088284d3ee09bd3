//! `ringway guest migrate`: asks the guest's fabric to move it, and shows how far it is. `ringway guest receive`: the
//! other end of a migration to another host.

use crate::arguments::{End, Move, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::GUEST;
use crate::text;
use anstream::eprintln;
use ringway_control::api::{MigrationDecision, MigrationEnd, MigrationView, NewMigration};
use ringway_control::{SSH, SshAddress, receive_guest};
use ringway_spec::printable;
use std::time::{Duration, Instant};

/// How often the fabric is asked.
const POLL: Duration = Duration::from_millis(50);
/// Shortest time between two lines of one stage.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Migrates a guest, ends its migration, or decides where it runs.
pub fn migrate(target: &Target, json: bool, arguments: Move) -> Result<(), CommandError> {
    let Move { name, to, bandwidth, cancel, resolve } = arguments;
    let mut client = Client::connect(target)?;
    let path = GUEST.path(&name, "migration")?;
    match to {
        Some(to) => {
            let to = destination(&to)?;
            let new = NewMigration { to, bandwidth: bandwidth.map(|megabytes| megabytes << 20) };
            let begun = client.ask(&GUEST.path(&name, "migrate")?, &new);
            let stays = |why| format!("{why}\nguest {name} runs on as before");
            let _: MigrationView = begun.map_err(|fail: CommandError| fail.map(stays))?;
        }
        None if cancel => {
            client.delete(&path)?;
            // Of one that arrived, there is none.
            if client.get::<MigrationView>(&path).is_err() {
                if !json {
                    println!("cancelled: guest {name} does not arrive");
                }
                return Ok(());
            }
        }
        None => {
            if let Some(end) = resolve {
                let runs_at = match end {
                    End::Source => MigrationEnd::Source,
                    End::Destination => MigrationEnd::Destination,
                };
                let decision = MigrationDecision { runs_at };
                let view: MigrationView = client.ask(&GUEST.path(&name, "migration/resolve")?, &decision)?;
                eprintln!("{}", risk(&view, end));
            }
        }
    }
    let view = watch(&mut client, &path)?;
    if json {
        text::json(&view);
    }
    let said = outcome(&view, cancel, resolve)?;
    if !json {
        println!("{said}");
    }
    Ok(())
}

/// What a decision risks.
fn risk(MigrationView { guest, to, .. }: &MigrationView, end: End) -> String {
    let what = match end {
        End::Source => format!(
            "warning: guest {guest} goes on here; if the fabric of {to} runs it too, it runs twice, with the \
             same addresses and a memory of its own at each place. End it there before that fabric is \
             reached again"
        ),
        End::Destination => format!(
            "warning: guest {guest} is ended here with its memory; if the fabric of {to} does not run \
             it, its state is lost, and `ringway guest start {guest}` boots it anew"
        ),
    };
    printable(&what).into_owned()
}

/// What to say of a migration that has ended.
fn outcome(view: &MigrationView, cancel: bool, resolve: Option<End>) -> Result<String, CommandError> {
    let MigrationView { guest, to, stage, downtime, error, resolved, .. } = view;
    let failed = |why: String| Err(CommandError::Failed(why));
    let said = match (stage.as_str(), resolved.as_str()) {
        ("done", "") if cancel || resolve == Some(End::Source) => {
            return failed(format!("too late: guest {guest} runs in the fabric of {to}"));
        }
        ("done", "") => format!("guest {guest} runs in the fabric of {to}; it was stopped for {downtime} ms"),
        ("done", _) => format!("decided: guest {guest} has ended here, and is the fabric's of {to}"),
        ("cancelled", _) if cancel => format!("cancelled: guest {guest} runs on here"),
        (_, "source") if resolve == Some(End::Source) => format!("decided: guest {guest} runs on here"),
        // The other fabric says so.
        (_, "") if resolve == Some(End::Source) => format!("guest {guest} runs on here, and not in {to}"),
        _ => return failed(format!("guest {guest} was not migrated: {}", printable(error))),
    };
    Ok(said)
}

/// Receives a guest from another host.
pub fn receive(target: &Target) -> Result<(), CommandError> {
    receive_guest(&target.find()?).map_err(|error| CommandError::Failed(format!("the source: {error}")))
}

/// An address of another host, or the absolute path of a control socket.
fn destination(to: &str) -> Result<String, CommandError> {
    if to.starts_with(SSH) {
        return SshAddress::parse(to).map(|address| address.to_string()).map_err(CommandError::because);
    }
    let path = std::path::absolute(to).map_err(CommandError::because)?;
    if !path.exists() {
        let name = path.display();
        return Err(CommandError::NotUp(format!(
            "there is no control socket {name}: name api.sock of the other fabric's run directory, or \
             another host as {SSH}HOST/FABRIC"
        )));
    }
    path.to_str()
        .map(String::from)
        .ok_or_else(|| CommandError::Failed(format!("{}: no UTF-8", path.display())))
}

/// Shows how far a migration is until it has ended.
fn watch(client: &mut Client, path: &str) -> Result<MigrationView, CommandError> {
    let (mut stage, mut at) = (String::new(), Instant::now());
    loop {
        let view: MigrationView = client.get(path)?;
        if matches!(view.stage.as_str(), "done" | "failed" | "cancelled") {
            return Ok(view);
        }
        if view.stage != stage || view.stage == "copying" && at.elapsed() >= LINE_INTERVAL {
            eprintln!("{}", line(&view));
            (stage, at) = (view.stage, Instant::now());
        }
        std::thread::sleep(POLL);
    }
}

/// A line about how far a migration is.
fn line(view: &MigrationView) -> String {
    let MigrationView { guest, to, stage, transferred, remaining, total, rounds, .. } = view;
    let mb = |bytes: &u64| bytes >> 20;
    let what = match stage.as_str() {
        "preparing" => format!("the fabric of {to} prepares it"),
        "copying" => format!(
            "copying memory: {} MB sent, {} of {} MB left, round {rounds}",
            mb(transferred),
            mb(remaining),
            mb(total)
        ),
        "stopping" => "stopped; the rest of its memory is sent".into(),
        "activating" => format!("the fabric of {to} lets it go on"),
        _ => format!(
            "asking the fabric of {to} whether it runs there; until that is known it stands still \
             (--resolve if that fabric is lost for good)"
        ),
    };
    printable(&format!("guest {guest}: {what}")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_told_from_an_answer_that_came_in_time() {
        let said = |stage: &str, resolved: &str, resolve| {
            let view = MigrationView {
                guest: "vm".into(),
                to: "ssh://b".into(),
                stage: stage.into(),
                resolved: resolved.into(),
                error: "gone".into(),
                ..MigrationView::default()
            };
            outcome(&view, false, resolve).map_err(|error| error.to_string())
        };
        let [source, destination] = [End::Source, End::Destination].map(Some);
        assert_eq!(said("failed", "source", source).unwrap(), "decided: guest vm runs on here");
        assert!(
            said("done", "destination", destination).unwrap().starts_with("decided: guest vm has ended here")
        );
        assert!(
            said("done", "", source)
                .unwrap_err()
                .contains("too late: guest vm runs in the fabric of ssh://b")
        );
        assert!(said("failed", "", source).unwrap().contains("and not in ssh://b"));
        assert!(said("failed", "", destination).unwrap_err().contains("was not migrated: gone"));
        assert!(said("done", "", destination).unwrap().contains("runs in the fabric of ssh://b"));
    }

    #[test]
    fn a_line_says_what_happens() {
        let view = |stage: &str| MigrationView {
            guest: "vm".into(),
            to: "/run/b/api.sock".into(),
            stage: stage.into(),
            transferred: 30 << 20,
            remaining: 10 << 20,
            total: 200 << 20,
            rounds: 2,
            ..MigrationView::default()
        };
        assert_eq!(
            line(&view("copying")),
            "guest vm: copying memory: 30 MB sent, 10 of 200 MB left, round 2"
        );
        assert!(line(&view("asking")).contains("it stands still"));
        assert!(risk(&view("asking"), End::Source).contains("it runs twice"));
        assert!(risk(&view("asking"), End::Destination).contains("is ended here with its memory"));
        let none = destination("/no/such.sock");
        assert!(matches!(none, Err(CommandError::NotUp(why)) if why.contains("ssh://HOST")));
        assert_eq!(destination("ssh://b:22/lab").unwrap(), "ssh://b:22/lab");
        assert!(
            matches!(destination("ssh://-b"), Err(CommandError::Failed(why)) if why.contains("no address"))
        );
    }
}
