// Tracks: what they are, which of them and of their parts are drawn, how high and in which order, and which stay in view while the others scroll.

import { HEIGHTS } from "./address.js";
import { el, set, state } from "./core.js";
import { arranged, fitting, isPartGone, moved } from "./rows.js";

export const LEVELS = { rank: "processes by role", host: "processes by host", thread: "threads", relation: "work for clients" };

export class Tracks {
  constructor(timeline) {
    this.timeline = timeline;
    this.panel = el("div", { "aria-label": "Tracks" });
  }

  all() {
    const { pinned, rest } = arranged(state.run, { ...state, gone: new Set() });
    return [...pinned, ...rest];
  }

  /** Moves a track before or behind another one. */
  move(node, target, behind) {
    const order = moved(this.all(), node, target, behind);
    const isPinned = state.pinned.includes(target);
    const pinned = order.filter((other) => (other === node ? isPinned : state.pinned.includes(other)));
    set({ order, pinned });
  }

  step(node, by) {
    // Those that stay in view are moved among one another, and so are the others.
    const alike = this.all().filter((other) => state.pinned.includes(other) === state.pinned.includes(node));
    const target = alike[alike.indexOf(node) + by];
    if (target !== undefined) this.move(node, target, by > 0);
  }

  pin(node) {
    set({ pinned: state.pinned.includes(node) ? state.pinned.filter((other) => other !== node) : [...state.pinned, node] });
  }

  hide(node) {
    const gone = new Set(state.gone);
    if (!gone.delete(node)) gone.add(node);
    set({ gone });
  }

  /** Hides or shows a part of all tracks, or of one. */
  hidePart(part, track = null) {
    const name = track === null ? part : `${track}.${part}`;
    const subs = new Set(state.subs);
    if (!subs.delete(name)) subs.add(name);
    set({ subs });
  }

  height(by) {
    set({ rowHeight: Math.round(Math.min(HEIGHTS.most, Math.max(HEIGHTS.least, by)) * 100) / 100 });
  }

  fitAll() {
    const { run, gauges, folded, scroller } = this.timeline;
    set({ rowHeight: fitting(run, gauges, folded, state, scroller.clientHeight) });
  }

  nextLevel() {
    const names = Object.keys(LEVELS);
    set({ level: names[(names.indexOf(state.level) + 1) % names.length] });
  }

  draw() {
    const { tracks, lanes } = state.run;
    const focused = document.activeElement?.dataset?.track;
    const button = (track, what, text, title, pressed, onclick) => el("button", { type: "button", "data-track": `${what}${track}`, title, "aria-label": title, "aria-pressed": pressed === null ? null : String(pressed), onclick }, text);
    const rows = this.all().map((track) => {
      const { name } = tracks[track];
      const [isPinned, isGone] = [state.pinned.includes(track), state.gone.has(track)];
      const without = [...state.subs].filter((part) => part.startsWith(`${track}.`)).map((part) => part.slice(part.indexOf(".") + 1));
      return el("tr", { class: isGone ? "empty" : "" },
        el("td", {}, name, isPinned ? el("span", { class: "dim" }, " (pinned)") : null, isGone ? el("span", { class: "dim" }, " (hidden)") : null,
          without.map((part) => el("button", { type: "button", title: `Show ${part} of ${name}`, onclick: () => this.hidePart(part, track) }, `+ ${part}`))),
        el("td", { class: "track-buttons" },
          button(track, "up", "▲", `Move ${name} up`, null, () => this.step(track, -1)), button(track, "down", "▼", `Move ${name} down`, null, () => this.step(track, 1)),
          button(track, "pin", isPinned ? "Unpin" : "Pin", `${isPinned ? "Let" : "Keep"} ${name} ${isPinned ? "scroll" : "in view"}`, isPinned, () => this.pin(track)),
          button(track, "hide", isGone ? "Show" : "Hide", `${isGone ? "Show" : "Hide"} ${name}`, isGone, () => this.hide(track))));
    });
    const parts = [...new Set(lanes.map((lane) => lane.sub)), "gauges"];
    this.panel.replaceChildren(
      el("div", { class: "bulk" }, el("label", {}, "Tracks (B): ", el("select", { "aria-label": "What tracks are", "data-track": "level", onchange: (event) => set({ level: event.target.value }) }, Object.entries(LEVELS).map(([value, text]) => el("option", { value, selected: state.level === value }, text))))),
      el("div", { class: "bulk" }, el("label", {}, "Row height ", el("input", { type: "range", min: -2, max: 2.5, step: 0.125, value: Math.log2(state.rowHeight), "aria-label": "Row height", "data-track": "height", oninput: (event) => this.height(2 ** Number(event.target.value)), onchange: (event) => this.height(2 ** Number(event.target.value)) })),
        el("button", { type: "button", title: "Rows as high as the window has room for all of them (Z)", onclick: () => this.fitAll() }, "Fit all")),
      el("div", { class: "bulk" }, el("button", { type: "button", onclick: () => set({ order: [], pinned: [], gone: new Set(), subs: new Set(), rowHeight: 1 }) }, "As before"),
        el("button", { type: "button", onclick: () => set({ folded: new Set(tracks.keys()) }) }, "Fold all"), el("button", { type: "button", onclick: () => set({ folded: new Set() }) }, "Unfold all")),
      el("p", { class: "dim small" }, "A name at the left can be dragged, too; Shift+click on the name of a part hides it in its track."),
      el("table", { class: "list tracks" }, el("tbody", {}, rows)),
      el("fieldset", { class: "kinds" }, el("legend", {}, "Parts of all tracks"), parts.map((part) => el("label", {}, el("input", { type: "checkbox", checked: !isPartGone(state.subs, null, part), onchange: () => this.hidePart(part) }), ` ${part}`))));
    if (focused) this.panel.querySelector(`[data-track="${focused}"]`)?.focus();
  }
}
