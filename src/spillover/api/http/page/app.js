// The shell of the page: who is signed in, where we are, what is reachable from everywhere.

import { Refusal, follow, get, hangUp, live, news, on, part, post } from "./api.js";
import { h, icon, pageOf, said, tick, useCurrency } from "./dom.js";
import { go, may, problem, toast } from "./parts.js";
import { accountPage } from "./account.js";
import { clustersPage } from "./clusters.js";
import { costsPage } from "./costs.js";
import { jobPage } from "./job.js";
import { jobsPage } from "./jobs.js";
import { overviewPage } from "./overview.js";
import { policyPage } from "./policy.js";
import { reservationsPage } from "./reservations.js";
import { signInPage } from "./signin.js";
import { submitPage } from "./submit.js";

/** Address, title, page. */
const PAGES = [
  [/^\/$/, "Overview", overviewPage],
  [/^\/jobs$/, "Jobs", jobsPage],
  [/^\/jobs\/([^/]+)$/, "Job", jobPage],
  [/^\/submit$/, "Submit", submitPage],
  [/^\/clusters$/, "Clusters", clustersPage],
  [/^\/reservations$/, "Reservations", reservationsPage],
  [/^\/costs$/, "Costs", costsPage],
  [/^\/policy$/, "Policy", policyPage],
  [/^\/account$/, "Account", accountPage],
];

/** Address, title, icon, and the role that it needs. */
const MENU = [
  ["/", "Overview", "overview", "read"],
  ["/jobs", "Jobs", "jobs", "read"],
  ["/submit", "Submit", "submit", "submit"],
  ["/clusters", "Clusters", "clusters", "read"],
  ["/reservations", "Reservations", "reservations", "read"],
  ["/costs", "Costs", "costs", "read"],
  ["/policy", "Policy", "policy", "read"],
];

/** @type {import("./parts.js").Me | null} */
let me = null;
let shell = null;
let leave = new AbortController();
let wanted = "";

// --- theme

const theme = () => document.documentElement.dataset.theme || "system";
function nextTheme() {
  const next = { system: "light", light: "dark", dark: "system" }[theme()];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("spill.theme");
    else localStorage.setItem("spill.theme", next);
  } catch {
    // It then lasts until the page is closed.
  }
  toast(`Theme: ${next === "system" ? "as the system" : next}`);
}

// --- shell

const told = (state) => (state === "live" ? state : `${state} …`);

