//! The command line of Click's program.
use ringway_click::{SECOND, SIMULATION_START};

/// The text of `--help`.
pub const HELP: &str = "\
Runs a Click configuration: reads it, reports what is wrong, and goes on until it is interrupted.

Usage: click [OPTION]... [NAME=VALUE]... [ROUTERFILE]

Options:
  -f, --file FILE             Read the configuration from FILE; - is standard input.
  -e, --expression TEXT       TEXT is the configuration.
  -h, --handler ELEMENT.H     Read handler H when the driver has stopped and print it.
  -x, --exit-handler ELEMENT.H  The exit status is what handler H says.
  -o, --output FILE           Write the flat configuration to FILE; - is standard output.
  -p, --port PORT             Let programs read and write handlers by TCP; see ControlSocket.
  -u, --unix-socket FILE      The same by a UNIX socket.
  -C, --clickpath PATH        Look for what is required there, not along CLICKPATH.
  -R, --allow-reconfigure     Let the handler 'hotconfig' replace the configuration while it runs.
  -q, --quit                  Do not run the driver.
  -t, --time                  Print how long the driver took.
  -w, --no-warnings           Print no warnings.
      --simtime[=SECONDS]     Simulate time.
      --profile               At the end, print packets, ticks a packet and share of each element.
      --elements [NAME]...    Print what elements there are, or what those of these names do.
  -j, --threads N             Let N threads run what has nothing to do with one another, as
                              StaticThreadSched or BalancedThreadSched say; 1 by default.
  -a, --affinity[=N]          Keep threads on cores, the first on core N; 0 by default. Also --cpu.
      --burst N               Handle up to N packets at once, 1 to 64; 1 keeps Click's order exactly.
      --help                  Print this.
  -v, --version               Print the version.
";

/// More threads than any machine has cores.
const MOST_THREADS: i64 = 4096;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration's file.
    pub file: Option<String>,
    /// The configuration itself.
    pub expression: Option<String>,
    /// Variables.
    pub variables: Vec<(String, String)>,
    /// Handlers to read at the end.
    pub handlers: Vec<String>,
    /// Handler that returns the exit status.
    pub exit_handler: Option<String>,
    /// File for the flattened configuration.
    pub output: Option<String>,
    /// Arguments of a ControlSocket each, which is added to the configuration.
    pub sockets: Vec<String>,
    /// Search path for required files, in place of the environment's.
    pub path: Option<String>,
    /// Whether the driver is not run.
    pub quit: bool,
    /// Whether warnings are printed.
    pub warnings: bool,
    /// Start of simulated time, in nanoseconds since 1970; none for real time.
    pub simulated: Option<u64>,
    /// Number of packets handled at once.
    pub burst: usize,
    /// Whether the `hotconfig` handler can replace the configuration.
    pub reconfigure: bool,
    /// Whether the driver's run time is printed.
    pub time: bool,
    /// Maximum number of threads of the configuration.
    pub threads: usize,
    /// Whether a profile is printed at the end.
    pub profile: bool,
    /// The core of the first thread, if threads are pinned.
    pub affinity: Option<usize>,
    /// Element classes whose documentation is printed instead of running; empty for a list of all.
    pub elements: Option<Vec<String>>,
}

/// Why a command line does not run anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Help is requested.
    Help,
    /// The version is requested.
    Version,
    /// The command line is invalid.
    Wrong(String),
}

/// Options without a value: short, long.
const FLAGS: &[(char, &str)] =
    &[('q', "quit"), ('w', "no-warnings"), ('v', "version"), ('R', "allow-reconfigure"), ('t', "time")];
/// Options with a value.
const VALUES: &[(char, &str)] = &[
    ('f', "file"),
    ('e', "expression"),
    ('h', "handler"),
    ('x', "exit-handler"),
    ('o', "output"),
    ('j', "threads"),
    ('C', "clickpath"),
    ('p', "port"),
    ('u', "unix-socket"),
    ('\0', "burst"),
];
/// Options with an optional value.
const OPTIONAL: &[(char, &str)] = &[('\0', "simtime"), ('a', "affinity"), ('\0', "cpu")];
/// Long options without a value.
const BARE: &[&str] = &[
    "help",
    "profile",
    "warnings",
    "no-affinity",
    "no-cpu",
    "no-allow-reconfigure",
    "simulation-time",
    "elements",
];

impl Default for Options {
    fn default() -> Self {
        Self {
            file: None,
            expression: None,
            variables: Vec::new(),
            handlers: Vec::new(),
            exit_handler: None,
            output: None,
            sockets: Vec::new(),
            path: None,
            quit: false,
            warnings: true,
            simulated: None,
            burst: 1,
            reconfigure: false,
            time: false,
            threads: 1,
            profile: false,
            affinity: None,
            elements: None,
        }
    }
}

