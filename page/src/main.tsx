import { effect, signal } from "@preact/signals";
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { takeToken, token, useToken } from "./api";
import { fabric, start, trouble } from "./state";
import { Ports } from "./ports";
import { Topology } from "./topology";
import { Trace } from "./trace";
import { Links } from "./links";
import { Functions } from "./functions";
import { Events } from "./events";

const VIEWS = [
  ["ports", "Ports", Ports], ["topology", "Topology", Topology], ["trace", "Trace", Trace],
  ["links", "Links", Links], ["functions", "Functions", Functions], ["events", "Events", Events],
] as const;

const view = signal(location.hash.slice(1) || "ports");
addEventListener("hashchange", () => {
  takeToken();
  view.value = location.hash.slice(1) || "ports";
});

/** The theme: that of the system until another one is chosen. */
const dark = signal(localStorage.getItem("ringway-theme"));
effect(() => {
  document.documentElement.dataset.theme = dark.value ?? "";
  if (dark.value) localStorage.setItem("ringway-theme", dark.value);
});

function isDark(): boolean {
  return dark.value ? dark.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Keys 1 to 6 show a view, unless somebody writes. */
document.addEventListener("keydown", (event) => {
  const at = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || at.closest("input:not([type=range]), textarea, select")) return;
  const chosen = VIEWS[Number(event.key) - 1];
  if (chosen) location.hash = chosen[0];
});

function Ask() {
  const submit = (event: Event) => {
    event.preventDefault();
    useToken((document.getElementById("token") as HTMLInputElement).value.trim());
  };
  return (
    <main class="ask">
      <h1>Ringway</h1>
      <p>This page needs a token. <code>ringway page</code> prints an address with one.</p>
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="off" required />
        <button>Show the fabric</button>
      </form>
    </main>
  );
}

/** Whether the tab is visible. Browsers have six connections to an address for all its tabs; a visible tab takes two. */
const seen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => { seen.value = !document.hidden; });

let end: (() => void) | undefined;
effect(() => {
  end?.();
  end = token.value && seen.value ? start() : undefined;
});

function Page() {
  if (!token.value) return <Ask />;
  const shown = VIEWS.find(([name]) => name === view.value) ?? VIEWS[0];
  const View = shown[2];
  return (
    <>
      <header>
        <h1>Ringway <span class="fabric">{fabric}</span></h1>
        <nav aria-label="Views">
          {VIEWS.map(([name, title], index) => (
            <a key={name} href={`#${name}`} aria-current={name === shown[0] ? "page" : undefined}>
              {title} <kbd aria-hidden="true">{index + 1}</kbd>
            </a>
          ))}
        </nav>
        <button class="plain" onClick={() => { dark.value = isDark() ? "light" : "dark"; }}>
          {isDark() ? "Light" : "Dark"}
        </button>
      </header>
      <p class="trouble" role="status">{trouble.value && `No news from the fabric: ${trouble.value}`}</p>
      <main id={shown[0]}><h2>{shown[1]}</h2><View /></main>
    </>
  );
}

render(<Page />, document.body);
