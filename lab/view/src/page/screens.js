// The screens beside the timeline: Overview, Latency, Where time goes, Request, Trace health.

import { ask, bytes, count, el, get, kindLook, kindTitle, moment, percent, set, stageLook, stageTitle, state, svg, things, time, windowQuery } from "./core.js";
import { callCards } from "./calls.js";
import { chart, chartWidth, figure, picture } from "./drawn.js";
import { around, bar, card, goTo, key, number, page, shortened, swatch, table } from "./parts.js";

export async function overview(main) {
  const query = { ...windowQuery(), width: chartWidth(main) };
  const [explain, latency, slowest, totals] = await Promise.all([ask("explain", query), ask("latency", query), ask("slowest", { ...query, count: 5 }), ask("totals", query)]);
  const { run } = state;
  const { clients } = run;
  const length = Math.max(1, Math.min(query.to, run.duration) - query.from);
  const seconds = length / 1e9;
  const slow = latency.tail;
  const top = Object.values(explain.kinds.flatMap((kind) => kind.stages).reduce((sums, stage) => {
    sums[stage.stage] = { stage: stage.stage, seconds: (sums[stage.stage]?.seconds || 0) + stage.seconds };
    return sums;
  }, {})).sort((a, b) => b.seconds - a.seconds);
  const facts = [
    [count(latency.total.count), "operations"], [`${count(latency.total.count / seconds)}/s`, "rate"], [time(length), isWhole() ? "duration" : "window"],
    [String(clients), clients === 1 ? "client" : "clients"], [String(run.servers), "servers"], [count(totals.rows.reduce((sum, [, , spans]) => sum + spans, 0)), "spans"],
    [time(latency.total.quantiles[0][1]), "median"], [time(latency.total.quantiles[3][1]), "99th percentile"],
  ];
  const advice = el("div", { class: "advice" });
  const verdict = explain.verdict.length ? card("Verdict", el("ol", { class: "suspects" }, explain.verdict.map(verdictItem)), advice) : null;
  // The twin is simulated for it: the page does not wait.
  if (verdict) get("advice", windowQuery()).then((answer) => answer.json()).then((twin) => advice.replaceChildren(...twinSaid(twin)), () => {});
  if (!latency.total.count) return page(main, "overview", verdict, card(isWhole() ? "This run" : windowTitle(), el("p", { class: "sentence" }, NO_OPERATION)), card("Most time by event", eventTable(totals.rows)));
  page(main, "overview", verdict,
    card(isWhole() ? "This run" : windowTitle(),
      el("p", { class: "sentence" }, `${things(latency.total.count, "operation")} by ${things(clients, "client")} ${isWhole() ? "" : "begin "}in ${time(length)}${run.simulated ? " of virtual time" : ""}: `,
        el("b", {}, `${count(latency.total.count / seconds)} a second`), ". ",
        `The slowest ${percent(slow.count_share)} of them (from ${time(slow.from)} on) take ${percent(slow.time_share)} of the time. `,
        top.length ? el("span", {}, "Most of an operation's time goes to ", el("b", {}, stageTitle(top[0].stage)), ` (${percent(top[0].seconds / explain.seconds)})`, top[1] ? [" and ", el("b", {}, stageTitle(top[1].stage)), ` (${percent(top[1].seconds / explain.seconds)})`] : null, ".") : null),
      el("dl", { class: "facts" }, facts.map(([value, name]) => el("div", {}, el("dd", {}, value), el("dt", {}, name))))),
    card("Where an operation's time goes", figure("stages", explain.charts.shares),
      el("p", { class: "dim" }, `Records explain ${percent(explain.covered)} of the time. `, goTo("All stages", { screen: "where" }))),
    card("Places that stand out", explain.suspects.length ? el("ol", { class: "suspects" }, explain.suspects.map((suspect) => el("li", {}, suspectText(suspect)))) : el("p", {}, "Nothing was recorded at the servers.")),
    card("Slowest operations", slowestTable(slowest)),
    card("Most time by event", eventTable(totals.rows)));
}

