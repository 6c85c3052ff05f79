// Submits jobs: a form that writes a job file, and an editor that is checked as one types, with a dry run beside it.

import { get, part, post } from "./api.js";
import { facts, h, heading, many, money, pageOf, put, said, span, when } from "./dom.js";
import { choice, field, go, may, problem, segments, toast } from "./parts.js";
import { yaml } from "./yaml.js";

const PAUSE = 350;
const KEPT = "spill.draft";

/** Name, label, placeholder; where it belongs in the job file. */
const FIELDS = [
  ["name", "Name", "train"], ["project", "Project", "default"], ["cpu", "CPUs", "1"], ["memory", "Memory", "2Gi"], ["gpu", "GPUs", "0"], ["tasks", "Tasks together", "1"],
  ["array", "Array", "0-99"], ["estimate", "Expected runtime", "20m"], ["walltime", "Walltime", "2h"], ["max_cost", "Maximum cost", "no limit"], ["workdir", "Working directory", "/tmp"], ["outputs", "Output files", "results/*, model.bin"],
];
const whole = (text) => (/^\d+$/.test(text) ? Number(text) : text);

/** The job file that the form says. */
export function fileOf(values) {
  const given = (name) => values[name]?.trim() || null;
  const metadata = {};
  for (const name of ["name", "project"]) if (given(name)) metadata[name] = given(name);
  const spec = { run: values.run || "" };
  const resources = {};
  for (const name of ["cpu", "memory", "gpu"]) if (given(name)) resources[name] = name === "memory" ? given(name) : whole(given(name));
  if (Object.keys(resources).length) spec.resources = resources;
  for (const name of ["tasks", "array", "estimate", "walltime", "max_cost"]) if (given(name)) spec[name] = name === "array" ? given(name) : whole(given(name));
  if (given("burst") && given("burst") !== "auto") spec.burst = given("burst");
  // A job with files runs in a folder of its own; another one needs a folder that exists.
  const outputs = (given("outputs") || "").split(",").map((it) => it.trim()).filter(Boolean);
  if (outputs.length) spec.outputs = outputs;
  if (given("workdir")) spec.workdir = given("workdir");
  else if (!outputs.length) spec.workdir = "/tmp";
  return { apiVersion: "spillover/v1", kind: "Job", ...(Object.keys(metadata).length ? { metadata } : {}), spec };
}

function forecast(it) {
  const starts = it.node ? ["at once on ", said([it.cluster, it.nodes > 1 ? `${it.nodes} nodes` : it.node].filter(Boolean).join("/"))]
    : it.expected_start?.p50 ? [when(it.expected_start.p50), it.expected_start.p90 ? h("span.muted", " (in nine of ten cases ", when(it.expected_start.p90), ")") : ""]
      : it.starts_at ? [when(it.starts_at), it.cluster ? [" on ", said(it.cluster)] : ""] : "not known";
  return h("div.stack", facts([
    ["job", said(it.name)],
    ["starts", starts],
    ["because", said(it.reason.message)],
    ["may be rented", it.spills_at && when(it.spills_at)],
    ["expected runtime", it.estimate_s !== null && span(it.estimate_s)],
    ["cost", it.cost !== null && it.node ? money(it.cost) : it.estimated_cost !== null && `${money(it.estimated_cost)} if it is rented`],
    ["at most", it.cost_at_walltime !== null && money(it.cost_at_walltime)],
  ]), it.note ? h("p.note.warn", said(it.note)) : null);
}

