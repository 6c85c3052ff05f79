// A job's page: its life as a timeline, why it is where it is, its output, files, cost, and how to run it again.

import { get, lines as readLines, part, patch, post } from "./api.js";
import { bytes, count, download, empty, ENDED, exact, facts, h, heading, many, money, now, pageOf, percent, put, ran, resources, said, share, span, stateBar, stateOf, table, when, word } from "./dom.js";
import { attempt, dialog, field, go, jobLink, may, panel, refresh, tabs, mayChange } from "./parts.js";
import { actions } from "./jobs.js";
import { gantt } from "./charts.js";
import { output } from "./log.js";
import { changesPanel, whatIf, whyPanel } from "./why.js";
import { yaml } from "./yaml.js";

const COLOURS = { HELD: "var(--held)", QUEUED: "var(--waiting)", PLACED: "var(--placed)", RUNNING: "var(--running)", SUCCEEDED: "var(--succeeded)", FAILED: "var(--failed)", TIMED_OUT: "var(--timed-out)", CANCELLED: "var(--cancelled)" };
const PLACED = new Set(["job_placed", "gang_placed", "member_placed"]);
const MOST_ROWS = 64;

/** Rows of a timeline from the events of a job. */
export function life(job, events) {
  const waits = [];
  const attempts = [];
  let wait = { from: Date.parse(job.submitted_at), state: "QUEUED", why: "waits" };
  let run = null;
  const stopWaiting = (at) => { if (wait) waits.push({ ...wait, to: at }); wait = null; };
  const stopRunning = (at, state, text) => {
    if (!run) return;
    run.to = at;
    run.state = state;
    run.text = text;
    attempts.push(run);
    run = null;
  };
  const own = events.filter((it) => it.job === job.id);
  for (const it of own) {
    const at = Date.parse(it.at);
    if (it.type === "job_submitted" && it.data.held) wait = { from: at, state: "HELD", why: "is held" };
    else if (it.type === "job_held") { stopWaiting(at); wait = { from: at, state: "HELD", why: it.text }; }
    else if (it.type === "job_released") { stopWaiting(at); wait = { from: at, state: "QUEUED", why: "waits" }; }
    else if (PLACED.has(it.type)) {
      stopWaiting(at);
      run = { from: at, where: [it.data.cluster, it.data.node ?? (it.data.nodes ? `${new Set(it.data.nodes).size} nodes` : "")].filter(Boolean).join("/"), attempt: it.data.attempt ?? attempts.length + 1, started: null, why: it.text };
    } else if (it.type === "lease_moved" && run) run.where = [it.data.cluster, it.data.node ?? it.data.to].filter(Boolean).join("/") || run.where;
    else if ((it.type === "job_started" || it.type === "tasks_started") && run) run.started ??= at;
    else if (it.type === "job_requeued") { stopRunning(at, "CANCELLED", it.text); wait = { from: at, state: "QUEUED", why: it.text }; }
    else if (it.type === "job_ended") { stopWaiting(at); stopRunning(at, it.data.state, it.text); }
  }
  if (!own.some((it) => PLACED.has(it.type)) && job.started_at) {
    // The history is gone: what the job itself still knows.
    wait = null;
    waits.push({ from: Date.parse(job.submitted_at), to: Date.parse(job.started_at), state: "QUEUED", why: "waited" });
    const end = job.finished_at ? Date.parse(job.finished_at) : null;
    attempts.push({ from: Date.parse(job.started_at), started: Date.parse(job.started_at), to: end, where: [job.cluster, job.node].filter(Boolean).join("/"), attempt: job.attempt, state: end ? job.state : null, text: word(job.state), why: "" });
  }
  if (wait && !ENDED.has(job.state)) waits.push({ ...wait, to: null });
  else if (wait && job.finished_at) waits.push({ ...wait, to: Date.parse(job.finished_at) });
  if (run) attempts.push({ ...run, to: null, state: null });
  return { waits, attempts };
}

