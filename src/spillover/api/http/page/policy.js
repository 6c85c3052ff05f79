// The policies in effect, what another point between cost and time would mean for this server's own jobs, and their history.

import { get, patch, post } from "./api.js";
import { count, currencyName, empty, exact, facts, h, heading, many, money, percent, put, said, span, sub, svg, table, when } from "./dom.js";
import { choice, dialog, field, may, panel, problem, refresh } from "./parts.js";
import { chart, nice, noTip, tipAt } from "./charts.js";

const SPANS = [["86400", "last day"], ["604800", "last week"], ["2592000", "last 30 days"]];

/** Say what a change would be, and make it after a look. Returns whether it was made. */
async function change(policy, title) {
  const would = await patch("/v1/policy", { policy, dry_run: true });
  return dialog(title, would.changes.length ? h("div.stack", h("p", "This changes how all jobs wait and run from now on:"), h("ul.problems", would.changes.map((it) => h("li", h("code", it))))) : h("p", "It changes nothing: these policies are in effect already."),
    would.changes.length ? "Set" : "OK", () => (would.changes.length ? patch("/v1/policy", { policy }) : Promise.resolve(false)));
}

function inEffect(place, of, again) {
  const admin = may(place.me, "admin");
  const how = { set: "set by", configured: "configured in spill.yaml, read by", disabled: "set after a failure by" }[of.how] ?? "set by";
  return h("section.card.stack", { label: "In effect" },
    heading("In effect", of.since ? h("span.hint", `${how} `, said(of.who), " ", when(of.since)) : null,
      admin && of.differs ? h("span.actions", h("button.small", { key: "reset", onclick: () => change(null, "Return to the policies of spill.yaml?").then(again) }, "Return to spill.yaml")) : null),
    of.differs ? h("p.hint.wrap", "spill.yaml says ", h("code", of.configured), ".") : null,
    table("Policies in effect", [
      ["Decides", (it) => h("span.name", { wait: "how long a job waits before it is rented", order: "which job is tried first", backfill: "which jobs may pass another", place: "which machine of a cluster", route: "which agent gets a prefetched job", size: "with how many tasks an elastic gang starts" }[it.axis] ?? it.axis)],
      ["Policy", (it) => [h("code", it.policy), it.installed ? sub("from an installed package") : ""]],
      ["", (it) => (it.disabled || it.error ? [h("span.tag.bad", it.disabled ? "disabled" : "failed"), sub(said([it.disabled, it.error].filter(Boolean).join(": ")))] : it.failures ? many(it.failures, "failure") : ""), "wrap"],
    ], of.axes, { key: (it) => it.axis }));
}

