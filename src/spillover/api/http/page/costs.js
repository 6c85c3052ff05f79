// What was spent and used, by whom, and what is left of budgets.

import { get } from "./api.js";
import { amount, count, currencyName, download, empty, h, heading, many, money, now, percent, said, sub, table, when } from "./dom.js";
import { choice, field, go, panel } from "./parts.js";

/** Budgets as bars: spent, held, left. */
export function budgetBars(budgets) {
  if (!budgets.length) return empty("No budgets", "A budget limits what a project or a user may spend. Add one under ", h("code", "budgets"), " in spill.yaml.");
  return table("Budgets", [
    ["Budget", (it) => [h("span.name", `${it.of} `, said(it.name === "*" ? `any other` : it.name)), sub(`${it.per}${it.period !== it.per ? `, ${it.period}` : ""}`)]],
    ["", (it) => {
      const spent = Math.min(1, it.limit ? it.spent / it.limit : 1);
      const held = Math.min(1 - spent, it.limit ? it.held / it.limit : 0);
      const text = `${money(it.spent)} spent, ${money(it.held)} held, ${money(it.left)} left of ${money(it.limit)}`;
      return h("span.barline", { role: "img", label: text, title: text }, h("i", { style: { width: `${spent * 100}%`, "--c": it.left <= 0 ? "var(--failed)" : "var(--running)" } }), h("i", { style: { width: `${held * 100}%`, "--c": "var(--placed)" } }));
    }],
    ["Spent", (it) => [money(it.spent, false), it.held > 0 ? sub(`+ ${money(it.held, false)} held`) : ""], "num"],
    ["Left", (it) => (it.left <= 0 ? h("span.tag.bad", "used up") : [money(it.left, false), sub(`of ${money(it.limit, false)}`)]), "num"],
    ["Used up", (it) => {
      if (it.left <= 0) return [h("span.muted", it.held > 0 ? "the rest is held" : "already"), it.ends_at ? sub("it ends ", when(it.ends_at)) : ""];
      return it.runs_out_at ? [when(it.runs_out_at), sub("if it goes on like this")] : it.ends_at ? [h("span.muted", "not in this period"), sub("it ends ", when(it.ends_at))] : h("span.muted", "no forecast");
    }, "less"],
  ], budgets, { key: (it) => `${it.of} ${it.name} ${it.per}` });
}

const KEYS = [["project", "project"], ["user", "user"], ["cluster", "cluster"], ["queue", "queue"], ["day", "day"], ["week", "week"], ["month", "month"], ["day,project", "day and project"], ["month,project", "month and project"], ["project,user", "project and user"]];
const SINCE = [["", "ever"], ["1", "last day"], ["7", "last week"], ["30", "last 30 days"], ["365", "last year"]];