function timeline(job, events, members) {
  const { waits, attempts } = life(job, events);
  const rows = [];
  if (waits.length) rows.push({ name: "in the queue", bars: waits.map((it) => ({ from: it.from, to: it.to, colour: COLOURS[it.state], title: it.why })) });
  for (const it of attempts) {
    const bars = [];
    if (it.started === null || it.started - it.from > 50) bars.push({ from: it.from, to: it.started ?? it.to, colour: COLOURS.PLACED, title: it.why });
    if (it.started !== null) bars.push({ from: it.started, to: it.to, colour: COLOURS[it.state ?? "RUNNING"], title: it.text ?? "runs" });
    rows.push({ name: `${attempts.length > 1 ? `${it.attempt}: ` : ""}${it.where || "attempt"}`, strong: true, bars });
  }
  const tasks = job.tasks.filter((task) => task.started_at);
  for (const task of tasks.slice(0, MOST_ROWS)) {
    rows.push({ name: `task ${task.rank} on ${task.node}`, thin: tasks.length > 12, bars: [{ from: Date.parse(task.started_at), to: task.finished_at ? Date.parse(task.finished_at) : null, colour: COLOURS[task.state], title: `${word(task.state)}${task.message ? `: ${task.message}` : ""}` }] });
  }
  const ran = members.filter((member) => member.started_at).sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
  for (const member of ran.slice(0, 3 * MOST_ROWS)) {
    rows.push({ name: `${member.id.slice(member.id.indexOf(".") + 1)} on ${member.node ?? member.cluster}`, thin: ran.length > 12, bars: [{ from: Date.parse(member.started_at), to: member.finished_at ? Date.parse(member.finished_at) : null, colour: COLOURS[member.state], title: `member ${member.id}: ${word(member.state)}` }] });
  }
  const ends = rows.flatMap((row) => row.bars.map((bar) => bar.to ?? now()));
  const from = Date.parse(job.submitted_at);
  const to = Math.max(...ends, from + 1000);
  const states = new Set([...waits.map((it) => it.state), ...attempts.flatMap((it) => [it.started === null ? "PLACED" : it.state ?? "RUNNING"]), ...tasks.map((task) => task.state), ...ran.map((member) => member.state)]);
  const summary = [...waits.map((it) => `${it.state === "HELD" ? "held" : "waited"} ${span(((it.to ?? now()) - it.from) / 1000)}`), ...attempts.map((it) => `attempt ${it.attempt} on ${it.where}: ${it.state ? word(it.state) : "runs"} after ${span(((it.to ?? now()) - (it.started ?? it.from)) / 1000)}`)].join("; ");
  return h("section.card", {},
    heading("Life", h("span.keys.push", [...states].map((state) => h(`span.key.${state}`, word(state))))),
    gantt(`Timeline: ${summary}`, rows, from, to, { names: 170 }),
    ran.length > 3 * MOST_ROWS || tasks.length > MOST_ROWS ? h("p.hint", "The first of them; the others are in the table of members or tasks.") : null);
}

function efficiency(of) {
  if (!of) return null;
  const line = (name, part, text) => [h("span", name), share(part ?? 0, `${name}: ${percent(part)}`), h("span.num", text)];
  return h("section.card.stack", heading("Efficiency", of.members ? h("span.hint.push", `of ${many(of.members, "member")} that ran`) : null),
    h("div.meter", {},
      of.cpu === null ? null : line("CPU", of.cpu, `${percent(of.cpu)} of ${span(of.cpu_asked_s)}`),
      of.memory === null ? null : line("Memory", of.memory, `${bytes(of.memory_used)} of ${bytes(of.memory_asked)}`)),
    of.hints.map((hint) => h("p.note", hint)));
}

