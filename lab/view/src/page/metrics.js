// Metrics of a person as lanes of the timeline: the bar in which formulas are written, and their numbers as a table.

import { count, el, hiddenQuery, set, state } from "./core.js";
import { number, table } from "./parts.js";

const EXAMPLES = ["count / time", "busy", "busy / count", "bytes(disk.*) / time", "busy(disk.*) / time", "busy(net.call) / time", "count(net.call) / time", "100 * failed / count", "rise(net_in_bytes) / time", "sum: bytes(disk.*) / time"];

export class Metrics {
  constructor(timeline) {
    this.timeline = timeline;
    this.open = false;
    this.bar = el("div", { class: "tools metrics", "aria-label": "Lanes by formula" });
    this.draw();
  }

  toggle() {
    this.open = this.bar.hidden;
    this.draw(true);
    if (this.open) this.bar.querySelector("input")?.focus();
  }

  /** What was typed and not entered is forgotten; lanes that there are stay. */
  close() {
    this.open = false;
    this.draw(true);
    this.timeline.canvas.focus();
  }

  /** The bar is there while it has lanes, or was asked for. */
  draw(now = false) {
    const typed = this.bar.querySelector("input:focus");
    if (!now && typed && typed.value !== typed.defaultValue) return;
    const typing = document.activeElement?.dataset.metric;
    this.bar.hidden = !this.open && !state.metrics.length;
    if (this.bar.hidden) return;
    const { metrics, gauges } = this.timeline.metrics;
    const change = (at, changes) => set({ metrics: state.metrics.map((metric, other) => (other === at ? { ...metric, ...changes } : metric)) });
    const problem = (formula) => metrics.find((metric) => metric.formula === formula)?.problem;
    const field = (at, value) => el("input", { type: "text", class: "formula", list: "lane-metrics", value, "data-metric": at, placeholder: "bytes(disk.*) / time", "aria-label": at < state.metrics.length ? `Formula of lane ${at + 1}` : "Formula of a new lane",
      onkeydown: (event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        event.target.value = event.target.defaultValue;
        this.close();
      },
      title: "count, busy, bytes, failed of all operations or (EVENTS), for example count(disk.*); time; names of gauges, rise(GAUGE); min, max, + - * / ( ); sum:, mean:, least: or largest: before it: all nodes together",
      onchange: (event) => {
        const formula = event.target.value.replaceAll(";", " ").trim();
        const others = state.metrics.filter((_, other) => other !== at);
        if (!formula || others.some((other) => other.formula === formula)) set({ metrics: others });
        else if (at < state.metrics.length) change(at, { formula });
        else set({ metrics: [...state.metrics, { formula, style: "gradient" }] });
      } });
    this.bar.replaceChildren(
      el("b", {}, "Lanes by formula"),
      ...state.metrics.map(({ formula, style }, at) => el("span", { class: "metric" }, field(at, formula),
        el("select", { "aria-label": `How lane ${at + 1} is drawn`, onchange: (event) => change(at, { style: event.target.value }) }, ["gradient", "line"].map((value) => el("option", { value, selected: value === style }, value))),
        el("button", { type: "button", "aria-label": `Remove ${formula}`, onclick: () => set({ metrics: state.metrics.filter((_, other) => other !== at) }) }, "×"),
        problem(formula) ? el("span", { class: "bad", role: "alert" }, ` Not understood ${problem(formula)}`) : null)),
      field(state.metrics.length, ""),
      el("datalist", { id: "lane-metrics" }, [...EXAMPLES, ...gauges].map((value) => el("option", { value }))),
      ...(state.metrics.length ? [el("a", { class: "button", href: `/api/metrics?${new URLSearchParams({ run: this.timeline.number, ...hiddenQuery(), formulas: state.metrics.map((metric) => metric.formula).join(";"), format: "csv" })}`, download: "weft-metrics.csv" }, "CSV of these")] : []));
    if (typing !== undefined) this.bar.querySelector(`[data-metric="${typing}"]`)?.focus();
  }

  /** Sum, least, mean and largest value of each lane, for those who cannot see it. */
  table() {
    const { metrics } = this.timeline.metrics;
    const rows = metrics.flatMap(({ formula, lanes }) => lanes.filter((lane) => lane.points.length).map((lane) => el("tr", {}, el("td", {}, formula), el("td", {}, lane.node === null ? "all nodes" : state.run.nodes[lane.node].name), number(count(lane.sum)), number(count(lane.least)), number(count(lane.mean)), number(count(lane.largest)))));
    return rows.length ? [el("b", {}, "Lanes by formula, over the pieces of the window"), table(["formula", "node", ">sum", ">least", ">mean", ">largest"], rows)] : [];
  }
}
