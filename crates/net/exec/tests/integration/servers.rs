//! Servers of many processes and users: nginx, sshd, PostgreSQL.

use crate::lab::{Folder, compare_all, has, is_long, is_root, succeeds};
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// A file of 2,000,001 bytes.
fn page() -> Vec<u8> {
    (0..2_000_001_u32).map(|at| (at * 7 % 251) as u8).collect()
}

/// A script that runs nginx with two workers of another user, says that it is ready, and then does `more` with the
/// master process `$P`.
fn nginx(folder: &Folder, more: &str) -> String {
    let shown = folder.0.display();
    let text = format!(
        "user nobody nogroup; worker_processes 2; daemon off; pid {shown}/pid; error_log stderr crit;
        events {{ worker_connections 256; }}
        http {{ access_log off; server {{ listen 80 backlog=512; location / {{ root {shown}; }} }} }}"
    );
    let conf = folder.write("conf", text);
    format!(
        "rm -f {shown}/pid; nginx -c {conf} & P=$!
        until [ -s {shown}/pid ]; do kill -0 $P || exit 1; sleep 0.01; done
        echo ready; {more}
        wait $P"
    )
}

/// A script of wrk that compares each answer, and prints what went wrong.
fn wrk_script(folder: &Folder) -> String {
    folder.write("page.txt", "0123456789".repeat(100));
    let text = "\
threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args) wrong = 0; right = string.rep('0123456789', 100) end
function response(status, headers, body) if status ~= 200 or body ~= right then wrong = wrong + 1 end end
function done(summary, latency, requests)
  local wrong = 0
  for _, thread in ipairs(threads) do wrong = wrong + thread:get('wrong') end
  local e = summary.errors
  print('wrong', wrong, 'errors', e.connect, e.read, e.write, e.status, e.timeout, summary.requests > 50)
end";
    folder.write("check.lua", text)
}

#[test]
fn wrk_has_no_error_at_nginx() {
    if !is_root() || !has("nginx") || !has("wrk") {
        return;
    }
    let folder = Folder::new("wrk");
    let script = wrk_script(&folder);
    let client = format!("wrk -t 2 -c 20 -d 1s -s {script} http://10.0.0.1/page.txt | grep errors");
    let (_, answer) = compare_all(&["sh", "-c", &nginx(&folder, "")], &["sh", "-c", &client]);
    assert_eq!(answer, "wrong\t0\terrors\t0\t0\t0\t0\t0\ttrue\n");
}

#[test]
fn twenty_reloads_of_nginx_under_load_lose_no_request() {
    if !is_root() || !has("nginx") || !has("wrk") {
        return;
    }
    let folder = Folder::new("reloads");
    let script = wrk_script(&folder);
    let server = nginx(&folder, "for i in $(seq 20); do sleep 0.05; kill -HUP $P; done");
    // A connection each: an idle one may be closed by the old worker, while a request is on its way.
    let client = format!(
        "wrk -t 1 -c 8 -d 2s -H 'Connection: close' -s {script} http://10.0.0.1/page.txt | grep errors"
    );
    let (_, answer) = compare_all(&["sh", "-c", &server], &["sh", "-c", &client]);
    assert_eq!(answer, "wrong\t0\terrors\t0\t0\t0\t0\t0\ttrue\n");
}

#[test]
fn killed_workers_of_nginx_cost_only_their_own_requests() {
    if !is_root() || !has("nginx") {
        return;
    }
    let folder = Folder::new("workers");
    folder.write("page", page());
    let killing = "for i in 1 2 3; do sleep 0.2; kill -9 $(cut -d ' ' -f 1 /proc/$P/task/$P/children); done";
    // Each is asked for again if its worker was killed.
    let client = "\
import http.client, time
right = bytes(at * 7 % 251 for at in range(2_000_001))
end, count, wrong, tries = time.monotonic() + 1, 0, 0, 0
while time.monotonic() < end or count < 20:
    connection = http.client.HTTPConnection('10.0.0.1', timeout=20)
    try:
        connection.request('GET', '/page')
        wrong += connection.getresponse().read() != right
        count += 1
    except (ConnectionError, http.client.HTTPException):
        tries += 1
    connection.close()
print(wrong, tries < 10)";
    let (_, answer) = compare_all(&["sh", "-c", &nginx(&folder, killing)], &[PYTHON, "-c", client]);
    assert_eq!(answer, "0 True\n");
}

