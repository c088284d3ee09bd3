//! Requests to a fabric's API without the program, whose start would take longer than what is examined; and what a
//! fabric's processes hold.
use super::{Lab, http};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The status and the body of the answer to a request.
pub fn ask(lab: &Lab, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = http::answer(http::ask(lab, method, &format!("/v1/{path}"), body));
    (status, serde_json::from_str(&body).unwrap_or_default())
}

/// A request that must succeed.
pub fn order(lab: &Lab, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(lab, method, path, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

/// A function as the API shows it; null if there is none.
pub fn function(lab: &Lab, name: &str) -> Value {
    let all = order(lab, "GET", "functions", &Value::Null);
    all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

pub fn is_running(lab: &Lab, name: &str) -> bool {
    function(lab, name)["state"] == "running"
}

/// A function's process; 0 if there is none.
pub fn pid(lab: &Lab, name: &str) -> u64 {
    function(lab, name)["pid"].as_u64().unwrap_or_default()
}

/// Stops a function and starts it; returns the process of the start, 0 if there is none.
pub fn restart(lab: &Lab, name: &str) -> u64 {
    for what in ["stop", "start"] {
        order(lab, "POST", &format!("functions/{name}/{what}"), &Value::Null);
    }
    pid(lab, name)
}

/// Replaces a function's configuration; returns the status of the answer.
pub fn update(lab: &Lab, name: &str, click: &str) -> u16 {
    ask(lab, "PUT", &format!("functions/{name}/configuration"), &json!({ "configuration": click })).0
}

/// Kills a process, which may have ended already; 0 is none.
pub fn kill(pid: u64) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The process that started another one.
pub fn parent(pid: u64) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The fabric as the API shows it.
pub fn fabric(lab: &Lab) -> Value {
    order(lab, "GET", "fabric", &Value::Null)
}

/// The processes of functions, monitors of VMs too, and those that wait for one.
pub fn processes(control: u64) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{control}/task")).unwrap();
    let children =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let all = children.flat_map(|line| line.split_whitespace().map(String::from).collect::<Vec<_>>());
    let is_its = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"run-function\0"))
    };
    all.filter(is_its).filter_map(|pid| pid.parse().ok()).collect()
}

/// What a fabric holds: the number of its functions' processes, and those of the open descriptors of `control` and of
/// the data process.
pub fn held(control: u64, data: u64) -> [usize; 3] {
    let open = |pid: u64| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    [processes(control).len(), open(control), open(data)]
}

/// Waits until a fabric holds no more than before; of a new data process `before` has nothing.
pub fn nothing_is_left(lab: &Lab, before: &[usize]) {
    let fabric = fabric(lab);
    let pid = |what: &str| fabric[what].as_u64().unwrap();
    let now = || held(pid("pid"), pid("data_pid"));
    let is_more = |now: [usize; 3]| now.iter().zip(before).any(|(now, before)| now > before);
    let end = Instant::now() + Duration::from_secs(30);
    while is_more(now()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let now = now();
    assert!(!is_more(now), "processes, descriptors of control and data: {now:?}, before {before:?}");
}
