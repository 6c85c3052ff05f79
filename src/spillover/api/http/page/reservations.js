// Capacity that is reserved, as bars on a calendar; and what those who may can reserve and cancel.

import { get, post } from "./api.js";
import { empty, exact, h, heading, many, now, said, table, when } from "./dom.js";
import { choice, dialog, field, may, panel, problem, refresh } from "./parts.js";
import { gantt } from "./charts.js";

const COLOURS = { advance: "var(--running)", maintenance: "var(--failed)", backfill: "var(--waiting)" };
const DAY = 86_400_000;
const MOST = 60;

function calendar(found) {
  const from = Math.min(now() - 1_800_000, ...found.map((each) => Date.parse(each.start)));
  const to = Math.max(from + DAY / 4, ...found.map((each) => (each.end ? Date.parse(each.end) : Date.parse(each.start) + 3_600_000) + 600_000));
  const rows = found.slice(0, MOST).map((each) => ({ name: each.name, strong: each.kind !== "backfill", bars: [{ from: Date.parse(each.start), to: each.end ? Date.parse(each.end) : null, colour: COLOURS[each.kind], faint: each.kind === "backfill", title: `${each.kind}, ${many(each.nodes.length, "node")} of ${each.cluster}`, text: `${each.cluster}: ${each.nodes.length > 3 ? many(each.nodes.length, "node") : each.nodes.join(", ")}` }] }));
  return gantt(`Calendar of reservations: ${found.map((each) => `${each.name} from ${exact(each.start)}`).slice(0, 20).join("; ")}`, rows, from, to, { mark: now(), names: 210 });
}

async function reserve(again) {
  const input = (name, hint, value = "") => h("input", { name, placeholder: hint, value, autocomplete: "off" });
  const [start, length, nodes, names, project, cluster, name] = [input("start", "2027-01-31T09:00:00Z or +2h", "+1h"), input("length", "2h", "2h"), input("nodes", "4", "1"), input("names", "n1, n2"), input("project", "physics"), input("cluster", "any"), input("name", "chosen by the server")];
  const kind = choice([["project", "jobs of a project"], ["maintenance", "maintenance: no job starts there"]], "project", { name: "kind", onchange: () => { project.disabled = kind.value === "maintenance"; } });
  const answer = h("div", { "aria-live": "polite" });
  const body = (dry) => {
    const asked = { start: start.value.trim(), length: length.value.trim(), dry_run: dry };
    const listed = names.value.split(",").map((each) => each.trim()).filter(Boolean);
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
    const cancel = (each) => dialog(`Cancel ${each.name}?`, h("p", "Its nodes are open to other jobs again."), "Cancel the reservation", () => post("/v1/reservations/cancel", { name: each.name }), { danger: true }).then((done) => done && refresh(box));
    return h("div.page", {},
      h("section.card", heading("Calendar", h("span.keys.push", [["advance", "for a project"], ["maintenance", "maintenance"], ["backfill", "for a waiting job"]].map(([kind, text]) => h("span.key", { style: { "--c": COLOURS[kind] } }, text)))), calendar(found), found.length > MOST ? h("p.hint", `The first ${MOST} of ${found.length}.`) : null),
      h("section.card", heading("List"), table("Reservations", [
        ["Name", (each) => (each.job ? h("a.name", { href: `/jobs/${encodeURIComponent(each.job)}` }, said(each.name)) : h("span.name", said(each.name)))],
        ["For", (each) => [each.kind === "backfill" ? "a waiting job" : each.kind === "maintenance" ? "maintenance" : ["project ", said(each.project)], each.by ? h("span.sub", "by ", said(each.by)) : ""]],
        ["Nodes", (each) => [said(each.cluster), ": ", said(each.nodes.length > 6 ? many(each.nodes.length, "node") : each.nodes.join(", ")), each.missing.length ? h("span.sub", h("span.tag.bad", "missing"), " ", said(each.missing.join(", "))) : "", each.running.length ? h("span.sub", `${many(each.running.length, "other job")} still runs there`) : ""], "wrap"],
        ["Start", (each) => when(each.start), "nowrap"],
        ["End", (each) => when(each.end, "not known"), "nowrap"],
        ...(admin ? [["", (each) => (each.kind === "backfill" ? null : h("button.small.danger", { "data-key": `cancel-${each.name}`, onclick: () => cancel(each) }, "Cancel")), "num"]] : []),
      ], found, { key: (each) => each.name })));
  }, { follow: ["overview"], least: 5000, label: "Reservations" });
  return h("div", h("div.head", h("h1", "Reservations"), admin ? h("div.actions", h("button.primary", { onclick: () => reserve(() => refresh(box)) }, "Reserve nodes")) : null), box);
}
