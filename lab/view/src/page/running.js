// Running performance: rate and sum over time, of each process and of all together; a range chosen here is the window of every other screen.

import { announce, ask, bytes, count, el, kindTitle, moment, percent, set, state, things, time } from "./core.js";
import { chart, chartWidth } from "./drawn.js";
import { card, number, page, table } from "./parts.js";

const METRICS = ["count / time", "bytes / time", "busy / time", "1000000 * busy / count", "100 * failed / count"];

export async function running(main) {
  const query = { source: state.source, interval: state.interval, formula: state.formula, ...(state.kinds ? { kind: state.kinds.join(",") } : {}) };
  const data = await ask("running", query);
  if (!data.sources.length) return page(main, "running", card("Running", el("p", {}, "This run has neither a trace nor the progress of a benchmark (weft bench create --progress FILE).")));
  const width = Math.max(480, Math.floor((chartWidth(main) - 30) / (main.clientWidth > 1150 ? 2 : 1)));
  const compared = state.b !== null && state.b !== state.a ? { with: state.b } : {};
  const shown = [state.from / 1e9, state.to / 1e9];
  const brush = (from, to) => {
    set({ from: from * 1e9, to: to * 1e9 }, true);
    announce(`Window from ${moment(from * 1e9, (to - from) * 1e9)} to ${moment(to * 1e9, (to - from) * 1e9)}`);
  };
  const views = data.count ? ["all", "each"].flatMap((view) => [[view, 0], [view, 1]]) : [];
  const draw = ([view, sum]) => chart("running", { ...query, ...(view === "all" ? compared : {}), view, sum, width }, { onBrush: brush, shown });
  const charts = await Promise.all(views.map(draw));
  const choice = (label, name, options) => el("label", {}, `${label} `, el("select", { "aria-label": label, onchange: (event) => set({ [name]: event.target.value, again: true }) }, options.map(([value, text]) => el("option", { value, selected: String(value) === String(state[name]) }, text))));
  const own = data.processes.length;
  const slowest = [...data.processes].sort((a, b) => a.mean - b.mean);
  const spread = own > 1 && slowest[0].mean > 0 ? slowest[own - 1].mean / slowest[0].mean : 1;
  const formula = el("input", { type: "text", class: "formula", list: "metrics", value: state.formula, placeholder: "count / time", "aria-label": "Metric as a formula of count, bytes, time, busy and failed", onchange: (event) => set({ formula: event.target.value.trim(), again: true }) });
  const kinds = state.run.kinds.map((kind, index) => ({ kind, index })).filter(({ kind }) => kind.is_operation);
  page(main, "running",
    el("div", { class: "compare-tools" },
      choice("Of", "source", data.sources),
      data.source === "trace" ? el("label", {}, "Operations ", el("select", { "aria-label": "Kind of operation", onchange: (event) => set({ kinds: event.target.value ? [Number(event.target.value)] : null }) },
        el("option", { value: "", selected: !state.kinds }, "all of clients"), kinds.map(({ kind, index }) => el("option", { value: index, selected: state.kinds?.includes(index) }, kindTitle(kind))))) : null,
      choice("Intervals", "interval", [[0, "automatic"], [1e6, "1 ms"], [1e7, "10 ms"], [1e8, "0.1 s"], [1e9, "1 s"], [1e10, "10 s"]]),
      el("label", {}, "Metric ", formula, el("datalist", { id: "metrics" }, METRICS.map((value) => el("option", { value })))),
      data.formula_error ? el("span", { class: "bad", role: "alert" }, `Not understood ${data.formula_error}`) : null),
    card("Running performance",
      el("p", { class: "sentence" }, `${things(data.count, "operation")} by ${things(own, "process", "processes")} in ${time(data.end)}: ${count((data.count * 1e9) / Math.max(1, data.end))} a second. `,
        data.count === 0 ? "Nothing ended in the intervals of this source, so there is nothing to draw." : null,
        own > 1 ? `The fastest process did ${spread.toFixed(2)} times as much a second as the slowest. ` : "",
        own > 1 ? `${percent(data.idle_share)} of the processes' time passed after they were done, while others still worked.` : ""),
      el("p", { class: "dim" }, "Drag over a chart to choose the window of time for every screen; Home shows the whole run. W, S, A and D zoom and move.")),
    el("div", { class: "grid-two" }, charts.map((one) => el("section", { class: "card" }, one))),
    card("Processes", table(["process", "node", ">operations", ">data", ">done at", ">mean", ">slowest interval", ">fastest"], data.processes.slice(0, 256).map((one) => el("tr", {}, el("td", {}, one.name), el("td", {}, one.node), number(count(one.count)), number(one.bytes ? bytes(one.bytes) : ""), number(time(one.end)), number(`${count(one.mean)}/s`), number(`${count(one.least)}/s`), number(`${count(one.most)}/s`))))));
}
