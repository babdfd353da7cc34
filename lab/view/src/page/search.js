// Search: a field for an expression, the next span that it describes, a list of all of them, where in the run they are, and the same expression
// as a filter of what is shown.

import { ask, count, el, percent, set, state, time, windowQuery } from "./core.js";

const PAGE = 100; // hits in the list
export const PIECES = 600; // places along the whole run

export class Search {
  constructor(timeline) {
    this.timeline = timeline;
    this.skip = 0;
    this.field = el("input", { type: "search", placeholder: "Search (/): create >1ms node:meta0", "aria-label": "Search spans", value: state.search, title: "Names of events (disk.*), >5ms, op == \"read\" && bytes > 65536 && server == \"data1\", node=meta0, file:/a, wait>1ms, seek=far, failed, req:HEX, obj:HEX; and, or, not, brackets. Enter: next, Shift+Enter: previous.",
      onkeydown: (event) => {
        if (event.key === "Enter") this.enter(event.shiftKey);
        if (event.key === "Escape") timeline.canvas.focus();
      },
      oninput: () => this.field.value.trim() || this.clear() });
    this.said = el("span", { class: "found", role: "status" });
    const button = (text, title, onclick) => el("button", { type: "button", title, onclick }, text);
    this.filter = button("Filter", "Show only the spans that the expression describes, everywhere on this screen", () => this.toggleFilter());
    this.light = button("Highlight", "Hits stand out, all else is pale (J)", () => this.toggleLight());
    this.bar = el("span", { class: "search" }, this.field, button("‹", "Previous hit (Shift+Enter)", () => this.enter(true)), button("›", "Next hit (Enter)", () => this.enter(false)), this.filter, this.light, this.said);
    this.panel = el("div", { "aria-label": "Hits of the search" });
    this.show();
  }

  /** The expression is searched for: the list first, then the next hit. */
  async enter(back) {
    const text = this.field.value.trim();
    if (!text) return;
    if (text !== state.search) {
      this.skip = 0;
      set({ search: text, side: "hits" });
    }
    const query = { q: text, back: back ? 1 : 0, at: Math.max(0, Math.round(state.from)) };
    if (this.timeline.selected) query.event = this.timeline.selected.event;
    const answer = await ask("find", query);
    this.say(answer.error, answer.found ? "" : `no ${back ? "earlier" : "later"} span`);
    if (answer.found) await this.timeline.select(answer.found.event);
  }

  clear() {
    this.said.textContent = "";
    this.hits = null;
    set({ search: "", side: state.side === "hits" ? "legend" : state.side });
  }

  async toggleFilter() {
    const text = this.field.value.trim();
    if (state.filter && state.filter === text) return set({ filter: "" });
    if (!text) return state.filter ? set({ filter: "" }) : this.field.focus();
    if (await this.isUnderstood(text)) set({ filter: text, search: text });
  }

  /** The hits stand out, or no longer. */
  async toggleLight() {
    const text = this.field.value.trim();
    if (state.light && (!text || state.search === text)) return set({ light: "" });
    if (!text) return this.field.focus();
    if (await this.isUnderstood(text)) set({ light: "1", search: text });
  }

  async isUnderstood(text) {
    const { error } = await ask("hits", { q: text, limit: 0 });
    this.say(error, "");
    return !error;
  }

  /** Says what is wrong with an expression, and puts the cursor there. */
  say(error, otherwise) {
    this.said.textContent = error || otherwise;
    const letter = Number(/^at letter (\d+)/.exec(error || "")?.[1]);
    if (!letter) return;
    // Letters of the server are whole ones, those of the field may be halves.
    const begin = [...this.field.value].slice(0, letter - 1).join("").length + (this.field.value.length - this.field.value.trimStart().length);
    this.field.focus();
    this.field.setSelectionRange(begin, this.field.value.length);
  }