/** Cost against completion time: the points that are worth having are joined, the present one is a diamond, the chosen one has a ring. */
function plot(view, chosen, choose) {
  const all = [...view.points, ...(view.now ? [view.now] : [])];
  const text = `Cost and mean completion time of ${many(view.points.length, "policy", "policies")}, from ${span(Math.min(...all.map((it) => it.mean_completion_s)))} to ${span(Math.max(...all.map((it) => it.mean_completion_s)))}`;
  return chart(text, (width) => {
    const height = Math.max(220, Math.min(340, width * 0.42));
    const [left, right, top, bottom] = [64, 20, 12, 40];
    const most = nice(Math.max(...all.map((it) => it.cost), 1e-6));
    const times = all.map((it) => it.mean_completion_s);
    const low = Math.min(...times);
    const spread = Math.max(Math.max(...times) - low, low * 0.02, 1e-3);
    const x = (it) => left + (it.cost / most) * (width - left - right);
    const y = (it) => top + (1 - (it.mean_completion_s - low + spread * 0.08) / (spread * 1.16)) * (height - top - bottom);
    const made = svg("svg.chart", { viewBox: `0 0 ${width} ${height}`, width, height });
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const px = left + part * (width - left - right);
      made.append(svg("line.axis", { x1: px, x2: px, y1: top, y2: height - bottom }), svg("text", { x: px, y: height - bottom + 15, "text-anchor": "middle" }, money(most * part, false)));
    }
    for (const part of [0, 0.5, 1]) {
      const at = { mean_completion_s: low + spread * part };
      made.append(svg("line.axis", { x1: left, x2: width - right, y1: y(at), y2: y(at) }), svg("text", { x: left - 8, y: y(at) + 4, "text-anchor": "end" }, spread < 60 ? `${at.mean_completion_s.toFixed(1)}s` : span(at.mean_completion_s)));
    }
    made.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, `rent (${currencyName()})`), svg("text", { x: 12, y: (height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(height - bottom) / 2})` }, "mean wait and runtime"));
    const good = view.points.filter((it) => !it.dominated).sort((a, b) => a.cost - b.cost);
    made.append(svg("path", { d: good.map((it, index) => `${index ? "L" : "M"}${x(it)} ${y(it)}`).join(""), fill: "none", stroke: "var(--running)", "stroke-width": 2, opacity: 0.6 }));
    view.points.forEach((it, index) => {
      const dot = svg("circle", { cx: x(it), cy: y(it), r: index === chosen ? 7 : 5, fill: it.dominated ? "var(--cancelled)" : "var(--running)", stroke: index === chosen ? "var(--ink)" : "var(--surface)", "stroke-width": index === chosen ? 3 : 1.5, style: { cursor: "pointer" } });
      dot.addEventListener("click", () => choose(index));
      dot.addEventListener("pointermove", (event) => tipAt(event, h("div", h("b", it.policy), `${money(it.cost)}, ${span(it.mean_completion_s)} until done, ${span(it.mean_wait_s)} waited`)));
      dot.addEventListener("pointerleave", noTip);
      made.append(dot);
    });
    if (view.now) {
      const [cx, cy] = [x(view.now), y(view.now)];
      made.append(svg("path", { d: `M${cx} ${cy - 9}L${cx + 9} ${cy}L${cx} ${cy + 9}L${cx - 9} ${cy}Z`, fill: "none", stroke: "var(--failed)", "stroke-width": 2.5 }), svg("text.strong", { x: cx > width - 80 ? cx - 14 : cx + 14, y: cy - 8, "text-anchor": cx > width - 80 ? "end" : "start" }, "now"));
    }
    return made;
  });
}

/** A figure now and then, with the difference; less is better. */
function compared(name, now, then, text) {
  const less = then < now * 0.995;
  const more = then > now * 1.005;
  const by = now > 0 ? Math.abs(then - now) / now : null;
  return h("div.figure", h("span.label", name), h("span.value", text(then)), sub(`now ${text(now)}`, less || more ? [", ", h("strong", `${less ? "▼" : "▲"} ${by === null ? "" : percent(by)} ${less ? "less" : "more"}`)] : ", the same"));
}

function frontier(place) {
  const admin = may(place.me, "admin");
  const asked = choice(SPANS, "604800", { label: "Which jobs" });
  const state = { chosen: null, computed: null };
  const box = panel(place, (signal) => get("/v1/policy/frontier", {}, signal), (view) => {
    const compute = async () => {
      try { await post("/v1/policy/frontier", { span_s: Number(asked.value) }); } catch (error) { put(fault, problem(error)); return; }
      refresh(box);
    };
    const fault = h("div");
    const busy = view.state === "computing";
    const head = heading("Cost and time for your own jobs",
      view.computed_at ? h("span.hint", `${many(view.jobs, "job")} from ${exact(view.first_at ?? view.asked_since)} on, simulated `, when(view.computed_at)) : null,
      admin ? h("span.actions", asked, h("button.small", { disabled: busy, key: "compute", onclick: compute }, busy ? "Computing …" : view.points.length ? "Compute again" : "Compute")) : null);
    const notes = [busy ? h("p.busy", { role: "status" }, "The server simulates its last jobs under several policies, in a process of its own. This takes a while.") : null, view.state === "failed" ? h("p.note.warn", { role: "alert" }, said(view.message)) : null, fault];
    if (!view.points.length) return h("section.card.stack", head, notes, busy || view.state === "failed" ? null : empty("Nothing is computed yet", admin ? "The server can run its last jobs again under other policies, and show what each would have cost." : "An administrator can let the server compute what other policies would have cost."));

    const points = view.points;
    if (state.computed !== view.computed_at) {
      const like = points.findIndex((it) => it.policy === view.now?.policy);
      const near = points.reduce((best, it, index) => (view.now && Math.abs(it.cost - view.now.cost) < Math.abs(points[best].cost - view.now.cost) ? index : best), 0);
      Object.assign(state, { computed: view.computed_at, chosen: like >= 0 ? like : near });
    }
    const drawing = h("div");
    const told = h("div.stack");
    const slider = h("input", { type: "range", min: "0", max: String(points.length - 1), step: "1", value: String(state.chosen), label: "Between never waiting and only waiting", key: "slider" });
    const show = (index) => {
      state.chosen = index;
      const point = points[index];
      const now = view.now ?? point;
      slider.value = String(index);
      slider.setAttribute("aria-valuetext", `${point.policy}: ${money(point.cost)}, mean wait ${span(point.mean_wait_s)}`);
      put(drawing, plot(view, index, show));
      put(told,
        h("div.figures", compared("Rent", now.cost, point.cost, (value) => money(value)), compared("Mean wait", now.mean_wait_s, point.mean_wait_s, span), compared("99 % wait less than", now.p99_wait_s, point.p99_wait_s, span), compared("Mean wait and runtime", now.mean_completion_s, point.mean_completion_s, span)),
        h("div.actions", h("code.wrap", point.policy), point.dominated ? h("span.tag.warn", "another one costs no more and is no slower") : null,
          admin ? h("button.primary", { key: "set", onclick: () => change(point.policy, "Set this policy?").then((made) => made && place.changed()) }, "Set this policy") : null),
        point.projects.length ? table("What it means for projects", [
          ["Project", (it) => h("span.name", said(it.project))],
          ["", (it) => h(`span.tag${it.verdict === "loses" ? ".bad" : it.verdict === "wins" ? ".owned" : ""}`, it.verdict)],
          ["Jobs", (it) => count(it.jobs), "num less"],
          ["Mean wait", (it) => [span(it.wait_then_s), sub(`now ${span(it.wait_s)}`)], "num"],
          [`Rent (${currencyName()})`, (it) => [money(it.cost_then, false), sub(`now ${money(it.cost, false)}`)], "num"],
        ], point.projects, { key: (it) => it.project }) : null);
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    show(Math.min(state.chosen, points.length - 1));
    return h("section.card.stack", { label: "Frontier" }, head, notes, drawing,
      h("div", slider, h("div.actions.hint", { style: { "justify-content": "space-between" } }, h("span", "rent at once"), h("span", "wait for owned machines"))), told,
      h("details", h("summary", { key: "how" }, "How sure is this?"), h("div.stack.small", { style: { padding: ".6rem 0" } }, facts([
        ["mean wait, simulated and real, differ by", view.wait_error !== null && percent(view.wait_error)], ["cost differs by", view.cost_error !== null && percent(view.cost_error)],
      ]), view.remarks.map((it) => h("p", said(it))))));
  }, { every: 3000, least: 1000, label: "Cost and time" });
  return box;
}

/** @param {import("./parts.js").Place} place */
export function policyPage(place) {
  const admin = may(place.me, "admin");
  const text = h("input", { name: "policy", placeholder: "wait=compute(0.1),order=priority", autocomplete: "off", spellcheck: "false" });
  const answer = h("div", { "aria-live": "polite" });
  const again = () => { refresh(now); refresh(history); };
  const now = panel(place, (signal) => get("/v1/policy", {}, signal), (of) => inEffect(place, of, again), { every: 10_000, label: "In effect" });
  const history = panel(place, (signal) => get("/v1/policy/history", {}, signal), (found) => h("section.card", heading("History"), found.length ? table("History of the policies", [
    ["When", (it) => when(it.at), "nowrap"],
    ["Who", (it) => [said(it.who), sub({ set: "set", reset: "reset", configured: "spill.yaml", disabled: "after a failure" }[it.how] ?? it.how)]],
    ["What", (it) => [it.changes.map((line) => h("div", h("code.wrap", line))), it.error ? sub(said(it.error)) : ""], "wrap"],
  ], found, { key: (it) => it.at }) : empty("The policies never changed")), { every: 10_000, label: "History" });
  const byHand = admin ? h("form.card.stack", { onsubmit: async (event) => {
    event.preventDefault();
    put(answer);
    try {
      if (await change(text.value.trim(), "Set these policies?")) { text.value = ""; again(); }
    } catch (error) { put(answer, problem(error)); }
  } }, heading("Set policies"), field("Policies that you do not name stay as they are", text), h("button", { type: "submit" }, "Look and set"), answer) : null;
  return h("div.page", h("div.head", h("h1", "Policy")), now, frontier({ ...place, changed: again }), byHand, history);
}
