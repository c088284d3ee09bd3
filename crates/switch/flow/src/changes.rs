//! Texts of changes: one a line, in the words of `ovs-ofctl`'s files of flows and of its bundles.

use crate::Ports;
use crate::flow::{FlowFilter, FlowMod};
use crate::group::{Group, LARGEST as LARGEST_GROUP};
use crate::meter::{LARGEST as LARGEST_METER, MeterMod};
use crate::rules::{FileError, LONGEST_FILE};
use crate::tables::{Change, FLOWS};
use crate::text::{FlowError, Piece};

/// The commands that a line may begin with; one without is `flow add`.
pub const COMMANDS: [&str; 11] = [
    "flow add",
    "flow modify",
    "flow modify_strict",
    "flow delete",
    "flow delete_strict",
    "group add",
    "group modify",
    "group delete",
    "meter add",
    "meter modify",
    "meter delete",
];

/// Changes, and the lines that they are read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changes, in their order.
    pub changes: Vec<Change>,
    lines: Vec<usize>,
}

impl Changes {
    /// Reads changes: each line is a command of [`COMMANDS`] and what it takes; `flow` and `add` may be left out, `#`
    /// begins a comment. If `command` is one, it is that of all lines, which then have none.
    ///
    /// # Errors
    /// A line is wrong.
    pub fn read(text: &str, command: Option<&str>, ports: &dyn Ports) -> Result<Changes, FileError> {
        let mut read = Changes::default();
        if text.len() > LONGEST_FILE {
            let error = FlowError::new(1, format!("changes have more than {LONGEST_FILE} bytes"));
            return Err(FileError { line: 1, error });
        }
        for (number, line) in (1..).zip(text.lines()) {
            let piece = Piece::new(line.split('#').next().unwrap_or_default()).trim();
            if piece.text.is_empty() {
                continue;
            }
            let wrong = |error| FileError { line: number, error };
            if read.changes.len() >= FLOWS {
                return Err(wrong(FlowError::new(1, format!("there are at most {FLOWS} changes at once"))));
            }
            read.changes.push(change(piece, command, ports).map_err(wrong)?);
            read.lines.push(number);
        }
        // A filter may be empty: it means all flows.
        if text.is_empty() && command.is_some() {
            let change = change(Piece::new(""), command, ports);
            read.changes.push(change.map_err(|error| FileError { line: 1, error })?);
            read.lines.push(1);
        }
        Ok(read)
    }

    /// The line of the change of this number.
    pub fn line(&self, number: usize) -> usize {
        self.lines.get(number).copied().unwrap_or(1)
    }
}

/// The first word of a piece, if it is one of these, and what is behind it.
fn word<'t>(piece: Piece<'t>, words: &[&'static str]) -> (Option<&'static str>, Piece<'t>) {
    let end = piece.text.find(char::is_whitespace).unwrap_or(piece.text.len());
    let (first, rest) = piece.split_at(end);
    match words.iter().find(|word| **word == first.text) {
        Some(word) => (Some(word), rest.trim()),
        None => (None, piece),
    }
}

/// The command with which a piece begins, whose words are `flow` and `add` if they are left out, and what is behind it.
fn command_of(piece: Piece<'_>) -> ((&'static str, &'static str), Piece<'_>) {
    let (noun, rest) = word(piece, &["flow", "group", "meter"]);
    let (verb, rest) = word(rest, &["add", "modify", "modify_strict", "delete", "delete_strict"]);
    ((noun.unwrap_or("flow"), verb.unwrap_or("add")), rest)
}

fn change(line: Piece<'_>, command: Option<&str>, ports: &dyn Ports) -> Result<Change, FlowError> {
    let (command, rest) = match command {
        Some(command) => (command_of(Piece::new(command)).0, line),
        None => command_of(line),
    };
    let text = rest.text;
    // Columns are those of the line.
    let moved = |error: FlowError| FlowError { column: error.column + rest.column - 1, ..error };
    let change = match command {
        ("flow", "add") => FlowMod::read(text, ports).map(Change::Add),
        ("flow", verb @ ("modify" | "modify_strict")) => {
            let read = FlowMod::read_mod(text, verb == "modify_strict", ports);
            read.map(|read| Change::Modify(Box::new(read)))
        }
        ("flow", verb) => FlowFilter::read(text, verb == "delete_strict", ports).map(Change::Delete),
        ("group", "add") => Group::read(text, ports).map(Change::AddGroup),
        ("group", "modify") => Group::read(text, ports).map(Change::ModifyGroup),
        ("group", "delete") => id(text, "group_id", LARGEST_GROUP).map(Change::DeleteGroup),
        ("meter", "add") => MeterMod::read(text).map(Change::AddMeter),
        ("meter", "modify") => MeterMod::read(text).map(Change::ModifyMeter),
        ("meter", "delete") => id(text, "meter", LARGEST_METER).map(Change::DeleteMeter),
        (noun, verb) => {
            return Err(line.error(format!("there is no `{noun} {verb}`; write {}", COMMANDS.join(", "))));
        }
    };
    change.map_err(moved)
}

