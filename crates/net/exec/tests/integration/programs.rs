//! Programs of other languages and other C libraries: statically linked, Go's, Node's; databases; sockets passed on.

use crate::lab::{Folder, compare, compare_all, compare_linux, has, is_long, succeeds};
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// A server of files in a folder with one of 2,000,001 bytes.
fn file_server(folder: &Folder) -> String {
    let bytes: Vec<u8> = (0..2_000_001_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(folder.0.join("page"), bytes).unwrap();
    format!(
        "import functools, http.server, socketserver
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory='{}')
server = socketserver.ThreadingTCPServer(('', 8000), handler)
print('ready', flush=True)
server.serve_forever()",
        folder.0.display()
    )
}

#[test]
fn a_statically_linked_program_gets_a_file() {
    let folder = Folder::new("static");
    let server = file_server(&folder);
    let script = "/bin/busybox wget -q -O - http://10.0.0.1:8000/page | md5sum; \
        echo hello | /bin/busybox nc -w 5 10.0.0.1 8001 || echo refused";
    let (_, answer) = compare_all(&[PYTHON, "-c", &server], &["sh", "-c", script]);
    let sum = Command::new("md5sum").arg(folder.0.join("page")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let (expected, _) = sum.split_once(' ').unwrap();
    assert!(answer.starts_with(expected) && answer.ends_with("refused\n"), "{answer}");
}

#[test]
fn wget_gets_a_file_in_parts() {
    if !has("wget") {
        return;
    }
    let folder = Folder::new("wget");
    let server = file_server(&folder);
    let shown = folder.0.display();
    let script = format!(
        "cd {shown}; for i in 1 2 3; do wget -q -t 1 -O got http://10.0.0.1:8000/page && cmp got page; done
        wget -nv -t 1 http://10.0.0.1:8000/missing 2>/dev/null || echo $?
        wget -nv -t 1 http://10.0.0.1:8001/page 2>/dev/null || echo $?"
    );
    let (server, client) = ([PYTHON, "-c", &server], ["sh", "-c", &script]);
    assert_eq!(compare_all(&server, &client).1, "8\n4\n");
    compare_linux(Some(&folder), &server, &client);
}

#[test]
fn a_java_server_answers_its_client() {
    // Eight virtual machines take most of the time of all tests.
    if !is_long() || !has("javac") || !has("java") {
        return;
    }
    let folder = Folder::new("java");
    let source = r#"
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.util.concurrent.*;
public class Main {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("serve")) {
            HttpServer server = HttpServer.create(new InetSocketAddress(8000), 50);
            server.createContext("/", exchange -> {
                byte[] body = exchange.getRequestBody().readAllBytes();
                for (int at = 0; at < body.length; at++) body[at] ^= 0x55;
                exchange.sendResponseHeaders(200, body.length);
                exchange.getResponseBody().write(body);
                exchange.close();
            });
            server.setExecutor(Executors.newFixedThreadPool(4));
            server.start();
            System.out.println("ready");
            return;
        }
        ExecutorService pool = Executors.newFixedThreadPool(8);
        ExecutorCompletionService<Boolean> all = new ExecutorCompletionService<>(pool);
        for (int number = 0; number < 24; number++) {
            int length = number * 20011 + 1;
            all.submit(() -> {
                URL page = new URL("http://10.0.0.1:8000/");
                HttpURLConnection asked = (HttpURLConnection) page.openConnection();
                asked.setDoOutput(true);
                byte[] body = new byte[length];
                for (int at = 0; at < length; at++) body[at] = (byte) (at * 7 % 251);
                asked.getOutputStream().write(body);
                byte[] got = asked.getInputStream().readAllBytes();
                for (int at = 0; at < got.length; at++) got[at] ^= 0x55;
                return java.util.Arrays.equals(body, got);
            });
        }
        int right = 0;
        for (int number = 0; number < 24; number++) if (all.take().get()) right++;
        System.out.println(right);
        pool.shutdown();
    }
}
"#;
    let source = folder.write("Main.java", source);
    let shown = folder.0.display().to_string();
    if !succeeds(Command::new("javac").args(["-d", &shown, &source])) {
        return;
    }
    let java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &shown, "Main"];
    let (server, client) = ([&java[..], &["serve"]].concat(), [&java[..], &["ask"]].concat());
    assert_eq!(compare_all(&server, &client).1, "24\n");
    compare_linux(Some(&folder), &server, &client);
}

#[test]
fn sockperf_loses_no_message() {
    // It takes three seconds each time.
    if !is_long() || !has("sockperf") {
        return;
    }
    // Each of its messages names an address, also with TCP.
    for kind in ["--tcp", ""] {
        let server = format!("sockperf server -p 5001 {kind} >&2 & sleep 0.5; echo ready; wait");
        let client = format!("sockperf ping-pong -i 10.0.0.1 -p 5001 -t 1 {kind} | grep -o '# dropped.*= 0'");
        let (_, answer) = compare(&["sh", "-c", &server], &["sh", "-c", &client]);
        let line = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0\n";
        assert_eq!(answer, line);
    }
}

