// Clusters, their machines, and pools of rented machines: what they have, cost and do, and who may drain or pause them.

import { get, live, post } from "./api.js";
import { amount, bytes, count, currencyName, empty, facts, h, heading, many, money, pageOf, said, share, span, stateOf, sub, table, when } from "./dom.js";
import { attempt, dialog, field, jobLink, may, panel, refresh } from "./parts.js";
import { heat, heatKeys } from "./heat.js";

const MOST_AGENTS = 300;

async function withReason(title, label, work) {
  const reason = h("input", { name: "reason", maxlength: "500", placeholder: "new disk" });
  return dialog(title, field(`Why? Everybody sees it.`, reason), label, () => work(reason.value.trim()), { focus: reason });
}

const stateTag = (state) => h(`span.tag${{ READY: "", EMPTY: "", ready: "", open: "", gone: "" }[state] ?? ".warn"}`, String(state).toLowerCase());

function price(cluster) {
  const { price: of, node } = cluster;
  const parts = [["cpu_hour", "a CPU"], ["memory_gib_hour", "a GiB"], ["gpu_hour", "a GPU"], ["node_hour", "a machine"]].filter(([key]) => of[key]).map(([key, name]) => `${money(of[key], false)} ${name}`);
  return parts.length ? `${parts.join(", ")} an hour (${currencyName()})${node ? ", rented whole" : ""}` : null;
}

function agentsOf(place, cluster, agents, again) {
  const admin = may(place.me, "admin");
  const act = (body, done) => attempt(() => post("/v1/agents/actions", body), done).then(again);
  const one = (agent) => `${agent.cluster}/${agent.name}`;
  if (!agents.length) return cluster.kind === "agents" && cluster.role === "owned" ? empty("No agents yet", ["Start one on a machine: ", h("code", "spill agent"), "."]) : null;
  return table(`Agents of ${cluster.name}`, [
    ["Agent", (agent) => [h("a.name", { href: `/clusters?machine=${encodeURIComponent(one(agent))}` }, said(agent.name)), agent.machine ? sub(`${agent.machine.type}${agent.machine.spot ? ", spot" : ""}, ${money(agent.machine.hour)} an hour`) : ""]],
    ["State", (agent) => [stateTag(agent.state), agent.drained_by ? sub("by ", said(agent.drained_by), agent.drain_reason ? [": ", said(agent.drain_reason)] : "") : ""]],
    ["CPUs", (agent) => [share(agent.used.cpu / agent.capacity.cpu, `CPUs: ${amount(agent.used.cpu)} of ${amount(agent.capacity.cpu)}`), sub(`${amount(agent.used.cpu)} of ${amount(agent.capacity.cpu)}`)]],
    ["Memory", (agent) => `${bytes(agent.used.memory)} of ${bytes(agent.capacity.memory)}`, "num less"],
    ["GPUs", (agent) => (agent.capacity.gpu ? `${amount(agent.used.gpu)} of ${amount(agent.capacity.gpu)}` : "–"), "num less"],
    ["Tasks", (agent) => [count(agent.running), agent.ahead ? sub(`${agent.ahead} prefetched`) : ""], "num"],
    ["Load", (agent) => (agent.load === null ? "–" : amount(agent.load)), "num less"],
    ["Heard", (agent) => when(agent.heartbeat_at), "nowrap less"],
    ...(admin ? [["", (agent) => h("span.actions", agent.state === "draining" || agent.drained_by
      ? h("button.small", { key: `resume-${one(agent)}`, onclick: () => act({ act: "resume", agents: [one(agent)] }, `${agent.name} takes jobs again`) }, "Resume")
      : h("button.small", { key: `drain-${one(agent)}`, onclick: () => withReason(`Drain ${agent.name}?`, "Drain", (reason) => post("/v1/agents/actions", { act: "drain", agents: [one(agent)], reason })).then(again) }, "Drain"),
    agent.state === "lost" ? h("button.small", { onclick: () => act({ act: "forget", agents: [one(agent)] }, `${agent.name} is forgotten`) }, "Forget") : null), "num"]] : []),
  ], agents.slice(0, MOST_AGENTS), { key: one });
}