impl Options {
    /// Reads a command line: short options may be joined, as in `-qo-`.
    ///
    /// # Errors
    /// [`Usage`].
    pub fn parse(arguments: &[String]) -> Result<Self, Usage> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if let Some(long) = argument.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_string())),
                    None => (long, None),
                };
                let name = complete(name).ok_or_else(|| unknown(argument))?;
                let takes = VALUES.iter().any(|(_, value)| *value == name);
                let value = if takes { value.or_else(|| rest.next().cloned()) } else { value };
                options.set(name, value)?;
            } else if let Some(short) = argument.strip_prefix('-').filter(|short| !short.is_empty()) {
                options.short(short, &mut rest)?;
            } else {
                options.word(argument)?;
            }
        }
        if options.profile && options.threads > 1 {
            return Err(Usage::Wrong("'--profile' needs a single thread".into()));
        }
        Ok(options)
    }

    fn short<'a>(&mut self, short: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<(), Usage> {
        let mut letters = short.chars();
        while let Some(letter) = letters.next() {
            let named =
                |list: &[(char, &'static str)]| list.iter().find(|(own, _)| *own == letter).map(|o| o.1);
            if let Some(name) = named(FLAGS) {
                self.set(name, None)?;
                continue;
            }
            let left = Some(letters.as_str().to_string()).filter(|left| !left.is_empty());
            if let Some(name) = named(OPTIONAL) {
                return self.set(name, left);
            }
            let name = named(VALUES).ok_or_else(|| unknown(&format!("-{letter}")))?;
            return self.set(name, left.or_else(|| rest.next().cloned()));
        }
        Ok(())
    }

    /// `NAME=VALUE`, or the configuration's file.
    fn word(&mut self, word: &str) -> Result<(), Usage> {
        if let Some(elements) = &mut self.elements {
            elements.push(word.to_string());
            return Ok(());
        }
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match word.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => {
                if self.variables.iter().any(|(own, _)| own == name) {
                    return Err(Usage::Wrong(format!("parameter '{name}' multiply defined")));
                }
                self.variables.push((name.to_string(), value.to_string()));
                Ok(())
            }
            None if word.is_empty() => {
                Err(Usage::Wrong("an argument is empty; ROUTERFILE is the name of a file".into()))
            }
            None => self.set("file", Some(word.to_string())),
        }
    }

    fn set(&mut self, name: &str, value: Option<String>) -> Result<(), Usage> {
        let wrong = |text: String| Err(Usage::Wrong(text));
        // An empty configuration is one.
        if name != "expression" && value.as_deref() == Some("") {
            return wrong(format!("the argument of '--{name}' is empty"));
        }
        let needed = || value.clone().ok_or_else(|| Usage::Wrong(format!("'--{name}' requires an argument")));
        match name {
            "help" => return Err(Usage::Help),
            "version" => return Err(Usage::Version),
            "quit" => self.quit = true,
            "warnings" => self.warnings = true,
            "no-warnings" => self.warnings = false,
            "file" | "expression" if self.file.is_some() || self.expression.is_some() => {
                return wrong("router configuration specified twice".into());
            }
            "file" => self.file = Some(needed()?),
            "expression" => self.expression = Some(needed()?),
            "handler" => self.handlers.push(needed()?),
            "exit-handler" if self.exit_handler.is_some() => {
                return wrong("--exit-handler specified twice".into());
            }
            "exit-handler" => self.exit_handler = Some(needed()?),
            "output" if self.output.is_some() => return wrong("output file specified twice".into()),
            "output" => self.output = Some(needed()?),
            "port" => {
                let text = needed()?;
                match text.strip_suffix('+').unwrap_or(&text).parse::<u16>() {
                    Ok(port) if port > 0 => self.sockets.push(format!("TCP, {text}")),
                    _ => return wrong("'--port' takes a port number".into()),
                }
            }
            "unix-socket" => {
                let file = ringway_click_lang::config::quote(needed()?.as_bytes());
                self.sockets.push(format!("UNIX, {file}"));
            }
            "clickpath" => self.path = Some(needed()?),
            "allow-reconfigure" => self.reconfigure = true,
            "no-allow-reconfigure" => self.reconfigure = false,
            "time" => self.time = true,
            "profile" => self.profile = true,
            "elements" => self.elements = Some(value.into_iter().collect()),
            "simtime" | "simulation-time" => self.simulated = Some(simulation(value.as_deref())?),
            "burst" => match needed()?.parse() {
                Ok(burst @ 1..=64) => self.burst = burst,
                _ => return wrong("'--burst' takes a number from 1 to 64".into()),
            },
            "threads" => match needed()?.parse::<i64>() {
                Ok(threads) if threads <= MOST_THREADS => self.threads = threads.max(1) as usize,
                _ => return wrong(format!("'--threads' takes a number up to {MOST_THREADS}")),
            },
            "affinity" | "cpu" => match value.as_deref().unwrap_or("0").parse() {
                Ok(core) => self.affinity = Some(core),
                Err(_) => return wrong(format!("'--{name}' takes the number of a core")),
            },
            "no-affinity" | "no-cpu" => self.affinity = None,
            _ => return wrong(format!("'--{name}' is not supported")),
        }
        Ok(())
    }
}