#[test]
fn a_static_go_program_serves_and_asks_under_its_own_signals() {
    if !has("go") {
        return;
    }
    let folder = Folder::new("go");
    let source = r#"package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

func main() {
	if os.Args[1] == "serve" {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d", len(body))
		})
		listener, err := net.Listen("tcp", ":8000")
		if err != nil {
			panic(err)
		}
		fmt.Println("ready")
		panic(http.Serve(listener, nil))
	}
	var group sync.WaitGroup
	right := make([]bool, 100)
	for number := range right {
		group.Add(1)
		go func() {
			defer group.Done()
			body := strings.Repeat("x", 1000*number)
			answer, err := http.Post("http://10.0.0.1:8000/", "text/plain", strings.NewReader(body))
			if err != nil {
				fmt.Println(err)
				return
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			right[number] = string(text) == fmt.Sprint(len(body))
		}()
	}
	group.Wait()
	count := 0
	for _, one := range right {
		if one {
			count++
		}
	}
	fmt.Println(count)
}
"#;
    std::fs::write(folder.0.join("main.go"), source).unwrap();
    let program = folder.0.join("main");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).args([&program, &folder.0.join("main.go")]);
    build.envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off"), ("GOTELEMETRY", "off")]);
    if !succeeds(&mut build) {
        return;
    }
    let program = program.display().to_string();
    let (server, client) = ([program.as_str(), "serve"], [program.as_str(), "ask"]);
    assert_eq!(compare_all(&server, &client).1, "100\n");
    compare_linux(Some(&folder), &server, &client);
}

#[test]
fn node_serves_requests() {
    if !has("node") || !has("curl") {
        return;
    }
    let server = "\
require('http').createServer((request, response) => {
  let length = 0;
  request.on('data', (data) => { length += data.length; });
  request.on('end', () => response.end(`${length}\\n`));
}).listen(8000, () => console.log('ready'));";
    let client = "for size in 1 70000 1000000; do
        head -c $size /dev/zero | curl -sS --data-binary @- http://10.0.0.1:8000/; done";
    let (server, client) = (["node", "-e", server], ["sh", "-c", client]);
    assert_eq!(compare_all(&server, &client).1, "1\n70000\n1000000\n");
    compare_linux(None, &server, &client);
}

#[test]
fn redis_answers_its_benchmark_and_saves_in_a_child() {
    if !has("redis-server") || !has("redis-benchmark") {
        return;
    }
    let folder = Folder::new("redis");
    // Its sockets are held by the child that saves, which uses none of them.
    let server = format!(
        "redis-server --port 6379 --protected-mode no --save '' --dir {} >&2 &
        until redis-cli ping 2>/dev/null | grep -q PONG; do kill -0 $! || exit 1; sleep 0.05; done
        echo ready; wait",
        folder.0.display()
    );
    let client = "redis-benchmark -h 10.0.0.1 -n 2000 -c 20 -q -t set,get,lpush >/dev/null && echo measured
        redis-cli -h 10.0.0.1 set key value
        redis-cli -h 10.0.0.1 bgsave
        until redis-cli -h 10.0.0.1 info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.02; done
        redis-cli -h 10.0.0.1 get key
        redis-cli -h 10.0.0.1 info persistence | grep -o 'rdb_last_bgsave_status:[a-z]*'";
    let (_, answer) = compare_all(&["sh", "-c", &server], &["sh", "-c", client]);
    assert_eq!(answer, "measured\nOK\nBackground saving started\nvalue\nrdb_last_bgsave_status:ok\n");
}

#[test]
fn an_accepted_socket_is_standard_input_of_a_shell_and_of_a_static_program() {
    let server = "\
import socket, subprocess
s = socket.create_server(('', 9))
print('ready', flush=True)
for command in [['sh', '-c', 'read line; echo \"got $line\"'], ['/bin/busybox', 'cat']]:
    c, peer = s.accept()
    subprocess.run(command, stdin=c, stdout=c)
    c.close()";
    let client = "\
import socket
for text in [b'a line\\n', bytes(range(256)) * 2000]:
    s = socket.create_connection(('10.0.0.1', 9))
    s.sendall(text)
    s.shutdown(socket.SHUT_WR)
    got = b''.join(iter(lambda: s.recv(65536), b''))
    print(len(got), got == text, got[:20] if len(got) < 20 else '')";
    let (_, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "11 False b'got a line\\n'\n512000 True \n");
}

#[test]
fn sockets_pass_between_processes() {
    let server = "\
import array, os, socket
s = socket.create_server(('', 9))
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    for _ in range(20):
        data, ancillary, _, _ = theirs.recvmsg(1, socket.CMSG_LEN(4))
        c = socket.socket(fileno=array.array('i', ancillary[0][2])[0])
        c.sendall(c.recv(100).upper())
        c.close()
    os._exit(0)
print('ready', flush=True)
for _ in range(20):
    c, peer = s.accept()
    ours.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [c.fileno()]))])
    c.close()
os.wait()";
    let client = "\
import socket
for number in range(20):
    s = socket.create_connection(('10.0.0.1', 9))
    s.sendall(b'word %d' % number)
    assert s.recv(100) == b'WORD %d' % number, number
    assert s.recv(100) == b'', number
print('all')";
    assert_eq!(compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]).1, "all\n");
}
