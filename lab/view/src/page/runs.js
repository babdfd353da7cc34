// The list of runs: what each is, which one the other screens show (A), and which one it is compared with (B).

import { bytes, count, el, moment, percent, set, state, time } from "./core.js";
import { card, goTo, number, page, table } from "./parts.js";

export async function runs(main) {
  const { runs } = state;
  const traces = runs.filter((run) => run.has_trace);
  const radio = (run, side) => el("input", { type: "radio", name: side, "data-run": run.number, "aria-label": `${run.name} is run ${side.toUpperCase()}`, checked: state[side] === run.number, onchange: () => set({ [side]: run.number }) });
  const about = (run) => {
    const facts = [];
    if (run.has_trace) facts.push(`${run.simulated ? "simulated" : "recorded"}, ${run.clients} clients, ${run.servers} servers, ${count(run.spans)} spans`);
    if (run.phases.length) facts.push(`${run.phases.length} phases of weft bench`);
    if (run.progress) facts.push("rates over time");
    if (run.ceilings) facts.push(`${run.ceilings} ceilings`);
    return facts.join("; ");
  };
  const warnings = (run) => [run.lost ? `${count(run.lost)} records lost` : null, run.problems ? `${run.problems} things missing` : null].filter(Boolean).join(", ");
  const rows = runs.map((run) => (run.refused
    ? el("tr", {}, el("td", {}), el("td", {}), el("td", {}, run.name), el("td", { colspan: 7, class: "bad" }, `could not be read: ${run.refused}`))
    : el("tr", { class: run.number === state.a ? "chosen" : "" }, el("td", {}, radio(run, "a")), el("td", {}, run.number === state.a ? null : radio(run, "b")), el("td", {}, el("b", {}, run.name)), el("td", {}, about(run)),
      number(run.has_trace || run.progress ? time(run.duration) : ""), number(run.has_trace ? count(run.operations) : ""), number(run.has_trace ? `${count(run.rate)}/s` : ""),
      number(run.has_trace ? time(run.p50_ns) : ""), number(run.has_trace ? time(run.p99_ns) : ""), el("td", { class: "bad" }, warnings(run)))));
  const phases = runs.filter((run) => !run.refused).flatMap((run) => run.phases.map((phase) => ({ run, phase })));
  const spread = (one, format) => `${format(one.median)} (${format(one.min)} to ${format(one.max)})`;
  const mib = (value) => `${bytes(value * 1048576)}/s`;
  page(main, "runs",
    card(runs.length === 1 ? "One run" : `${runs.length} runs`,
      el("p", { class: "dim" }, "A is the run that every screen shows ([ and ] go to the previous and next one); B is what Compare holds against it (X exchanges them)."),
      table(["A", "B", "run", "what", ">duration", ">operations", ">rate", ">p50", ">p99", ""], rows),
      el("p", {}, traces.length > 1 && state.b !== null && state.b !== state.a ? goTo("Compare A with B", { screen: "compare" }) : traces.length > 1 ? el("span", { class: "dim" }, "Choose a second run as B to compare.") : el("span", { class: "dim" }, "Start weft view with two traces to compare them: weft view before/ after/"))),
    phases.length ? card("Phases of weft bench: median (smallest to largest repetition)", table(["run", "phase", ">processes × clients", ">repetitions", ">operations a second", ">data", ">p50", ">p99", ">of its ceiling", "ceiling"], phases.map(({ run, phase }) => el("tr", {},
      el("td", {}, run.name), el("td", {}, phase.phase), number(`${phase.procs} × ${phase.clients}`), number(String(phase.repetitions)), number(spread(phase.ops_per_s, count)), number(phase.mib_per_s ? spread(phase.mib_per_s, mib) : ""),
      number(phase.latency_us ? time(phase.latency_us.p50 * 1e3) : ""), number(phase.latency_us ? time(phase.latency_us.p99 * 1e3) : ""),
      number(phase.ratio_to_ceiling ? percent(phase.ratio_to_ceiling.median) : ""), el("td", {}, phase.ceiling ? phase.ceiling.name : ""))))) : null,
    card("Files", el("ul", {}, runs.filter((run) => !run.refused).map((run) => el("li", {}, el("b", {}, run.name), `: ${run.sources.join(", ")}`)))),
    state.to - state.from < state.run.duration * 0.999 ? el("p", { class: "dim" }, `The window from ${moment(Math.max(0, state.from), state.to - state.from)} on stays as it is while you choose.`) : null);
}
