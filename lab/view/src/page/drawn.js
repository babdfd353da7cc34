// Charts that the server draws: the picture, the same as a table, and buttons that export both. A chart over time or latency can be brushed.

import { ask, download, el, state } from "./core.js";

/** A chart of /api/chart/NAME with its table and exports. `onBrush(from, to)` is told a range of its horizontal axis, `onTarget(number)` a bar. */
export async function chart(name, query, options = {}) {
  return figure(name, await ask(`chart/${name}`, query), options);
}

export function figure(name, data, { onBrush = null, shown = null, onTarget = null, targetText = "" } = {}) {
  const picture = inline(data.svg);
  if (data.plot && shown) picture.append(...shownRange(data.plot, shown));
  if (data.plot && onBrush) brush(picture, data.plot, onBrush);
  if (onTarget) targets(picture, onTarget, targetText);
  const exports = el("span", { class: "exports" },
    el("button", { type: "button", onclick: () => download(`weft-${name}.svg`, "image/svg+xml", data.svg) }, "SVG"),
    el("button", { type: "button", onclick: () => png(name, data.svg) }, "PNG"),
    el("button", { type: "button", onclick: () => download(`weft-${name}.csv`, "text/csv", csv(data)) }, "CSV"));
  return el("figure", { class: "drawn", "data-chart": name }, picture, el("figcaption", {},
    el("details", { ontoggle: (event) => event.target.open && event.target.children.length === 1 && event.target.append(twin(data)) }, el("summary", {}, "As a table")), exports));
}

/** A picture alone, where its numbers stand beside it anyway. */
export const picture = (data) => el("div", { class: "drawn" }, inline(data.svg));

/** The SVG text as elements. Its styles are those of the page (no style may come from inside it), so that it follows the theme. */
export function inline(text) {
  // The policy of the page allows no style from inside, not even while the text is read.
  const plain = text.replace(/<style>[^<]*<\/style>/, "").replace(/\sstyle="(?=fill)/g, ' data-style="');
  const picture = document.importNode(new DOMParser().parseFromString(plain, "image/svg+xml").documentElement, true);
  picture.classList.add("chart");
  for (const element of picture.querySelectorAll("[data-style]")) {
    for (const [name, value] of element.dataset.style.split(";").map((rule) => rule.split(":"))) if (value) element.style.setProperty(name, value);
    element.removeAttribute("data-style");
  }
  return picture;
}

const SVG = "http://www.w3.org/2000/svg";
const shape = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Pixels of the picture to values of its horizontal axis, and back. */
function scales(plot) {
  const [low, high] = plot.log ? [Math.log(plot.from), Math.log(plot.to)] : [plot.from, plot.to];
  const share = (x) => (clamp(x, plot.left, plot.right) - plot.left) / (plot.right - plot.left);
  return {
    value: (x) => (plot.log ? Math.exp(low + share(x) * (high - low)) : low + share(x) * (high - low)),
    pixel: (value) => plot.left + (((plot.log ? Math.log(value) : value) - low) / (high - low)) * (plot.right - plot.left),
  };
}

/** What lies outside the shown range is veiled. */
function shownRange(plot, [from, to]) {
  const { pixel } = scales(plot);
  const [left, right] = [pixel(from), pixel(to)].map((x) => clamp(x, plot.left, plot.right));
  const veil = (x, width) => shape("rect", { x, y: plot.top, width: Math.max(0, width), height: plot.bottom - plot.top, class: "outside" });
  if (left <= plot.left + 0.5 && right >= plot.right - 0.5) return [];
  return [veil(plot.left, left - plot.left), veil(right, plot.right - right), shape("rect", { x: left, y: plot.top, width: Math.max(1, right - left), height: plot.bottom - plot.top, class: "inside" })];
}

function brush(picture, plot, onBrush) {
  const { value } = scales(plot);
  const area = shape("rect", { x: plot.left, y: plot.top, width: plot.right - plot.left, height: plot.bottom - plot.top, class: "brush" });
  const range = shape("rect", { x: 0, y: plot.top, width: 0, height: plot.bottom - plot.top, class: "veil" });
  picture.append(area, range);
  const place = (event) => {
    const box = picture.getBoundingClientRect();
    return clamp(((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width, plot.left, plot.right);
  };
  let begun = null;
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    begun = place(event);
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    if (begun === null) return;
    const here = place(event);
    range.setAttribute("x", Math.min(begun, here));
    range.setAttribute("width", Math.abs(here - begun));
  });
  area.addEventListener("pointerup", (event) => {
    const [first, here] = [begun, place(event)];
    begun = null;
    range.setAttribute("width", 0);
    if (first !== null && Math.abs(here - first) > 3) onBrush(value(Math.min(first, here)), value(Math.max(first, here)));
  });
}

function targets(picture, onTarget, text) {
  for (const target of picture.querySelectorAll(".target")) {
    target.setAttribute("tabindex", "0");
    target.setAttribute("role", "button");
    const title = target.querySelector("title");
    target.setAttribute("aria-label", `${title ? title.textContent : ""}. ${text}`);
    if (title) title.textContent += `. ${text}`;
    const choose = () => onTarget(Number(target.dataset.category));
    target.addEventListener("click", choose);
    target.addEventListener("keydown", (event) => event.key === "Enter" && choose());
  }
}

function twin(data) {
  const head = el("tr", {}, data.columns.map((name) => el("th", { scope: "col" }, name)));
  const rows = data.rows.slice(0, 500).map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell))));
  const more = data.rows.length - rows.length + data.cut;
  return el("div", { class: "twin-table" }, el("table", { class: "data" }, el("thead", {}, head), el("tbody", {}, rows)), more ? el("p", { class: "dim" }, `${more} more rows are in the CSV.`) : null);
}

function csv(data) {
  const cell = (text) => {
    const safe = /^[=+@\t\r]/.test(text) || (text.startsWith("-") && Number.isNaN(Number(text))) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [data.columns, ...data.rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

function png(name, text) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(`weft-${name}.png`, "image/png", blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

/** Pixels that a chart may take beside the margins of a page. */
export const chartWidth = (main) => Math.round(clamp((main.clientWidth || state.width || 1200) - 80, 480, 1320));
