// The list of jobs. Its filters are in the address, and it has one page of jobs at a time, so a million jobs cost no more than a hundred.

import { get, post } from "./api.js";
import { count, empty, ENDED, h, many, money, now, ran, resources, said, stateBar, stateOf, STATES, sub, table, when, word } from "./dom.js";
import { attempt, choice, dialog, field, go, jobLink, may, mayChange, panel, refresh } from "./parts.js";

const FILTERS = ["state", "project", "user", "queue", "name", "since"];
const SINCE = [["", "any time"], ["1h", "last hour"], ["1d", "last day"], ["7d", "last week"], ["30d", "last 30 days"]];
const UNITS = { h: 3600e3, d: 86400e3 };
const ACTS = {
  cancel: ["Cancel", "cancelled", ["HELD", "QUEUED", "PLACED", "RUNNING"]],
  hold: ["Hold", "held", ["QUEUED"]],
  release: ["Release", "released", ["HELD"]],
  requeue: ["Requeue", "requeued", ["PLACED", "RUNNING"]],
};

/** The moment that `1d` means; a full time stays as it is. */
function since(text) {
  const found = /^(\d+)([hd])$/.exec(text);
  return found ? new Date(now() - Number(found[1]) * UNITS[found[2]]).toISOString() : text;
}

/** Ask, and act on jobs. Says how many it concerns before it does anything. */
export async function act(name, jobs) {
  const [title, done, states] = ACTS[name];
  const body = { act: name, jobs: jobs.map((job) => job.id), states };
  const would = await attempt(() => post("/v1/actions", { ...body, dry_run: true }));
  if (!would) return null;
  const ids = would.jobs;
  if (!ids.length) {
    await dialog(`Nothing to ${name}`, h("p", `None of ${jobs.length === 1 ? "this job" : `these ${count(jobs.length)} jobs`} is ${states.map(word).join(" or ")} now.`), "OK", async () => true);
    return null;
  }
  const arrays = jobs.filter((job) => job.array).length;
  return dialog(`${title} ${many(ids.length, "job")}?`,
    h("div.stack", h("p", `${ids.length === 1 ? "1 job" : `${count(ids.length)} jobs`} will be ${done}${arrays ? `, among them ${many(arrays, "array")} with all members that are ${states.map(word).join(", ")}` : ""}.`),
      h("p.hint.wrap", jobs.slice(0, 8).map((job, index) => [index ? ", " : "", said(job.name)]), jobs.length > 8 ? ` and ${count(jobs.length - 8)} more` : ""),
      name === "requeue" ? h("p.hint", "What they have done so far is lost, unless they save their work.") : null),
    `${title} ${many(ids.length, "job")}`, () => post("/v1/actions", body), { danger: name === "cancel" });
}

/** Buttons for what one can do with some jobs now. */
export function actions(jobs, then) {
  return Object.entries(ACTS).filter(([, [, , states]]) => jobs.some((job) => states.includes(job.state) || (job.array && states.some((it) => job.array.counts[it]))))
    .map(([name, [title]]) => h(`button.small${name === "cancel" ? ".danger" : ""}`, { key: `act-${name}`, onclick: async () => { if (await act(name, jobs)) then(); } }, title));
}

