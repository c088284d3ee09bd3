/** What the page knows of the fabric. Everything is bounded: an hour open takes no more memory than a minute. */
import { computed, signal } from "@preact/signals";
import { follow, get } from "./api";

/** The rates of a port. */
export interface PortRates {
  name: string; state: string;
  tx_frames: number; tx_bytes: number; rx_frames: number; rx_bytes: number;
  /** Dropped frames a second, by reason. */
  drops: Record<string, number>;
  /** Dropped frames since the port is there, by reason. */
  dropped: Record<string, number>;
}

/** The rates of a direction of a link. */
export interface LinkRates { name: string; from: string; to: string; frames: number; bytes: number; drops: number; queued: number }

/** A second of the fabric. */
export interface Rates { time: number; seconds: number; ports: PortRates[]; links: LinkRates[] }

export interface Port { name: string; kind: string; to: string; state: string; peer: string; reason: string; worker: string }
export interface Direction { from: string; to: string; settings: Record<string, string>; drops: Record<string, number>; queued: number }
export interface Link { name: string; directions: Direction[] }
export interface Func { name: string; state: string; isolation?: string; reason: string; ports: string[]; restarts: number }
export interface Node { what: string; name: string; detail: string }
export interface Graph { nodes: Node[]; edges: [number, number][] }
export interface Happening { id: number; time: number; kind: string; name: string; text: string }

/** Seconds that charts show. */
export const HISTORY = 300;
/** Events that are kept. */
const EVENTS = 500;

export const rates = signal<Rates | null>(null);
export const ports = signal<Port[]>([]);
export const links = signal<Link[]>([]);
export const functions = signal<Func[]>([]);
export const graph = signal<Graph>({ nodes: [], edges: [] });
export const events = signal<Happening[]>([]);
export const fabric = signal("");
/** Why nothing comes from the fabric; empty while it does. */
export const trouble = signal("");
/** The port whose chart is shown. */
export const chosen = signal("");

/** Rates by port. */
export const byPort = computed(() => new Map(rates.value?.ports.map((port) => [port.name, port]) ?? []));

/** What a chart shows of a port: times, and four rows of values. */
export type Rows = [number[], number[], number[], number[], number[]];

/** The last seconds of each port; ports that are gone are forgotten. */
let histories = new Map<string, Rows>();

/** The last seconds of a port. */
export function history(name: string): Rows {
  return histories.get(name) ?? [[], [], [], [], []];
}

/** Sum of the values of a record. */
export function sum(values: Record<string, number>): number {
  return Object.values(values).reduce((total, value) => total + value, 0);
}

function note(now: Rates): void {
  const kept = new Map<string, Rows>();
  for (const port of now.ports) {
    const rows = histories.get(port.name) ?? [[], [], [], [], []];
    const row = [now.time / 1e9, port.tx_frames, port.rx_frames, 8 * (port.tx_bytes + port.rx_bytes), sum(port.drops)];
    row.forEach((value, index) => {
      rows[index].push(value);
      if (rows[index].length > HISTORY) rows[index].shift();
    });
    kept.set(port.name, rows);
  }
  histories = kept;
  rates.value = now;
}

/** Asks for what is there, after something happened. */
export async function refresh(): Promise<void> {
  const [one, all, lines, own, whole] = await Promise.all([
    get<{ name: string }>("/v1/fabric"), get<Port[]>("/v1/ports"), get<Link[]>("/v1/links"),
    get<Func[]>("/v1/functions"), get<Graph>("/v1/graph?seconds=0"),
  ]);
  fabric.value = one.name;
  ports.value = all;
  links.value = lines;
  functions.value = own;
  const shape = (graph: Graph) => JSON.stringify([graph.nodes.map(({ what, name, detail }) => [what, name, detail]), graph.edges]);
  if (shape(whole) !== shape(graph.peek())) graph.value = whole;
  if (!all.some((port) => port.name === chosen.peek())) chosen.value = all[0]?.name ?? "";
}

let planned: number | undefined;

/** Refreshes in a moment; many happenings are one refresh. */
export function refreshSoon(): void {
  planned ??= setTimeout(() => {
    planned = undefined;
    refresh().catch((error: Error) => { trouble.value = error.message; });
  }, 300);
}

/** Begins to follow the fabric. Returns what ends it. */
export function start(): () => void {
  const state = (error: string) => {
    // Of another control process, which has begun anew.
    if (trouble.peek() && !error) refreshSoon();
    trouble.value = error;
  };
  refreshSoon();
  void get<Happening[]>(`/v1/events?count=${EVENTS}`).then((list) => { events.value = list.reverse(); }, () => undefined);
  const ends = [
    follow("/v1/rates", (kind, data) => { if (kind === "rates") note(JSON.parse(data)); }, state),
    follow("/v1/events?follow=true", (kind, data) => {
      if (kind === "lost") return;
      const happened: Happening = JSON.parse(data);
      events.value = [happened, ...events.peek().filter((other) => other.id !== happened.id)].slice(0, EVENTS);
      refreshSoon();
    }, () => undefined),
  ];
  return () => {
    ends.forEach((end) => end());
    clearTimeout(planned);
    planned = undefined;
  };
}
