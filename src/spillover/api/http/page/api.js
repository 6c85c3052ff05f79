// Asks the HTTP API, and follows its live stream. Everything that the page shows comes through here.

import { followClock } from "./dom.js";

/** The server refused a request, and said why. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.kind = String(problem.type || "").replace("urn:spillover:problem:", "");
    /** @type {Array<{path: string, message: string, line?: number}>} */
    this.problems = problem.problems || [];
    this.retryAfter = problem.retry_after_s ?? null;
  }

  /** What a person can do about it. */
  get advice() {
    switch (this.kind) {
      case "unauthorized": return "Sign in again.";
      case "forbidden": return "Your sign-in may not do this. Ask somebody with the role that it names, or sign in with another token.";
      case "unknown": case "not_found": return "It may have been deleted, or it belongs to a project that you may not see.";
      case "ambiguous": return "Use the full id.";
      case "conflict": return "Its state may have changed in the meantime: look again.";
      case "limited": case "unavailable": return "Try again in a moment.";
      case "not_leader": return "Another server is the leader now: open its address.";
      case "internal": return "This is a bug of the server; nothing was done. Its log has the details under that name.";
      default: return "";
    }
  }
}

/** No answer came: the server is away, or the network is. */
export class Away extends Error {
  constructor() { super("the server does not answer"); }
  get advice() { return "The page tries again by itself as soon as the server answers."; }
}

/** What others want to know: `signed-out`, `connection` (its state), `overview`, `machines`, `jobs`, `pools`. */
export const news = new EventTarget();
const tell = (name, detail) => news.dispatchEvent(new CustomEvent(name, { detail }));

/** Call a function on news until the signal says stop. */
export function on(name, signal, call) {
  news.addEventListener(name, (event) => call(/** @type {CustomEvent} */ (event).detail), { signal });
}

/** An address of the API with its query; parameters that are null or empty are left out. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return given.length ? `${path}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : path;
}

/** A name as a part of a path. */
export const part = (name) => encodeURIComponent(name);

async function request(method, path, { body, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method, signal, credentials: "same-origin", cache: "no-store", redirect: "error",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Away();
  }
  followClock(answer.headers.get("date"));
  if (answer.ok) return answer;
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // Something between the server and this page answered, without a problem document.
  }
  const refusal = new Refusal(answer.status, problem);
  if (answer.status === 401 && path !== "/v1/sign-in") tell("signed-out");
  throw refusal;
}

async function json(method, path, options) {
  const answer = await request(method, path, options);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Away();
  }
}

export const get = (path, query, signal) => json("GET", address(path, query), { signal });
export const post = (path, body, signal) => json("POST", path, { body, signal });
export const patch = (path, body, signal) => json("PATCH", path, { body, signal });
/** Bytes as they come. */
export const stream = (path, query, signal) => request("GET", address(path, query), { signal });

/** Lines of JSON, all of them; at most `most`, the newest. */
export async function lines(path, query, signal, most = 5000) {
  const text = await (await stream(path, query, signal)).text();
  return text.split("\n").filter((line) => line.trim()).slice(-most).map((line) => JSON.parse(line));
}

// --- the live stream

const QUIET = 40_000; // The server says something every 15 s: a connection that is silent for longer is dead.
const PAUSES = [300, 600, 1200, 2500, 5000];

/** What the stream last said, so that a page that opens later has it at once. */
export const live = {
  state: "connecting",
  overview: null,
  /** @type {Map<string, any>} machines by `cluster/name` */
  machines: new Map(),
};
let stop = null;
let wake = null;

function become(state) {
  if (live.state === state) return;
  live.state = state;
  tell("connection", state);
}

/** Note that the server did not answer; the stream finds it again. */
function lost() {
  if (stop) become("reconnecting");
}

/** Follow the stream until `hangUp`. */
export function follow() {
  hangUp();
  stop = new AbortController();
  keepFollowing(stop.signal);
}

export function hangUp() {
  stop?.abort();
  stop = null;
  live.overview = null;
  live.machines = new Map();
}

async function keepFollowing(signal) {
  let failures = 0;
  while (!signal.aborted) {
    const one = new AbortController();
    const end = () => one.abort();
    signal.addEventListener("abort", end, { once: true });
    let silence = setTimeout(end, QUIET);
    try {
      const answer = await fetch("/v1/live", { signal: one.signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
      if (answer.status === 401) {
        tell("signed-out");
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
      followClock(answer.headers.get("date"));
      await read(answer.body, () => {
        failures = 0;
        become("live");
        clearTimeout(silence);
        silence = setTimeout(end, QUIET);
      });
    } catch {
      // It is connected again below, whatever ended it.
    }
    clearTimeout(silence);
    signal.removeEventListener("abort", end);
    if (signal.aborted) return;
    become("reconnecting");
    const pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    failures += 1;
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, pause * (0.75 + Math.random() / 2));
    });
  }
}
addEventListener("online", () => wake?.());
document.addEventListener("visibilitychange", () => document.hidden || wake?.());

/** Read server-sent events. */
async function read(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      take(rest.slice(0, end));
      rest = rest.slice(end + 2);
    }
  }
}

function take(text) {
  let name = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5);
  }
  if (!name) return;
  const value = data ? JSON.parse(data) : {};
  if (name === "overview") live.overview = value;
  if (name === "machines") {
    if (value.full) live.machines = new Map();
    for (const it of value.machines || []) live.machines.set(`${it.cluster}/${it.name}`, it);
    for (const it of value.gone || []) live.machines.delete(it);
  }
  tell(name, value);
}