/** @param {import("./parts.js").Place} place */
export function jobsPage(place) {
  const asked = Object.fromEntries(FILTERS.map((name) => [name, place.query.get(name) || ""]));
  const cursor = place.query.get("cursor") || "";
  const picked = new Map();
  const bar = h("div.picked", { hidden: true, role: "region", label: "Chosen jobs" });
  let shown = [];

  const search = (changes) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...asked, ...changes })) if (value) query.set(name, value);
    const text = query.toString();
    return text ? `/jobs?${text}` : "/jobs";
  };
  const set = (name, value) => go(search({ [name]: value, cursor: "" }));
  const text = (name, label, hint) => {
    const input = h("input", { name, value: asked[name], placeholder: hint, autocomplete: "off", spellcheck: "false" });
    input.addEventListener("change", () => set(name, input.value.trim()));
    return field(label, input);
  };
  const states = choice([["", "any"], ["HELD,QUEUED,PLACED,RUNNING", "not ended"], ...STATES.map((it) => [it, word(it)]), ["FAILED,TIMED_OUT", "failed or timed out"]], asked.state, { name: "state", onchange: () => set("state", states.value) });
  const times = choice(SINCE.some(([key]) => key === asked.since) ? SINCE : [...SINCE, [asked.since, `since ${asked.since}`]], asked.since, { name: "since", onchange: () => set("since", times.value) });
  if (states.selectedIndex < 0) { states.append(h("option", { value: asked.state }, asked.state)); states.value = asked.state; }

  const drawBar = () => {
    bar.hidden = picked.size === 0;
    if (!picked.size) return;
    const jobs = [...picked.values()];
    bar.replaceChildren(h("strong", `${many(jobs.length, "job")} chosen`), h("span.actions", actions(jobs, () => { clear(); refresh(list); })), h("button.plain.small", { onclick: clear }, "Choose none"));
    if (!bar.querySelector("[data-key]")) bar.insertBefore(h("span.hint", "They have ended: nothing can be done with them."), bar.lastChild);
  };
  const clear = () => {
    picked.clear();
    for (const box of list.querySelectorAll("input[type=checkbox]")) /** @type {HTMLInputElement} */ (box).checked = false;
    drawBar();
  };
  const pick = (job, yes) => { if (yes) picked.set(job.id, job); else picked.delete(job.id); drawBar(); };

  const draw = ({ jobs, next }) => {
    shown = jobs;
    for (const job of jobs) if (picked.has(job.id)) picked.set(job.id, job);
    drawBar();
    if (!jobs.length) {
      return h("section.card", FILTERS.some((name) => asked[name])
        ? empty("No job matches these filters", h("a", { href: "/jobs" }, "Show all jobs"))
        : empty("No jobs yet", may(place.me, "submit") ? [h("a", { href: "/submit" }, "Submit one here"), ", or with ", h("code", "spill run -- echo hello")] : "Jobs appear here as soon as somebody submits one."));
    }
    const choosable = may(place.me, "submit");
    const all = h("input", { type: "checkbox", label: "Choose all jobs of this page", onchange: () => {
      for (const job of jobs) if (mayChange(place.me, job)) pick(job, all.checked);
      for (const box of list.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
    } });
    const columns = [
      ["Job", (job) => [jobLink(job), h("span.sub.mono", job.id)]],
      ["State", (job) => (job.array ? [stateOf(job.state), sub(stateBar(job.array.counts), `${count(job.array.counts.SUCCEEDED ?? 0)} of ${many(job.array.size, "member")}`)] : stateOf(job.state))],
      ["Project", (job) => [h("a", { href: search({ project: job.project, cursor: "" }) }, said(job.project)), sub(said(job.user))], "less"],
      ["Where", (job) => (job.cluster ? [said(job.cluster), job.node ? sub(said(job.node), job.nodes > 1 ? ` and ${job.nodes - 1} more` : "") : ""] : h("span.muted", "–")), "less"],
      ["Asks for", (job) => h("span.small", resources(job.resources)), "less"],
      ["Submitted", (job) => when(job.submitted_at), "nowrap"],
      ["Ran", (job) => ran(job), "num less"],
      ["Cost", (job) => (job.cost ? money(job.cost, false) : "–"), "num less"],
      ["Why", (job) => said(job.reason?.message ?? (job.placed_because && !ENDED.has(job.state) ? job.placed_because.message : "")), "reason less"],
    ];
    if (choosable) columns.unshift([all, (job) => h("input", { type: "checkbox", checked: picked.has(job.id), disabled: !mayChange(place.me, job), key: `pick-${job.id}`, label: `Choose ${job.name}`, onchange: (event) => pick(job, event.target.checked) })]);
    return [h("section.card", table("Jobs", columns, jobs, { key: (job) => job.id })),
      h("nav.actions", { label: "Pages of the list", style: { "margin-top": ".9rem" } },
        cursor ? h("a.button", { href: search({}), key: "newest" }, "Newest") : null,
        cursor ? h("button", { onclick: () => history.back() }, "Back") : null,
        next ? h("a.button", { href: search({ cursor: next }), rel: "next" }, "Older jobs") : h("span.hint", cursor ? "These are the oldest." : many(jobs.length, "job")))];
  };
  const read = (signal) => get("/v1/jobs", { ...asked, since: since(asked.since), cursor, limit: 100 }, signal);
  // The first page has news whenever something is submitted; another one only if it shows a job that changed.
  const follow = (name, detail) => name === "jobs" && (!cursor || detail.more || shown.some((job) => detail.jobs.some((id) => id === job.id || id.startsWith(`${job.id}.`))));
  const list = panel(place, read, draw, { follow, least: 2000, label: "Jobs" });

  return h("div", {},
    h("div.head", h("h1", "Jobs"), may(place.me, "submit") ? h("div.actions", h("a.button.primary", { href: "/submit" }, "Submit a job")) : null),
    h("form.filters", { label: "Filters", onsubmit: (event) => event.preventDefault() },
      field("State", states), text("name", "Name", "exact name"), place.me.project ? null : text("project", "Project", "any"), text("user", "User", "any"), text("queue", "Queue", "any"), field("Submitted", times),
      FILTERS.some((name) => asked[name]) ? h("a.button", { href: "/jobs" }, "Clear") : null),
    list, bar);
}
