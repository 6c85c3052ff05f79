// Says why a job waits, runs where it runs, or ended; and what would change that.

import { get, part, patch, post } from "./api.js";
import { ENDED, amount, bytes, facts, h, heading, many, money, pageOf, put, said, span, table, when } from "./dom.js";
import { attempt, dialog, field, mayChange, panel, problem } from "./parts.js";

/** The reasons of each cluster. */
function verdicts(clusters) {
  if (!clusters.length) return null;
  return table("Why it does not start on each cluster", [
    ["Cluster", (it) => [h("span.name", said(it.cluster)), " ", h(`span.tag.${it.role}`, it.role)]],
    ["Why not now", (it) => (it.reason ? [it.reason.never ? [h("span.tag.bad", "never"), " "] : null, said(it.reason.message)] : h("span.tag", "it could start here")), "wrap"],
  ], clusters, { key: (it) => it.cluster });
}

/** When a waiting job starts, with its range. */
function expected(why) {
  if (!why.expected_start) return why.expected_start_note ? h("span.muted", why.expected_start_note) : null;
  const { p50, p90 } = why.expected_start;
  if (!p50) return "not expected to start";
  return [when(p50), h("span.muted", p90 ? [" in half of all cases, ", when(p90), " in nine of ten"] : " in half of all cases")];
}

export function whyPanel(place, job) {
  const read = (signal) => get(`/v1/jobs/${part(job.id)}/why`, {}, signal);
  const draw = (why) => [
    h("section.card.stack", {},
      h("header", h("h2", why.state === "QUEUED" || why.state === "HELD" ? "Why it waits" : "Why")),
      h("p.wrap", said(sentence(why.sentence, job))),
      facts([
        ["waiting since", why.waiting_since && when(why.waiting_since)],
        ["jobs ahead", why.ahead !== null && (why.more_ahead ? `${amount(why.ahead)} or more` : amount(why.ahead))],
        ["expected start", expected(why)],
        ["may be rented", why.spills_at && when(why.spills_at)],
        ["expected end", why.ends_at && when(why.ends_at)],
        ["expected runtime", why.estimate_s !== null && !ENDED.has(why.state) && [span(why.estimate_s), h("span.muted", ` from ${{ estimate: "its estimate", walltime: "its walltime", history: "earlier runs", default: "the default" }[why.estimate_from] ?? why.estimate_from}`), why.estimate_because ? [": ", said(why.estimate_because)] : ""]],
        ["cost if rented", why.estimated_cost !== null && why.estimated_cost > 0 && `${money(why.estimated_cost)}${why.cost_at_walltime ? `, at most ${money(why.cost_at_walltime)}` : ""}`],
      ]),
      verdicts(why.clusters)),
  ];
  const follow = (name, detail) => (name === "overview" && !ENDED.has(job.state)) || (name === "jobs" && (detail.more || detail.jobs.includes(job.id)));
  return panel(place, read, draw, { follow, least: 4000, label: "Why" });
}

/** A sentence of the server about a job, whose id is on the page already. */
function sentence(text, job) {
  const told = text.startsWith(`${job.id} `) ? `it${text.slice(job.id.length)}` : text;
  return told.charAt(0).toUpperCase() + told.slice(1) + (/[.!?]$/.test(told) ? "" : ".");
}

/** Another job; one of a project that the caller may not see has no address. */
const other = (job) => [job.id ? h("a", { href: pageOf(job.id) }, said(job.name)) : h("span.muted", "a job of another project"), job.id ? h("span.muted", " of ", said(job.user)) : "", job.ends_at ? [", expected to end ", when(job.ends_at)] : ""];

