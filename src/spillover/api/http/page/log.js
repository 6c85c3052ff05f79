// Shows the output of a job as it comes: with the colours of terminals, and in bounded memory whatever the job prints.

import { Refusal, live, on, part, stream, get } from "./api.js";
import { ENDED, count, h, many, plain, put } from "./dom.js";
import { choice, field, problem, segments } from "./parts.js";

const MOST_LINES = 5000;
/** Characters of a line that are shown. The rest is counted and left out: a line may have a gigabyte. */
const MOST_LINE = 8000;
/** An escape sequence that is longer is no sequence. */
const MOST_ESCAPE = 2048;
/** Characters that are taken up at once, so that the page answers in between. */
const SLICE = 256 * 1024;

const FLAGS = { 1: "b", 2: "d", 3: "i", 4: "u", 9: "s" };
const OFF = { 21: "b", 22: "bd", 23: "i", 24: "u", 29: "s" };

/** The style that `ESC [ ... m` leaves behind. */
export function restyle(style, codes) {
  let next = { ...style };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) next = {};
    else if (FLAGS[code]) next[FLAGS[code]] = true;
    else if (OFF[code]) for (const flag of OFF[code]) delete next[flag];
    else if (code === 7) next.inverse = true;
    else if (code === 27) delete next.inverse;
    else if (code >= 30 && code <= 37) next.front = code - 30;
    else if (code >= 90 && code <= 97) next.front = code - 82;
    else if (code >= 40 && code <= 47) next.back = code - 40;
    else if (code >= 100 && code <= 107) next.back = code - 92;
    else if (code === 39) delete next.front;
    else if (code === 49) delete next.back;
    else if (code === 38 || code === 48) {
      const which = code === 38 ? "front" : "back";
      if (codes[at + 1] === 5) {
        next[which] = palette(codes[at + 2]);
        at += 2;
      } else if (codes[at + 1] === 2) {
        next[which] = rgb(codes.slice(at + 2, at + 5));
        at += 4;
      }
    }
  }
  return next;
}

const rgb = (parts) => `rgb(${[0, 1, 2].map((it) => Math.min(255, parts[it] || 0)).join(" ")})`;

/** A colour of the 256: the first 16 are those of the theme. */
function palette(index) {
  if (!(index >= 0 && index <= 255)) return undefined;
  if (index < 16) return index;
  if (index >= 232) return rgb([8 + 10 * (index - 232), 8 + 10 * (index - 232), 8 + 10 * (index - 232)]);
  const level = (value) => (value ? 55 + 40 * value : 0);
  const cube = index - 16;
  return rgb([level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)]);
}

/**
 * Splits output into lines of pieces, each with its style.
 * Sequences other than colours are left out; a carriage return begins the line again, as progress bars expect.
 */
export class Terminal {
  constructor() {
    this.style = {};
    this.rest = "";
    this.begin();
  }

  begin() {
    this.pieces = [];
    this.length = 0;
    this.dropped = 0;
    this.returned = false;
  }

  /** The line so far. */
  get line() { return { pieces: this.pieces, dropped: this.dropped }; }

  add(text) {
    if (!text) return;
    if (this.returned) this.begin();
    const room = MOST_LINE - this.length;
    const kept = text.length > room ? text.slice(0, Math.max(0, room)) : text;
    this.dropped += text.length - kept.length;
    this.length += kept.length;
    if (kept) this.pieces.push({ text: kept, style: this.style });
  }

  /** Take more output; call `done` with each line that is complete. */
  take(text, done) {
    let input = this.rest + text;
    this.rest = "";
    const special = /[\n\r\u001b]/g;
    let from = 0;
    for (let found = special.exec(input); found; found = special.exec(input)) {
      const at = found.index;
      this.add(input.slice(from, at));
      from = at + 1;
      if (found[0] === "\n") {
        done(this.line);
        this.begin();
      } else if (found[0] === "\r") {
        if (input[at + 1] !== "\n") this.returned = true;
      } else {
        const end = this.escape(input, at);
        if (end === 0) {
          this.rest = input.slice(at);
          return;
        }
        from = end;
        special.lastIndex = end;
      }
    }
    this.add(input.slice(from));
    input = "";
  }

