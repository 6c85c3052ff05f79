// Charts as SVG, drawn for the width that they have, with a text for those who do not see them.

import { exact, h, plain, span, svg } from "./dom.js";

/** A chart that is drawn again when its width changes. `draw(width)` returns an SVG element. */
export function chart(label, draw) {
  const box = h("div", { role: "img", label: plain(label) });
  let width = 0;
  const observer = new ResizeObserver(([entry]) => {
    if (!box.isConnected) { observer.disconnect(); return; }
    const next = Math.round(entry.contentRect.width);
    if (next > 0 && next !== width) {
      width = next;
      const made = draw(width);
      made.setAttribute("aria-hidden", "true");
      box.replaceChildren(made);
    }
  });
  observer.observe(box);
  return box;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_S = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Moments for the marks of a time axis, with their texts. */
export function moments(from, to, most) {
  const step = (STEPS.find((it) => (to - from) / 1000 / it <= most) ?? STEPS.at(-1)) * 1000;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const marks = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) {
    const text = step >= 86_400_000 ? DAY.format(at) : step < 60_000 ? CLOCK_S.format(at) : CLOCK.format(at);
    marks.push([at, step < 86_400_000 && (at - zone) % 86_400_000 === 0 ? DAY.format(at) : text]);
  }
  return marks;
}

/** A round number for the top of an axis. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((it) => it * power >= value) * power;
}

/**
 * Lines over time. Each line is `{name, colour, values, fill?, dash?}`; null breaks it, and so does a time without values that is longer than `gap`.
 * @param {number[]} times milliseconds
 */
export function lines(label, times, series, { height = 130, text = (value) => String(value), unit = "", gap = Infinity } = {}) {
  const top = nice(Math.max(...series.flatMap((it) => it.values.map((value) => value ?? 0)), 0));
  const box = chart(label, (width) => {
    const [left, right, bottom, above] = [46, 8, 20, 8];
    const [from, to] = [times[0], Math.max(times.at(-1), times[0] + 1000)];
    const x = (at) => left + ((at - from) / (to - from)) * (width - left - right);
    const y = (value) => above + (1 - value / top) * (height - above - bottom);
    const made = svg("svg.chart", { viewBox: `0 0 ${width} ${height}`, width, height });
    for (const part of [0, 0.5, 1]) {
      made.append(svg("line.axis", { x1: left, x2: width - right, y1: y(top * part), y2: y(top * part) }),
        svg("text", { x: left - 6, y: y(top * part) + 4, "text-anchor": "end" }, text(top * part)));
    }
    for (const [at, word] of moments(from, to, Math.max(2, (width - left) / 75))) made.append(svg("text", { x: x(at), y: height - 4, "text-anchor": x(at) > width - 25 ? "end" : x(at) < left + 15 ? "start" : "middle" }, word));
    for (const it of series) {
      let path = "";
      let area = "";
      let start = null;
      it.values.forEach((value, index) => {
        if (start !== null && (value === null || times[index] - times[index - 1] > gap)) {
          area += `L${x(times[index - 1])} ${y(0)}L${start} ${y(0)}Z`;
          start = null;
        }
        if (value === null) return;
        const [px, py] = [x(times[index]).toFixed(1), y(value).toFixed(1)];
        path += `${start === null ? "M" : "L"}${px} ${py}`;
        area += `${start === null ? "M" : "L"}${px} ${py}`;
        start ??= px;
      });
      if (start !== null) area += `L${x(times.at(-1)).toFixed(1)} ${y(0)}L${start} ${y(0)}Z`;
      if (it.fill) made.append(svg("path", { d: area, fill: it.colour, opacity: "0.22" }));
      made.append(svg("path", { d: path, fill: "none", stroke: it.colour, "stroke-width": 2, "stroke-dasharray": it.dash || null, "stroke-linejoin": "round" }));
    }
    const cursor = svg("line.axis", { y1: above, y2: height - bottom, visibility: "hidden", style: { stroke: "var(--line-strong)" } });
    made.append(cursor);
    made.addEventListener("pointermove", (event) => {
      const at = from + ((event.offsetX - left) / (width - left - right)) * (to - from);
      let index = times.findIndex((it) => it >= at);
      if (index < 0) index = times.length - 1;
      cursor.setAttribute("x1", x(times[index]));
      cursor.setAttribute("x2", x(times[index]));
      cursor.setAttribute("visibility", "visible");
      tipAt(event, h("div", h("b", exact(times[index])), series.map((it) => h("div", `${it.name}: ${it.values[index] === null ? "–" : text(it.values[index])}${unit}`))));
    });
    made.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); noTip(); });
    return made;
  });
  return box;
}

