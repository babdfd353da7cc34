// Small charts as SVG elements. Each has a title for those who cannot see it, and never says anything by colour alone.

import { PALETTE, count, el, percent, svg, time } from "./core.js";

const text = (x, y, content, attributes = {}) => svg("text", { x, y, ...attributes }, content);
const titled = (element, title) => {
  element.append(svg("title", {}, title));
  return element;
};
/** The beginning of a name that may be of any length. */
export const shortened = (name, room) => (name.length > room ? `${name.slice(0, room - 1)}…` : name);
const picture = (width, height, label, children) => svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "chart" }, children);

/** Rows of parts side by side: `rows` of {name, parts of {name, value, colour}}; all rows on one scale, or each on its own. */
export function stacked(rows, { width = 700, label = 150, format = count, each = false, height = 18, total = true } = {}) {
  const room = width - label - (total ? 62 : 8);
  const sum = (row) => row.parts.reduce((all, part) => all + part.value, 0);
  const largest = Math.max(...rows.map(sum), 1e-12);
  const children = rows.flatMap((row, number) => {
    const y = number * (height + 5);
    const scale = room / (each ? Math.max(sum(row), 1e-12) : largest);
    let x = label;
    const bars = row.parts.filter((part) => part.value > 0).map((part) => {
      const wide = part.value * scale;
      const bar = titled(svg("rect", { x, y, width: Math.max(wide - 0.5, 0.3), height, fill: part.colour, class: "bar" }), `${row.name}: ${part.name}, ${format(part.value)} (${percent(part.value / sum(row))})`);
      x += wide;
      return bar;
    });
    return [text(label - 6, y + height - 5, shortened(row.name, Math.floor(label / 7)), { "text-anchor": "end" }), ...bars, total ? text(x + 5, y + height - 5, format(sum(row)), { class: "dim" }) : null];
  });
  return picture(width, rows.length * (height + 5), rows.map((row) => `${row.name} ${format(sum(row))}`).join(", "), children);
}

/** The chart of the 50 bins: count stacked by part with the number on top, and the share of the total time as a line on the right axis. */
export function latencyBars(data, { width = 1100, height = 400, chosen = null, onChoose = null } = {}) {
  const slots = data.slots.map((slot, number) => ({ ...slot, number })).filter((slot, number, all) => all.slice(0, number + 1).some((other) => other.count) && all.slice(number).some((other) => other.count));
  const [left, right, top, bottom] = [64, 64, 44, 66];
  const band = (width - left - right) / Math.max(slots.length, 1);
  const largest = nice(Math.max(...slots.map((slot) => slot.count), 1));
  const share = nice(Math.max(...slots.map((slot) => slot.share), 0.01));
  const y = (value) => top + (height - top - bottom) * (1 - value / largest);
  const ys = (value) => top + (height - top - bottom) * (1 - value / share);
  const parts = [];
  for (let line = 0; line <= 4; line++) {
    const at = y((largest * line) / 4);
    parts.push(svg("line", { x1: left, x2: width - right, y1: at, y2: at, class: "grid" }));
    parts.push(text(left - 6, at + 4, count((largest * line) / 4), { "text-anchor": "end", class: "dim" }));
    parts.push(text(width - right + 6, at + 4, percent((share * line) / 4), { class: "line-text" }));
  }
  const tail = slots.findIndex((slot) => slot.from >= data.tail.from);
  if (tail >= 0 && data.tail.count_share < 0.5) {
    const x = left + tail * band;
    parts.push(titled(svg("rect", { x, y: top, width: width - right - x, height: height - top - bottom, class: "tail" }), "The slowest operations"));
    parts.push(text(width - right - 6, top - 8, `from ${time(data.tail.from)} on: ${percent(data.tail.count_share)} of the operations take ${percent(data.tail.time_share)} of the time`, { "text-anchor": "end" }));
  }
  const numbers = [];
  const targets = [];
  slots.forEach((slot, number) => {
    const x = left + number * band;
    let below = 0;
    slot.parts.forEach((value, part) => {
      if (!value) return;
      parts.push(titled(svg("rect", { x: x + band * 0.1, y: y(below + value), width: band * 0.8, height: Math.max(y(below) - y(below + value), 0.5), fill: partColour(part), class: "bar" }), `${slot.label}, ${data.parts[part].name}: ${value} operations`));
      below += value;
    });
    if (slot.count) numbers.push(text(0, 0, count(slot.count), { transform: `translate(${x + band / 2 + 3.5} ${y(slot.count) - 5}) rotate(-90)`, class: "small halo" }));
    parts.push(text(0, 0, slot.label.replace("us", "µs"), { transform: `translate(${x + band / 2 + 4} ${height - bottom + 8}) rotate(-90)`, "text-anchor": "end", class: "small" }));
    if (onChoose) targets.push(titled(svg("rect", { x, y: top, width: band, height: height - top - bottom, class: chosen === slot.number ? "target chosen" : "target", tabindex: 0, role: "button", "data-slot": slot.number, "aria-label": `${slot.label}: ${slot.count} operations, ${percent(slot.share)} of the time` }), `${slot.label}: ${slot.count} operations, ${percent(slot.share)} of the time. Click: show one of them.`));
  });
  parts.push(svg("polyline", { points: slots.map((slot, number) => `${left + (number + 0.5) * band},${ys(slot.share)}`).join(" "), class: "share" }));
  slots.forEach((slot, number) => parts.push(svg("circle", { cx: left + (number + 0.5) * band, cy: ys(slot.share), r: 2.5, class: "share-dot" })));
  parts.push(...numbers, ...targets);
  parts.push(text(left - 56, top - 26, "operations", { class: "dim" }), text(width - 4, top - 26, "share of the total time", { "text-anchor": "end", class: "line-text" }));
  parts.push(text((left + width - right) / 2, height - 4, "latency, rounded to one digit", { "text-anchor": "middle", class: "dim" }));
  const chart = picture(width, height, "Number of operations and share of time in each latency bin", parts);
  if (onChoose) {
    const choose = (event) => event.target.dataset?.slot !== undefined && onChoose(Number(event.target.dataset.slot));
    chart.addEventListener("click", choose);
    chart.addEventListener("keydown", (event) => event.key === "Enter" && choose(event));
  }
  return chart;
}