/** @param {import("./parts.js").Place} place */
export function submitPage(place) {
  if (!may(place.me, "submit")) return h("div.card", h("h1", "Submit"), h("p", `Your role is ${place.me.role}, which may not submit jobs. Ask an administrator for a token of role submit.`));
  const from = place.query.get("from");
  const numbers = h("pre", { "aria-hidden": "true" });
  const editor = h("textarea.code", { spellcheck: "false", autocomplete: "off", autocapitalize: "off", label: "Job file", rows: "18", wrap: "off" });
  const said1 = h("div", { "aria-live": "polite" });
  const button = h("button.primary", { disabled: true }, "Submit");
  const hint = h("span.hint");
  let checked = null; // the text that was checked last, and its jobs
  let timer = 0;
  let asking = null;

  // --- editor

  const wrong = new Set();
  const drawNumbers = () => {
    const total = editor.value.split("\n").length;
    put(numbers, Array.from({ length: total }, (_, index) => (wrong.has(index + 1) ? h("b", `${index + 1}\n`) : `${index + 1}\n`)));
    numbers.scrollTop = editor.scrollTop;
  };
  const toLine = (line) => {
    const rows = editor.value.split("\n");
    const start = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);
    editor.focus();
    editor.setSelectionRange(start, start + (rows[line - 1]?.length ?? 0));
    editor.scrollTop = Math.max(0, (line - 5) * 20);
  };
  const drawProblems = (found, more) => h("div.problem", h("p", h("strong", many(found.length + more, "problem"))), h("ul.problems", found.map((it) => h("li", it.line
    ? h("button.plain.small", { onclick: () => toLine(it.line) }, h("span", h("strong", `line ${it.line}: `), it.path ? [h("code", it.path), ": "] : "", said(it.message)))
    : [it.path ? [h("code", it.path), ": "] : "", said(it.message)]))));

  async function check() {
    const text = editor.value;
    asking?.abort();
    asking = new AbortController();
    place.signal.addEventListener("abort", () => asking.abort());
    if (!text.trim()) {
      wrong.clear();
      drawNumbers();
      put(said1, h("p.hint", "Write a job file, or use the form."));
      return;
    }
    try {
      const found = await post("/v1/check", { text, name: /^#!/.test(text) ? "job.sh" : "job.yaml", forecast: true }, asking.signal);
      if (text !== editor.value) return;
      wrong.clear();
      for (const it of found.problems) if (it.line) wrong.add(it.line);
      drawNumbers();
      checked = found.problems.length ? null : { text, jobs: found.jobs };
      button.disabled = !checked;
      put(button, checked && found.jobs.length > 1 ? `Submit ${found.jobs.length} jobs` : "Submit");
      put(said1, found.problems.length ? drawProblems(found.problems, found.more) : [
        h("p.note.good", "No problems found."),
        found.warnings.length ? h("div.note.warn", found.warnings.map((it) => h("p", it.line ? `line ${it.line}: ` : "", said(it.message)))) : null,
        found.forecasts?.length ? h("div.stack", h("h3", "Dry run"), found.forecasts.slice(0, 10).map(forecast), found.forecasts.length > 10 ? h("p.hint", `and ${many(found.forecasts.length - 10, "other job")}`) : null) : null]);
    } catch (error) {
      if (error.name === "AbortError" || place.signal.aborted) return;
      put(said1, problem(error, check));
    }
  }
  const changed = () => {
    checked = null;
    button.disabled = true;
    drawNumbers();
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
    try { sessionStorage.setItem(KEPT, editor.value); } catch { /* it is only kept while the page is open then */ }
  };
  place.signal.addEventListener("abort", () => clearTimeout(timer));
  editor.addEventListener("input", changed);
  editor.addEventListener("scroll", () => { numbers.scrollTop = editor.scrollTop; });
  editor.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); } });
  const set = (text) => { editor.value = text; changed(); };

  async function submit() {
    if (!checked || checked.text !== editor.value) return;
    button.disabled = true;
    // One key for one text: a submission whose answer got lost can be sent again, and exists once.
    const key = crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint32Array(4))].map((it) => it.toString(36)).join("");
    const jobs = checked.jobs.map((job, index) => (job.spec?.key ? job : { ...job, spec: { ...job.spec, key: `page-${key}-${index}` } }));
    try {
      const { jobs: ids, warnings = [] } = await post("/v1/jobs", jobs.length === 1 ? jobs[0] : { jobs });
      try { sessionStorage.removeItem(KEPT); } catch { /* nothing was kept */ }
      toast(`Submitted ${many(ids.length, "job")}. ${warnings.join(" ")}`);
      go(ids.length === 1 ? pageOf(ids[0]) : "/jobs");
    } catch (error) {
      put(said1, problem(error));
      button.disabled = false;
    }
  }
  button.addEventListener("click", submit);

  // --- form

  const inputs = {};
  const run = h("textarea.code", { name: "run", rows: "5", spellcheck: "false", placeholder: "python train.py --epochs 10" });
  const burst = choice([["auto", "when it pays"], ["never", "never"], ["always", "always"]], "auto", { name: "burst" });
  const formed = () => {
    const values = { run: run.value, burst: burst.value };
    for (const [name, input] of Object.entries(inputs)) values[name] = input.value;
    set(yaml(fileOf(values)));
  };
  for (const [name, , example] of FIELDS) inputs[name] = h("input", { name, placeholder: example, autocomplete: "off", spellcheck: "false" });
  if (place.me.project) { inputs.project.value = place.me.project; inputs.project.disabled = true; }
  for (const it of [run, burst, ...Object.values(inputs)]) it.addEventListener("input", formed);
  const form = h("form.card.stack", { label: "Form", onsubmit: (event) => { event.preventDefault(); submit(); } }, h("h2", "Form"),
    h("div.fields", h("div.wide", field("What to run", run, "A command line or a script for /bin/sh.")), FIELDS.map(([name, label]) => field(label, inputs[name])), field("Rent machines", burst)));
  const view = h("div.grid.two");
  const file = h("section.card.stack", heading("Job file", h("span.hint.push", "checked as you type")), h("div.editor", numbers, editor), h("div.actions", button, hint));
  const checks = h("section.card.stack", { label: "Check" }, h("h2", "Check and dry run"), said1);
  const show = (kind) => put(view, kind === "form" ? [form, h("div.page", file, checks)] : [file, checks]);

  let kept = "";
  try { kept = sessionStorage.getItem(KEPT) ?? ""; } catch { /* nothing is kept */ }
  if (from) {
    get(`/v1/jobs/${part(from)}`, {}, place.signal).then((job) => {
      const again = structuredClone(job.spec);
      if (again.spec) delete again.spec.key;
      set(`# ${job.name} again, after ${job.id}\n${yaml(again)}`);
    }, (error) => place.signal.aborted || put(said1, problem(error)));
  } else if (kept) set(kept);
  else if (place.me.project) formed();
  drawNumbers();
  if (!from && !kept) check();
  show(from || kept ? "editor" : "form");
  hint.textContent = "Ctrl+Enter submits.";
  return h("div", h("div.head", h("h1", from ? "Submit again" : "Submit"), h("div.actions", segments("How", [["form", "Form"], ["editor", "Editor"]], from || kept ? "editor" : "form", show))), view);
}
