// Writes job files: values that came as JSON, as YAML that people read.

const PLAIN = /^[A-Za-z_./][A-Za-z0-9_./@%+=:, -]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

/** A text in quotes, as JSON, which YAML reads; without what YAML takes for something else even there. */
const quoted = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, "0")}`);

function scalar(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value !== "string") return String(value);
  const odd = !PLAIN.test(value) || WORDS.test(value) || value.includes(": ") || value.endsWith(":") || value.includes(" #") || value.endsWith(" ") || /^[.\d]+$/.test(value);
  return odd ? quoted(value) : value;
}

/** Whether a text reads well as a block, and comes back unchanged. */
const asBlock = (text) => text.includes("\n") && !/^[\s]/.test(text) && !/[^\n\t\u0020-\u007e\u00a0-\ud7ff\ue000-\ufefe]/.test(text) && !/[\u2028\u2029]|[ \t]\n/.test(text);

function block(text, indent) {
  const keep = text.endsWith("\n\n") ? "+" : text.endsWith("\n") ? "" : "-";
  const lines = text.replace(/\n$/, "").split("\n");
  return `|${keep}\n${lines.map((line) => (line ? indent + line : "")).join("\n")}`;
}

function write(value, indent) {
  if (Array.isArray(value)) {
    if (!value.length) return " []";
    if (value.every((it) => typeof it !== "object" || it === null) && JSON.stringify(value).length < 80) return ` [${value.map((it) => (typeof it === "string" && /[,[\]{}]/.test(it) ? quoted(it) : scalar(it))).join(", ")}]`;
    return value.map((it) => `\n${indent}-${typeof it === "object" && it !== null && !Array.isArray(it) ? write(it, `${indent}  `).replace(/^\n\s*/, " ") : write(it, `${indent}  `)}`).join("");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return " {}";
    return entries.map(([key, it]) => `\n${indent}${scalar(key)}:${write(it, `${indent}  `)}`).join("");
  }
  if (typeof value === "string" && asBlock(value)) return ` ${block(value, indent || "  ")}`;
  return ` ${scalar(value)}`;
}

/** A value as YAML. */
export const yaml = (value) => `${write(value, "").replace(/^\n/, "")}\n`;