function makeShell() {
  const main = h("main", { id: "main", tabindex: "-1" });
  const connection = h("span.live", { role: "status", "data-state": live.state }, h("span", told(live.state)));
  const cut = h("div.cutoff", { role: "alert", hidden: true }, "The server does not answer. What is shown may be old; the page connects again by itself.");
  const search = h("input", { type: "search", name: "q", placeholder: "Go to a job by name or id", label: "Go to a job by name or id", autocomplete: "off", id: "search" });
  const side = h("div.side", { id: "side" },
    h("a.brand", { href: "/" }, h("img", { src: "/assets/icon.svg", alt: "" }), "Spillover"),
    h("nav", { label: "Pages" }, MENU.filter(([, , , role]) => may(me, role)).map(([path, title, name]) => h("a", { href: path }, icon(name), title))),
    h("footer", h("a", { href: "/account" }, said(me.user)), h("span", `role ${me.role}`, me.project ? [", project ", said(me.project)] : ""),
      h("button.small", { onclick: signOut }, "Sign out")));
  const menu = h("button.menu-button.plain", { label: "Menu", "aria-expanded": "false", "aria-controls": "side", onclick: () => open(!side.classList.contains("open")) }, icon("menu"));
  const open = (yes) => {
    side.classList.toggle("open", yes);
    menu.setAttribute("aria-expanded", String(yes));
    if (yes) side.querySelector("a")?.focus();
  };
  document.addEventListener("click", (event) => {
    if (side.classList.contains("open") && event.target instanceof Node && !menu.contains(event.target) && !(side.contains(event.target) && !event.target.closest?.("a"))) open(false);
  });
  side.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && side.classList.contains("open")) { open(false); menu.focus(); }
  });
  document.body.replaceChildren(
    h("a.skip", { href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    h("div.shell", side,
      h("header.bar", menu,
        h("form", { role: "search", onsubmit: (event) => { event.preventDefault(); find(search.value.trim()); search.value = ""; search.blur(); } }, icon("search"), search),
        h("div.end", connection,
          h("button.plain", { onclick: nextTheme, label: "Change the theme", title: "Theme: as the system, light, dark" }, icon("theme")),
          h("button.plain.less", { onclick: help, label: "Keyboard help" }, h("kbd", "?")))),
      h("div", cut, main)));
  on("connection", new AbortController().signal, (state) => {
    connection.dataset.state = state;
    connection.firstChild.textContent = told(state);
    cut.hidden = state !== "reconnecting";
  });
  return { main, side, search };
}

async function find(text) {
  if (!text) return;
  try {
    const job = await get(`/v1/jobs/${part(text)}`);
    go(pageOf(job.id));
  } catch (error) {
    if (error instanceof Refusal && (error.status === 404 || error.status === 409)) go(`/jobs?name=${part(text)}`);
    else toast(error.message, true);
  }
}

const KEYS = [["/", "go to a job"], ["g o", "overview"], ["g j", "jobs"], ["g s", "submit"], ["g c", "clusters"], ["g r", "reservations"], ["g m", "costs (money)"], ["g p", "policy"], ["t", "change the theme"], ["?", "this help"], ["Esc", "close what is open"]];
function help() {
  if (document.querySelector("dialog[open]")) return;
  const box = h("dialog", { label: "Keyboard" }, h("h2", "Keyboard"),
    h("dl.facts", { style: { "margin-top": ".8rem" } }, KEYS.map(([keys, what]) => [h("dt", keys.split(" ").map((key) => [h("kbd", key), " "])), h("dd", what)])),
    h("p.hint", "On a map of machines the arrow keys move from one to the next."),
    h("form.actions", { method: "dialog" }, h("button.primary", { type: "submit" }, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

let prefix = 0;
document.addEventListener("keydown", (event) => {
  if (!shell || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const at = event.target;
  if (at instanceof HTMLElement && (at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName))) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (Date.now() - prefix < 1500) {
    prefix = 0;
    const path = { o: "/", j: "/jobs", s: "/submit", c: "/clusters", r: "/reservations", m: "/costs", p: "/policy" }[event.key];
    if (path) { event.preventDefault(); go(path); return; }
  }
  if (event.key === "/") { event.preventDefault(); shell.search.focus(); }
  else if (event.key === "?") { event.preventDefault(); help(); }
  else if (event.key === "t") nextTheme();
  else if (event.key === "g") prefix = Date.now();
});

// --- where we are

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname.startsWith("/v1/") || (link.hash && link.pathname === location.pathname && link.search === location.search)) return;
  event.preventDefault();
  go(link.pathname + link.search + link.hash);
});
addEventListener("popstate", () => show(true));
news.addEventListener("navigate", () => show(true));

/** Show the page of the address; if somebody moved there, the keyboard moves too. */
function show(moved = false) {
  leave.abort();
  leave = new AbortController();
  document.querySelector(".tip")?.remove();
  const path = location.pathname;
  if (path === "/sign-in") {
    hangUp();
    shell = null;
    me = null;
    document.title = "Sign in · Spillover";
    document.body.replaceChildren(signInPage(leave.signal, () => start(wanted || "/")));
    return;
  }
  if (!me) {
    start(path + location.search + location.hash);
    return;
  }
  shell ??= makeShell();
  const [pattern, title, page] = PAGES.find(([it]) => it.test(path)) || [null, "Not found", null];
  for (const link of shell.side.querySelectorAll("nav a")) {
    const to = link.getAttribute("href");
    if (to === path || (to !== "/" && path.startsWith(`${to}/`))) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Spillover`;
  const place = { path, parts: pattern ? path.match(pattern).slice(1).map(decoded) : [], query: new URLSearchParams(location.search), hash: location.hash, signal: leave.signal, me };
  shell.main.replaceChildren(page ? page(place) : h("div.card", h("div.empty", h("strong", "There is no such page"), h("a", { href: "/" }, "Go to the overview"))));
  scrollTo(0, 0);
  if (moved && (document.activeElement === document.body || document.activeElement?.closest?.("nav"))) shell.main.focus({ preventScroll: true });
}

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

/** Find out who is signed in, and show the page that was asked for. */
async function start(path) {
  try {
    me = await get("/v1/me");
    useCurrency((await get("/v1/server")).currency);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return; // `signed-out` leads to the door
    document.body.replaceChildren(h("div.door", h("main.card", h("h1", "Spillover"), problem(error, () => start(path)))));
    setTimeout(() => !me && location.pathname !== "/sign-in" && start(path), 3000);
    return;
  }
  wanted = "";
  follow();
  history.replaceState(null, "", path);
  show();
}

async function signOut() {
  try {
    await post("/v1/sign-out");
  } catch (error) {
    if (!(error instanceof Refusal && error.status === 401)) { toast(error.message, true); return; }
  }
  wanted = "";
  go("/sign-in");
}
addEventListener("spill-sign-out", signOut);

news.addEventListener("signed-out", () => {
  if (location.pathname === "/sign-in") return;
  wanted = location.pathname + location.search + location.hash;
  go("/sign-in", { replace: true });
});

setInterval(tick, 1000);
document.body.replaceChildren(h("div.door", h("main", h("p.busy", { role: "status" }, "Loading …"))));
if (location.pathname === "/sign-in") show();
else start(location.pathname + location.search + location.hash);