function details(job) {
  return h("section.card", heading("Details"), facts([
    ["project", h("a", { href: `/jobs?project=${part(job.project)}` }, said(job.project))],
    ["user", h("a", { href: `/jobs?user=${part(job.user)}` }, said(job.user))],
    ["queue", job.queue !== "default" && said(job.queue)],
    ["asks for", [resources(job.resources), (job.spec.spec?.tasks ?? 1) !== 1 ? [" for each of ", said(String(job.spec.spec.tasks).replace("..", " to ")), " tasks"] : ""]],
    ["where", job.cluster && [said(job.cluster), job.node ? [", ", said(job.node)] : "", job.nodes > 1 ? ` and ${many(job.nodes - 1, "other node")}` : ""]],
    ["why there", job.placed_because && said(job.placed_because.message)],
    ["submitted", when(job.submitted_at)],
    ["started", job.started_at && when(job.started_at)],
    ["ended", job.finished_at && when(job.finished_at)],
    ["waited", job.waited_s !== null && span(job.waited_s)],
    ["ran", job.ran_s !== null && span(job.ran_s)],
    ["walltime", job.walltime_s !== null && span(job.walltime_s)],
    ["priority", job.priority !== 0 && String(job.priority)],
    ["attempt", job.attempt > 1 && String(job.attempt)],
    ["interruptions", job.interruptions > 0 && String(job.interruptions)],
    ["exit code", job.exit_code !== null && String(job.exit_code)],
    ["signal", job.signal !== null && String(job.signal)],
    ["CPU time", job.cpu_s !== null && span(job.cpu_s)],
    ["peak memory", job.peak_memory !== null && bytes(job.peak_memory)],
    ["cost", job.cost > 0 && money(job.cost)],
    ["expected cost", job.estimated_cost > 0 && money(job.estimated_cost)],
    ["held from budgets", job.held_cost > 0 && money(job.held_cost)],
    ["CPUs", job.cpus], ["GPUs", job.gpus.length > 0 && job.gpus.join(", ")],
    ["note", job.note && said(job.note)],
  ]));
}

function taskTable(job) {
  return h("section.card", heading("Tasks", h("span.push", stateBar(job.task_counts))), table("Tasks", [
    ["Task", (task) => [String(task.rank), task.group ? [" ", h("span.muted", said(`${task.group} ${task.group_task}`))] : ""], "num"],
    ["Node", (task) => said(task.node)],
    ["State", (task) => stateOf(task.state)],
    ["Ran", (task) => span(task.ran_s), "num"],
    ["CPU time", (task) => span(task.cpu_s), "num less"],
    ["Peak memory", (task) => bytes(task.peak_memory), "num less"],
    ["Exit", (task) => (task.exit_code ?? (task.signal ? `signal ${task.signal}` : "–")), "num"],
    ["Message", (task) => said(task.message), "reason"],
  ], job.tasks, { key: (task) => String(task.rank) }));
}

/** All members of an array that were placed, page by page, up to some. */
async function readMembers(job, signal, most) {
  const found = [];
  let cursor = null;
  for (let pages = 0; pages < 20 && found.length < most; pages += 1) {
    const page = await get("/v1/jobs", { members: true, name: job.name, project: job.project, limit: 1000, cursor }, signal);
    found.push(...page.jobs.filter((it) => it.id.startsWith(`${job.id}.`)));
    cursor = page.next;
    if (!cursor) break;
  }
  return found.slice(0, most);
}

function memberTable(place, job) {
  return panel(place, (signal) => readMembers(job, signal, 1000), (members) => h("section.card", {},
    heading("Members", h("span.hint.push", `${many(job.array.size, "member")}; those that were placed are listed${members.length === 1000 ? ", the last 1,000" : ""}`)),
    members.length ? table("Members", [
      ["Member", (it) => jobLink(it, it.id.slice(it.id.indexOf(".") + 1))],
      ["State", (it) => stateOf(it.state)],
      ["Where", (it) => said([it.cluster, it.node].filter(Boolean).join("/") || "–")],
      ["Started", (it) => when(it.started_at)],
      ["Ran", (it) => ran(it), "num"],
      ["Exit", (it) => it.exit_code ?? "–", "num"],
      ["Why", (it) => said(it.reason?.message), "reason less"],
    ], members, { key: (it) => it.id }) : empty("No member has started yet")), { follow: (name, detail) => name === "jobs" && (detail.more || detail.jobs.some((id) => id.startsWith(`${job.id}.`))), least: 3000, label: "Members" });
}

