// Gives the page an hour of a fabric with 200 ports within seconds, and checks that its memory does not grow with it.
// Argument: the browser.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import assert from "node:assert/strict";
import puppeteer from "puppeteer-core";

const [, , browserPath = "/usr/bin/chromium"] = process.argv;
const dist = fileURLToPath(new URL("../dist", import.meta.url));
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };
const PORTS = 200;

const names = Array.from({ length: PORTS }, (_, index) => `port-${index}`);
const ports = names.map((name) => ({ name, kind: "ring", to: "switch main", state: "up", peer: "", reason: "", worker: "w0" }));
const graph = {
  nodes: [{ what: "switch", name: "main", detail: "switch, learning" }, ...names.map((name) => ({ what: "port", name, detail: "ring, up" }))],
  edges: names.map((_, index) => [index + 1, 0]),
};
const rates = (number) => ({
  time: (1_700_000_000 + number) * 1e9, seconds: 1, links: [],
  ports: names.map((name, index) => ({
    name, state: "up", tx_frames: number + index, tx_bytes: 64 * number, rx_frames: 2 * number, rx_bytes: 128 * number,
    drops: { "no-room": index % 7 }, dropped: { "no-room": number * (index % 7) },
  })),
});

const streams = {};
const server = createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/v1/rates" || request.url.includes("follow=true")) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(":\n\n");
    streams[path] = response;
    return;
  }
  if (path.startsWith("/v1/")) {
    const answers = { "/v1/fabric": { name: "hour" }, "/v1/ports": ports, "/v1/graph": graph };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(answers[path] ?? []));
    return;
  }
  const file = path === "/" ? "index.html" : path.slice(1);
  try {
    const content = readFileSync(join(dist, file));
    response.writeHead(200, { "content-type": TYPES[file.split(".").pop()] });
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));

const browser = await puppeteer.launch({
  executablePath: browserPath, headless: true, args: ["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
});
try {
  const page = await browser.newPage();
  const client = await page.createCDPSession();
  const began = performance.now();
  await page.goto(`http://127.0.0.1:${server.address().port}/#token=x`);
  await page.waitForFunction((count) => document.body.innerText.includes(`${count} of ${count}`), {}, PORTS);
  console.log(`first paint of ${PORTS} ports: ${Math.round(performance.now() - began)} ms`);
  const rows = await page.$$eval("tbody tr", (rows) => rows.length);
  assert.ok(rows < 40, `${rows} rows are in the document; only those that are seen should be`);
  const send = async (path, text) => {
    if (!streams[path].write(text)) await new Promise((drained) => streams[path].once("drain", drained));
  };
  const settle = (number) => page.waitForFunction(
    (text) => document.querySelector("tbody tr:not([aria-hidden]) .number")?.textContent.replace(/\s/g, "").startsWith(text), { timeout: 60_000 },
    String((number / 1000).toPrecision(3)));
  const pass = async (from, to) => {
    for (let number = from; number <= to; number += 1) {
      await send("/v1/rates", `event: rates\ndata: ${JSON.stringify(rates(number))}\n\n`);
      const event = { id: number, time: number * 1e9, kind: "peer-attached", name: names[number % PORTS], text: "x".repeat(200) };
      await send("/v1/events", `id: ${number}\nevent: peer-attached\ndata: ${JSON.stringify(event)}\n\n`);
    }
    await settle(to);
    // What is to be finalized goes with a later collection.
    let least = Infinity;
    for (let collection = 0; collection < 5; collection += 1) {
      await client.send("HeapProfiler.collectGarbage");
      least = Math.min(least, (await client.send("Runtime.getHeapUsage")).usedSize);
    }
    return least;
  };
  const full = await pass(1000, 1700);
  const later = await pass(1701, 4600);
  console.log(`memory: ${full} bytes after ten minutes, ${later} after an hour`);
  assert.ok(later < 1.15 * full + 500_000, "memory grows");
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
console.log("3 passed, 0 failed");
