/** Numbers for people. */
const UNITS = ["", "k", "M", "G", "T"];

/** A number with three digits and its unit. */
export function short(value: number, unit = ""): string {
  let index = 0;
  while (value >= 999.5 && index < UNITS.length - 1) { value /= 1000; index += 1; }
  const digits = value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : 2;
  const text = index === 0 && Number.isInteger(value) ? String(value) : value.toFixed(digits);
  return `${text}${index || unit ? "\u2009" : ""}${UNITS[index]}${unit}`;
}

/** A moment, in nanoseconds since 1970. */
export function moment(nanoseconds: number): string {
  return new Date(nanoseconds / 1e6).toLocaleTimeString([], { hour12: false });
}