function files(place, job) {
  return panel(place, (signal) => get(`/v1/jobs/${part(job.id)}/files`, {}, signal), (found) => h("section.card", {},
    heading("Files", found.attempt ? h("span.hint.push", `of attempt ${found.attempt}`) : null),
    found.files.length ? table("Output files", [
      ["File", (it) => said(it.path), "wrap"],
      ["Size", (it) => bytes(it.size), "num"],
      ["", (it) => h("a.button.small", { href: `/v1/blobs/${it.digest}`, download: it.path.split("/").at(-1) }, "Download"), "num"],
    ], found.files, { key: (it) => it.path }) : empty("No output files", ["A job returns the files that its ", h("code", "outputs"), " name."])), { follow: (name, detail) => name === "jobs" && detail.jobs.includes(job.id), label: "Files" });
}

function spec(place, job) {
  const text = yaml(job.spec);
  return h("section.card.stack", {},
    heading("Job file", h("span.actions", {},
      h("button.small", { onclick: () => attempt(() => navigator.clipboard.writeText(text), "Copied") }, "Copy"),
      h("button.small", { onclick: () => download(`${job.name}.yaml`, text, "application/yaml") }, "Download"),
      may(place.me, "submit") ? h("a.button.small", { href: `/submit?from=${part(job.id)}` }, "Submit again with changes") : null)),
    h("pre.code-block", { tabindex: "0", label: "Job file" }, text));
}

function history(place, job) {
  return panel(place, (signal) => readLines("/v1/events", { job: job.id }, signal), (events) => h("section.card", {},
    heading("History", h("span.hint.push", many(events.length, "event"))),
    events.length ? table("History", [
      ["When", (it) => h("time", { datetime: it.at, title: it.at }, exact(it.at)), "nowrap"],
      ["What", (it) => [job.array && it.job && it.job !== job.id ? [h("code", it.job.slice(job.id.length)), " "] : "", said(it.text)], "wrap"],
      ["Who", (it) => said(it.user ?? ""), "less"],
    ], events, { key: (it) => String(it.revision) }) : empty("Its history is no longer stored")), { follow: (name, detail) => name === "jobs" && (detail.more || detail.jobs.includes(job.id)), label: "History" });
}

async function runAgain(job) {
  const failed = h("input", { type: "checkbox", checked: true });
  const someFailed = job.array && ((job.array.counts.FAILED ?? 0) + (job.array.counts.TIMED_OUT ?? 0) > 0);
  const answer = await dialog(`Run ${job.name} again?`, h("div.stack", h("p", "This submits a new job with the same spec."), someFailed ? h("label.check", failed, "only members that failed") : null), "Run again",
    () => post("/v1/rerun", { jobs: [job.id], failed: Boolean(someFailed && failed.checked) }));
  if (answer) go(pageOf(answer.jobs[0]));
}

async function change(place, job) {
  const waiting = job.state === "QUEUED" || job.state === "HELD";
  const inputs = {};
  const text = (name, label, hint) => { inputs[name] = h("input", { name, placeholder: hint }); return field(label, inputs[name], ""); };
  const content = h("div.stack", h("p.hint", "Fields that you leave empty stay as they are."), h("div.fields", {},
    waiting ? [text("cpu", "CPUs of each task", String(job.resources.cpu)), text("memory", "Memory", job.resources.memory ? bytes(job.resources.memory) : "none"), text("priority", "Priority", String(job.priority)), text("estimate", "Expected runtime", job.estimate_s ? span(job.estimate_s) : "")] : null,
    text("walltime", "Walltime", job.walltime_s ? span(job.walltime_s) : "none")));
  const value = (name) => inputs[name]?.value.trim();
  await dialog(`Change ${job.name}`, content, "Change", () => {
    const resourcesGiven = Object.fromEntries(["cpu", "memory"].filter(value).map((name) => [name, value(name)]));
    const spec = Object.fromEntries(["walltime", "estimate"].filter(value).map((name) => [name, value(name)]));
    if (value("priority")) spec.priority = Number(value("priority"));
    if (Object.keys(resourcesGiven).length) spec.resources = resourcesGiven;
    return patch(`/v1/jobs/${part(job.id)}`, { spec });
  }, { focus: Object.values(inputs)[0] });
}