#[test]
fn sshd_runs_commands_and_copies_files() {
    if !is_root() || !has("sshd") || !has("ssh") || !has("scp") {
        return;
    }
    let folder = Folder::new("ssh");
    let shown = folder.0.display().to_string();
    folder.write("page", page());
    for key in ["key", "host"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.0.join(key));
        assert!(succeeds(&mut command));
    }
    let conf = folder.write(
        "conf",
        format!(
            "ListenAddress 0.0.0.0\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/key.pub\nPidFile none
StrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        ),
    );
    let server = format!("mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e -f {conf} 2>&1");
    let client = format!(
        "cd {shown}; rm -f one two
        set -- -F none -i key -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o LogLevel=ERROR
        ssh \"$@\" root@10.0.0.1 'read line; echo \"got $line\"; exit 3' <<< 'a line' || echo $?
        ssh \"$@\" root@10.0.0.1 cat < page | cmp - page && echo same
        scp -q \"$@\" page root@10.0.0.1:{shown}/one && cmp page one && echo same
        scp -q \"$@\" root@10.0.0.1:{shown}/page two && cmp page two && echo same"
    );
    let (ready, answer) = compare_all(&["sh", "-c", &server], &["bash", "-c", &client]);
    assert_eq!(ready, "Server listening on 0.0.0.0 port 22.");
    assert_eq!(answer, "got a line\n3\nsame\nsame\nsame\n");
}

/// The folder of PostgreSQL's server.
fn postgres() -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.flatten().map(|version| version.path().join("bin")).max();
    found.filter(|folder| folder.join("postgres").exists())
}

#[test]
fn postgresql_serves_pgbench() {
    let Some(programs) = postgres().filter(|_| is_root() && has("psql") && has("setpriv")) else {
        eprintln!("not run: it needs root and postgresql");
        return;
    };
    let folder = Folder::new("postgres");
    let (shown, programs) = (folder.0.display(), programs.display());
    // It refuses to be root.
    let user = "setpriv --reuid=postgres --regid=postgres --clear-groups";
    let settings = "listen_addresses = '*'\nfsync = off\nmax_connections = 20\nshared_buffers = 16MB\n";
    let create = format!(
        "chown postgres {shown} && cd {shown} && {user} {programs}/initdb -D data -A trust -N >&2
        printf \"{settings}unix_socket_directories = '{shown}'\\n\" >> data/postgresql.conf
        echo 'host all all 10.0.0.0/24 trust' >> data/pg_hba.conf"
    );
    assert!(succeeds(Command::new("sh").args(["-c", &create])));
    let server = format!(
        "cd {shown}; rm -f data/postmaster.pid
        {user} {programs}/postgres -D data >log 2>&1 & P=$!
        until {programs}/pg_isready -q -h {shown}; do kill -0 $P || {{ cat log; exit 1; }}; sleep 0.02; done
        echo ready; wait $P"
    );
    let count = if is_long() { 2000 } else { 25 };
    let client = format!(
        "cd /; set -- -h 10.0.0.1 -U postgres
        {programs}/pgbench \"$@\" -i -q postgres 2>/dev/null
        {programs}/pgbench \"$@\" -n -c 8 -j 2 -t {count} postgres | grep -E 'processed|failed'
        psql \"$@\" -Atc 'select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts)
            from pgbench_history' postgres"
    );
    let (_, answer) = compare_all(&["sh", "-c", &server], &["sh", "-c", &client]);
    assert!(answer.contains(&format!("processed: {0}/{0}\n", 8 * count)), "{answer}");
    assert!(answer.contains("failed transactions: 0"), "{answer}");
    assert!(answer.ends_with(&format!("{}|t\n", 8 * count)), "{answer}");
}
