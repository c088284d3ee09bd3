/** A refused request. */
export class FabricError extends Error {
  /** The HTTP status. */
  readonly status: number;
}

/** What a request has besides its path. */
export interface Options {
  /** Parameters of the query; undefined and null ones are left out. */
  query?: Record<string, string | number | null | undefined>;
  /** A body, sent as JSON. */
  body?: unknown;
}

/** Requests over a fabric's control socket, `api.sock` in its run directory: HTTP and JSON on a UNIX socket. */
export class ControlSocket {
  /** The socket's path, and the time limit of a request in milliseconds. */
  constructor(path: string, timeout?: number);
  /** Sends a request. Each `{}` of the path stands for one of the names. Throws `FabricError` if it is refused. */
  call(method: string, path: string, names: readonly (string | number)[], options?: Options): Promise<void>;
  /** The same for an answer that is text. */
  text(method: string, path: string, names: readonly (string | number)[], options?: Options): Promise<string>;
  /** The same for an answer in JSON. */
  json(method: string, path: string, names: readonly (string | number)[], options?: Options): Promise<any>;
}