function pool(place, of, again) {
  const admin = may(place.me, "admin");
  const isGone = (it) => it.state === "gone" || it.state === "refused";
  const alive = of.machines.filter((it) => !isGone(it));
  const shown = [...alive, ...of.machines.filter(isGone).sort((a, b) => b.since.localeCompare(a.since)).slice(0, 5)];
  const cluster = of.cluster;
  const pause = async () => {
    const why = h("input", { name: "why", placeholder: "too dear" });
    const end = h("input", { type: "checkbox" });
    await dialog(`Pause the pool of ${cluster}?`, h("div.stack", h("p", "It orders no more machines until it is resumed."), field("Why? People whose jobs wait see it.", why), h("label.check", end, `also end its ${many(alive.length, "machine")} at once; their tasks return to the queue`)), "Pause", () => post("/v1/pools/pause", { cluster, why: why.value.trim(), end: end.checked }), { focus: why });
    again();
  };
  return h("section.card.stack", { label: `Pool of ${cluster}`, id: `pool-${cluster}` },
    heading(["Pool of ", said(cluster)], stateTag(of.state), h("span.hint", `${of.provider}, ${of.min} to ${of.max} machines`), of.budget !== null ? h("span.hint", `${money(of.budget_left)} of ${money(of.budget)} a ${of.budget_per} left`) : null,
      admin ? h("span.actions", of.paused !== null ? h("button.small", { key: `pool-${cluster}`, onclick: () => attempt(() => post("/v1/pools/resume", { cluster }), "The pool orders machines again").then(again) }, "Resume") : h("button.small", { key: `pool-${cluster}`, onclick: pause }, "Pause")) : null),
    of.paused !== null ? h("p.note.warn", "Paused", of.paused ? [": ", said(of.paused)] : "") : null,
    shown.length ? table(`Machines of the pool of ${cluster}`, [
      ["Machine", (it) => [h("span.name", said(it.id)), sub(`${it.type}${it.zone ? `, ${it.zone}` : ""}${it.spot ? ", spot" : ""}`)]],
      ["State", (it) => [stateTag(it.state), sub(when(it.since))]],
      ["Why", (it) => [said(it.reason || ""), it.job ? sub("for ", h("a", { href: pageOf(it.job) }, it.job)) : ""], "wrap"],
      ["Next", (it) => (it.ready_at ? ["ready ", when(it.ready_at)] : it.leaves_at ? ["leaves ", when(it.leaves_at)] : ""), "less"],
      ["Tasks", (it) => count(it.tasks), "num"],
      ["An hour", (it) => money(it.hour, false), "num less"],
      ["Cost", (it) => money(it.cost, false), "num"],
    ], shown.slice(0, 100), { key: (it) => it.id }) : h("p.muted", "No machines now. They are ordered when it pays to rent for a waiting job."),
    h("details", h("summary", { key: `offers-${cluster}` }, many(of.offers.length, "offer")), h("div", { style: { padding: "0 0 1rem" } }, table(`Offers of the pool of ${cluster}`, [
      ["Type", (it) => [h("span.name", said(it.type)), it.zone || it.spot ? sub([it.zone, it.spot ? "spot" : ""].filter(Boolean).join(", ")) : ""]],
      ["Has", (it) => [`${amount(it.cpu)} CPU, ${bytes(it.memory)}${it.gpu ? `, ${many(it.gpu, "GPU")}` : ""}`]],
      ["Boots in", (it) => `${span(it.boot_p50_s)}, at most ${span(it.boot_p90_s)} in nine of ten`, "less"],
      ["An hour", (it) => money(it.hour), "num"],
      ["", (it) => (it.closed_until ? [h("span.tag.warn", "closed"), sub("until ", when(it.closed_until), ": ", said(it.reason))] : "")],
    ], of.offers))));
}

/** One machine with what runs there. */
function machine(place, name) {
  const read = async (signal) => {
    try {
      return await get("/v1/agents/show", { agent: name }, signal);
    } catch (error) {
      const node = live.machines.get(name);
      if (node && error.status === 404) return { node };
      throw error;
    }
  };
  const box = panel(place, read, (of) => {
    if (of.node) return h("section.card.stack", heading(said(name), stateTag(of.node.state), h("a.button.small.push", { href: "/clusters" }, "Close")), facts([["CPUs", `${amount(of.node.used.cpu)} of ${amount(of.node.capacity.cpu)} used`], ["memory", `${bytes(of.node.used.memory)} of ${bytes(of.node.capacity.memory)}`], ["tasks", of.node.jobs.map((job) => [jobLink(job), " "])]]));
    return h("section.card.stack", { label: `Machine ${of.name}` },
      heading(said(`${of.cluster}/${of.name}`), stateTag(of.state), h("a.button.small.push", { href: "/clusters" }, "Close")),
      facts([
        ["CPUs", `${amount(of.used.cpu)} of ${amount(of.capacity.cpu)} used`], ["memory", `${bytes(of.used.memory)} of ${bytes(of.capacity.memory)} used`], ["GPUs", of.capacity.gpu > 0 && `${amount(of.used.gpu)} of ${amount(of.capacity.gpu)} used`],
        ["state since", of.since && when(of.since)], ["drained by", of.drained_by && [said(of.drained_by), of.drain_reason ? [": ", said(of.drain_reason)] : ""]], ["version", of.version], ["offers", of.offers.join(", ")],
        ["labels", Object.entries(of.labels).map(([key, value]) => `${key}=${value}`).join(", ") || null],
      ]),
      of.tasks.length ? table(`Tasks on ${of.name}`, [
        ["Job", (task) => h("a.name", { href: pageOf(task.job) }, said(task.name))], ["Task", (task) => String(task.rank), "num"], ["State", (task) => [stateOf(task.state), task.ahead ? sub("prefetched") : ""]],
        ["User", (task) => [said(task.user), sub(said(task.project))]], ["Holds", (task) => `${amount(task.resources.cpu)} CPU, ${bytes(task.resources.memory)}`, "less"], ["Started", (task) => when(task.started_at)],
      ], of.tasks) : h("p.muted", "Nothing runs here."));
  }, { follow: ["machines", "jobs"], least: 2000, label: "Machine" });
  return box;
}

