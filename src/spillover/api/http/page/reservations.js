// Capacity that is reserved, as bars on a calendar; and what those who may can reserve and cancel.

import { get, post } from "./api.js";
import { empty, exact, h, heading, many, now, pageOf, said, sub, table, when } from "./dom.js";
import { choice, dialog, field, may, panel, problem, refresh } from "./parts.js";
import { gantt } from "./charts.js";

const COLOURS = { advance: "var(--running)", maintenance: "var(--failed)", backfill: "var(--waiting)" };
const DAY = 86_400_000;
const MOST = 60;

function calendar(found) {
  const from = Math.min(now() - 1_800_000, ...found.map((it) => Date.parse(it.start)));
  const to = Math.max(from + DAY / 4, ...found.map((it) => (it.end ? Date.parse(it.end) : Date.parse(it.start) + 3_600_000) + 600_000));
  const rows = found.slice(0, MOST).map((it) => ({ name: it.name, strong: it.kind !== "backfill", bars: [{ from: Date.parse(it.start), to: it.end ? Date.parse(it.end) : null, colour: COLOURS[it.kind], faint: it.kind === "backfill", title: `${it.kind}, ${many(it.nodes.length, "node")} of ${it.cluster}`, text: `${it.cluster}: ${it.nodes.length > 3 ? many(it.nodes.length, "node") : it.nodes.join(", ")}` }] }));
  return gantt(`Calendar of reservations: ${found.map((it) => `${it.name} from ${exact(it.start)}`).slice(0, 20).join("; ")}`, rows, from, to, { mark: now(), names: 210 });
}

async function reserve(again) {
  const input = (name, hint, value = "") => h("input", { name, placeholder: hint, value, autocomplete: "off" });
  const [start, length, nodes, names, project, cluster, name] = [input("start", "2027-01-31T09:00:00Z or +2h", "+1h"), input("length", "2h", "2h"), input("nodes", "4", "1"), input("names", "n1, n2"), input("project", "physics"), input("cluster", "any"), input("name", "chosen by the server")];
  const kind = choice([["project", "jobs of a project"], ["maintenance", "maintenance: no job starts there"]], "project", { name: "kind", onchange: () => { project.disabled = kind.value === "maintenance"; } });
  const answer = h("div", { "aria-live": "polite" });
  const body = (dry) => {
    const asked = { start: start.value.trim(), length: length.value.trim(), dry_run: dry };
    const listed = names.value.split(",").map((it) => it.trim()).filter(Boolean);
    if (listed.length) asked.names = listed;
    else if (nodes.value.trim() === "all") asked.all = true;
    else asked.nodes = Number(nodes.value);
    if (kind.value === "maintenance") asked.maintenance = true;
    else asked.project = project.value.trim();
    if (cluster.value.trim()) asked.cluster = cluster.value.trim();
    if (name.value.trim()) asked.name = name.value.trim();
    return asked;
  };
  const preview = h("button.small", { onclick: async () => {
    try {
      const would = await post("/v1/reservations", body(true));
      answer.replaceChildren(h("p.note.good", `It would reserve ${would.nodes.join(", ")} of ${would.cluster} from ${exact(would.start)}.`));
    } catch (error) { answer.replaceChildren(problem(error)); }
  } }, "Which nodes would that be?");
  const made = await dialog("Reserve nodes", h("div.stack", h("div.fields", field("From", start), field("For", length), field("Nodes, or all", nodes), field("or these nodes", names), field("What for", kind), field("Project", project), field("Cluster", cluster), field("Name", name)), preview, answer), "Reserve", () => post("/v1/reservations", body(false)), { focus: start });
  if (made) again();
}

/** @param {import("./parts.js").Place} place */
export function reservationsPage(place) {
  const admin = may(place.me, "admin");
  const box = panel(place, (signal) => get("/v1/reservations", {}, signal), (found) => {
    if (!found.length) return h("section.card", empty("Nothing is reserved", admin ? "Reserve nodes for a project or for maintenance with the button above. The scheduler adds reservations of its own for jobs that wait for much." : "Administrators reserve nodes; the scheduler adds reservations of its own for jobs that wait for much."));
    const cancel = (it) => dialog(`Cancel ${it.name}?`, h("p", "Its nodes are open to other jobs again."), "Cancel the reservation", () => post("/v1/reservations/cancel", { name: it.name }), { danger: true }).then((done) => done && refresh(box));
    return h("div.page", {},
      h("section.card", heading("Calendar", h("span.keys.push", [["advance", "for a project"], ["maintenance", "maintenance"], ["backfill", "for a waiting job"]].map(([kind, text]) => h("span.key", { style: { "--c": COLOURS[kind] } }, text)))), calendar(found), found.length > MOST ? h("p.hint", `The first ${MOST} of ${found.length}.`) : null),
      h("section.card", heading("List"), table("Reservations", [
        ["Name", (it) => (it.job ? h("a.name", { href: pageOf(it.job) }, said(it.name)) : h("span.name", said(it.name)))],
        ["For", (it) => [it.kind === "backfill" ? "a waiting job" : it.kind === "maintenance" ? "maintenance" : ["project ", said(it.project)], it.by ? sub("by ", said(it.by)) : ""]],
        ["Nodes", (it) => [said(it.cluster), ": ", said(it.nodes.length > 6 ? many(it.nodes.length, "node") : it.nodes.join(", ")), it.missing.length ? sub(h("span.tag.bad", "missing"), " ", said(it.missing.join(", "))) : "", it.running.length ? sub(`${many(it.running.length, "other job")} still runs there`) : ""], "wrap"],
        ["Start", (it) => when(it.start), "nowrap"],
        ["End", (it) => when(it.end, "not known"), "nowrap"],
        ...(admin ? [["", (it) => (it.kind === "backfill" ? null : h("button.small.danger", { key: `cancel-${it.name}`, onclick: () => cancel(it) }, "Cancel")), "num"]] : []),
      ], found, { key: (it) => it.name })));
  }, { follow: ["overview"], least: 5000, label: "Reservations" });
  return h("div", h("div.head", h("h1", "Reservations"), admin ? h("div.actions", h("button.primary", { onclick: () => reserve(() => refresh(box)) }, "Reserve nodes")) : null), box);
}