/// The number of what is deleted; none: all are.
fn id(text: &str, name: &str, largest: u32) -> Result<Option<u32>, FlowError> {
    let piece = Piece::new(text);
    if text.is_empty() {
        return Ok(None);
    }
    match piece.split_once("=") {
        Some((own, value)) if own.text == name && value.text == "all" => Ok(None),
        Some((own, value)) if own.text == name => {
            value.number(u64::from(largest)).map(|number| Some(number as u32))
        }
        _ => Err(piece.error(format!("`{}` is no {name}=NUMBER", piece.shown()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;
    use crate::tables::Tables;

    fn read(text: &str, command: Option<&str>) -> Result<Changes, FileError> {
        Changes::read(text, command, &Numbers)
    }

    #[test]
    fn lines_are_commands_as_those_of_a_bundle() {
        let text = "# a comment\nmeter add meter=1,pktps,bands=type=drop,rate=5\n\
            group add group_id=7,type=all,bucket=output:1\n\npriority=5,ip,actions=group:7 # one\n\
            flow add arp,actions=flood\nadd udp,actions=meter:1,output:2\n\
            flow modify udp,actions=drop\nmodify_strict arp,actions=drop\ndelete tcp\n\
            flow delete_strict arp\nmeter delete meter=1\ngroup delete";
        let all = read(text, None).unwrap();
        assert_eq!((all.changes.len(), all.line(0), all.line(3), all.line(10)), (11, 2, 6, 13));
        let mut tables = Tables::new(1);
        assert!(tables.apply(&all.changes, 1).is_ok());
        // The group's removal takes the flow that uses it.
        let left: Vec<_> = tables.current().flows().map(|flow| flow.flow.show(&Numbers)).collect();
        assert_eq!(left, ["cookie=0x0,table=0,udp actions=drop"]);
    }

    #[test]
    fn a_command_may_be_that_of_all_lines() {
        let one = read("", Some("flow delete")).unwrap();
        assert_eq!(one.changes, [Change::Delete(FlowFilter::default())]);
        let two = read("tcp\nudp\n", Some("flow delete")).unwrap();
        assert_eq!(two.changes.len(), 2);
        assert!(matches!(
            &read("ip,actions=drop", Some("flow modify")).unwrap().changes[..],
            [Change::Modify(_)]
        ));
        assert!(read("add tcp", Some("flow delete")).is_err(), "lines have no command then");
    }

    #[test]
    fn errors_name_line_and_column() {
        let refused = |text: &str| read(text, None).unwrap_err().to_string();
        assert!(refused("ip,actions=drop\n  flow add foo,actions=drop").starts_with("line 2, column 12: "));
        assert!(refused("group modify_strict x").contains("there is no `group modify_strict`"));
        assert!(refused("meter delete 5").contains("meter=NUMBER"));
        assert!(refused("group delete group_id=99999999999").contains("99999999999"));
    }

    #[test]
    fn counts_of_another_process_are_added() {
        let mut tables = Tables::new(1);
        let changes = read("priority=5,tcp,actions=output:2\narp,actions=drop", None).unwrap().changes;
        tables.apply(&changes, 7).unwrap();
        let dump = "cookie=0x0, duration=2.545s, table=0, n_packets=3, n_bytes=180, priority=5,tcp \
            actions=output:2\nwhat else\n cookie=0x0, duration=1s, table=9, n_packets=9, n_bytes=9, \
            arp actions=drop\n";
        tables.restore_counts(dump, &Numbers);
        let texts: Vec<_> = tables.current().flows().map(|flow| flow.show(&Numbers, 7)).collect();
        assert!(texts.iter().any(|text| text.contains("n_packets=3, n_bytes=180, priority=5")), "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("n_packets=0, n_bytes=0, arp")), "{texts:?}");
    }
}
