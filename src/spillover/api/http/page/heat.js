// Machines of a cluster as a map: each tile is a machine, its colour says how much of it is used.

import { live, on } from "./api.js";
import { amount, bytes, h, many, said } from "./dom.js";
import { noTip, tipAt } from "./charts.js";

const BOOTING = new Set(["wanted", "booting"]);
const DRAINING = new Set(["draining", "ending", "closed"]);
const LOST = new Set(["lost", "gone", "unobserved", "refused"]);

const part = (used, of) => (of > 0 ? used / of : 0);
/** The share of a machine that is used: of the resource of which most is. */
function usedOf(machine) {
  const { capacity, used, foreign } = machine;
  return Math.min(1, Math.max(part(used.cpu + (foreign?.cpu ?? 0), capacity.cpu), part(used.gpu + (foreign?.gpu ?? 0), capacity.gpu), part(used.memory + (foreign?.memory ?? 0), capacity.memory)));
}

function stateWord(machine) {
  if (machine.state !== "ready") return machine.state;
  const share = usedOf(machine);
  return share === 0 ? "free" : `${Math.round(share * 100)} % used`;
}

function looksOf(machine) {
  const share = usedOf(machine);
  const words = [`u${share === 0 ? 0 : Math.min(4, Math.ceil(share * 4))}`];
  if (BOOTING.has(machine.state)) words.push("booting");
  else if (DRAINING.has(machine.state)) words.push("draining");
  else if (LOST.has(machine.state)) words.push("lost");
  if (machine.ahead > 0) words.push("ahead");
  return ["tile", ...words].join(" ");
}

function tipOf(machine) {
  const { capacity, used, foreign } = machine;
  const line = (name, one, all, other, text) => (all > 0 ? h("div", `${name}: ${text(one)} of ${text(all)} used${other ? `, ${text(other)} by others` : ""}`) : null);
  return h("div", h("b", said(`${machine.cluster}/${machine.name}`)), h("div", machine.state),
    line("CPUs", used.cpu, capacity.cpu, foreign?.cpu, amount), line("memory", used.memory, capacity.memory, foreign?.memory, bytes), line("GPUs", used.gpu, capacity.gpu, foreign?.gpu, amount),
    machine.tasks ? h("div", many(machine.tasks, "task"), machine.ahead ? `, ${machine.ahead} prefetched` : "", machine.jobs.length ? ": " : "", machine.jobs.map((job, index) => [index ? ", " : "", said(job.name)]), machine.tasks > machine.jobs.length && machine.jobs.length ? " …" : "") : null);
}

const textOf = (machine) => `${machine.name}: ${stateWord(machine)}${machine.tasks ? `, ${many(machine.tasks, "task")}${machine.jobs.length ? `: ${machine.jobs.map((job) => job.name).join(", ")}` : ""}` : ""}`;

const KEYS = [["u0", "free"], ["u1", "up to a quarter used"], ["u2", "half"], ["u3", "three quarters"], ["u4", "all"], ["ahead", "prefetched"], ["draining", "draining"], ["booting", "booting"], ["lost", "lost"]];
/** What the colours mean. */
export const heatKeys = () => h("div.keys.small.muted", KEYS.map(([look, text]) => h("span.nowrap", { style: { display: "inline-flex", gap: ".35rem", "align-items": "center" } }, h(`span.tile.${look}`, { "aria-hidden": "true" }), text)));

/** The map of one cluster. It follows the stream, and changes only the tiles of machines that changed. */
export function heat(place, cluster) {
  const box = h("div.heat", { role: "group", label: `Machines of ${cluster}` });
  const tiles = new Map();
  const none = h("p.hint");

  const dress = (tile, machine) => {
    tile.className = looksOf(machine);
    tile.setAttribute("aria-label", textOf(machine));
    const share = usedOf(machine);
    if (tile.dataset.big) {
      tile.children[1].textContent = machine.state === "ready" && machine.capacity.cpu ? `${amount(machine.used.cpu)} of ${amount(machine.capacity.cpu)} CPU` : machine.state;
      tile.children[2].style.width = `${share * 100}%`;
    }
  };
  const make = (machine, big) => {
    const tile = h("a", { href: `/clusters?machine=${encodeURIComponent(`${machine.cluster}/${machine.name}`)}`, tabindex: "-1", "data-big": big ? "1" : null }, big ? [h("span.n", machine.name), h("span.s"), h("span.u")] : null);
    tile.machine = machine;
    dress(tile, machine);
    return tile;
  };
  function all() {
    const machines = [...live.machines.values()].filter((it) => it.cluster === cluster).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    const big = machines.length <= 24;
    const focused = box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    box.className = `heat ${!machines.length ? "" : big ? "big" : machines.length <= 120 ? "mid" : ""}`.trim();
    tiles.clear();
    box.replaceChildren(...machines.map((machine) => {
      const tile = make(machine, big);
      tiles.set(machine.name, tile);
      return tile;
    }));
    if (!machines.length) box.append(none);
    none.textContent = "No machines now.";
    if (box.firstElementChild?.tagName === "A") box.firstElementChild.tabIndex = 0;
    if (focused) [...tiles.values()].find((tile) => tile.getAttribute("href") === focused)?.focus();
  }
  on("machines", place.signal, (news) => {
    const own = (news.machines || []).filter((it) => it.cluster === cluster);
    const gone = (news.gone || []).some((it) => it.startsWith(`${cluster}/`));
    if (news.full || gone || own.some((it) => !tiles.has(it.name))) { all(); return; }
    for (const machine of own) {
      const tile = tiles.get(machine.name);
      tile.machine = machine;
      dress(tile, machine);
    }
  });
  const tip = (event) => {
    const tile = event.target instanceof Element ? event.target.closest(".tile") : null;
    if (tile?.machine) tipAt(event.type === "focusin" ? tile : event, tipOf(tile.machine));
    else noTip();
  };
  box.addEventListener("pointermove", tip);
  box.addEventListener("pointerleave", noTip);
  box.addEventListener("focusin", tip);
  box.addEventListener("focusout", noTip);
  place.signal.addEventListener("abort", noTip);
  // One stop for the Tab key; the arrows move from tile to tile.
  box.addEventListener("keydown", (event) => {
    const list = [...box.querySelectorAll("a")];
    const at = list.indexOf(document.activeElement);
    if (at < 0) return;
    const top = list[at].offsetTop;
    const row = Math.max(1, list.filter((it) => it.offsetTop === top).length);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + row, ArrowUp: at - row, Home: 0, End: list.length - 1 }[event.key];
    if (to === undefined || !list[to]) return;
    event.preventDefault();
    list[at].tabIndex = -1;
    list[to].tabIndex = 0;
    list[to].focus();
  });
  all();
  return box;
}
