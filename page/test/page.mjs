// Opens the page in a browser without a window, and checks what a person would see. Arguments: the page's address with a
// token, and a folder for pictures. The fabric is that of `cli/tests/page.rs`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import assert from "node:assert/strict";
import puppeteer from "puppeteer-core";

const [, , url, pictures, browserPath = "/usr/bin/chromium"] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({
  executablePath: browserPath, headless: true, acceptInsecureCerts: true,
  args: ["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
});
let passed = 0;
const check = (what, so) => { assert.ok(so, what); passed += 1; };

try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  const text = () => page.evaluate(() => document.body.innerText);
  const shows = (part) => page.waitForFunction((part) => document.body.innerText.includes(part), { timeout: 15_000 }, part);
  const view = async (name, part) => {
    await page.keyboard.press(String(["ports", "topology", "trace", "links", "functions", "events"].indexOf(name) + 1));
    await page.waitForSelector(`main#${name}`);
    await shows(part);
  };

  // axe needs its own script, which the page's policy does not allow: it runs in a world of its own.
  const client = await page.createCDPSession();
  const accessible = async (what) => {
    const { frameTree } = await client.send("Page.getFrameTree");
    const { executionContextId } = await client.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
    const evaluate = async (expression) => {
      const { result, exceptionDetails } = await client.send("Runtime.evaluate",
        { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
      assert.ok(!exceptionDetails, JSON.stringify(exceptionDetails));
      return result.value;
    };
    await evaluate(axe);
    const found = await evaluate("axe.run().then((found) => found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3)}`))");
    check(`${what}: ${found.join("; ")}`, found.length === 0);
  };

  await page.goto(new URL("/", url).href);
  await shows("This page needs a token");
  await accessible("the form");
  await page.goto(url);
  await page.reload();
  await page.waitForFunction(() => /\b(\d+) of \1\b/.test(document.body.innerText), { timeout: 15_000 });
  check("the token is not in the address", !page.url().includes("token"));
  check("the token is no cookie", (await page.cookies()).length === 0);
  // Frames pass, and some are dropped.
  await page.waitForFunction(() => /[1-9][\d.]*\s*k?\/s/.test(document.querySelector("tbody")?.innerText ?? ""), { timeout: 20_000 });
  await page.waitForFunction(() => (document.querySelector("section table")?.innerText ?? "").length > 3, { timeout: 20_000 });
  check("the chart is drawn", (await page.$$(".chart canvas")).length === 1);
  await accessible("ports");
  await page.screenshot({ path: `${pictures}/page-ports.png` });
  // Keys choose a port.
  const chosen = () => page.$eval("#chosen", (heading) => heading.textContent);
  await page.focus(".scroll");
  await page.keyboard.press("End");
  const last = await chosen();
  await page.keyboard.press("Home");
  check("arrow keys choose a port", last !== (await chosen()));

  await view("topology", "main");
  await page.waitForSelector(".edge text", { timeout: 20_000 });
  check("nodes", (await page.$$(".node")).length >= 3);
  await accessible("topology");
  await page.screenshot({ path: `${pictures}/page-topology.png` });
  await view("trace", "From port");
  await page.click("form button");
  await page.waitForSelector(".hops li");
  await accessible("trace");
  await page.screenshot({ path: `${pictures}/page-trace.png` });
  await view("links", "wan");
  await page.focus("input[type=range][id$=-delay]");
  for (let step = 0; step < 4; step += 1) await page.keyboard.press("ArrowRight");
  await shows("10ms");
  await accessible("links");
  await page.screenshot({ path: `${pictures}/page-links.png` });
  await view("functions", "Count for a second");
  await page.waitForSelector(".element");
  await page.$eval(".element", (element) => element.focus());
  await page.keyboard.press("Enter");
  await page.waitForSelector("section[aria-label^=Handlers] tr");
  await page.click("section[aria-label^=Handlers] button");
  await page.waitForSelector(".value pre");
  await accessible("functions");
  await page.screenshot({ path: `${pictures}/page-functions.png` });
  await view("events", "link-set");
  await accessible("events");

  // Light and dark.
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await back();
  await page.click("header button");
  check("the theme changes", before !== (await back()));
  await view("ports", " of ");
  await accessible("the other theme");
  await page.screenshot({ path: `${pictures}/page-dark.png` });

  check(`no errors: ${wrong.join("; ")}`, wrong.length === 0);
  check("the fabric is named", (await text()).includes("lab"));
} finally {
  await browser.close();
}
console.log(`${passed} passed, 0 failed`);
