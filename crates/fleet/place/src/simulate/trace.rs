//! Readers of published traces in CSV with a header line.
//!
//! - `openb`: Alibaba's `openb_pod_list*.csv`: `name`, `cpu_milli`, `memory_mib`, `creation_time`,
//!   `deletion_time`. Its nodes: `sn`, `cpu_milli`, `memory_mib`. GPUs are ignored.
//! - `vmagent`: `vmid`, `cpu`, `memory` (GB), `time` (seconds), `type` (0 arrives, 1 leaves), as VMAgent
//!   documents its `Huawei-East-1.csv`. An identifier that is reused after its VM has left is another VM.
//! - `azure`: the packing trace's tables `vm` and `vmType`, joined: `vmId`, `core`, `memory` (fractions of a
//!   machine), `starttime`, `endtime` (days).

use crate::object::{Host, Vm};
use std::collections::{HashMap, HashSet};

/// An arriving VM and its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Time in milliseconds from the trace's beginning.
    pub at: u64,
    /// The VM.
    pub vm: Vm,
    /// Its lifetime in milliseconds; none if unlimited.
    pub lifetime: Option<u64>,
}

/// A trace's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Alibaba's openb.
    Openb,
    /// VMAgent's.
    Vmagent,
    /// Azure's packing trace, exported.
    Azure,
}

/// An error in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct TraceError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub what: String,
}

/// Attack: an endless trace. Largest number of lines.
const LINES: usize = 20_000_000;
/// Assumed size of a machine in the Azure trace, which has fractions only.
const AZURE: (f64, f64) = (40.0, 90.0 * 1024.0);

/// A CSV file.
struct Table<'t> {
    file: &'t str,
    names: HashMap<&'t str, usize>,
    lines: Vec<(usize, Vec<&'t str>)>,
}

fn table<'t>(file: &'t str, text: &'t str) -> Result<Table<'t>, TraceError> {
    let wrong = |line: usize, what: String| TraceError { file: file.into(), line, what };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, head) = lines.next().ok_or_else(|| wrong(1, "it is empty".into()))?;
    let names: HashMap<&str, usize> =
        head.split(',').enumerate().map(|(column, name)| (name.trim().trim_matches('"'), column)).collect();
    let mut all = Vec::new();
    for (number, line) in lines {
        if all.len() == LINES {
            return Err(wrong(number + 1, format!("more than {LINES} lines")));
        }
        all.push((number + 1, line.split(',').map(|cell| cell.trim().trim_matches('"')).collect()));
    }
    Ok(Table { file, names, lines: all })
}

impl<'t> Table<'t> {
    fn wrong(&self, line: usize, what: String) -> TraceError {
        TraceError { file: self.file.into(), line, what }
    }

