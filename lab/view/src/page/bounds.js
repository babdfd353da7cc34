// Bounds: facts about the hardware, the formulas of Kunkel 2006 (chapter 4) with these filled in, and what was measured beside them.

import { ask, bytes, count, el, percent, set, state } from "./core.js";
import { chartWidth, figure } from "./drawn.js";
import { card, number, page, table } from "./parts.js";

const three = (value) => (value === null ? "" : Number(value.toPrecision(4)).toString());

export async function bounds(main) {
  const query = { ...state.facts, hardware: state.hardware };
  const width = chartWidth(main);
  const half = Math.max(480, Math.floor((width - 30) / (main.clientWidth > 1150 ? 2 : 1)));
  const filled = (of, wide) => ask("chart/bounds", { ...query, of, width: wide }).then((drawn) => (drawn.rows.length ? figure(`bounds-${of}`, drawn) : null));
  const [data, creates, large, small, many] = await Promise.all([ask("bounds", query), filled("create", width), filled("large", half), filled("small", half), filled("many", half)]);
  const known = data.facts.some((fact) => fact.name === "rtt_us" && fact.value !== null);
  const type = (name, text) => {
    const facts = { ...state.facts };
    if (text.trim() === "") delete facts[name];
    else facts[name] = text.trim();
    set({ facts, again: true });
  };
  const field = (fact) => el("label", { class: "fact-field" }, el("span", {}, fact.title), el("input", { type: "number", min: 0, step: "any", value: state.facts[fact.name] ?? three(fact.value), placeholder: "not known", "data-fact": fact.name, class: fact.name in state.facts ? "typed" : "", onchange: (event) => type(fact.name, event.target.value) }));
  const source = el("select", { "aria-label": "Where the facts come from", onchange: (event) => set({ hardware: event.target.value, facts: {}, again: true }) },
    [["unix", "weft bench ceiling, Unix sockets"], ["tcp", "weft bench ceiling, TCP"], ["2006", "the cluster of Kunkel 2006, section 4.2.1"]].map(([value, text]) => el("option", { value, selected: state.hardware === value }, text)));
  const rate = (row, value) => (row.unit === "MiB/s" ? `${bytes(value * 1048576)}/s` : `${count(value)}/s`);
  const rows = data.rows.map((row) => {
    // The bound that says most is the nearest one above; what was passed did not bind.
    const nearest = row.bounds.filter((bound) => bound.efficiency <= 1.05).sort((a, b) => b.efficiency - a.efficiency)[0];
    const said = (bound) => (bound.efficiency > 1.05 ? el("span", { class: "dim" }, `${count(bound.efficiency)} times the ${rate(row, bound.bound)} of: ${bound.name}, which did not bind`) : [el(bound === nearest ? "b" : "span", {}, `${percent(bound.efficiency)} of ${rate(row, bound.bound)}`), ` ${bound.name}`]);
    return el("tr", {}, el("td", {}, row.name), number(row.unit === "MiB/s" ? bytes(row.at) : count(row.at)), number(rate(row, row.rates[0])), number(row.rates[1] === row.rates[2] ? "" : `${rate(row, row.rates[1])} to ${rate(row, row.rates[2])}`),
      el("td", {}, row.bounds.length ? row.bounds.map((bound) => el("div", {}, said(bound))) : "no bound is known"));
  });
  page(main, "bounds",
    card("What the hardware does",
      known ? null : el("p", { class: "bad" }, "Nothing is known of this machine. Measure it and give the file as well: ", el("code", {}, "weft bench ceiling --json > ceiling.json; weft view RUN ceiling.json"), ". Or type it in."),
      el("p", {}, el("label", {}, "Facts from ", source), Object.keys(state.facts).length ? el("button", { type: "button", class: "go", onclick: () => set({ facts: {}, again: true }) }, "Forget what was typed") : null),
      el("div", { class: "fact-fields" }, data.facts.map(field))),
    // A chart without a point would be axes only.
    creates ? el("section", { class: "card" }, creates) : null,
    large || small || many ? el("div", { class: "grid-two" }, [large, small, many].filter(Boolean).map((one) => el("section", { class: "card" }, one))) : null,
    card("Measured, and its part of each bound", rows.length ? table(["measurement", ">clients or block", ">median", ">smallest to largest", "part of the bounds"], rows) : el("p", {}, "This run measured neither creates nor streams."),
      el("p", { class: "dim" }, "Bounds leave processing out, so they are estimates; batches that share one message or one disk access may pass them. A bound that was passed assumes what does not hold here: for example that every create waits for the disk.")));
}
