/** The fabric's API, with this page's token. */
import { signal } from "@preact/signals";

/** Where the token is kept while the tab is open. A cookie would be sent to other ports of this host too. */
const KEY = "ringway-token";

/** The token; empty until somebody gives one. */
export const token = signal(readToken());

/** The token of the address's fragment, which is not sent to the server, and no longer shown then. */
function readToken(): string {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

/** Takes the token of a fragment that has been put into the address of this tab. */
export function takeToken(): void {
  const given = readToken();
  if (given && given !== token.peek()) token.value = given;
}

/** Sets the token, or forgets it. */
export function useToken(text: string): void {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
  token.value = text;
}

/** An error that the API answers. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  // Without one it would count as a guess.
  if (!token.peek()) throw new ApiError(401, "there is no token");
  const headers: Record<string, string> = { authorization: `Bearer ${token.peek()}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit", cache: "no-store",
  });
  if (answer.ok) return answer;
  const error = await answer.json().catch(() => ({}));
  if (answer.status === 401) useToken("");
  throw new ApiError(answer.status, error.error ?? `the fabric answers ${answer.status}`);
}

/** GET a path. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask("GET", path, undefined, signal)).json();
}

/** Sends a body; returns the answer, if it has one. */
export async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const answer = await ask(method, path, body);
  return answer.status === 204 ? (undefined as T) : answer.json();
}

/** The most characters of an event that is not complete yet. */
const LONGEST = 4 << 20;

/** Reads a stream of server-sent events until it ends. */
async function read(path: string, take: (kind: string, data: string) => void, signal: AbortSignal): Promise<void> {
  const answer = await ask("GET", path, undefined, signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    if (text.length > LONGEST) throw new Error("an event is too long");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name: string) => lines.find((line) => line.startsWith(name))?.slice(name.length).trim() ?? "";
      const data = field("data:");
      if (data) take(field("event:"), data);
    }
  }
}

/** Follows a stream, and begins again when it ends. Returns what ends it. */
export function follow(
  path: string, take: (kind: string, data: string) => void, state: (error: string) => void,
): () => void {
  const abort = new AbortController();
  void (async () => {
    for (let wait = 500; !abort.signal.aborted; wait = Math.min(2 * wait, 10_000)) {
      try {
        await read(path, (kind, data) => { wait = 500; state(""); take(kind, data); }, abort.signal);
        state("the connection ended");
      } catch (error) {
        if (abort.signal.aborted || (error instanceof ApiError && error.status === 401)) return;
        state(error instanceof Error ? error.message : String(error));
      }
      await new Promise((after) => setTimeout(after, wait));
    }
  })();
  return () => abort.abort();
}
