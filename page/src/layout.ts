/** The layout of graphs by a worker. */
import { useEffect, useState } from "preact/hooks";
import type { Order, Placed } from "./layout.worker";

let worker: Worker | undefined;
let last = 0;
const waiting = new Map<number, (placed: Placed) => void>();

function place(order: Omit<Order, "number">, done: (placed: Placed) => void): () => void {
  if (!worker) {
    worker = new Worker("/layout.js", { type: "module" });
    worker.addEventListener("message", ({ data }: MessageEvent<Placed>) => {
      waiting.get(data.number)?.(data);
      waiting.delete(data.number);
    });
  }
  const number = ++last;
  waiting.set(number, done);
  worker.postMessage({ number, ...order });
  return () => waiting.delete(number);
}

/** Where the nodes of a graph go; `null` until that is known. It is found anew only when `key` changes. */
export function usePlaces(key: string, order: () => Omit<Order, "number">): Placed | null {
  const [placed, set] = useState<{ key: string; placed: Placed } | null>(null);
  useEffect(() => place(order(), (found) => set({ key, placed: found })), [key]);
  return placed?.key === key ? placed.placed : null;
}

/** The path of a line through points. */
export function path(points: { x: number; y: number }[]): string {
  return points.map(({ x, y }, index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}
