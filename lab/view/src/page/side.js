// Beside the timeline: the profile of the visible window, under it the legend with totals, the hits of a search or the tracks; and the table twin.

import { SEEK_NAMES, announce, ask, busy, count, durationColour, el, hiddenQuery, kindLook, kindTitle, set, state, time } from "./core.js";
import { key, swatch } from "./parts.js";
import { Profile } from "./profile.js";

export class Side {
  constructor(timeline) {
    this.timeline = timeline;
    this.legend = el("div");
    this.costs = new Profile();
    this.profile = el("div", { class: "profile" });
    this.tabs = el("div", { class: "tabs", role: "tablist" });
    this.parts = { legend: this.legend, hits: timeline.search.panel, tracks: timeline.trackList.panel };
    this.below = el("div", { class: "below" }, Object.values(this.parts));
    this.panel = el("aside", { class: "side", "aria-label": "Profile, legend, hits and tracks" }, this.profile, this.tabs, this.below);
    this.drawTabs();
    this.table = el("section", { class: "twin", hidden: !state.table, "aria-label": "Spans of the window as a table" });
    this.skip = 0;
  }

  close() {
    this.cancel();
  }

  /** Shows one of the parts below the profile. */
  open(name) {
    set({ side: name });
    this.below.querySelector(`[data-part="${name}"] button, [data-part="${name}"] input`)?.focus();
  }

  drawTabs() {
    const { hits } = this.timeline.search;
    const names = { legend: "Legend", hits: hits && !hits.error ? `Hits (${count(hits.count)})` : "Hits", tracks: "Tracks (K)" };
    const focused = this.tabs.contains(document.activeElement);
    this.tabs.replaceChildren(...Object.entries(names).map(([name, text]) => el("button", { type: "button", role: "tab", "aria-selected": String(state.side === name), onclick: () => set({ side: name }) }, text)));
    if (focused) this.tabs.querySelector("[aria-selected=true]")?.focus();
    for (const [name, part] of Object.entries(this.parts)) {
      part.dataset.part = name;
      part.hidden = state.side !== name;
    }
  }

