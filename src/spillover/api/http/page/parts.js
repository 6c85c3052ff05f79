// Parts that pages share: panels that follow the server, problems, dialogs, messages and tabs.

import { Away, Refusal, news, on } from "./api.js";
import { h, pageOf, plain, put as fill, said } from "./dom.js";

/**
 * Where a page is: its address, who looks, and a signal that ends when it is left.
 * @typedef {{path: string, parts: string[], query: URLSearchParams, hash: string, signal: AbortSignal, me: Me}} Place
 * @typedef {{user: string, role: string, project: string | null, sign_in: string | null, expires_at: string | null}} Me
 */

/** Go to another page of ours; `replace` leaves no step to go back to. */
export function go(path, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  news.dispatchEvent(new Event("navigate"));
}

const RANKS = ["read", "submit", "maintain", "admin"];
/** Whether somebody has a role or a higher one. The server decides; this only says what to offer. */
export const may = (me, role) => RANKS.indexOf(me.role) >= RANKS.indexOf(role);

/** Whether somebody may change a job: their own, or any of what they maintain. */
export const mayChange = (me, job) => may(me, "maintain") || (may(me, "submit") && job.user === me.user);

/** What went wrong, in the words of the server, and what to do. */
export function problem(error, again = null) {
  const advice = error instanceof Refusal || error instanceof Away ? error.advice : "";
  const several = error instanceof Refusal && error.problems.length > 0;
  return h("div.problem", { role: "alert" },
    h("p", error.message),
    several && h("ul", error.problems.map((it) => h("li", it.line ? `line ${it.line}: ` : "", it.path ? [h("code", it.path), ": "] : "", it.message))),
    advice && h("p.hint", advice),
    again && h("button.small", { onclick: again }, "Try again"));
}

const redraws = new WeakMap();

/**
 * A part of a page that shows what the server says, and follows it.
 * @param {Place} place
 * @param {(signal: AbortSignal) => Promise<any>} read
 * @param {(data: any) => Node | Array<Node | string | null>} draw
 * @param {{follow?: string[] | ((news: string, detail: any) => boolean), every?: number, tag?: string, label?: string, least?: number}} options
 *   `follow`: news after which it is read again; `every`: milliseconds after which it is read again anyway; `least`: between two reads
 */
export function panel(place, read, draw, { follow = [], every = 0, tag = "div", label = "", least = 1000 } = {}) {
  const box = h(tag, { "aria-busy": "true", role: label && tag === "div" ? "group" : null, label: label || null }, h("p.busy", "Loading …"));
  const names = Array.isArray(follow) ? follow : ["jobs", "overview", "machines", "pools"];
  const wanted = Array.isArray(follow) ? () => true : follow;
  let shown = null;
  let reading = false;
  let again = false;
  let last = 0;
  let timer = 0;

  const put = (data) => {
    const text = JSON.stringify(data);
    if (text === shown) return;
    const made = [draw(data)].flat().filter(Boolean);
    // A page may keep its nodes and change them itself: then they stay where they are, with focus and scroll.
    const same = made.length === box.childNodes.length && made.every((it, index) => it === box.childNodes[index]);
    if (same || redraw(box, shown === null, made)) shown = text;
    else later(2000);
  };
  const later = (pause) => {
    clearTimeout(timer);
    timer = setTimeout(refresh, pause);
  };
  async function refresh() {
    // Nobody sees a page in the background: it is read again when it comes back.
    if (place.signal.aborted || (document.hidden && shown !== null)) return;
    if (reading) {
      again = true;
      return;
    }
    const soon = last + least - Date.now();
    if (soon > 0) {
      later(soon);
      return;
    }
    reading = true;
    try {
      put(await read(place.signal));
    } catch (error) {
      if (place.signal.aborted) return;
      // Keep what is shown while the server is away; the bar says so.
      if (shown === null || !(error instanceof Away)) {
        shown = null;
        box.replaceChildren(problem(error, refresh));
      }
    } finally {
      reading = false;
      last = Date.now();
      box.removeAttribute("aria-busy");
    }
    if (again) {
      again = false;
      later(least);
    } else if (every) later(every);
  }
  for (const name of names) on(name, place.signal, (detail) => wanted(name, detail) && refresh());
  on("connection", place.signal, (state) => state === "live" && refresh());
  place.signal.addEventListener("abort", () => clearTimeout(timer));
  document.addEventListener("visibilitychange", () => document.hidden || refresh(), { signal: place.signal });
  redraws.set(box, () => { last = 0; shown = null; return refresh(); });
  refresh();
  return box;
}

/** Read a panel again at once, such as after an action. */
export const refresh = (box) => redraws.get(box)?.();

/** Draw a part again; what has the focus there keeps it, by its key or address. Returns false, and draws nothing, while somebody copies a text of it. */
export function redraw(box, anyway, ...children) {
  const selection = getSelection();
  if (!anyway && selection && !selection.isCollapsed && box.contains(selection.anchorNode)) return false;
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const name = focused?.hasAttribute("data-key") ? "data-key" : "href";
  const key = focused?.getAttribute(name);
  fill(box, children);
  if (key) [...box.querySelectorAll(`[${name}]`)].find((it) => it.getAttribute(name) === key)?.focus({ preventScroll: true });
  return true;
}

