// What the screens are made of: cards, tables, buttons that lead elsewhere.

import { el, set, svg } from "./core.js";

export const card = (title, ...children) => el("section", { class: "card" }, el("h2", {}, title), children);
export const page = (main, name, ...children) => main.replaceChildren(el("div", { class: `page ${name}` }, children));
export const table = (head, rows) => el("table", { class: "data" }, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col", class: name.startsWith(">") ? "number" : "" }, name.replace(/^>/, ""))))), el("tbody", {}, rows));
export const number = (text) => el("td", { class: "number" }, text);
export const goTo = (text, changes) => el("button", { type: "button", class: "go", onclick: () => set(changes, true) }, text);

/** A span in the timeline with some room around it. */
export const around = (start, dur, event) => ({ screen: "timeline", from: start - dur, to: start + 2 * dur, selected: event, measure: null });

/** The beginning of a name that may be of any length. */
export const shortened = (name, room) => (name.length > room ? `${name.slice(0, room - 1)}…` : name);

/** A little square of a look. */
export function swatch({ colour, pattern }) {
  const element = el("i", { class: `swatch pattern${pattern}` });
  element.style.backgroundColor = colour;
  return element;
}

/** Names with their looks. */
export const key = (items) => el("p", { class: "key" }, items.map(([name, look]) => el("span", { class: "patch" }, swatch(look), name)));

/** A bar of a look in a picture, with its pattern over it. */
export const bar = (place, { colour, pattern }, title) => [
  svg("rect", { ...place, fill: colour, class: "bar" }, svg("title", {}, title)),
  pattern ? svg("rect", { ...place, fill: `url(#pattern${pattern})`, class: "over" }) : null,
];