  /** What the state says. */
  show() {
    if (document.activeElement !== this.field) this.field.value = state.search || state.filter;
    this.filter.setAttribute("aria-pressed", Boolean(state.filter));
    this.filter.textContent = state.filter ? "Filter ×" : "Filter";
    this.filter.title = state.filter ? `Shown are only spans with: ${state.filter}` : "Show only the spans that the expression describes, everywhere on this screen";
    this.light.setAttribute("aria-pressed", Boolean(state.light && state.search));
    if (!state.search) this.hits = null;
  }

  /** Asks for the hits. */
  async load() {
    if (!state.search) return this.draw();
    const text = state.search;
    const hits = await ask("hits", { q: text, ...windowQuery(), sort: state.hitsBy, within: state.hitsIn ? 1 : 0, skip: this.skip, limit: PAGE, pieces: PIECES });
    if (text !== state.search) return;
    this.hits = hits;
    this.draw();
    this.timeline.drawOverview();
  }

  draw() {
    const { hits } = this;
    if (!hits) return void this.panel.replaceChildren(el("p", { class: "dim" }, "Enter in the search field lists what is found."));
    if (hits.error) return void this.panel.replaceChildren(el("p", { class: "bad", role: "alert" }, `Not understood: ${hits.error}`));
    const page = (by) => () => {
      this.skip = Math.max(0, this.skip + by);
      this.load();
    };
    const choice = (label, name, options) => el("select", { "aria-label": label, onchange: (event) => {
      this.skip = 0;
      set({ [name]: event.target.value });
    } }, options.map(([value, text]) => el("option", { value, selected: state[name] === value }, text)));
    const focused = this.panel.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const all = state.hitsIn ? hits.in_window : hits.count;
    const head = hits.count ? [el("b", {}, `${count(hits.count)} span${hits.count === 1 ? "" : "s"}`), `, ${time(hits.time)} together; ${count(hits.in_window)} (${percent(hits.in_window / hits.count)}) begin in the window.`] : [el("b", {}, "Nothing is found"), " in the whole run."];
    this.panel.replaceChildren(
      el("p", { class: "hits-said" }, head),
      el("div", { class: "bulk" }, choice("Order of the hits", "hitsBy", [["", "earliest first"], ["longest", "longest first"]]), choice("Where hits are looked for", "hitsIn", [["", "whole run"], ["1", "window"]]),
        el("button", { type: "button", disabled: this.skip === 0, "aria-label": "Hits before these", onclick: page(-PAGE) }, "‹"), el("button", { type: "button", disabled: !hits.more, "aria-label": "Hits after these", onclick: page(PAGE) }, "›"),
        all ? el("span", { class: "dim nobreak" }, `${this.skip + 1} to ${this.skip + hits.rows.length}`) : null),
      el("table", { class: "list hits" }, el("thead", {}, el("tr", {}, ["start", "time", "event"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, hits.rows.map((hit) => this.row(hit)))));
    if (focused) this.panel.querySelector(`[aria-label="${focused}"]`)?.focus();
  }

  row(hit) {
    const about = `${hit.name} at ${hit.node}${hit.file ? `, ${hit.file}` : ""}${hit.failed ? ", failed" : ""}`;
    return el("tr", { class: hit.event === state.selected ? "chosen" : "" },
      el("td", {}, el("button", { type: "button", class: "name", title: `Zoom to it: ${about}`, onclick: () => this.zoom(hit) }, time(hit.start))),
      el("td", { class: "number" }, time(hit.dur)), el("td", { class: "about", title: about }, about));
  }

  /** A hit in the middle of the window, with as much around it as it takes itself. */
  zoom(hit) {
    const room = Math.max(hit.dur, 1000);
    set({ from: hit.start - room, to: hit.start + hit.dur + room, measure: null }, true);
    this.timeline.select(hit.event);
  }

  /** Marks of the hits over the strip of the whole run: [place from 0 to 1, share of the most]. */
  places() {
    const pieces = this.hits?.count ? this.hits.pieces : [];
    return pieces.flatMap((number, at) => (number ? [at / pieces.length] : []));
  }
}
