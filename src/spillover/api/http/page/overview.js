// What the scheduler does now: machines, queue, money, and the last hours.

import { get, live, on } from "./api.js";
import { amount, bytes, count, currencyName, empty, h, heading, many, money, now, put, said, share, span, stateBar, sub, table, when } from "./dom.js";
import { jobLink, may, panel, redraw, refresh as refreshOf, segments } from "./parts.js";
import { lines } from "./charts.js";
import { heat, heatKeys } from "./heat.js";
import { budgetBars } from "./costs.js";

const figure = (label, value, more, href = null) => h(`${href ? "a" : "div"}.figure`, { href }, h("span.label", label), h("span.value", value), sub(more));

function figures(of) {
  const { jobs, clusters } = of;
  const sum = (role, key) => clusters.filter((it) => it.role === role).reduce((total, it) => total + it[key].cpu, 0);
  const machines = of.pools.reduce((total, pool) => total + Object.values(pool.machines).reduce((a, b) => a + b, 0), 0);
  return h("div.figures", {},
    figure("Running", count(jobs.running + jobs.placed), `${count(of.ended_a_minute)} ended in the last minute`, "/jobs?state=PLACED,RUNNING"),
    figure("Waiting", count(jobs.queued), jobs.held ? `and ${count(jobs.held)} held` : "none held", "/jobs?state=QUEUED"),
    figure("Waited", of.waited_s === null ? "–" : span(of.waited_s), "on average, last 15 minutes"),
    figure("Owned CPUs", [amount(sum("owned", "used")), h("small", ` of ${amount(sum("owned", "capacity"))}`)], "in use", "/clusters"),
    figure("Rent now", [money(of.cost_an_hour, false), h("small", ` ${currencyName()}`)], machines ? `an hour, for ${many(machines, "machine")}` : "an hour; nothing is rented", "/costs"));
}

function queue(of) {
  const counts = (it) => ({ HELD: it.held, QUEUED: it.queued, PLACED: it.placed, RUNNING: it.running });
  return h("section.card", heading("Jobs by project", h("span.keys.push", ["HELD", "QUEUED", "PLACED", "RUNNING"].map((state) => h(`span.key.${state}`, state.toLowerCase())))),
    of.projects.length ? table("Jobs by project", [
      ["Project", (it) => h("a.name", { href: `/jobs?project=${encodeURIComponent(it.project)}&state=HELD,QUEUED,PLACED,RUNNING` }, said(it.project))],
      ["", (it) => stateBar(counts(it))],
      ["Waiting", (it) => count(it.queued + it.held), "num"],
      ["Running", (it) => count(it.running + it.placed), "num"],
    ], of.projects.slice(0, 12), { key: (it) => it.project }) : empty("Nothing waits and nothing runs", h("a", { href: "/submit" }, "Submit a job")),
    of.projects_in_all > 12 ? h("p.hint", { style: { "margin-top": "1.2rem" } }, `and ${many(of.projects_in_all - 12, "other project")}`) : null);
}

function clusterCard(place, name) {
  const head = h("header");
  const meters = h("div.meter", { style: { "margin-bottom": ".8rem" } });
  const why = h("div");
  const update = () => {
    const of = live.overview?.clusters.find((it) => it.name === name);
    if (!of) return;
    const pool = live.overview.pools.find((it) => it.cluster === name);
    const rented = pool ? Object.entries(pool.machines).map(([state, many]) => `${many} ${state}`).join(", ") : "";
    redraw(head, false, h("h2", h("a", { href: `/clusters#${encodeURIComponent(name)}` }, said(name))), h(`span.tag.${of.role}`, of.role), of.state !== "READY" && of.state !== "EMPTY" ? h("span.tag.warn", of.state.toLowerCase()) : null, pool?.paused ? h("span.tag.warn", "paused") : null,
      h("span.hint.push", many(of.machines, "machine"), rented ? ` (${rented})` : "", pool && pool.hour > 0 ? `, ${money(pool.hour)} an hour` : ""));
    const line = (title, key, text) => (of.capacity[key] > 0 ? [h("span.muted", title), share((of.used[key] + of.foreign[key]) / of.capacity[key], `${title} of ${name}`), h("span.num", `${text(of.used[key])} / ${text(of.capacity[key])}`)] : null);
    put(meters, line("CPUs", "cpu", amount), line("GPUs", "gpu", amount), line("Memory", "memory", bytes));
    put(why, of.why ? h("p.note.warn", said(of.why)) : null);
  };
  on("overview", place.signal, update);
  const made = h("section.card", { label: `Cluster ${name}` }, head, meters, why, heat(place, name));
  update();
  return made;
}