/** @param {import("./parts.js").Place} place */
export function jobPage(place) {
  const [id] = place.parts;
  let made = null;
  const head = h("div");
  const body = h("div");
  const holder = panel(place, (signal) => get(`/v1/jobs/${part(id)}`, {}, signal), (job) => {
    document.title = `${job.name} · Spillover`;
    const again = () => refresh(holder);
    const own = mayChange(place.me, job);
    put(head, h("div.head", h("h1", said(job.name)), stateOf(job.state), h("code.muted", job.id),
      h("div.actions", own ? actions([job], again) : null, own && !ENDED.has(job.state) && !job.array ? h("button.small", { key: "change", onclick: async () => { await change(place, job); again(); } }, "Change") : null,
        may(place.me, "submit") ? h("button.small", { key: "again", onclick: () => runAgain(job) }, "Run again") : null)),
    job.array ? h("p", { style: { "margin-bottom": "1rem", "max-width": "40rem" } }, stateBar(job.array.counts), h("span.hint", `${count(job.array.counts.SUCCEEDED ?? 0)} of ${many(job.array.size, "member")} succeeded${job.array.counts.FAILED ? `, ${count(job.array.counts.FAILED)} failed` : ""}`)) : null,
    job.set_aside.length ? h("div.note.warn", job.set_aside.map((it) => h("p", said(`${it.work} failed: ${it.reason}`), "; tried again ", when(it.next_try)))) : null);
    // The tabs stay when the job changes, so that a log goes on and a form keeps what was typed.
    if (made?.state !== kindOf(job)) {
      made = { state: kindOf(job) };
      put(body, contents(place, job));
    }
    return [head, body];
  }, { follow: (name, detail) => name === "jobs" && (detail.more || detail.jobs.some((it) => it === id || it.startsWith(`${id}.`) || id.startsWith(it))), least: 1500, label: "Job" });
  return holder;
}

/** Tabs depend on this; between such changes they stay. */
const kindOf = (job) => (ENDED.has(job.state) ? "ended" : job.state === "QUEUED" || job.state === "HELD" ? "waits" : "runs");

function contents(place, job) {
  const followed = (name, detail) => name === "jobs" && (detail.more || detail.jobs.some((it) => it === job.id || it.startsWith(`${job.id}.`)));
  const within = (signal) => ({ ...place, signal });
  const main = (signal) => {
    const here = within(signal);
    const read = async (one) => {
      const [latest, events, members] = await Promise.all([
        get(`/v1/jobs/${part(job.id)}`, {}, one),
        readLines("/v1/events", { job: job.id, cycles: "false" }, one),
        job.array ? readMembers(job, one, 200) : [],
      ]);
      return { latest, events: events.filter((it) => it.job === job.id), members };
    };
    const parts = panel(here, read, ({ latest, events, members }) => h("div.page", {},
      timeline(latest, events, members),
      h("div.grid.two", details(latest), efficiency(latest.efficiency)),
      latest.tasks.length ? taskTable(latest) : null), { follow: followed, every: ENDED.has(job.state) ? 0 : 5000, least: 2000, label: "Life and details" });
    const waits = kindOf(job) === "waits";
    const trial = h("div");
    if (waits) get("/v1/clusters", {}, signal).then((clusters) => put(trial, whatIf(here, job, clusters)), () => {});
    return h("div.page", whyPanel(here, job), waits ? changesPanel(here, job) : null, waits ? trial : null, parts);
  };
  return tabs(place, "Parts of the job", [
    ["life", "Overview", main],
    ...(job.array ? [["members", "Members", (signal) => memberTable(within(signal), job)]] : [["output", "Output", (signal) => output(signal, job)]]),
    ["files", "Files", (signal) => files(within(signal), job)],
    ["spec", "Job file", () => spec(place, job)],
    ["history", "History", (signal) => history(within(signal), job)],
  ]);
}
