/** Emulated links, changed by sliders. */
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { send } from "./api";
import { short } from "./format";
import { links, rates, type Direction, type Link } from "./state";

/** A slider: a setting of a link, and how its value is written. */
interface Setting {
  key: string; title: string;
  /** The value for each place of the slider; the first is the default. */
  steps: string[];
  /** The value as a number, to find the place of one that is set. */
  size: (text: string) => number;
}

const TIMES: Record<string, number> = { ns: 1e-6, us: 1e-3, ms: 1, s: 1000 };
const RATES: Record<string, number> = { "": 1e-6, k: 1e-3, K: 1e-3, M: 1, G: 1000 };

function time(text: string): number {
  const [, number, unit] = /^([\d.]+)([a-z]+)/.exec(text) ?? [];
  return Number(number ?? 0) * (TIMES[unit] ?? 0);
}

function rate(text: string): number {
  const [, number, unit, bytes] = /^([\d.]+)\s*([kKMG]?)(B?)/.exec(text) ?? [];
  return text ? Number(number ?? 0) * (RATES[unit ?? ""] ?? 0) * (bytes ? 8 : 1) : Infinity;
}

const milliseconds = ["", "1", "2", "5", "10", "20", "30", "50", "80", "100", "150", "200", "300", "500", "1000"];
const SETTINGS: Setting[] = [
  { key: "rate", title: "Rate", size: rate, steps: ["", "10Gbit", "1Gbit", "500Mbit", "200Mbit", "100Mbit", "50Mbit", "20Mbit", "10Mbit", "5Mbit", "2Mbit", "1Mbit", "500kbit", "200kbit", "100kbit"] },
  { key: "delay", title: "Delay", size: time, steps: milliseconds.map((number) => number && `${number}ms`) },
  { key: "jitter", title: "Jitter", size: time, steps: milliseconds.map((number) => number && `${number}ms`) },
  { key: "loss", title: "Loss", size: parseFloat, steps: ["", "0.01%", "0.02%", "0.05%", "0.1%", "0.2%", "0.5%", "1%", "2%", "5%", "10%", "20%", "50%"] },
];

const error = signal("");

/** The place of the slider that is nearest to a value. */
function placeOf({ steps, size }: Setting, value: string): number {
  if (!value) return 0;
  const all = steps.map((step, index) => [Math.abs(Math.log((size(step) || 1e-9) / (size(value) || 1e-9))), index]);
  return all.filter(([, index]) => index > 0).sort(([one], [other]) => one - other)[0][1];
}

async function set(link: string, from: string, key: string, value: string) {
  error.value = "";
  try {
    const now = await send<Link>("PATCH", `/v1/links/${encodeURIComponent(link)}`, { from, settings: { [key]: value || null } });
    links.value = links.peek().map((one) => (one.name === link ? now : one));
  } catch (failed) {
    error.value = (failed as Error).message;
  }
}

/** Time without a move after which a slider's value is sent, in milliseconds. */
const STILL = 200;

function Slider({ link, direction, setting }: { link: string; direction: Direction; setting: Setting }) {
  const value = direction.settings[setting.key] ?? "";
  const [moved, move] = useState<number | null>(null);
  const moves = useRef(0);
  const drag = (place: number) => {
    move(place);
    const mine = ++moves.current;
    setTimeout(async () => {
      if (moves.current !== mine) return;
      await set(link, direction.from, setting.key, setting.steps[place]);
      // The fabric's value is shown, unless the slider was moved meanwhile.
      if (moves.current === mine) move(null);
    }, STILL);
  };
  const place = moved ?? placeOf(setting, value);
  const text = (moved === null ? value : setting.steps[moved]) || (setting.key === "rate" ? "unlimited" : "none");
  const id = `${link}-${direction.from}-${setting.key}`;
  return (
    <div class="slider">
      <label for={id}>{setting.title}</label>
      <input id={id} type="range" min={0} max={setting.steps.length - 1} step={1} value={place} aria-valuetext={text}
        onInput={(event) => drag(Number(event.currentTarget.value))} />
      <output for={id}>{text}</output>
    </div>
  );
}

function Line({ link, direction }: { link: string; direction: Direction }) {
  const now = rates.value?.links.find((one) => one.name === link && one.from === direction.from);
  const others = Object.entries(direction.settings).filter(([key]) => !SETTINGS.some((setting) => setting.key === key));
  return (
    <fieldset>
      <legend>{direction.from} → {direction.to}</legend>
      <p class="about">
        {short(now?.frames ?? 0, "/s")}, {short(8 * (now?.bytes ?? 0), "b/s")}, drops {short(now?.drops ?? 0, "/s")}, queued {now?.queued ?? direction.queued}
        {others.map(([key, value]) => `, ${key} ${value}`)}
      </p>
      {SETTINGS.map((setting) => <Slider key={setting.key} link={link} direction={direction} setting={setting} />)}
    </fieldset>
  );
}

function One({ link }: { link: Link }) {
  return (
    <section aria-label={`Link ${link.name}`}>
      <h3>{link.name}</h3>
      <div class="columns">{link.directions.map((one) => <Line key={one.from} link={link.name} direction={one} />)}</div>
    </section>
  );
}

export function Links() {
  return (
    <>
      <p class="bad" role="status">{error}</p>
      {links.value.length === 0 ? <p>The fabric has no emulated link.</p> : links.value.map((link) => <One key={link.name} link={link} />)}
    </>
  );
}