function verdictItem({ sentence, advice }) {
  const said = (words) => `${words.replace(/\.$/, "").replaceAll(" us ", " µs ")}.`;
  return el("li", {}, said(sentence), advice ? el("div", { class: "dim" }, said(advice)) : null);
}

function twinSaid({ advice, about }) {
  const items = advice.map(({ sentence }) => el("li", {}, `${sentence}.`));
  return [items.length ? el("ul", { class: "suspects" }, items) : null, about ? el("p", { class: "dim" }, `${about}.`) : null].filter(Boolean);
}

const NO_OPERATION = "No operation of a client was recorded here.";
const isWhole = () => state.from <= 0 && state.to >= state.run.duration * 0.999;
const windowTitle = () => `The window from ${moment(Math.max(0, state.from), state.to - state.from)} to ${moment(Math.min(state.to, state.run.duration), state.to - state.from)}`;

function suspectText(suspect) {
  // The evidence begins with the place, which is said already.
  const place = `${stageTitle(suspect.stage)} at ${suspect.place}`;
  const evidence = suspect.evidence.startsWith(`${place}: `) ? suspect.evidence.slice(place.length + 2) : suspect.evidence;
  const excess = suspect.excess_seconds > 0.01 * suspect.seconds ? `, of which ${time(suspect.excess_seconds * 1e9)} are beyond comparable places` : "";
  return [el("b", {}, place), `: ${time(suspect.seconds * 1e9)}${excess}. `, el("span", { class: "dim" }, `${evidence.replaceAll(" us ", " µs ")}.`)];
}

function slowestTable(slowest) {
  return table([">took", "operation", "client", "began", "slower than", "most of it", ""], slowest.map((row) => el("tr", {},
    number(time(row.dur_us * 1e3)), el("td", {}, row.operation, row.file ? el("span", { class: "dim" }, ` ${row.file}`) : null), el("td", {}, row.client), el("td", {}, moment(row.start, state.run.duration)), el("td", {}, percent(row.slower_than)),
    el("td", {}, row.most ? `${stageTitle(row.most.stage)} at ${row.most.place}, ${time(row.most.dur_us * 1e3)}` : ""),
    el("td", {}, row.event === null ? null : [goTo("Request", { screen: "request", selected: row.event }), goTo("Timeline", around(row.start, row.dur_us * 1e3, row.event))]))));
}

function eventTable(rows) {
  const sums = new Map();
  for (const [, kind, spans, ns] of rows) {
    const sum = sums.get(kind) || [0, 0];
    sums.set(kind, [sum[0] + spans, sum[1] + ns]);
  }
  const order = [...sums].sort((a, b) => b[1][1] - a[1][1]).slice(0, 12);
  return table(["event", ">count", ">time", ">mean"], order.map(([kind, [spans, ns]]) => {
    return el("tr", {}, el("td", {}, swatch(kindLook(state.run.kinds[kind])), kindTitle(state.run.kinds[kind])), number(count(spans)), number(time(ns)), number(time(ns / spans)));
  }));
}