/**
 * Bars over time in rows: `{name, href?, bars: [{from, to, colour, title, open?}], thin?}`. `mark`: a moment to show, such as now.
 */
export function gantt(label, rows, from, to, { mark = null, names = 150 } = {}) {
  return chart(label, (width) => {
    const left = Math.min(names, width * 0.3);
    const heights = rows.map((row) => (row.thin ? 11 : 26));
    const height = heights.reduce((sum, it) => sum + it, 0) + 26;
    const end = Math.max(to, from + 1000);
    const x = (at) => left + ((Math.min(Math.max(at, from), end) - from) / (end - from)) * (width - left - 12);
    const made = svg("svg.chart", { viewBox: `0 0 ${width} ${height}`, width, height });
    for (const [at, text] of moments(from, end, Math.max(2, (width - left) / 90))) {
      made.append(svg("line.axis", { x1: x(at), x2: x(at), y1: 0, y2: height - 20 }), svg("text", { x: x(at), y: height - 5, "text-anchor": x(at) > width - 30 ? "end" : "middle" }, text));
    }
    let y = 2;
    rows.forEach((row, index) => {
      const tall = heights[index];
      if (!row.thin) made.append(svg("text", { x: 0, y: y + tall / 2 + 2, class: row.strong ? "strong" : null }, cutTo(row.name, Math.floor(left / 6.6)), svg("title", row.name)));
      for (const bar of row.bars) {
        const [a, b] = [x(bar.from), x(bar.to ?? end)];
        const rect = svg("rect", { x: a, y: y + (row.thin ? 1 : 4), width: Math.max(2, b - a), height: tall - (row.thin ? 3 : 11), rx: row.thin ? 1 : 3, fill: bar.colour, opacity: bar.faint ? 0.4 : null });
        rect.addEventListener("pointermove", (event) => tipAt(event, h("div", h("b", row.name), bar.title, h("div", `${exact(bar.from)}${bar.to ? ` – ${exact(bar.to)}` : ""}`), h("div", span(((bar.to ?? end) - bar.from) / 1000)))));
        rect.addEventListener("pointerleave", noTip);
        made.append(rect);
        if (bar.text && b - a > bar.text.length * 6.5 + 10) made.append(svg("text", { x: a + 6, y: y + tall / 2 + 2, class: "strong", style: { "pointer-events": "none", fill: "#fff" } }, bar.text));
      }
      y += tall;
    });
    if (mark !== null && mark >= from && mark <= end) made.append(svg("line", { x1: x(mark), x2: x(mark), y1: 0, y2: height - 20, stroke: "var(--failed)", "stroke-width": 1.5, "stroke-dasharray": "4 3" }));
    return made;
  });
}

const cutTo = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);

// --- tips

let tip = null;
/** Show a tip beside the pointer or below an element. */
export function tipAt(where, content) {
  if (!tip) tip = h("div.tip", { role: "tooltip", id: "tip" });
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(content);
  const [px, py] = where instanceof Event ? [where.pageX + 14, where.pageY + 16] : [where.getBoundingClientRect().left + scrollX, where.getBoundingClientRect().bottom + scrollY + 6];
  const wide = tip.offsetWidth;
  tip.style.left = `${Math.max(scrollX + 4, Math.min(px, scrollX + document.documentElement.clientWidth - wide - 8))}px`;
  tip.style.top = `${py + tip.offsetHeight > scrollY + innerHeight && py - tip.offsetHeight - 34 > scrollY ? py - tip.offsetHeight - 34 : py}px`;
}
export function noTip() { tip?.remove(); }
