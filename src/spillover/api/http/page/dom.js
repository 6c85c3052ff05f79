// Makes DOM nodes and texts. All pages use it, and nothing else makes nodes: texts become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";
// Control characters but tab and newline, and marks that change the direction of a text for what follows.
// eslint-disable-next-line no-control-regex
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
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
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

/** A text that only screen readers get. */
export const unseen = (text) => h("span.unseen", text);

const ICONS = {
  overview: "M3 13h6V3H3zm0 8h6v-6H3zm8 0h10V11H11zm0-18v6h10V3z",
  jobs: "M4 5h2v2H4zm4 0h12v2H8zM4 11h2v2H4zm4 0h12v2H8zM4 17h2v2H4zm4 0h12v2H8z",
  submit: "M11 4h2v7h7v2h-7v7h-2v-7H4v-2h7z",
  clusters: "M3 4h18v6H3zm0 10h18v6H3zm3-8v2h2V6zm0 10v2h2v-2z",
  reservations: "M7 2h2v2h6V2h2v2h4v17H3V4h4zM5 9v10h14V9zm2 2h5v3H7z",
  costs: "M4 20V10h3v10zm6.5 0V4h3v16zM17 20v-7h3v7z",
  policy: "M3 6h9v2H3zm13 0h5v2h-5zm-3-2h2v6h-2zM3 16h4v2H3zm8 0h10v2H11zm-3-2h2v6H8z",
  account: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-8 8c0-4 4-6 8-6s8 2 8 6z",
  search: "M10 3a7 7 0 0 1 5.5 11.3l5 5-1.4 1.4-5-5A7 7 0 1 1 10 3zm0 2a5 5 0 1 0 0 10 5 5 0 0 0 0-10z",
  menu: "M3 5h18v2H3zm0 6h18v2H3zm0 6h18v2H3z",
  theme: "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2a8 8 0 0 1 0 16z",
  down: "M11 3h2v10l4-4 1.4 1.4L12 17l-6.4-6.6L7 9l4 4zM4 19h16v2H4z",
};

/** One of our icons; it says nothing to screen readers. */
export const icon = (name) =>
  svg("svg", { viewBox: "0 0 24 24", fill: "currentColor", "fill-rule": "evenodd", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

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

function relative(moment) {
  const seconds = (moment - now()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const text = span(Math.max(1, Math.round(Math.abs(seconds))));
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

const EXACT = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});
/** A moment in full, in the zone of this machine. */
export const exact = (iso) => EXACT.format(new Date(iso));

/** A moment from now, with the exact one on hover. It stays right while it is shown. */
export function when(iso, otherwise = "–") {
  if (!iso) return otherwise;
  return h("time", { datetime: iso, title: exact(iso), "data-relative": "" }, relative(Date.parse(iso)));
}

/** Bring the relative times of the page up to date. */
export function tick() {
  for (const each of document.querySelectorAll("time[data-relative]")) {
    const text = relative(Date.parse(each.dateTime));
    if (each.textContent !== text) each.textContent = text;
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
  return h("span.barline", { role: "img", "aria-label": text, title: text },
    shown.map((state) => h(`i.${state}`, { style: { width: `${(100 * counts[state]) / total}%` } })));
}

/** A bar that is filled to a share. */
export function share(part, label, colour = "var(--running)") {
  const width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return h("span.barline", { role: "img", "aria-label": label, title: label }, h("i", { style: { width, "--c": colour } }));
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

/** What to say where nothing is, and what to do next. */
export const empty = (title, ...more) => h("div.empty", h("strong", title), more);

/**
 * A table: columns are `[title, cell(row), class]`; rows get a key for the focus and for tests.
 * @param {Array<[string | Node, (row: any) => any, string?]>} columns
 */
export function table(caption, columns, rows, { foot = null, key = null } = {}) {
  const line = (kind, each) => columns.map(([title, , style]) => h(`${kind}${style ? `.${style.split(" ").join(".")}` : ""}`, { scope: kind === "th" ? "col" : null }, each(title)));
  return h("div.table", { tabindex: "0", role: "region", "aria-label": caption },
    h("table", h("caption.unseen", caption), h("thead", h("tr", line("th", (title) => title))),
      h("tbody", rows.map((row) => h("tr", { "data-row": key ? key(row) : null }, columns.map(([, cell, style]) => h(`td${style ? `.${style.split(" ").join(".")}` : ""}`, {}, cell(row)))))),
      foot && h("tfoot", h("tr", foot.map((each, index) => h(`td${columns[index][2] ? `.${columns[index][2].split(" ").join(".")}` : ""}`, {}, each))))));
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