  cancel() {
    if (this.timer !== undefined) busy(-1);
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Soon, as totals of a window that is still moving are of no use. */
  refresh() {
    this.cancel();
    busy(1);
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.load().finally(() => busy(-1));
    }, 120);
  }

  async load() {
    try {
      [{ rows: this.totals }] = await Promise.all([ask("totals", hiddenQuery()), this.costs.load()]);
      this.drawLegend();
      this.drawProfile();
      this.timeline.trackList.draw();
      await this.timeline.search.load();
      this.drawTabs();
      if (!this.table.hidden) await this.loadTable();
    } catch (error) {
      this.profile.replaceChildren(el("p", {}, String(error.message || error)));
    }
  }

  drawLegend() {
    const { kinds, nodes } = state.run;
    const sums = kinds.map((kind, number) => ({ kind, number, count: 0, time: 0 }));
    for (const [, kind, spans, ns] of this.totals) {
      sums[kind].count += spans;
      sums[kind].time += ns;
    }
    const orders = { time: (a, b) => b.time - a.time, count: (a, b) => b.count - a.count, name: (a, b) => kindTitle(a.kind).localeCompare(kindTitle(b.kind)) };
    const whole = (state.to - state.from) * nodes.length;
    const rows = [...sums].sort(orders[state.sort]).map((sum) => this.legendRow(sum, whole));
    const head = (name, text, title) => el("th", { scope: "col" }, el("button", { type: "button", class: "sort", title, "aria-pressed": state.sort === name, onclick: () => set({ sort: name }) }, text));
    const focused = document.activeElement?.dataset?.kind;
    this.legend.replaceChildren(
      el("div", { class: "bulk" },
        el("button", { type: "button", onclick: () => set({ hidden: new Set() }) }, "Show all"),
        el("button", { type: "button", onclick: () => set({ hidden: new Set(kinds.map((_, number) => number)) }) }, "Hide all"),
        el("button", { type: "button", title: "Hide sends, receives and calls", onclick: () => set({ hidden: new Set(kinds.flatMap((kind, number) => (["sent", "received", "calls"].includes(kind.sub_lane) ? [number] : []))) }) }, "No network"),
        state.colours.size ? el("button", { type: "button", onclick: () => set({ colours: new Map() }) }, "Usual colours") : null),
      el("table", { class: "legend" },
        el("thead", {}, el("tr", {}, el("th", {}), head("name", "event", "Sort by name"), head("count", "count", "Spans that begin in the window"), head("time", "time", "Their time; spans that run at once count each"))),
        el("tbody", {}, rows)),
      this.scale());
    if (focused) this.legend.querySelector(`[data-kind="${focused}"]`)?.focus();
  }

  legendRow({ kind, number, count: spans, time: ns }) {
    const shown = !state.hidden.has(number);
    const toggle = (event) => {
      const hidden = new Set(state.hidden);
      if (event.target.checked) hidden.delete(number);
      else hidden.add(number);
      set({ hidden });
    };
    const alone = () => {
      const others = state.run.kinds.map((_, other) => other).filter((other) => other !== number);
      const isAlone = state.hidden.size === others.length && !state.hidden.has(number);
      set({ hidden: new Set(isAlone ? [] : others) });
    };
    return el("tr", { class: spans ? "" : "empty" },
      el("td", {}, el("input", { type: "checkbox", checked: shown, "data-kind": number, "aria-label": `Show ${kindTitle(kind)}`, onchange: toggle })),
      el("td", {}, el("button", { type: "button", class: "name", title: `Only ${kindTitle(kind)} (again: all)`, onclick: alone }, state.colour === "duration" ? null : swatch(kindLook(kind)), kindTitle(kind)), state.colour === "operation" ? this.ink(kind) : null),
      el("td", { class: "number" }, count(spans)),
      el("td", { class: "number" }, spans ? time(ns) : ""));
  }

  /** Lets a person choose the colour of a kind; a double click takes the choice back. */
  ink(kind) {
    const title = kindTitle(kind);
    const colours = new Map(state.colours);
    const change = (event) => set({ colours: colours.set(title, event.target.value) });
    const before = () => colours.delete(title) && set({ colours });
    return el("input", { type: "color", class: "ink", value: kindLook(kind).colour, title: `Another colour for ${title}; a double click takes it back`, "aria-label": `Colour of ${title}`, onchange: change, ondblclick: before });
  }

  // What the colours mean when they do not mean events.
  scale() {
    if (state.colour === "seek") return key([...[1, 2, 3].map((number) => [SEEK_NAMES[number], state.looks.seeks[number]]), ["no disk access", kindLook({ sub_lane: "" })]]);
    if (state.colour === "duration") return key([1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].map((ns) => [time(ns), { colour: durationColour(ns), pattern: 0 }]));
    return el("p", { class: "scale dim" }, "A stronger colour: more of the pixel's time is busy.");
  }

  drawProfile() {
    const measured = state.measure ? el("p", {}, "Measured: ", el("b", {}, time(Math.abs(state.measure[1] - state.measure[0]))), " ", el("button", { type: "button", onclick: () => this.timeline.fit() }, "Zoom in (F)"), " ", el("button", { type: "button", onclick: () => set({ measure: null }) }, "Clear")) : null;
    this.profile.replaceChildren(...[measured, this.costs.panel].filter(Boolean));
    this.costs.draw();
  }

  /** Shows the next metric of the profile. */
  nextMetric() {
    set({ metric: this.costs.next(), byName: "" });
  }

  focusLegend() {
    this.open("legend");
    this.legend.querySelector("input")?.focus();
  }

  /** Shows the table or takes it away, as the state says. */
  showTable() {
    if (this.table.hidden === !state.table) return;
    this.table.hidden = !state.table;
    this.skip = 0;
    if (state.table) this.loadTable().then(() => this.table.querySelector("button")?.focus());
  }

  async loadTable() {
    const limit = 100;
    const answer = await ask("table", { ...hiddenQuery(), skip: this.skip, limit });
    const rows = answer.rows.map(({ event, cells }) => el("tr", {},
      el("td", {}, el("button", { type: "button", class: "name", title: "Show in the timeline", onclick: () => this.timeline.select(event) }, time(Number(cells[0])))),
      el("td", { class: "number" }, time(Number(cells[1]))), cells.slice(2).map((cell) => el("td", {}, cell))));
    const page = (by) => () => {
      this.skip = Math.max(0, this.skip + by);
      this.loadTable();
    };
    this.table.replaceChildren(
      ...this.timeline.lanesByFormula.table(),
      el("div", { class: "bulk" }, el("b", {}, "Spans that begin in the window "),
        el("button", { type: "button", disabled: this.skip === 0, onclick: page(-limit) }, "Earlier"),
        el("button", { type: "button", disabled: !answer.more, onclick: page(limit) }, "Later"),
        el("span", { class: "dim" }, rows.length ? ` ${this.skip + 1} to ${this.skip + rows.length}` : " none"),
        el("button", { type: "button", class: "right", onclick: () => set({ table: false }) }, "Close")),
      el("table", {}, el("thead", {}, el("tr", {}, ["start", "duration", ...answer.columns.slice(2)].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows)));
    announce(`${rows.length} spans in the table`);
  }
}