  /** Take an escape sequence; returns where it ends, or 0 if its end has not come yet. */
  escape(input, at) {
    const kind = input[at + 1];
    if (kind === undefined) return 0;
    // Only so far: of many beginnings without an end, each would look at all that follows.
    const body = input.slice(at + 2, at + 2 + MOST_ESCAPE);
    const unended = body.length === MOST_ESCAPE ? at + 2 : 0;
    if (kind === "[") {
      const end = /[\u0040-\u007e]|[^\u0020-\u003f]/.exec(body);
      if (!end) return unended;
      if (end[0] === "m") {
        const codes = body.slice(0, end.index);
        if (/^[\d;:]*$/.test(codes)) this.style = restyle(this.style, codes.split(/[;:]/).slice(0, 32).map(Number));
      }
      return at + 2 + end.index + (/[\u0040-\u007e]/.test(end[0]) ? 1 : 0);
    }
    if ("]PX^_".includes(kind)) {
      // A title, a link and the like: up to BEL or ST.
      const end = /\u0007|\u001b\\|\n/.exec(body);
      if (!end) return unended;
      return at + 2 + end.index + (end[0] === "\n" ? 0 : end[0].length);
    }
    // One more character, or two for those that choose a character set; a control character belongs to no sequence.
    const last = at + ("()*+#%".includes(kind) ? 2 : 1);
    if (last >= input.length) return 0;
    return input[last] < " " ? last : last + 1;
  }
}

function pieceOf({ text, style }) {
  let [front, back] = [style.front, style.back];
  if (style.inverse) [front, back] = [back ?? 0, front ?? 7];
  const words = ["b", "d", "i", "u", "s"].filter((flag) => style[flag]);
  const look = {};
  if (typeof front === "number") words.push(`f${front}`);
  else if (front) look.color = front;
  if (typeof back === "number") words.push(`g${back % 8}`);
  else if (back) look["background-color"] = back;
  return words.length || front || back ? h("span", { class: words.join(" "), style: look }, text) : document.createTextNode(plain(text));
}

function lineOf({ pieces, dropped }) {
  return h("div", pieces.map(pieceOf), dropped ? h("span.d", ` … ${count(dropped)} more characters in this line are not shown`) : null);
}

/**
 * The output of a job, with what to choose from.
 * @param {AbortSignal} signal
 */