export async function latency(main) {
  const chosen = state.kinds;
  const stage = state.looks.stages[state.stage] ? state.stage : "";
  const query = { ...windowQuery(), ...(chosen ? { kind: chosen.join(",") } : {}), ...(stage ? { stage } : {}) };
  const data = await ask("latency", query);
  const operations = state.run.kinds.map((kind, index) => ({ kind, index })).filter(({ kind }) => kind.is_operation || ["disk", "journal", "calls"].includes(kind.sub_lane));
  const pick = el("fieldset", { class: "kinds" }, el("legend", {}, "Distribution of"),
    el("label", {}, el("input", { type: "radio", name: "kinds", checked: !chosen, onchange: () => set({ kinds: null }) }), "all operations of clients"),
    operations.map(({ kind, index }) => el("label", {}, el("input", { type: "checkbox", checked: data.kinds.includes(index) && Boolean(chosen), onchange: (event) => {
      const next = new Set(chosen || []);
      if (event.target.checked) next.add(index);
      else next.delete(index);
      set({ kinds: next.size ? [...next] : null });
    } }), kindTitle(kind))),
    el("label", {}, " of their time ", el("select", { name: "stage", "aria-label": "Which part of the time of operations", onchange: (event) => set({ stage: event.target.value }) },
      el("option", { value: "", selected: !stage }, "all"), Object.keys(state.looks.stages).map((one) => el("option", { value: one, selected: one === stage }, stageTitle(one))))));
  const { total } = data;
  const width = chartWidth(main);
  const bins = total.count ? await ask("chart/latency", { ...query, width }) : null;
  const functions = total.count && !stage ? await chart("ecdf", { ...query, width: Math.min(width, 700) }) : null;
  const outside = data.slots[0].count + data.slots[data.slots.length - 1].count;
  const example = async (slot) => {
    const { from, to } = data.slots[slot];
    const label = data.kinds.map((kind) => state.run.kinds[kind].name);
    for (const name of label) {
      const answer = await ask("find", { q: `${name} >${Math.max(0, from - 1)}ns <${to}ns`, at: windowQuery().from });
      if (answer.found && answer.found.start < state.to) return set({ screen: "request", selected: answer.found.event }, true);
    }
  };
  const quantile = (part) => el("tr", {}, el("td", {}, part.name), number(count(part.count)), number(time(part.mean)), part.quantiles.map(([, ns]) => number(time(ns))), number(percent(part.sum / Math.max(1, total.sum))));
  page(main, "latency", pick,
    total.count === 0 ? el("p", {}, stage ? `No operation of these kinds that begins in the window spent time in the stage ${stageTitle(stage)}.` : "No operation of these kinds begins in the window.") : [
      card(things(total.count, "operation"), figure("latency", bins, stage ? {} : { onTarget: (bar) => example(bins.first_slot + bar), targetText: "Show one of them" }),
        el("p", { class: "dim" }, `${stage ? "Operations that were never in this stage do not count. " : "A click on a bar shows one of its operations. "}${outside ? `${outside} operations lie outside the 50 bins, in the slots at the ends. ` : ""}Window: ${moment(Math.max(0, state.from), state.to - state.from)} to ${moment(Math.min(state.to, state.run.duration), state.to - state.from)}.`)),
      el("div", { class: "pair" },
        card("Percentiles", table(["", ">count", ">mean", ">p50", ">p90", ">p95", ">p99", ">p99.9", ">max", ">of the time"], [...data.parts.map(quantile), quantile(total)]),
          data.longest ? el("p", {}, goTo(`The longest: ${time(data.longest.ns)}`, { screen: "request", selected: data.longest.event })) : null),
        functions ? card("Distribution functions", functions) : null)]);
}

export async function where(main) {
  const explain = await ask("explain", { ...windowQuery(), width: chartWidth(main) });
  if (!explain.operations) return page(main, "where", card(isWhole() ? "All operations" : windowTitle(), el("p", { class: "sentence" }, NO_OPERATION)));
  const kindCard = (kind, at) => card(`${kind.operation}: ${things(kind.count, "operation")}, ${time(kind.seconds * 1e9)}, median ${time(kind.p50_us * 1e3)}, p99 ${time(kind.p99_us * 1e3)}`,
    el("p", { class: "dim" }, `${kind.failed ? `${kind.failed} failed. ` : ""}Records explain ${percent(kind.covered)} of the time. Usual: the middle half by duration; tail: the slowest hundredth.`),
    picture(explain.charts.kinds[at]),
    table(["stage", ">share", ">usual", ">tail", ">time", ">p50 of an operation", ">p99", ">operations"], [...kind.stages].sort((a, b) => b.share - a.share).map((stage) => {
      return el("tr", {}, el("td", {}, swatch(stageLook(stage.stage)), stageTitle(stage.stage)), number(percent(stage.share)), number(percent(stage.median_share)), number(percent(stage.tail_share)), number(time(stage.seconds * 1e9)), number(time(stage.p50_us * 1e3)), number(time(stage.p99_us * 1e3)), number(count(stage.operations)));
    })),
    kind.suspects.length ? [el("h3", {}, "Places that stand out"), el("ol", { class: "suspects" }, kind.suspects.map((suspect) => el("li", {}, suspectText(suspect))))] : null);
  page(main, "where",
    card(isWhole() ? "All operations" : "Operations that begin in the window", el("p", {}, `${things(explain.operations, "operation")} spent ${time(explain.seconds * 1e9)}; records explain ${percent(explain.covered)} of it. ${isWhole() ? "" : `${windowTitle()}: choose another one in Timeline or Running, or press Home for the whole run.`}`),
      figure("seconds", explain.charts.seconds),
      explain.missing.length ? el("ul", { class: "missing" }, explain.missing.map((sentence) => el("li", {}, sentence))) : null),
    explain.kinds.map(kindCard));
}

