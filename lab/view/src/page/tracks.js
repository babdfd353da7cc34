// Tracks: which nodes and which of their parts are drawn, in which order, and which stay in view while the others scroll.

import { el, set, state } from "./core.js";

/** The nodes of a run in the order in which they are drawn: those that stay in view, and the others. */
export function arranged(run, { order, pinned, gone }) {
  const usual = run.nodes.map((_, node) => node).sort((a, b) => run.nodes[a].order - run.nodes[b].order);
  const known = order.filter((node) => node < run.nodes.length);
  const all = [...known, ...usual.filter((node) => !known.includes(node))].filter((node) => !gone.has(node));
  return { pinned: pinned.filter((node) => all.includes(node)), rest: all.filter((node) => !pinned.includes(node)) };
}

/** Without a choice. */
export const NO_CHOICE = { order: [], pinned: [], gone: new Set(), subs: new Set() };

export class Tracks {
  constructor(timeline) {
    this.timeline = timeline;
    this.panel = el("div", { "aria-label": "Tracks" });
  }

  all() {
    const { pinned, rest } = arranged(state.run, { ...state, gone: new Set() });
    return [...pinned, ...rest];
  }

  /** Moves a node before or behind another one. */
  move(node, target, behind) {
    const order = this.all().filter((other) => other !== node);
    order.splice(order.indexOf(target) + (behind ? 1 : 0), 0, node);
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

  draw() {
    const { nodes, lanes } = state.run;
    const focused = document.activeElement?.dataset?.track;
    const button = (node, what, text, title, pressed, onclick) => el("button", { type: "button", "data-track": `${what}${node}`, title, "aria-label": title, "aria-pressed": pressed === null ? null : String(pressed), onclick }, text);
    const rows = this.all().map((node) => {
      const { name } = nodes[node];
      const [isPinned, isGone] = [state.pinned.includes(node), state.gone.has(node)];
      return el("tr", { class: isGone ? "empty" : "" },
        el("td", {}, name, isPinned ? el("span", { class: "dim" }, " (pinned)") : null, isGone ? el("span", { class: "dim" }, " (hidden)") : null),
        el("td", { class: "track-buttons" },
          button(node, "up", "▲", `Move ${name} up`, null, () => this.step(node, -1)), button(node, "down", "▼", `Move ${name} down`, null, () => this.step(node, 1)),
          button(node, "pin", isPinned ? "Unpin" : "Pin", `${isPinned ? "Let" : "Keep"} ${name} ${isPinned ? "scroll" : "in view"}`, isPinned, () => this.pin(node)),
          button(node, "hide", isGone ? "Show" : "Hide", `${isGone ? "Show" : "Hide"} ${name}`, isGone, () => this.hide(node))));
    });
    const parts = [...new Set(lanes.map((lane) => lane.sub)), "gauges"];
    const toggle = (part) => {
      const subs = new Set(state.subs);
      if (!subs.delete(part)) subs.add(part);
      set({ subs });
    };
    this.panel.replaceChildren(
      el("div", { class: "bulk" }, el("button", { type: "button", onclick: () => set({ order: [], pinned: [], gone: new Set(), subs: new Set() }) }, "As before"),
        el("button", { type: "button", onclick: () => set({ folded: new Set(nodes.keys()) }) }, "Fold all"), el("button", { type: "button", onclick: () => set({ folded: new Set() }) }, "Unfold all")),
      el("p", { class: "dim small" }, "A name at the left can be dragged, too."),
      el("table", { class: "list tracks" }, el("tbody", {}, rows)),
      el("fieldset", { class: "kinds" }, el("legend", {}, "Parts of all nodes"), parts.map((part) => el("label", {}, el("input", { type: "checkbox", checked: !state.subs.has(part), onchange: () => toggle(part) }), ` ${part}`))));
    if (focused) this.panel.querySelector(`[data-track="${focused}"]`)?.focus();
  }
}