/** Distribution functions on a logarithmic axis, one line for each part, told apart by dashes too. */
export function ecdf(data, { width = 700, height = 300 } = {}) {
  const lines = data.parts.filter((part) => part.count);
  if (!lines.length) return el("p", {}, "No operation in the window.");
  const [left, right, top, bottom] = [56, 20, 12, 40];
  const low = Math.max(1, Math.min(...lines.map((part) => part.min)));
  const high = Math.max(...lines.map((part) => part.max), low * 10);
  const x = (ns) => left + ((Math.log10(Math.max(ns, low)) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const parts = [];
  for (const share of [0, 0.25, 0.5, 0.75, 0.9, 1]) {
    parts.push(svg("line", { x1: left, x2: width - right, y1: y(share), y2: y(share), class: "grid" }), text(left - 6, y(share) + 4, percent(share), { "text-anchor": "end", class: "dim small" }));
  }
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
    parts.push(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: height - bottom, class: "grid" }), text(x(10 ** power), height - bottom + 16, time(10 ** power), { "text-anchor": "middle", class: "dim small" }));
  }
  lines.forEach((part, number) => {
    const points = [[part.min, 0], ...part.ecdf].map(([ns, share]) => `${x(ns)},${y(share)}`);
    parts.push(titled(svg("polyline", { points: points.join(" "), fill: "none", stroke: partColour(number), "stroke-width": 2, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][number % 4] }), part.name));
  });
  parts.push(text((left + width - right) / 2, height - 4, "latency (logarithmic)", { "text-anchor": "middle", class: "dim" }));
  return picture(width, height, "Share of the operations that were at least as fast", parts);
}

export const partColour = (number) => PALETTE[number % PALETTE.length];

/** Names with their colours. */
export function key(items, dashes = false) {
  return el("p", { class: "key" }, items.map(([name, colour], number) => {
    const swatch = dashes
      ? svg("svg", { width: 30, height: 10, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 30, y1: 5, y2: 5, stroke: colour, "stroke-width": 2, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][number % 4] }))
      : el("i", { class: "swatch" });
    if (!dashes) swatch.style.backgroundColor = colour;
    return el("span", { class: "patch" }, swatch, name);
  }));
}

/** The next number of one digit that is large enough, so that axes end at a round value. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= value * 0.9999);
}