export async function request(main) {
  const slowest = await ask("slowest", { ...windowQuery(), count: 20 });
  const event = state.selected ?? slowest[0]?.event ?? null;
  if (event === null) return page(main, "request", el("p", {}, NO_OPERATION));
  const [data, called] = await Promise.all([ask("request", { event }), callCards(event)]);
  page(main, "request",
    card(`${data.name} by ${data.node}: ${time(data.dur)}`,
      el("p", {}, `Began at ${moment(data.start, state.run.duration / 100)}${data.slower_than === null ? "" : `; slower than ${percent(data.slower_than)} of ${things(data.of, "such operation")}`}. `,
        goTo("In the timeline", around(data.start, data.dur, data.root)), data.cut ? " Only its first records are shown." : ""),
      data.path.length ? [el("h3", {}, "Critical path"), pathBar(data)] : null,
      el("h3", {}, "Records on all nodes"), waterfall(data)),
    ...called,
    card("Slowest operations", slowestTable(slowest)));
}

function pathBar(data) {
  const width = 1100;
  const used = [...new Set(data.path.map((piece) => piece.stage))];
  const pieces = data.path.flatMap((piece) => bar({ x: (piece.at / data.dur) * width, y: 0, width: Math.max((piece.dur / data.dur) * width, 0.5), height: 22 }, stageLook(piece.stage), `${piece.title}: ${time(piece.dur)} (${percent(piece.dur / data.dur)})`));
  const sums = used.map((stage) => [stage, data.path.filter((piece) => piece.stage === stage).reduce((sum, piece) => sum + piece.dur, 0)]).sort((a, b) => b[1] - a[1]);
  return [svg("svg", { viewBox: `0 0 ${width} 22`, width: "100%", preserveAspectRatio: "none", height: 22, role: "img", "aria-label": sums.map(([stage, ns]) => `${stageTitle(stage)} ${time(ns)}`).join(", ") }, pieces),
    key(sums.map(([stage, ns]) => [`${stageTitle(stage)} ${time(ns)} (${percent(ns / data.dur)})`, stageLook(stage)]))];
}

