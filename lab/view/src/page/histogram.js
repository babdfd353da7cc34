// Histogram: how often, or for how long, each value of a statistic was there in the window, and what its values add up to.

import { ask, bytes, count, el, hiddenQuery, moment, set, state, time } from "./core.js";
import { chartWidth, figure } from "./drawn.js";
import { card, number, page, table } from "./parts.js";

const EXAMPLES = ["duration", "duration(disk.*)", "bytes", "bytes(disk.*)", "offset(disk.*)", "wait(net.call)", "count / time", "bytes / time", "sum: bytes(disk.*) / time"];

export async function histogram(main) {
  const data = await ask("histogram", { ...hiddenQuery(), of: state.statistic, per: state.per, scale: state.scale, width: chartWidth(main) });
  const choice = (label, name, options) => el("label", {}, `${label} `, el("select", { "aria-label": label, onchange: (event) => set({ [name]: event.target.value, again: true }) }, options.map(([value, text]) => el("option", { value, selected: value === state[name] }, text))));
  const field = el("input", { type: "text", class: "formula", list: "statistics", value: state.statistic, placeholder: "duration", "aria-label": "What the histogram is of", title: "duration, wait, bytes, offset of operations or (EVENTS); a gauge; a formula of lanes", onchange: (event) => set({ statistic: event.target.value.trim(), again: true }) });
  const tools = el("div", { class: "compare-tools" }, el("label", {}, "Histogram of ", field, el("datalist", { id: "statistics" }, [...EXAMPLES, ...data.gauges].map((value) => el("option", { value })))),
    choice("Bars", "per", [["count", "how often"], ["time", "how long"]]), choice("Axis", "scale", [["", "what fits"], ["linear", "linear"], ["log", "logarithmic"]]),
    state.filter ? el("span", { class: "dim" }, `of spans with: ${state.filter}`) : null,
    data.problem ? el("span", { class: "bad", role: "alert" }, `Not understood ${data.problem}`) : null);
  if (data.problem) return page(main, "histogram", tools);
  const length = state.to - state.from;
  const said = (value) => (value === null ? "" : data.unit === "seconds" ? time(value * 1e9) : data.unit === "bytes" ? bytes(value) : count(value));
  const row = (sum) => el("tr", {}, el("td", {}, sum.name), number(count(sum.count)), number(said(sum.sum)), number(said(sum.least)), number(said(sum.mean)), number(said(sum.over_time)), number(said(sum.largest)));
  page(main, "histogram", tools,
    data.chart ? card(`${moment(Math.max(0, state.from), length)} to ${moment(Math.min(state.to, state.run.duration), length)}`, figure("histogram", data.chart)) : el("p", {}, "There is no such value in the window."),
    card("What the values add up to", table(["", ">values", ">sum", ">least", ">mean", ">mean over time", ">largest"], [...data.groups.map(row), row({ ...data.total, name: "all together" })]),
      el("p", { class: "dim" }, "The mean over time counts each value for as long as it was there: a span while it ran, a gauge until its next sample.")));
}