    fn column(&self, name: &str) -> Result<usize, TraceError> {
        self.names.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = self.names.keys().copied().take(20).collect();
            self.wrong(1, format!("there is no column `{name}` among {}", known.join(", ")))
        })
    }

    fn cell(&self, line: usize, cells: &[&'t str], column: usize) -> Result<&'t str, TraceError> {
        cells.get(column).copied().ok_or_else(|| self.wrong(line, format!("there is no cell {}", column + 1)))
    }

    fn number(&self, line: usize, cells: &[&'t str], column: usize) -> Result<f64, TraceError> {
        let cell = self.cell(line, cells, column)?;
        let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(line, format!("`{}` is not a number", cell.escape_debug())))
    }

    /// A number that can be one of these: CPUs, MB, seconds.
    fn within(
        &self,
        line: usize,
        what: &str,
        number: f64,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<f64, TraceError> {
        if range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = range.into_inner();
        Err(self.wrong(line, format!("{number} {what} can't be; permitted: {least} to {most}")))
    }

    /// Converts a time in seconds to milliseconds. VMs that started before the trace have negative times.
    fn time(&self, line: usize, seconds: f64) -> Result<u64, TraceError> {
        let seconds = self.within(line, "seconds", seconds, -FARTHEST..=FARTHEST)?;
        Ok((seconds * 1000.0).max(0.0) as u64)
    }

    /// A VM with this many CPUs and MB.
    fn vm(&self, line: usize, name: &str, cpus: f64, memory_mb: f64) -> Result<Vm, TraceError> {
        let cpus = self.within(line, "CPUs", cpus, 0.0..=CPUS)?;
        let memory_mb = self.within(line, "MB", memory_mb, 0.0..=MEMORY)?;
        let name: String =
            name.chars().filter(|c| !c.is_whitespace() && *c != '/' && !c.is_control()).take(200).collect();
        let (cores, memory_mb) = (cpus.ceil().max(1.0) as u32, memory_mb.ceil().max(1.0) as u64);
        Ok(Vm { name: format!("vm-{name}"), cores, memory_mb, ..Vm::default() })
    }

    /// A cell that may be empty.
    fn optional(&self, line: usize, cells: &[&'t str], column: usize) -> Result<Option<f64>, TraceError> {
        match self.cell(line, cells, column)? {
            "" | "NULL" | "null" | "nan" | "NaN" => Ok(None),
            _ => self.number(line, cells, column).map(Some),
        }
    }
}

/// Attack: absurd figures, and times that make a simulation endless. Limits of figures.
const CPUS: f64 = 65_536.0;
const MEMORY: f64 = (1u64 << 30) as f64;
/// Maximum absolute time in seconds: a thousand years, so that seconds since 1970 are valid.
const FARTHEST: f64 = 3.2e10;
/// Maximum length of a trace in milliseconds: ten years.
pub const LONGEST: u64 = 10 * 366 * 86_400_000;

/// Reads a trace; its arrivals are in the order of their times.
pub fn read(kind: TraceKind, file: &str, text: &str) -> Result<Vec<Arrival>, TraceError> {
    let table = table(file, text)?;
    let mut arrivals = match kind {
        TraceKind::Openb => openb(&table)?,
        TraceKind::Vmagent => vmagent(&table)?,
        TraceKind::Azure => azure(&table)?,
    };
    arrivals.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.vm.name.cmp(&b.vm.name)));
    // The first of several lines about a VM counts: joined tables may have one per kind of machine.
    let mut seen = HashSet::new();
    arrivals.retain(|arrival| seen.insert(arrival.vm.name.clone()));
    let span = arrivals.first().zip(arrivals.last()).map_or(0, |(first, last)| last.at - first.at);
    if span > LONGEST {
        let last = arrivals.last().map_or("", |last| &last.vm.name);
        let what = format!("it spans {} years, up to {last}; the limit is ten", span / (366 * 86_400_000));
        return Err(table.wrong(1, what));
    }
    Ok(arrivals)
}

fn openb(table: &Table<'_>) -> Result<Vec<Arrival>, TraceError> {
    let [name, cpu, memory] = ["name", "cpu_milli", "memory_mib"].map(|name| table.column(name));
    let (name, cpu, memory) = (name?, cpu?, memory?);
    let (begin, end) = (table.column("creation_time")?, table.column("deletion_time")?);
    let line = |(line, cells): &(usize, Vec<&str>)| {
        let at = table.time(*line, table.number(*line, cells, begin)?)?;
        let gone = table.optional(*line, cells, end)?.map(|end| table.time(*line, end)).transpose()?;
        let cpus = table.number(*line, cells, cpu)? / 1000.0;
        let memory = table.number(*line, cells, memory)?;
        let vm = table.vm(*line, table.cell(*line, cells, name)?, cpus, memory)?;
        Ok(Arrival { at, vm, lifetime: gone.map(|gone| gone.saturating_sub(at).max(1)) })
    };
    table.lines.iter().map(line).collect()
}

fn vmagent(table: &Table<'_>) -> Result<Vec<Arrival>, TraceError> {
    let [id, cpu, memory] = ["vmid", "cpu", "memory"].map(|name| table.column(name));
    let (id, cpu, memory) = (id?, cpu?, memory?);
    let (time, kind) = (table.column("time")?, table.column("type")?);
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut lives: HashMap<&str, u32> = HashMap::new();
    for (line, cells) in &table.lines {
        let name = table.cell(*line, cells, id)?;
        let at = table.time(*line, table.number(*line, cells, time)?)?;
        match table.number(*line, cells, kind)? {
            0.0 => {
                if open.insert(name, arrivals.len()).is_some() {
                    let what = format!("VM `{}` arrives again before it leaves", name.escape_debug());
                    return Err(table.wrong(*line, what));
                }
                let memory = table.number(*line, cells, memory)? * 1024.0;
                let mut vm = table.vm(*line, name, table.number(*line, cells, cpu)?, memory)?;
                let life = lives.entry(name).and_modify(|life| *life += 1).or_insert(1);
                if *life > 1 {
                    vm.name = format!("{}.{life}", vm.name);
                }
                arrivals.push(Arrival { at, vm, lifetime: None });
            }
            1.0 => {
                // A VM that leaves without arriving was there before the trace.
                if let Some(arrival) = open.remove(name).and_then(|index| arrivals.get_mut(index)) {
                    arrival.lifetime = Some(at.saturating_sub(arrival.at).max(1));
                }
            }
            other => {
                let what = format!("type `{other}` is neither 0 (arrives) nor 1 (leaves)");
                return Err(table.wrong(*line, what));
            }
        }
    }
    Ok(arrivals)
}

fn azure(table: &Table<'_>) -> Result<Vec<Arrival>, TraceError> {
    let [id, core, memory] = ["vmId", "core", "memory"].map(|name| table.column(name));
    let (id, core, memory) = (id?, core?, memory?);
    let (begin, end) = (table.column("starttime")?, table.column("endtime")?);
    const DAY: f64 = 86_400.0;
    let line = |(line, cells): &(usize, Vec<&str>)| {
        let at = table.time(*line, table.number(*line, cells, begin)? * DAY)?;
        let gone = table.optional(*line, cells, end)?.map(|end| table.time(*line, end * DAY)).transpose()?;
        let (cpus, mb) = (table.number(*line, cells, core)?, table.number(*line, cells, memory)?);
        let vm = table.vm(*line, table.cell(*line, cells, id)?, cpus * AZURE.0, mb * AZURE.1)?;
        Ok(Arrival { at, vm, lifetime: gone.map(|gone| gone.saturating_sub(at).max(1)) })
    };
    table.lines.iter().map(line).collect()
}

/// Reads openb's list of nodes.
pub fn read_nodes(file: &str, text: &str) -> Result<Vec<Host>, TraceError> {
    let table = table(file, text)?;
    let (name, cpu, memory) = (table.column("sn")?, table.column("cpu_milli")?, table.column("memory_mib")?);
    let mut seen = HashSet::new();
    let line = |(line, cells): &(usize, Vec<&str>)| {
        let cpus = table.number(*line, cells, cpu)? / 1000.0;
        let cores = table.within(*line, "CPUs", cpus, 1.0..=CPUS)? as u32;
        let memory_mb = table.number(*line, cells, memory)?;
        let memory_mb = table.within(*line, "MB", memory_mb, 512.0..=MEMORY)? as u64;
        let name = table.cell(*line, cells, name)?.to_string();
        let host = Host { name, cores, threads: cores, memory_mb, ..Host::default() };
        host.check().map_err(|error| table.wrong(*line, error.to_string()))?;
        if !seen.insert(host.name.clone()) {
            return Err(table.wrong(*line, format!("host {} is defined twice", host.name)));
        }
        Ok(host)
    };
    table.lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn traces_are_parsed() {
        let openb = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n\
            openb-pod-0001,12500,16384,1,10,20\nopenb-pod-0000,2000,4096,0,0,\n";
        let read_openb = read(TraceKind::Openb, "o", openb).unwrap();
        assert_eq!(read_openb[1].vm.cores, 13);
        assert_eq!((read_openb[0].lifetime, read_openb[1].lifetime), (None, Some(10_000)));
        let vmagent = "vmid,cpu,memory,time,type\n0,1,2,0,0\n1,4,8,5,0\n0,1,2,7,1\n";
        let read_vmagent = read(TraceKind::Vmagent, "v", vmagent).unwrap();
        assert_eq!(read_vmagent.iter().map(|a| a.lifetime).collect::<Vec<_>>(), [Some(7000), None]);
        let azure = "vmId,core,memory,starttime,endtime\n7,0.05,0.1,-1.5,0.5\n8,0.1,0.1,0.25,\n";
        let read_azure = read(TraceKind::Azure, "a", azure).unwrap();
        assert_eq!(
            (read_azure[0].vm.cores, read_azure[0].at, read_azure[0].lifetime),
            (2, 0, Some(43_200_000))
        );
        let nodes = read_nodes("n", "sn,cpu_milli,memory_mib,gpu\nnode-1,64000,262144,2\n").unwrap();
        assert_eq!((nodes[0].cores, nodes[0].memory_mb), (64, 262_144));
    }

    #[test]
    fn errors_have_positions() {
        let error = read(TraceKind::Vmagent, "v.csv", "vmid,cpu,memory,time,type\n0,x,2,0,0\n").unwrap_err();
        assert_eq!(error.to_string(), "v.csv:2: `x` is not a number");
        let error = read(TraceKind::Openb, "o.csv", "a\n1\n").unwrap_err().to_string();
        assert_eq!(error, "o.csv:1: there is no column `name` among a");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(vmid,cpu,memory,time,type\n)?[0-9,.\nxe-]{0,200}") {
            for kind in [TraceKind::Openb, TraceKind::Vmagent, TraceKind::Azure] {
                let _ = read(kind, "f", &text);
            }
            let _ = read_nodes("f", &text);
        }
    }
}
