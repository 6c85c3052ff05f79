// Makes DOM nodes and texts. All pages use it, and nothing else makes nodes: texts become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";
// Control characters but tab and newline, and marks that change the direction of a text for what follows.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Show odd characters as pictures, so that no text can hide or reorder what is around it. */
export function plain(/** @type {unknown} */ value) {
  return String(value).replace(ODD, (odd) => {
    const code = odd.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "\u2421" : "\ufffd";
  });
}

function fill(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) fill(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
}

function make(node, words, attributes, children) {
  if (words.length) node.setAttribute("class", words.join(" "));
  if (attributes === null || typeof attributes !== "object" || attributes instanceof Node || Array.isArray(attributes)) {
    children.unshift(attributes);
  } else {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "label") node.setAttribute("aria-label", plain(value));
      else if (name === "key") node.setAttribute("data-key", value); // what finds it again when its part is drawn again
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "class") node.setAttribute("class", [...words, value].filter(Boolean).join(" "));
      else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
      else if (name === "value") node.value = value;
      else if (name === "checked" || name === "disabled") node[name] = value;
      else node.setAttribute(name, value === true ? "" : plain(value));
    }
  }
  fill(node, children);
  return node;
}

/**
 * Make an element: `h("td.num", {title: "..."}, "text", other)`. Attributes may be left out.
 * @param {string} tag with classes after dots
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...words] = tag.split(".");
  const node = document.createElement(name);
  if (name === "button") node.type = "button"; // and not one that submits
  return make(node, words, attributes, children);
}

/** Make an element of SVG, likewise. */
export function svg(tag, attributes = {}, ...children) {
  const [name, ...words] = tag.split(".");
  return make(document.createElementNS(SVG, name), words, attributes, children);
}

/** Replace what a node holds; texts and lists of nodes as in `h`. */
export function put(node, ...children) {
  node.replaceChildren();
  fill(node, children);
}

/** A text of somebody else, such as a name, isolated so that its direction changes nothing around it. */
export const said = (text) => h("bdi", text ?? "");

/** A second, smaller line. */
export const sub = (...children) => h("span.sub", children);

/** The address of the page of a job. */
export const pageOf = (id) => `/jobs/${encodeURIComponent(id)}`;

/** One of our icons; it says nothing to screen readers. */
export const icon = (name) => svg("svg", { fill: "currentColor", "aria-hidden": "true" }, svg("use", { href: `/assets/icons.svg#${name}` }));

// --- amounts

const number = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const WHOLE = number(0);
const TWO = number(2);

/** A number with at most two digits after the point, and with commas between thousands. */
export const amount = (value) => (value === null || value === undefined ? "–" : TWO.format(value));
export const count = (value) => WHOLE.format(value ?? 0);

/** "1 job", "2 jobs". */
export const many = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

/** Bytes as people write them. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${number(size < 10 && unit ? 1 : 0).format(size)} ${units[unit]}`;
}

/** Seconds as `1d 3h`, `5m 20s` or `0.4s`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 10) return `${number(1).format(seconds)}s`;
  const whole = Math.round(seconds);
  const parts = [["d", Math.floor(whole / 86400)], ["h", Math.floor(whole / 3600) % 24], ["m", Math.floor(whole / 60) % 60], ["s", whole % 60]];
  const first = parts.findIndex(([, value]) => value > 0);
  return parts.slice(first, first + 2).filter(([, value]) => value > 0).map(([unit, value]) => `${value}${unit}`).join(" ");
}

let currency = "";
/** Set the currency of the server, for `money`. */
export function useCurrency(name) { currency = name; }
export const currencyName = () => currency;
/** An amount of money; small ones with more digits, so that they do not read as nothing. */
export function money(value, unit = true) {
  if (value === null || value === undefined) return "–";
  const digits = value !== 0 && Math.abs(value) < 0.1 ? 4 : 2;
  const text = value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits });
  return unit && currency ? `${text} ${currency}` : text;
}

/** A share as a percentage. */
export const percent = (value) => (value === null || value === undefined ? "–" : `${number(value < 0.1 ? 1 : 0).format(value * 100)} %`);

// --- times