/** @param {import("./parts.js").Place} place */
export function clustersPage(place) {
  const chosen = place.query.get("machine");
  const admin = may(place.me, "admin");
  const maps = new Map();
  const read = async (signal) => {
    const [clusters, agents] = await Promise.all([get("/v1/clusters", {}, signal), get("/v1/agents", {}, signal)]);
    return { clusters, agents };
  };
  const cards = panel(place, read, ({ clusters, agents }) => {
    const again = () => refresh(cards);
    if (!clusters.length) return h("section.card", empty("No clusters yet", "Add one to spill.yaml, or with ", h("code", "spill clusters add"), "."));
    return h("div.page", clusters.map((cluster) => {
      const own = agents.filter((agent) => agent.cluster === cluster.name);
      if (!maps.has(cluster.name)) maps.set(cluster.name, heat(place, cluster.name));
      const drained = cluster.drained_by !== null || cluster.life === "draining";
      const act = (body, done) => attempt(() => post("/v1/clusters/actions", body), done).then(again);
      const drain = () => dialog(`Drain ${cluster.name}?`, h("p", "It starts no more jobs. Those that run go on."), "Drain", () => post("/v1/clusters/actions", { act: "drain", clusters: [cluster.name] })).then(again);
      return h("section.card.stack", { id: cluster.name, label: `Cluster ${cluster.name}` },
        heading(said(cluster.name), h(`span.tag.${cluster.role}`, cluster.role), h("span.tag", cluster.kind), cluster.life !== "ready" ? stateTag(cluster.life) : stateTag(cluster.state), cluster.leaving ? h("span.tag.warn", "is being removed") : null,
          admin && !cluster.leaving ? h("span.actions", drained
            ? h("button.small", { key: `cluster-${cluster.name}`, onclick: () => act({ act: "resume", clusters: [cluster.name] }, `${cluster.name} takes jobs again`) }, "Resume")
            : h("button.small", { key: `cluster-${cluster.name}`, onclick: drain }, "Drain")) : null),
        cluster.why ? h("p.note.warn", said(cluster.why)) : null,
        facts([
          ["CPUs", cluster.capacity.cpu > 0 && `${amount(cluster.used.cpu)} of ${amount(cluster.capacity.cpu)} used by our jobs${cluster.foreign.cpu ? `, ${amount(cluster.foreign.cpu)} by others` : ""}`],
          ["memory", cluster.capacity.memory > 0 && `${bytes(cluster.used.memory)} of ${bytes(cluster.capacity.memory)}`],
          ["GPUs", cluster.capacity.gpu > 0 && `${amount(cluster.used.gpu)} of ${amount(cluster.capacity.gpu)}`],
          ["runs", many(cluster.running, "job")],
          ["price", price(cluster)],
          ["starts in", cluster.startup_s > 0 && span(cluster.startup_s)],
          ["region", cluster.region && said(cluster.region)],
          ["drained by", cluster.drained_by && said(cluster.drained_by)],
          ["added by", cluster.added_by && said(cluster.added_by)],
        ]),
        maps.get(cluster.name),
        own.length > MOST_AGENTS ? h("p.hint", `The first ${count(MOST_AGENTS)} of ${count(own.length)} agents are in the table; all are on the map.`) : null,
        agentsOf(place, cluster, own, again));
    }), heatKeys());
  }, { follow: ["machines", "overview"], least: 8000, label: "Clusters" });
  const pools = panel(place, (signal) => get("/v1/pools", {}, signal), (found) => h("div.page", found.map((it) => pool(place, it, () => refresh(pools)))), { follow: ["pools"], every: 10_000, least: 1500, label: "Pools" });
  return h("div.page", h("div.head", h("h1", "Clusters")), chosen ? machine(place, chosen) : null, cards, pools);
}