export function output(signal, job) {
  let stopped = new AbortController();
  signal.addEventListener("abort", () => stopped.abort());
  const chosen = { stream: "stdout", task: 0, attempt: job.attempt || 1 };
  const screen = h("div.term", { tabindex: "0", role: "log", label: "Output", "aria-live": "off" });
  const status = h("span.hint", { role: "status" });
  const search = h("input", { type: "search", placeholder: "Find in the output", label: "Find in the output", autocomplete: "off" });
  const only = h("input", { type: "checkbox" });
  const found = h("span.hint", { "aria-live": "polite" });
  const bottom = h("input", { type: "checkbox", checked: true });
  let hits = [];
  let hit = -1;
  let needle = "";

  // --- lines

  let pending = null; // the last line, not complete yet
  let left = 0; // lines that are not kept any more
  const mark = (text) => { screen.append(h("div.mark", text)); trim(); };
  const matches = (line) => needle !== "" && line.textContent.toLowerCase().includes(needle);
  const put1 = (line) => {
    if (matches(line)) { line.classList.add("hit"); hits.push(line); }
    screen.append(line);
  };
  const trim = () => {
    while (screen.childElementCount > MOST_LINES) { screen.firstChild.remove(); left += 1; }
    if (hits.length && !hits[0].isConnected) hits = hits.filter((it) => it.isConnected);
  };
  function find(step = 0) {
    if (step === 0) {
      needle = search.value.toLowerCase();
      hits = [];
      hit = -1;
      for (const line of screen.children) {
        line.classList.remove("hit", "now");
        if (!line.classList.contains("mark") && matches(line)) { line.classList.add("hit"); hits.push(line); }
      }
      if (hits.length) hit = hits.length;
    }
    screen.classList.toggle("only", only.checked && needle !== "");
    if (hits.length && (step || needle)) {
      hits[hit]?.classList.remove("now");
      hit = (hit + (step || -1) + hits.length) % hits.length;
      hits[hit].classList.add("now");
      hits[hit].scrollIntoView({ block: "nearest" });
      if (step || needle) bottom.checked = false;
    }
    found.textContent = needle ? (hits.length ? `${count(hit + 1)} of ${many(hits.length, "line")}` : "not found") : "";
  }
  search.addEventListener("input", () => find());
  only.addEventListener("change", () => find());
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); find(event.shiftKey ? -1 : 1); } });
  screen.addEventListener("scroll", () => { bottom.checked = screen.scrollHeight - screen.scrollTop - screen.clientHeight < 40; });
  bottom.addEventListener("change", () => { if (bottom.checked) screen.scrollTop = screen.scrollHeight; });

  const frame = () => new Promise((resolve) => { if (document.hidden) setTimeout(resolve, 50); else requestAnimationFrame(resolve); });

  // --- following

  async function follow(one) {
    let offset = 0;
    let got = 0;
    const terminal = new Terminal();
    const decoder = new TextDecoder();
    for (;;) {
      try {
        const answer = await stream(`/v1/jobs/${part(job.id)}/logs`, { stream: chosen.stream, task: chosen.task || null, attempt: chosen.attempt, offset, follow: true }, one);
        put(status, got || ENDED.has(job.state) ? "" : "waiting for output …");
        const reader = answer.body.getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          offset += value.length;
          const text = decoder.decode(value, { stream: true });
          for (let at = 0; at < text.length; at += SLICE) {
            pending?.remove();
            pending = null;
            const fresh = [];
            terminal.take(text.slice(at, at + SLICE), (line) => { got += 1; fresh.push(line); });
            // Of many lines at once, only those that stay are made.
            left += Math.max(0, fresh.length - MOST_LINES);
            for (const line of fresh.slice(-MOST_LINES)) put1(lineOf(line));
            if (terminal.length) { pending = lineOf(terminal.line); put1(pending); }
            trim();
            if (bottom.checked) screen.scrollTop = screen.scrollHeight;
            await frame();
            if (one.aborted) return;
          }
          put(status, `${many(got + (terminal.length ? 1 : 0), "line")}${left ? `, of which the last ${count(MOST_LINES)} are shown` : ""}`);
        }
        pending = null;
        mark(got || terminal.length ? "the end of the output of this attempt" : "this attempt printed nothing here");
        if (!got && !terminal.length) put(status, "");
        const latest = await get(`/v1/jobs/${part(job.id)}`, {}, one);
        if (latest.attempt > chosen.attempt && !ENDED.has(latest.state)) {
          job = latest;
          chosen.attempt = latest.attempt;
          mark(`attempt ${latest.attempt}`);
          [offset, got] = [0, 0];
          continue;
        }
        return;
      } catch (error) {
        if (one.aborted) return;
        if (error instanceof Refusal && error.status !== 503) {
          put(status, problem(error));
          return;
        }
        // The connection is gone, or the agent is: go on from where we are.
        put(status, "the output stopped coming; connecting again …");
        await new Promise((resolve) => {
          const again = new AbortController();
          const stop = () => { again.abort(); resolve(); };
          setTimeout(stop, live.state === "live" ? 1000 : 5000);
          on("connection", again.signal, (state) => state === "live" && stop());
          one.addEventListener("abort", stop, { once: true });
        });
        if (one.aborted) return;
      }
    }
  }
  function begin() {
    stopped.abort();
    stopped = new AbortController();
    [pending, left, hits, hit] = [null, 0, [], -1];
    screen.replaceChildren();
    put(status, "");
    if (!job.attempt && !job.started_at && !ENDED.has(job.state)) put(status, "It has not started yet; its output appears here.");
    follow(stopped.signal);
  }

  const streams = segments("Stream", [["stdout", "Output"], ["stderr", "Errors"]], "stdout", (key) => { chosen.stream = key; begin(); });
  const attempts = job.attempt > 1 ? field("Attempt", choice(Array.from({ length: job.attempt }, (_, index) => [String(index + 1), String(index + 1)]).reverse(), String(job.attempt), { onchange: (event) => { chosen.attempt = Number(event.target.value); begin(); } })) : null;
  const tasks = job.tasks.length > 1 ? field("Task", choice(job.tasks.map((task) => [String(task.rank), `${task.rank} on ${task.node}`]), "0", { onchange: (event) => { chosen.task = Number(event.target.value); begin(); } })) : null;
  begin();
  return h("section.card.stack", { label: "Output" },
    h("div.filters", streams, attempts, tasks,
      h("span.actions", search, h("label.check.small", only, "only these lines"), found),
      h("label.check.small", { style: { "margin-left": "auto" } }, bottom, "follow the end")),
    screen,
    h("div.actions", status, h("a.button.small", { href: `/v1/jobs/${part(job.id)}/logs?stream=stdout`, download: `${job.name}.out`, style: { "margin-left": "auto" } }, "Download")));
}
