// The profile of the window: what each group of rows and each kind of span cost, as bars and as a table that can be sorted.

import { ask, count, durationColour, el, hiddenQuery, kindLook, kindTitle, set, state, svg, time } from "./core.js";
import { METRICS, bars, lines } from "./costs.js";
import { bar, number, shortened, swatch } from "./parts.js";

const TEXTS = {
  inclusive: "Time from beginning to end of operations, journal and disk that began here.", exclusive: "Time in which nothing else of the same process ran inside: no time counts twice.",
  calls: "How many operations, journal and disk accesses began here.", longest: "The longest span that began here.",
};
const ROW = 17; // pixels of a bar with its gap
const [NAMES, WIDTH] = [84, 306];

export class Profile {
  constructor() {
    this.data = { groups: [], rows: [] };
    this.panel = el("div");
  }

  async load() {
    this.data = await ask("profile", { ...hiddenQuery(), ...(state.metric === "exclusive" ? { exclusive: 1 } : {}) });
  }

  /** The metric behind the shown one. */
  next() {
    const names = Object.keys(TEXTS);
    return names[(names.indexOf(state.metric) + 1) % names.length];
  }

  draw() {
    const choice = (label, name, options) => el("select", { "aria-label": label, "data-choice": name, onchange: (event) => set({ [name]: event.target.value }) }, options.map((value) => el("option", { value, selected: state[name] === value }, value)));
    const focused = this.panel.contains(document.activeElement) ? document.activeElement.dataset.choice : undefined;
    this.panel.replaceChildren(el("h2", {}, "Profile of the window"),
      el("div", { class: "bulk" }, choice("What the profile shows (I)", "metric", Object.keys(TEXTS)), "table by ", choice("Lines of the table", "costsOf", ["kind", "group", "both"])),
      el("p", { class: "dim small" }, TEXTS[state.metric]), this.picture(), this.table());
    if (focused) this.panel.querySelector(`[data-choice="${focused}"]`)?.focus();
  }

  colour(kind, mean) {
    return state.colour === "duration" ? { colour: durationColour(mean), pattern: 0 } : kindLook(state.run.kinds[kind]);
  }

  picture() {
    // A host of which only statistics were recorded has nothing to show.
    const all = bars(this.data, state.run.kinds, state.metric).filter(({ parts }) => parts.length);
    const most = Math.max(...all.map((one) => one.value), 1);
    const scale = (WIDTH - NAMES - 52) / most;
    const said = state.metric === "calls" ? count : time;
    const drawn = all.map(({ name, parts, value }, row) => {
      let x = NAMES;
      const pieces = parts.map((part) => {
        const place = { x, y: row * ROW, width: Math.max(part.value * scale, 0.3), height: ROW - 4 };
        x += part.value * scale;
        return bar(place, this.colour(part.kind, part.mean), `${name}: ${kindTitle(state.run.kinds[part.kind])} ${said(part.value)}`);
      });
      return [svg("text", { x: NAMES - 5, y: row * ROW + 10, "text-anchor": "end", class: "small" }, svg("title", {}, name), shortened(name, 14)), pieces, svg("text", { x: x + 4, y: row * ROW + 10, class: "dim small" }, value ? said(value) : "")];
    });
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${Math.max(1, all.length) * ROW}`, width: "100%", class: "chart", role: "img", "aria-label": `${state.metric} by group: ${all.map(({ name, value }) => `${name} ${said(value)}`).join(", ")}` }, drawn);
  }

  table() {
    const rows = lines(this.data, (kind) => kindTitle(state.run.kinds[kind]), { of: state.costsOf, metric: state.metric, byName: state.byName });
    const sorted = (metric) => (metric === "name" ? Boolean(state.byName) : !state.byName && state.metric === metric);
    const head = (metric, text, title) => el("th", { scope: "col", "aria-sort": sorted(metric) ? "descending" : null }, el("button", { type: "button", class: "sort", title, "data-choice": `by-${metric}`, "aria-pressed": String(sorted(metric)), onclick: () => set(metric === "name" ? { byName: "1" } : { metric, byName: "" }) }, text));
    const cell = (metric, row) => {
      const value = row[METRICS[metric]];
      return number(value === null ? "" : metric === "calls" ? count(value) : time(value));
    };
    return el("table", { class: "list costs" },
      el("thead", {}, el("tr", {}, head("name", state.costsOf === "group" ? "group" : "event", "Sort by name"), head("calls", "calls", "Spans that begin in the window"), head("inclusive", "incl.", "Their time from beginning to end"), head("exclusive", "excl.", "Without the time of others inside of them"), head("longest", "longest", "The longest of them"))),
      el("tbody", {}, rows.slice(0, 300).map(({ name, kind, row }) => el("tr", {},
        el("td", { title: name }, kind === null ? null : swatch(this.colour(kind, row[3] / row[2])), shortened(name, 26)), cell("calls", row), cell("inclusive", row), cell("exclusive", row),
        el("td", { class: "number" }, el("button", { type: "button", class: "go", title: "Its request over all nodes", onclick: () => set({ screen: "request", selected: row[6] }, true) }, time(row[5])))))));
  }
}