let skew = 0;
/** Follow the clock of the server, which may differ from that of this machine. */
export function followClock(/** @type {string | null} */ date) {
  const ahead = date ? Date.parse(date) - Date.now() : NaN;
  if (!Number.isNaN(ahead)) skew = Math.abs(ahead) > 3000 ? ahead : 0;
}
export const now = () => Date.now() + skew;

function relative(moment, kind) {
  const seconds = (moment - now()) / 1000;
  if (kind) return span(Math.max(0, Math.round(-seconds)));
  if (Math.abs(seconds) < 1) return "now";
  const text = span(Math.max(1, Math.round(Math.abs(seconds))));
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

const EXACT = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});
/** A moment in full, in the zone of this machine. */
export const exact = (iso) => EXACT.format(new Date(iso));

/** A moment from now, with the exact one on hover. It stays right while it is shown. With a kind, such as `for`, only how long ago it was. */
export function when(iso, otherwise = "–", kind = "") {
  if (!iso) return otherwise;
  return h("time", { datetime: iso, title: exact(iso), "data-relative": kind }, relative(Date.parse(iso), kind));
}

/** Bring the relative times of the page up to date. */
export function tick() {
  for (const it of document.querySelectorAll("time[data-relative]")) {
    const text = relative(Date.parse(it.dateTime), it.dataset.relative);
    if (it.textContent !== text) it.textContent = text;
  }
}

// --- states

export const STATES = ["HELD", "QUEUED", "PLACED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"];
export const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"]);
export const word = (state) => state.toLowerCase().replace("_", " ");
export const stateOf = (state) => h(`span.state.${state}`, word(state));

/** A bar of counts, such as the members of an array by state, which reads as text for those who do not see it. */
export function stateBar(counts) {
  const shown = STATES.filter((state) => counts[state]);
  const total = shown.reduce((sum, state) => sum + counts[state], 0);
  const text = shown.map((state) => `${count(counts[state])} ${word(state)}`).join(", ");
  return h("span.barline", { role: "img", label: text, title: text },
    shown.map((state) => h(`i.${state}`, { style: { width: `${(100 * counts[state]) / total}%` } })));
}

/** A bar that is filled to a share. */
export function share(part, label, colour = "var(--running)") {
  const width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return h("span.barline", { role: "img", label: label, title: label }, h("i", { style: { width, "--c": colour } }));
}

/** Resources in words: `2 CPUs, 4 GiB, 1 GPU`. */
export function resources(of) {
  const parts = [];
  if (of.cpu) parts.push(`${amount(of.cpu)} CPU${of.cpu === 1 ? "" : "s"}`);
  if (of.memory) parts.push(bytes(of.memory));
  if (of.gpu) parts.push(many(of.gpu, "GPU"));
  return parts.join(", ") || "nothing";
}

// --- frequent parts

/** How long a job ran, or since when it runs. */
export const ran = (job) => (job.started_at && job.finished_at ? span((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000) : when(job.started_at, "–", "for"));

/** What to say where nothing is, and what to do next. */
export const empty = (title, ...more) => h("div.empty", h("strong", title), more);

/**
 * A table: columns are `[title, cell(row), class]`; rows get a key for the focus and for tests.
 * @param {Array<[string | Node, (row: any) => any, string?]>} columns
 */
export function table(caption, columns, rows, { foot = null, key = null } = {}) {
  const cell = (tag, style, content) => h(tag, { class: style, scope: tag === "th" ? "col" : null }, content);
  return h("div.table", { tabindex: "0", role: "region", label: caption },
    h("table", h("caption.unseen", caption),
      h("thead", h("tr", columns.map(([title, , style]) => cell("th", style, title)))),
      h("tbody", rows.map((row) => h("tr", { "data-row": key && key(row) }, columns.map(([, content, style]) => cell("td", style, content(row)))))),
      foot && h("tfoot", h("tr", foot.map((content, index) => cell("td", columns[index][2], content))))));
}

/** The heading of a card, with what stands beside it. */
export const heading = (title, ...beside) => h("header", h("h2", title), beside);

/** Facts as a list of names and values; those that are null are left out. */
export const facts = (pairs) =>
  h("dl.facts", pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "").map(([name, value]) => [h("dt", name), h("dd", value)]));

/** Offer text as a file. */
export function download(name, text, type = "text/csv") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
