// What the screens are made of: cards, tables, buttons that lead elsewhere.

import { el, set } from "./core.js";

export const card = (title, ...children) => el("section", { class: "card" }, el("h2", {}, title), children);
export const page = (main, name, ...children) => main.replaceChildren(el("div", { class: `page ${name}` }, children));
export const table = (head, rows) => el("table", { class: "data" }, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col", class: name.startsWith(">") ? "number" : "" }, name.replace(/^>/, ""))))), el("tbody", {}, rows));
export const number = (text) => el("td", { class: "number" }, text);
export const goTo = (text, changes) => el("button", { type: "button", class: "go", onclick: () => set(changes, true) }, text);

/** A span in the timeline with some room around it. */
export const around = (start, dur, event) => ({ screen: "timeline", from: start - dur, to: start + 2 * dur, selected: event, measure: null });