function waterfall(data) {
  const [left, width, height] = [330, 1100, 22];
  const room = width - left - 70;
  const x = (at) => left + (Math.max(0, at) / data.dur) * room;
  const parts = [];
  data.steps.forEach((step, row) => {
    const y = row * height + 22;
    if (row % 2 === 0) parts.push(svg("rect", { x: 0, y: y - 3, width, height, class: "stripe" }));
    if (step.event === data.asked) parts.push(svg("rect", { x: 0.5, y: y - 3, width: width - 1, height, class: "asked" }));
    parts.push(svg("text", { x: 6 + Math.min(step.depth, 8) * 12, y: y + 12 }, shortened(step.name, 22)), svg("text", { x: left - 12, y: y + 12, "text-anchor": "end", class: "dim" }, shortened(step.node, 18)));
    const title = `${step.name} at ${step.node}: ${time(step.dur)}, begins ${time(step.at)} after the operation`;
    if (step.phases.length) {
      let at = step.at;
      for (const [name, stage, ns] of step.phases) {
        parts.push(bar({ x: x(at), y, width: Math.max(x(at + ns) - x(at), 0.7), height: 15 }, stageLook(stage), `${title}; ${name}: ${time(ns)}`));
        at += ns;
      }
    } else {
      const kind = state.run.kinds[step.kind];
      parts.push(bar({ x: x(step.at), y: y + 2, width: Math.max(x(step.at + step.dur) - x(step.at), 1), height: 11 }, kind ? kindLook(kind) : stageLook(""), title));
    }
    parts.push(svg("text", { x: Math.min(x(step.at + step.dur) + 5, width - 62), y: y + 12, class: "dim small" }, time(step.dur)));
  });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) parts.unshift(svg("line", { x1: x(share * data.dur), x2: x(share * data.dur), y1: 14, y2: data.steps.length * height + 22, class: "grid" }), svg("text", { x: x(share * data.dur), y: 10, "text-anchor": "middle", class: "dim small" }, time(share * data.dur)));
  const stages = [...new Set(data.steps.flatMap((step) => step.phases.map(([, stage]) => stage)))];
  return [svg("svg", { viewBox: `0 0 ${width} ${data.steps.length * height + 26}`, width: "100%", class: "chart waterfall", role: "img", "aria-label": `${data.steps.length} records of the operation` }, parts),
    stages.length ? el("div", { class: "dim" }, "Phases at servers: ", key(stages.map((stage) => [stageTitle(stage), stageLook(stage)]))) : null,
    el("details", {}, el("summary", {}, "As a table"), table(["record", "node", ">begins after", ">takes", ">waited", "phases"], data.steps.map((step) => el("tr", {}, el("td", {}, `${"· ".repeat(step.depth)}${step.name}`), el("td", {}, step.node), number(time(step.at)), number(time(step.dur)), number(step.wait ? time(step.wait) : ""), el("td", {}, step.phases.map(([name, , ns]) => `${name} ${time(ns)}`).join(", "))))))];
}

export async function health(main) {
  const data = await ask("health");
  const lost = data.nodes.reduce((sum, node) => sum + node.lost, 0);
  const bad = data.nodes.some((node) => node.problems.length || node.error_ns === null) || data.sources.some((source) => source.refused) || data.causality_violations > 0;
  const refused = data.sources.filter((source) => source.refused);
  page(main, "health",
    card(bad || lost ? "This trace is not complete" : "This trace is complete",
      el("p", { class: "sentence" }, `${count(data.records)} records, ${count(data.spans)} spans, ${lost} lost while recording. `,
        data.causality_violations === null ? "Whether a request was served before it was sent is still being computed." : data.causality_violations ? `${data.causality_violations} requests were served before they were sent or after they were answered: clocks are wrong.` : "No request was served before it was sent or after it was answered."),
      data.covered === null ? el("p", {}, "The operations are still being analysed.") : el("p", {}, `Records explain ${percent(data.covered)} of the operations' time.`),
      data.missing?.length ? el("ul", { class: "missing" }, data.missing.map((sentence) => el("li", {}, sentence))) : null,
      data.overlapping_lanes ? el("p", {}, `${data.overlapping_lanes} lanes hold spans that lie on one another, because more ran at once than there are rows.`) : null),
    refused.length ? card("Files that could not be read", el("ul", { class: "missing" }, refused.map((source) => el("li", {}, el("b", {}, source.path), `: ${source.refused}`)))) : null,
    card("Nodes", table(["node", ">records", ">lost", "clock", "what is missing"], data.nodes.map((node) => el("tr", {},
      el("td", {}, node.name), number(count(node.records)), number(count(node.lost)),
      el("td", {}, node.error_ns === null ? "not tied to the others" : node.error_ns === 0 && node.offset_ns === 0 ? "the same as the first node" : `shifted by ${time(node.offset_ns)}, right within ±${time(node.error_ns)} (${count(node.samples)} requests)`),
      el("td", {}, node.problems.length ? el("ul", {}, node.problems.map((problem) => el("li", {}, problem))) : "nothing"))))),
    card("Files", table(["file", ">size", ""], data.sources.map((source) => el("tr", {}, el("td", {}, source.path), number(bytes(source.bytes)), el("td", {}, source.refused || "read"))))));
}
