import { request } from "node:http";

export class FabricError extends Error {
  constructor(status, text) {
    super(text);
    this.name = "FabricError";
    this.status = status;
  }
}

/** The message of a refused request. */
function reason(text) {
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text;
  }
}

/** The path with names and the query. */
function target(path, names, query) {
  const rest = [...names];
  const filled = path.replaceAll("{}", () => encodeURIComponent(String(rest.shift())));
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length > 0 ? `${filled}?${new URLSearchParams(given)}` : filled;
}

export class ControlSocket {
  #path;
  #timeout;

  constructor(path, timeout = 90_000) {
    this.#path = path;
    this.#timeout = timeout;
  }

  text(method, path, names, { query = {}, body } = {}) {
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    const options = { socketPath: this.#path, method, path: target(path, names, query), headers };
    return new Promise((resolve, reject) => {
      const sent = request({ ...options, timeout: this.#timeout }, (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.on("error", reject);
        response.on("end", () => {
          const text = Buffer.concat(parts).toString();
          if (response.statusCode < 300) {
            resolve(text);
          } else {
            reject(new FabricError(response.statusCode, reason(text)));
          }
        });
      });
      sent.on("timeout", () => sent.destroy(new Error(`${this.#path} did not answer within ${this.#timeout} ms`)));
      sent.on("error", reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  async json(method, path, names, options) {
    return JSON.parse(await this.text(method, path, names, options));
  }

  async call(method, path, names, options) {
    await this.text(method, path, names, options);
  }
}