/** A table as CSV. Texts that a spreadsheet would compute get an apostrophe. */
export function csv(head, rows) {
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function usage(place, by, days) {
  const since = days ? new Date(now() - Number(days) * 86_400_000).toISOString() : null;
  return panel(place, (signal) => get("/v1/usage", { by, since }, signal), (report) => {
    const hours = (it, key) => it.owned[key] + it.rented[key];
    const most = Math.max(...report.rows.map((row) => hours(row, "cpu")), 1e-9);
    const save = () => download(`usage-${by.replace(",", "-")}.csv`, csv(
      [...report.by, "jobs", "owned_cpu_hours", "owned_gpu_hours", "owned_memory_gib_hours", "rented_cpu_hours", "rented_gpu_hours", "rented_memory_gib_hours", "unused_cpu_hours", "unused_memory_gib_hours", `cost_${report.currency.toLowerCase()}`],
      report.rows.map((row) => [...report.by.map((key) => row.key[key]), row.jobs, row.owned.cpu, row.owned.gpu, row.owned.memory, row.rented.cpu, row.rented.gpu, row.rented.memory, row.unused.cpu, row.unused.memory, row.cost])));
    const gpus = hours(report.total, "gpu") > 0;
    const hour = (value) => (value > 0 && value < 0.01 ? "< 0.01" : amount(value));
    const columns = [
      ...report.by.map((key) => [key.charAt(0).toUpperCase() + key.slice(1), (row) => h("span.name", said(row.key[key] || "–"))]),
      ["", (row) => h("span.barline", { role: "img", label: `${amount(hours(row, "cpu"))} CPU hours`, style: { background: "none" } },
        h("i", { style: { width: `${(100 * row.owned.cpu) / most}%`, "--c": "var(--running)" } }), h("i", { style: { width: `${(100 * row.rented.cpu) / most}%`, "--c": "var(--waiting)" } })), "less"],
      ["Jobs", (row) => count(row.jobs), "num"],
      ["CPU h, owned", (row) => hour(row.owned.cpu), "num"],
      ["CPU h, rented", (row) => hour(row.rented.cpu), "num"],
      ...(gpus ? [["GPU h", (row) => hour(hours(row, "gpu")), "num"]] : []),
      ["GiB h", (row) => hour(hours(row, "memory")), "num less"],
      ["CPU unused", (row) => percent(row.measured.cpu ? row.unused.cpu / row.measured.cpu : null), "num less"],
      [`Cost (${report.currency})`, (row) => money(row.cost, false), "num"],
    ];
    const foot = columns.map(([title, cell], index) => (index === 0 ? "Total" : index < report.by.length || !title ? "" : cell(report.total)));
    return [heading("Usage", h("span.keys", h("span.key", { style: { "--c": "var(--running)" } }, "owned"), h("span.key", { style: { "--c": "var(--waiting)" } }, "rented")), h("span.actions", h("button.small", { onclick: save, disabled: !report.rows.length, key: "csv" }, "Download CSV"))),
      report.rows.length ? table("Usage", columns, report.rows, { foot: report.rows.length > 1 ? foot : null, key: (row) => report.by.map((key) => row.key[key]).join(" ") }) : empty("Nothing was used in this time", "Choose a longer time, or submit a job.")];
  }, { every: 20_000, tag: "section", label: "Usage" });
}

function machines(place) {
  return panel(place, async (signal) => (place.me.project ? null : get("/v1/costs/machines", { by: "pool" }, signal)), (report) => (report?.rows.length ? h("section.card", {},
    heading("What rented machines cost", h("span.hint.push", "and for what")),
    table("What rented machines cost", [
      ["Pool", (row) => h("span.name", said(row.key))],
      ["", (row) => {
        const parts = [["useful", row.useful, "var(--succeeded)"], ["boot", row.boot, "var(--placed)"], ["idle", row.idle, "var(--waiting)"], ["interrupted", row.interrupted, "var(--failed)"]];
        const text = parts.map(([name, value]) => `${name} ${money(value)}`).join(", ");
        return h("span.barline", { role: "img", label: text, title: text }, parts.map(([, value, colour]) => h("i", { style: { width: `${(100 * value) / (row.paid || 1)}%`, "--c": colour } })));
      }],
      ["Machines", (row) => count(row.machines), "num less"],
      ["Useful", (row) => money(row.useful, false), "num"],
      ["Boot", (row) => money(row.boot, false), "num less"],
      ["Idle", (row) => money(row.idle, false), "num"],
      ["Interrupted", (row) => money(row.interrupted, false), "num less"],
      [`Paid (${report.currency})`, (row) => money(row.paid, false), "num"],
    ], report.rows, { key: (row) => row.key })) : h("div")), { follow: ["pools"], every: 20_000, least: 3000, label: "What rented machines cost" });
}

/** @param {import("./parts.js").Place} place */
export function costsPage(place) {
  const by = place.query.get("by") || "project";
  const days = place.query.get("days") || "";
  const to = (changes) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ by, days, ...changes })) if (value) query.set(name, value);
    go(`/costs?${query}`);
  };
  const bys = choice(KEYS.some(([key]) => key === by) ? KEYS : [...KEYS, by], by, { onchange: () => to({ by: bys.value }) });
  const since = choice(SINCE, days, { onchange: () => to({ days: since.value }) });
  const used = usage(place, by, days);
  used.className = "card";
  return h("div.page", h("div.head", h("h1", "Costs and usage")),
    panel(place, (signal) => get("/v1/budgets", {}, signal), (budgets) => h("section.card", heading("Budgets", h("span.hint.push", many(budgets.length, "budget"), currencyName() ? `, in ${currencyName()}` : "")), budgetBars(budgets)), { follow: ["overview"], least: 5000, label: "Budgets" }),
    h("div.filters", field("By", bys), field("Since", since)),
    used, machines(place));
}