// --- messages and dialogs

let toasts = null;
/** Say what happened, for some seconds; to screen readers too. */
export function toast(text, bad = false) {
  if (!toasts?.isConnected) {
    toasts = h("div.toasts", { role: "status", "aria-live": "polite" });
    document.body.append(toasts);
  }
  const close = () => made.remove();
  const made = h(`div.toast${bad ? ".bad" : ""}`, h("span", text), h("button.plain.small", { label: "Close this message", onclick: close }, "✕"));
  toasts.append(made);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  setTimeout(close, bad ? 15_000 : 6000);
}

/** Do something at the server; say that it is done, or show why not. Returns the answer, or null after a refusal. */
export async function attempt(work, done = null) {
  try {
    const answer = await work();
    if (done) toast(typeof done === "function" ? done(answer) : done);
    return answer ?? true;
  } catch (error) {
    if (error.name === "AbortError") return null;
    const lines = error instanceof Refusal ? error.problems.map((it) => it.message) : [];
    toast([error.message, ...lines.filter((line) => !error.message.includes(line)), error.advice || ""].filter(Boolean).join(" "), true);
    return null;
  }
}

/**
 * Ask before something is done. `fields` are made by the caller; `work` does it, and its refusal is shown in the dialog.
 * @returns {Promise<any>} the answer of `work`, or null if it was left
 */
export function dialog(title, content, action, work, { danger = false, focus = null } = {}) {
  return new Promise((resolve) => {
    const place = h("div");
    let answer = null;
    const accept = h(`button${danger ? ".danger" : ".primary"}`, { type: "submit" }, action);
    const box = h("dialog", { label: plain(title) },
      h("form", { method: "dialog", class: "stack", onsubmit: async (event) => {
        event.preventDefault();
        accept.disabled = true;
        place.replaceChildren();
        try {
          answer = (await work()) ?? true;
          box.close();
        } catch (error) {
          place.replaceChildren(problem(error));
        } finally {
          accept.disabled = false;
        }
      } },
      h("h2", title), content, place,
      h("div.actions", h("button", { onclick: () => box.close() }, "Cancel"), accept)));
    box.addEventListener("close", () => { box.remove(); resolve(answer); });
    document.body.append(box);
    box.showModal();
    if (focus) focus.focus();
    else if (!danger) accept.focus();
  });
}

/** A field with its label. */
export const field = (label, control, hint = "") => h("label.field", h("span", label), control, hint && h("span.hint", hint));

/** A choice of some words. */
export function choice(options, value, attributes = {}) {
  const made = h("select", attributes, options.map((it) => {
    const [key, text] = Array.isArray(it) ? it : [it, it];
    return h("option", { value: key }, text);
  }));
  made.value = value;
  return made;
}

/** Buttons of which one is pressed. */
export function segments(label, options, value, choose) {
  const box = h("div.segments", { role: "group", label: label });
  for (const [key, text] of options) {
    const button = h("button", { "aria-pressed": String(key === value), key: `segment-${key}` }, text);
    button.addEventListener("click", () => {
      for (const it of box.children) it.setAttribute("aria-pressed", String(it === button));
      choose(key);
    });
    box.append(button);
  }
  return box;
}

/**
 * Tabs; the chosen one is in the fragment of the address. Each tab is made when it is first shown, and again when it comes back.
 * @param {Array<[string, string, (signal: AbortSignal) => Node]>} tabs key, title, and what makes its content
 */
export function tabs(place, label, list) {
  const content = h("div", { role: "tabpanel", tabindex: "0", id: "tab-content" });
  const buttons = list.map(([key, title]) => h("button", { role: "tab", key: `tab-${key}`, id: `tab-${key}`, "aria-controls": "tab-content" }, title));
  let leave = new AbortController();
  place.signal.addEventListener("abort", () => leave.abort());
  const show = (index, focus = false) => {
    leave.abort();
    leave = new AbortController();
    buttons.forEach((button, other) => {
      button.setAttribute("aria-selected", String(other === index));
      button.tabIndex = other === index ? 0 : -1;
    });
    if (focus) buttons[index].focus();
    content.setAttribute("aria-labelledby", buttons[index].id);
    content.replaceChildren(list[index][2](leave.signal));
    const fragment = index ? `#${list[index][0]}` : "";
    history.replaceState(null, "", location.pathname + location.search + fragment);
  };
  buttons.forEach((button, index) => {
    button.addEventListener("click", () => show(index));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: list.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show((to + list.length) % list.length, true);
    });
  });
  show(Math.max(0, list.findIndex(([key]) => `#${key}` === place.hash)));
  return h("div", h("div.tabs", { role: "tablist", label: label }, buttons), content);
}

/** A link to a job. */
export const jobLink = (job, text = null) => h("a.name", { href: pageOf(job.id) }, said(text ?? job.name ?? job.id));
