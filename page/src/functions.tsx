/** Functions, their graphs and their handlers. */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { get, send } from "./api";
import { short } from "./format";
import { path, usePlaces } from "./layout";
import { functions } from "./state";

interface Element { name: string; class: string; packets: number; ticks: number }
interface Graph { elements: Element[]; connections: { from: number; output: number; to: number; input: number; packets: number }[]; nanoseconds: number }

const WIDTH = 160;
const HEIGHT = 40;
const picked = signal("");

const base = (name: string) => `/v1/functions/${encodeURIComponent(name)}`;
const handler = (name: string, what: string) => `${base(name)}/handlers/${what.split("/").map(encodeURIComponent).join("/")}`;

function Drawing({ graph, element, choose }: { graph: Graph; element: string; choose: (name: string) => void }) {
  const { elements, connections } = graph;
  const edges = connections.map(({ from, to }) => [from, to] as [number, number]);
  const key = JSON.stringify([elements.map((one) => one.name), edges]);
  const placed = usePlaces(key, () => ({ nodes: elements.map(() => ({ width: WIDTH, height: HEIGHT })), edges }));
  if (!placed) return <p role="status">The graph is being drawn.</p>;
  const seconds = graph.nanoseconds / 1e9 || 1;
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Elements of the function">
      <svg viewBox={`0 0 ${placed.width} ${placed.height}`} width={placed.width} height={placed.height}>
        {connections.map((one, index) => {
          const middle = placed.lines[index][Math.floor(placed.lines[index].length / 2)];
          return (
            <g key={index} class="edge">
              <path d={path(placed.lines[index])} stroke-width={one.packets ? 2 : 1} class={one.packets ? "busy" : ""} />
              {one.packets > 0 && <text class="small" x={middle.x} y={middle.y - 4}>{short(one.packets / seconds, "/s")}</text>}
            </g>
          );
        })}
        {elements.map((one, index) => {
          const { x, y } = placed.places[index];
          const open = () => choose(one.name);
          return (
            <g key={one.name} role="button" tabindex={0} aria-pressed={one.name === element}
              class={`node element ${one.name === element ? "chosen" : ""}`} transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}
              onClick={open} onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } }}>
              <rect width={WIDTH} height={HEIGHT} rx={4} />
              <text x={WIDTH / 2} y={17}>{one.name.slice(0, 22)}</text>{" "}
              <text x={WIDTH / 2} y={32} class="small">{one.class.slice(0, 24)}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

/** A handler: read when it is opened; written if it can be. */
function Handler({ of, element, name, mode }: { of: string; element: string; name: string; mode: string }) {
  const [value, set] = useState<string | null>(null);
  const [text, write] = useState("");
  const [error, fail] = useState("");
  const at = handler(of, `${element}.${name}`);
  const failed = (why: Error) => fail(why.message);
  const read = () => get<{ value: string }>(at).then(({ value }) => { fail(""); set(value); }, failed);
  const put = (event: Event) => {
    event.preventDefault();
    send("PUT", at, { value: text }).then(() => { fail(""); if (mode.includes("r")) return read(); }, failed);
  };
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{mode.includes("r") && <button class="plain" onClick={read} aria-label={`Read ${name}`}>Read</button>}</td>
      <td>{mode.includes("w") && (
        <form class="row" onSubmit={put}>
          <input value={text} aria-label={`Value for ${name}`} onInput={(event) => write(event.currentTarget.value)} />
          <button class="plain" aria-label={`Write ${name}`}>Write</button>
        </form>
      )}</td>
      <td class="value" role="status">{error ? <span class="bad">{error}</span> : value !== null && <pre>{value}</pre>}</td>
    </tr>
  );
}

function Handlers({ of, element }: { of: string; element: string }) {
  const [list, set] = useState<[string, string][] | null>(null);
  const [error, fail] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    set(null);
    get<{ value: string }>(handler(of, `${element}.handlers`), abort.signal).then(
      ({ value }) => set(value.trim().split("\n").map((line) => line.split(/\s+/) as [string, string])),
      (why: Error) => { if (!abort.signal.aborted) fail(why.message); },
    );
    return () => abort.abort();
  }, [of, element]);
  return (
    <section aria-label={`Handlers of ${element}`}>
      <h4>{element}</h4>
      {error && <p class="bad">{error}</p>}
      {list && <table><tbody>{list.map(([name, mode = "r"]) => <Handler key={`${element}.${name}`} of={of} element={element} name={name} mode={mode} />)}</tbody></table>}
    </section>
  );
}

function One({ name }: { name: string }) {
  const [graph, set] = useState<Graph | null>(null);
  const [element, choose] = useState("");
  const [error, fail] = useState("");
  const [counting, count] = useState(false);
  const load = (seconds: number) => {
    count(true);
    return get<Graph>(`${base(name)}/graph?seconds=${seconds}`).then((graph) => { fail(""); set(graph); }, (why: Error) => fail(why.message)).finally(() => count(false));
  };
  useEffect(() => { void load(0); }, [name]);
  return (
    <section aria-labelledby="function">
      <h3 id="function">{name}</h3>
      <p class="row">
        <button disabled={counting} onClick={() => void load(1)}>Count for a second</button>
        <span class="about">Counting slows the function down for that second.</span>
      </p>
      {error && <p class="bad" role="status">{error}</p>}
      {graph && <Drawing graph={graph} element={element} choose={choose} />}
      {element && <Handlers key={element} of={name} element={element} />}
    </section>
  );
}

export function Functions() {
  const list = functions.value;
  const shown = list.find((one) => one.name === picked.value) ?? list[0];
  if (!shown) return <p>The fabric has no function.</p>;
  return (
    <>
      <div class="scroll short" tabIndex={0} role="group" aria-label="Functions">
        <table>
          <thead><tr><th>Function</th><th>State</th><th>In</th><th>Ports</th><th class="number">Restarts</th><th>Reason</th></tr></thead>
          <tbody>
            {list.map((one) => (
              <tr key={one.name} class={one === shown ? "chosen" : ""}>
                <th scope="row"><button class="link" aria-pressed={one === shown} onClick={() => { picked.value = one.name; }}>{one.name}</button></th>
                <td><span class={`state ${one.state}`}>{one.state}</span></td><td>{one.isolation}</td><td>{one.ports.join(", ")}</td>
                <td class="number">{one.restarts}</td><td>{one.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <One key={shown.name} name={shown.name} />
    </>
  );
}