const HOURS = [["1", "1 h"], ["6", "6 h"], ["24", "24 h"], ["168", "7 d"]];
let hours = "1";
function lastHours(place) {
  const since = () => new Date(now() - Number(hours) * 3_600_000).toISOString();
  const add = (clusters, key, role) => clusters.filter((it) => it.role === role).map((it) => it[key]).reduce((sum, it) => (sum ? sum.map((value, index) => (value === null && it[index] === null ? null : (value ?? 0) + (it[index] ?? 0))) : it), null);
  const draw = (series) => {
    if (series.at.length < 2) return empty("No history yet", "Lines appear after the first minutes.");
    const times = series.at.map((it) => Date.parse(it));
    const whole = (value) => (value >= 10_000 ? `${Math.round(value / 1000)}k` : amount(value));
    const figureOf = (title, keys, made) => h("figure", h("figcaption", { style: { display: "flex", "flex-wrap": "wrap", gap: ".2rem .8rem", "margin-bottom": ".2rem" } }, h("h3", title), h("span.keys", keys.map(([text, colour]) => h("span.key", { style: { "--c": colour } }, text)))), made);
    const gap = 4000 * series.step_s; // nothing was taken while no server ran
    const nothing = times.map(() => 0);
    const owned = add(series.clusters, "cpus", "owned") ?? nothing;
    const used = add(series.clusters, "used_cpus", "owned") ?? nothing;
    const rented = add(series.clusters, "used_cpus", "rented") ?? nothing;
    return h("div.grid.two", {},
      figureOf("CPUs", [["used, owned", "var(--running)"], ["capacity, owned", "var(--cancelled)"], ["used, rented", "var(--waiting)"]], lines("CPUs used and owned over the last hours", times, [{ name: "capacity, owned", colour: "var(--cancelled)", values: owned, dash: "4 3" }, { name: "used, owned", colour: "var(--running)", values: used, fill: true }, { name: "used, rented", colour: "var(--waiting)", values: rented }], { text: whole, gap })),
      figureOf("Jobs", [["waiting", "var(--waiting)"], ["running", "var(--running)"]], lines("Jobs waiting and running over the last hours", times, [{ name: "waiting", colour: "var(--waiting)", values: series.queued, fill: true }, { name: "running", colour: "var(--running)", values: series.running }], { text: whole, gap })),
      series.cost_an_hour ? figureOf("Rent an hour", [], lines("Rent an hour over the last hours", times, [{ name: "rent an hour", colour: "var(--timed-out)", values: series.cost_an_hour, fill: true }], { text: amount, unit: ` ${currencyName()}`, gap })) : null,
      series.spent ? figureOf("Spent", [], lines("Spent over the last hours", times, [{ name: "spent", colour: "var(--held)", values: series.spent, fill: true }], { text: (value) => (value && value < 0.1 ? money(value, false) : amount(value)), unit: ` ${currencyName()}`, gap })) : null);
  };
  const box = panel(place, (signal) => get("/v1/series", { since: since() }, signal), draw, { every: 15_000, label: "The last hours" });
  return h("section.card", heading("The last hours", h("span.push", segments("How far back", HOURS, hours, (key) => { hours = key; refreshOf(box); }))), box);
}

function head(place) {
  return panel(place, (signal) => get("/v1/overview", { queued: 6, running: 0, agents: 0 }, signal), ({ queued, server, set_aside: aside }) => h("section.card", {},
    heading("Next in the queue", h("a.push.small", { href: "/jobs?state=QUEUED" }, `${many(server.queued, "job")} in all`)),
    aside.length ? h("p.note.warn", `${many(aside.length, "piece")} of work failed unexpectedly and will be tried again: `, said(aside[0].reason)) : null,
    queued.length ? table("Next in the queue", [
      ["Job", (job) => [jobLink(job), sub(said(job.project))]],
      ...(queued.some((job) => job.expected_start?.p50) ? [["Starts", (job) => when(job.expected_start?.p50), "nowrap"]] : []),
      ["Why it waits", (job) => said(job.reason?.message ?? "it is next"), "reason"],
    ], queued, { key: (job) => job.id }) : empty("Nobody waits", may(place.me, "submit") ? h("a", { href: "/submit" }, "Submit a job") : "")), { follow: ["overview"], least: 5000, label: "Next in the queue" });
}

/** @param {import("./parts.js").Place} place */
export function overviewPage(place) {
  const top = h("div");
  const by = h("div");
  const maps = h("div.grid.maps");
  const money1 = h("div");
  const warn = h("div");
  let names = "";
  const update = () => {
    const of = live.overview;
    if (!of) { put(top, h("p.busy", { role: "status" }, "Loading …")); return; }
    redraw(top, false, figures(of));
    redraw(by, false, queue(of));
    put(warn, of.server.message ? h("p.note.warn", { role: "alert" }, said(of.server.message)) : null, of.server.clock ? h("p.note.warn", said(of.server.clock)) : null);
    redraw(money1, false, h("section.card", heading("Budgets", h("a.push.small", { href: "/costs" }, "Costs and usage")), budgetBars(of.budgets)));
    const next = of.clusters.map((it) => it.name).join("\n");
    if (next !== names) {
      names = next;
      put(maps, of.clusters.length ? of.clusters.map((it) => clusterCard(place, it.name)) : h("section.card", empty("No clusters yet", "Add one to spill.yaml, or with ", h("code", "spill clusters add"), ".")));
    }
  };
  on("overview", place.signal, update);
  on("problem", place.signal, (detail) => put(warn, h("p.note.warn", { role: "alert" }, said(detail.message))));
  update();
  return h("div.page", h("div.head", h("h1", "Overview")), warn, top, maps, heatKeys(), h("div.grid.two", by, head(place)), lastHours(place), money1);
}