fn unknown(option: &str) -> Usage {
    Usage::Wrong(format!("unrecognized option '{option}'"))
}

/// The start of a simulation.
fn simulation(seconds: Option<&str>) -> Result<u64, Usage> {
    let Some(seconds) = seconds else { return Ok(SIMULATION_START) };
    match seconds.parse::<f64>() {
        Ok(seconds) if (0.0..1e10).contains(&seconds) => Ok((seconds * SECOND as f64) as u64),
        _ => Err(Usage::Wrong("'--simtime' takes a number of seconds".into())),
    }
}

/// The long option of this name, or the only one with this prefix.
fn complete(name: &str) -> Option<&'static str> {
    let named = [FLAGS, VALUES, OPTIONAL].into_iter().flatten().map(|(_, long)| *long);
    let all: Vec<&'static str> = named.chain(BARE.iter().copied()).collect();
    if let Some(exact) = all.iter().find(|long| **long == name) {
        return Some(exact);
    }
    let mut beginning = all.iter().filter(|long| long.starts_with(name));
    beginning.next().filter(|_| beginning.next().is_none()).copied()
}

/// Whether a name matches a shell pattern of `*`, `?` and `[..]`.
pub(super) fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            Some('[') => {
                if let Some(length) = pattern[p..].iter().position(|c| *c == ']')
                    && pattern[p + 1..p + length].contains(&name[n])
                {
                    (p, n) = (p + length + 1, n + 1);
                    continue;
                }
            }
            Some(c) if *c == '?' || *c == name[n] => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        let Some((at, from)) = star else { return false };
        (p, n, star) = (at + 1, from + 1, Some((at, from + 1)));
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Usage> {
        Options::parse(&line.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn short_options_may_be_joined() {
        let options = parse("-qo- -h c.count A=5 --simtime file.click").unwrap();
        assert!(options.quit);
        assert_eq!(options.output.as_deref(), Some("-"));
        assert_eq!(options.handlers, ["c.count"]);
        assert_eq!(options.variables, [("A".to_string(), "5".to_string())]);
        assert_eq!(options.simulated, Some(SIMULATION_START));
        assert_eq!(options.file.as_deref(), Some("file.click"));
        assert_eq!(parse("-qe Idle").unwrap().expression.as_deref(), Some("Idle"));
    }

    #[test]
    fn empty_arguments_are_named() {
        let said =
            |words: &[&str]| match Options::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
            {
                Err(Usage::Wrong(why)) => why,
                other => panic!("{other:?}"),
            };
        assert_eq!(said(&[""]), "an argument is empty; ROUTERFILE is the name of a file");
        assert_eq!(said(&["-h", ""]), "the argument of '--handler' is empty");
        assert_eq!(said(&["--file="]), "the argument of '--file' is empty");
        assert_eq!(parse("-e ").unwrap().expression.as_deref(), Some(""));
    }

    #[test]
    fn invalid_options_are_refused() {
        let options = parse("-Rt --elements Strip Print").unwrap();
        assert!(options.reconfigure && options.time);
        assert_eq!(options.elements, Some(vec!["Strip".to_string(), "Print".to_string()]));
        for line in ["-j 2 --profile", "-e a -e b", "--foo", "-h", "A=1 A=2", "--burst 0", "-Z"] {
            assert!(matches!(parse(line), Err(Usage::Wrong(_))), "{line}");
        }
        assert_eq!(parse("--help"), Err(Usage::Help));
    }

    #[test]
    fn sockets_become_arguments() {
        let options = parse("-p 7777+ -u a,b -C lib").unwrap();
        assert_eq!(options.sockets, ["TCP, 7777+", "UNIX, \"a,b\""]);
        assert_eq!(options.path.as_deref(), Some("lib"));
        assert!(parse("-p many").is_err());
    }

    #[test]
    fn threads_and_cores_are_numbers() {
        let options = parse("-j3 -a").unwrap();
        assert_eq!((options.threads, options.affinity), (3, Some(0)));
        let options = parse("--threads=-2 --affinity=5").unwrap();
        assert_eq!((options.threads, options.affinity), (1, Some(5)));
        assert_eq!(parse("--cpu --no-cpu").unwrap().affinity, None);
        assert!(parse("-j many").is_err() && parse("-j 5000").is_err() && parse("-ax").is_err());
    }

    #[test]
    fn globs() {
        assert!(glob("a*c", "abbc") && glob("*", "") && glob("?[bc]", "ab"));
        assert!(!glob("a?", "a") && !glob("a*d", "abc") && !glob("[", "x"));
    }
}