/** Who is ahead, what has to end, and what would let a waiting job start now; each change was tried by the server on a snapshot. */
export function changesPanel(place, job) {
  const read = (signal) => get(`/v1/jobs/${part(job.id)}/changes`, {}, signal);
  const list = (title, jobs, in_all, more) => (jobs.length ? h("div", h("h3", title), h("ul", jobs.map((it) => h("li", other(it)))), in_all > jobs.length || more ? h("p.hint", `and ${amount(in_all - jobs.length)} more${more ? ", or others" : ""}`) : null) : null);
  const draw = (found) => {
    const columns = [
      ["Change", (it) => said(sentence(it.sentence, job)), "wrap"],
      ["Where", (it) => said(it.cluster)],
      ["", (it) => (it.changes && mayChange(place.me, job) ? h("button.small", { key: `change-${it.what}`, onclick: () => apply(job, it) }, "Change it") : null), "num"],
    ];
    return h("section.card.stack", { label: "What would let it start now" },
      heading("What would let it start now", h("span.hint.push", found.tried ? `the scheduler tried ${many(found.tried, "change")} on a snapshot` : "")),
      h("div.grid.two", list("Ahead of it", found.ahead, found.ahead_in_all, found.more_ahead), list("What ends before it starts", found.ends, 0, false)),
      found.changes.length ? table("Changes that would let it start now", columns, found.changes, { key: (it) => it.what }) : h("p.muted", found.complete ? "No small change of its own would let it start now." : "The search took too long and found no change; try one yourself below."));
  };
  return panel(place, read, draw, { every: 20_000, follow: (name, detail) => name === "jobs" && detail.jobs.includes(job.id), least: 5000, label: "What would let it start now" });
}

const apply = (job, it) => dialog(`Change ${job.name}?`, h("p.wrap", said(sentence(it.sentence, job))), "Change it", () => patch(`/v1/jobs/${part(job.id)}`, it.changes));

/** Try other resources, more machines or another policy, without changing anything. */
export function whatIf(place, job, clusters) {
  const now = job.resources;
  const cpu = h("input", { name: "cpu", inputmode: "decimal", placeholder: String(now.cpu) });
  const memory = h("input", { name: "memory", placeholder: now.memory ? bytes(now.memory).replace(" ", "").replace("B", "") : "none" });
  const gpu = h("input", { name: "gpu", inputmode: "numeric", placeholder: String(now.gpu) });
  const policy = h("input", { name: "policy", placeholder: "wait=zero", autocomplete: "off" });
  const machines = h("input", { name: "machines", inputmode: "numeric", placeholder: "0" });
  const cluster = h("select", { name: "cluster" }, clusters.map((it) => h("option", { value: it.name }, it.name)));
  const answer = h("div", { "aria-live": "polite" });
  const asked = () => {
    const given = {};
    if (cpu.value.trim()) given.cpu = cpu.value.trim();
    if (memory.value.trim()) given.memory = memory.value.trim();
    if (gpu.value.trim()) given.gpu = Number(gpu.value);
    const body = {};
    if (Object.keys(given).length) body.resources = given;
    if (policy.value.trim()) body.policy = policy.value.trim();
    if (Number(machines.value) > 0) body.machines = [{ cluster: cluster.value, count: Number(machines.value) }];
    return body;
  };
  const offer = (body) => (body.resources && !body.policy && !body.machines && mayChange(place.me, job)
    ? h("button.small", { onclick: () => attempt(() => patch(`/v1/jobs/${part(job.id)}`, { spec: { resources: body.resources } }), "The job was changed") }, "Change the job like this")
    : null);
  return h("section.card.stack", {},
    heading("What if …"),
    h("form.stack", { onsubmit: async (event) => {
      event.preventDefault();
      const body = asked();
      put(answer, h("p.busy", "Asking the scheduler …"));
      try {
        const found = await post(`/v1/jobs/${part(job.id)}/what-if`, body, place.signal);
        put(answer, h(`div.note.${found.starts ? "good" : "warn"}.stack`, h("p.wrap", said(sentence(found.sentence, job))), found.starts ? offer(body) : null));
      } catch (error) {
        if (!place.signal.aborted) put(answer, problem(error));
      }
    } },
    h("div.fields", field("CPUs of each task", cpu), field("Memory", memory), field("GPUs", gpu), field("More machines", machines), field("in cluster", cluster), field("Policy", policy)),
    h("div.actions", h("button", { type: "submit" }, "Try"), h("span.hint", "Nothing changes."))),
    answer);
}
