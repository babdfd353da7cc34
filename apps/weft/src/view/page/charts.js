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
