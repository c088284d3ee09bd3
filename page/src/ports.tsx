/** Ports with rates, and dropped frames with their reasons. */
import { computed, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { short } from "./format";
import { byPort, chosen, history, HISTORY, ports, rates, sum } from "./state";

const filter = signal("");
const top = signal(0);
/** Height of a row, and of the table, in pixels: only the rows that are seen are in the document. */
const ROW = 30;
const SEEN = 480;

const shown = computed(() => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  return ports.value.filter((port) => {
    const text = `${port.name} ${port.kind} ${port.to} ${port.state}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
});

/** Reasons with numbers, the largest first. */
function reasons(drops: Record<string, number>, unit: string): string {
  const all = Object.entries(drops).sort(([, one], [, other]) => other - one);
  return all.map(([reason, count]) => `${reason} ${short(count, unit)}`).join(", ");
}

function move(event: KeyboardEvent) {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
  if (!step) return;
  event.preventDefault();
  const list = shown.value;
  const now = list.findIndex((port) => port.name === chosen.value);
  const next = Math.max(0, Math.min(list.length - 1, now + step));
  chosen.value = list[next]?.name ?? "";
  const box = event.currentTarget as HTMLElement;
  if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
  if ((next + 2) * ROW > box.scrollTop + SEEN) box.scrollTop = (next + 2) * ROW - SEEN;
}

function Table() {
  const list = shown.value;
  const first = Math.max(0, Math.floor(top.value / ROW) - 2);
  const rows = list.slice(first, first + Math.ceil(SEEN / ROW) + 4);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Ports; arrow keys choose one" onKeyDown={move}
      style={{ maxHeight: `${SEEN}px` }} onScroll={(event) => { top.value = event.currentTarget.scrollTop; }}>
      <table aria-rowcount={list.length + 1}>
        <thead>
          <tr>
            <th>Port</th><th>Kind</th><th>To</th><th>State</th>
            <th class="number">TX frames</th><th class="number">TX bits</th>
            <th class="number">RX frames</th><th class="number">RX bits</th><th>Drops</th>
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true"><td colSpan={9} style={{ height: `${first * ROW}px` }} /></tr>}
          {rows.map((port, index) => {
            const now = byPort.value.get(port.name);
            return (
              <tr key={port.name} aria-rowindex={first + index + 2} class={port.name === chosen.value ? "chosen" : ""}
                aria-current={port.name === chosen.value ? "true" : undefined} onClick={() => { chosen.value = port.name; }}>
                <th scope="row">{port.name}</th><td>{port.kind}</td><td>{port.to}</td>
                <td><span class={`state ${now?.state ?? port.state}`}>{now?.state ?? port.state}</span></td>
                <td class="number">{short(now?.tx_frames ?? 0, "/s")}</td>
                <td class="number">{short(8 * (now?.tx_bytes ?? 0), "b/s")}</td>
                <td class="number">{short(now?.rx_frames ?? 0, "/s")}</td>
                <td class="number">{short(8 * (now?.rx_bytes ?? 0), "b/s")}</td>
                <td class="drops">{now && reasons(now.drops, "/s")}</td>
              </tr>
            );
          })}
          {first + rows.length < list.length && (
            <tr aria-hidden="true"><td colSpan={9} style={{ height: `${(list.length - first - rows.length) * ROW}px` }} /></tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

function colours(at: HTMLElement): Record<string, string> {
  const style = getComputedStyle(at);
  return Object.fromEntries(["tx", "rx", "bad", "text", "grid"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A port's last minutes. The chart is made once for a port, and given new values each second. */
function Chart({ port }: { port: string }) {
  const at = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = at.current!;
    let plot: uPlot | undefined;
    const values = () => { const [times, tx, rx, , drops] = history(port); return [times, tx, rx, drops] as uPlot.AlignedData; };
    const make = () => {
      plot?.destroy();
      const { tx, rx, bad, text, grid } = colours(box);
      const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
      const each = (_: uPlot, list: number[]) => list.map((value) => short(value));
      const value = (_: uPlot, number: number | null) => (number === null ? "" : short(number, "/s"));
      plot = new uPlot({
        width: box.clientWidth, height: 220, cursor: { y: false },
        scales: { x: { range: (_, __, max) => [max - HISTORY, max] }, y: { range: (_, __, max) => [0, Math.max(max, 10)] } },
        axes: [axis, { ...axis, size: 64, values: each }],
        series: [
          {}, { label: "TX frames", stroke: tx, width: 2, value }, { label: "RX frames", stroke: rx, width: 2, value },
          { label: "dropped", stroke: bad, width: 2, dash: [4, 3], value },
        ],
      }, values(), box);
    };
    make();
    const end = rates.subscribe(() => plot?.setData(values()));
    const size = new ResizeObserver(() => plot?.setSize({ width: box.clientWidth, height: 220 }));
    size.observe(box);
    const theme = new MutationObserver(make);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => { end(); size.disconnect(); theme.disconnect(); plot?.destroy(); };
  }, [port]);
  return <div ref={at} class="chart" role="img" aria-label={`Frames a second of port ${port}`} />;
}

function Chosen() {
  const port = ports.value.find((port) => port.name === chosen.value);
  if (!port) return null;
  const now = byPort.value.get(port.name);
  const dropped = Object.entries(now?.dropped ?? {}).sort(([, one], [, other]) => other - one);
  return (
    <section aria-labelledby="chosen">
      <h3 id="chosen">{port.name}</h3>
      <p class="about">{[port.kind, port.to, port.worker && `worker ${port.worker}`, port.peer, port.reason].filter(Boolean).join(" · ")}</p>
      <Chart key={port.name} port={port.name} />
      <h4>Dropped frames{now ? `: ${short(sum(now.dropped))}` : ""}</h4>
      {dropped.length === 0 ? <p>None.</p> : (
        <table><tbody>
          {dropped.map(([reason, count]) => <tr key={reason}><th scope="row">{reason}</th><td class="number">{count.toLocaleString()}</td></tr>)}
        </tbody></table>
      )}
    </section>
  );
}

export function Ports() {
  return (
    <>
      <p>
        <label for="filter">Filter</label>{" "}
        <input id="filter" type="search" value={filter.value} onInput={(event) => { filter.value = event.currentTarget.value; }} />
        {" "}{shown.value.length} of {ports.value.length}
      </p>
      <Table />
      <Chosen />
    </>
  );
}
