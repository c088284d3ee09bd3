/** What would become of a frame, hop by hop. */
import { signal } from "@preact/signals";
import { send } from "./api";
import { chosen, ports } from "./state";

interface Destination { port: string; verdict: string; reason?: string | null; retag?: string | null; function?: { name: string } | null; link?: { name: string } | null; next: number[] }
interface Hop {
  number: number; after?: number | null; port: string; through: string; to: string; summary: string; lookup: string; table: string;
  vlan?: number | null; sender?: string | null; dropped?: string | null; note: string; held: boolean; destinations: Destination[]; omitted: number;
}
interface Traced { hops: Hop[]; changed: boolean; omitted: number }

const frame = signal("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80");
const traced = signal<Traced | null>(null);
const error = signal("");

async function trace(event: Event) {
  event.preventDefault();
  error.value = "";
  try {
    traced.value = await send<Traced>("POST", `/v1/ports/${encodeURIComponent(chosen.value)}/trace`, { frame: frame.value });
  } catch (failed) {
    traced.value = null;
    error.value = (failed as Error).message;
  }
}

function One({ hop }: { hop: Hop }) {
  const about = [
    hop.vlan != null && `VLAN ${hop.vlan}`, hop.table && `${hop.table}: ${hop.lookup}`, hop.sender && `sender ${hop.sender}`,
    hop.held && "waits for a function", hop.note,
  ].filter(Boolean).join(" · ");
  return (
    <li>
      <h3>{hop.number}. {hop.port}{hop.to && ` → ${hop.to}`}{hop.through && <span class="about"> after {hop.through}</span>}</h3>
      <code>{hop.summary}</code>
      {about && <p class="about">{about}</p>}
      {hop.dropped && <p class="bad">dropped: {hop.dropped}</p>}
      <ul>
        {hop.destinations.map((to, index) => (
          <li key={index}>
            <span class={to.verdict === "delivered" ? "good" : "bad"}>{to.verdict}</span>{" "}
            {to.port}{to.retag && `, tag ${to.retag}`}{to.reason && `: ${to.reason}`}
            {to.function && `, function ${to.function.name}`}{to.link && `, link ${to.link.name}`}
            {to.next.length > 0 && `, goes on at ${to.next.join(", ")}`}
          </li>
        ))}
      </ul>
      {hop.omitted > 0 && <p class="about">{hop.omitted} more destinations</p>}
    </li>
  );
}

export function Trace() {
  return (
    <>
      <form onSubmit={trace} class="row">
        <label for="from">From port</label>
        <select id="from" value={chosen.value} onChange={(event) => { chosen.value = event.currentTarget.value; }}>
          {ports.value.map((port) => <option key={port.name} value={port.name}>{port.name}</option>)}
        </select>
        <label for="frame">Frame</label>
        <input id="frame" class="wide" value={frame.value} spellcheck={false} onInput={(event) => { frame.value = event.currentTarget.value; }} />
        <button>Trace</button>
      </form>
      <p class="about">Fields in the words of ovs-ofctl, or bytes in hexadecimal. The frame is not sent.</p>
      <div role="status">
        {error.value && <p class="bad">{error.value}</p>}
        {traced.value && (
          <>
            {traced.value.changed && <p class="bad">The fabric changed meanwhile.</p>}
            <ol class="hops">{traced.value.hops.map((hop) => <One key={hop.number} hop={hop} />)}</ol>
          </>
        )}
      </div>
    </>
  );
}
