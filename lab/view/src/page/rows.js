// Where everything on a timeline lies, from top to bottom: pure, so that it can be tried without a page.

import { HEIGHTS } from "./address.js";

export const RULER = 24;
const GROUP = 22;
const NODE = 19;

/** Without a choice of a person. */
export const NO_CHOICE = { order: [], pinned: [], gone: new Set(), subs: new Set(), rowHeight: 1 };

/** The tracks of a run in the order in which they are drawn: those that stay in view, and the others. */
export function arranged({ tracks }, { order, pinned, gone }) {
  const usual = tracks.map((_, track) => track).sort((a, b) => tracks[a].order - tracks[b].order);
  const known = order.filter((track) => track < tracks.length);
  const all = [...known, ...usual.filter((track) => !known.includes(track))].filter((track) => !gone.has(track));
  return { pinned: pinned.filter((track) => all.includes(track)), rest: all.filter((track) => !pinned.includes(track)) };
}

/** True if a person does not want to see a part of a track. */
export const isPartGone = (subs, track, part) => subs.has(part) || subs.has(`${track}.${part}`);

/** Moves one of a list before or behind another one. */
export function moved(list, one, target, behind) {
  const others = list.filter((other) => other !== one);
  others.splice(others.indexOf(target) + (behind ? 1 : 0), 0, one);
  return others;
}

/** The rows with their places, where each lane is, and the height of all. Tracks that stay in view come first, in pixels of the canvas; the others in pixels
 * of the scrolled content. */
export function layOut(run, gauges, folded, choice) {
  const { pinned, rest } = arranged(run, choice);
  const { subs, rowHeight } = choice;
  const place = { rows: [], laneAt: new Map() };
  const lanes = new Map();
  run.lanes.forEach((lane, number) => lanes.set(lane.track, [...(lanes.get(lane.track) || []), { ...lane, number }]));
  let y = RULER;
  const gaugeRow = (gauge, track, isPinned) => {
    const height = (gauge.style === "bars" ? 13 : 26) * Math.max(rowHeight, 0.5);
    place.rows.push({ type: "gauge", y, height, track, gauge, at: gauges.indexOf(gauge), text: gauge.title || gauge.name, pinned: isPinned });
    y += height + 2;
  };
  const heading = (text) => {
    place.rows.push({ type: "group", y, height: GROUP, text, pinned: false });
    y += GROUP;
  };
  const trackRows = (track, isPinned) => {
    place.rows.push({ type: "node", y, height: NODE, track, text: run.tracks[track].name, pinned: isPinned });
    y += NODE;
    if (folded.has(track)) return;
    const own = (lanes.get(track) || []).filter((lane) => !isPartGone(subs, track, lane.sub));
    for (const sub of new Set(own.map((lane) => lane.sub))) {
      const parts = own.filter((lane) => lane.sub === sub);
      const each = Math.max(2, (parts.length === 1 ? 16 : parts.length <= 4 ? 10 : parts.length <= 8 ? 7 : 4) * rowHeight);
      const height = Math.max(parts.length * each, 14 * Math.min(rowHeight, 1));
      place.rows.push({ type: "sub", y, height, track, sub, text: sub + (parts.some((lane) => lane.overlaps) ? " (more)" : ""), pinned: isPinned });
      parts.forEach((lane, row) => place.laneAt.set(lane.number, { y: y + row * each, height: each - 1, track, sub, number: lane.number, pinned: isPinned }));
      y += height + 3;
    }
    for (const gauge of gauges) if (gauge.track === track && (gauge.style !== "bars" || !isPartGone(subs, track, "gauges"))) gaugeRow(gauge, track, isPinned);
    y += 3;
  };
  for (const track of pinned) trackRows(track, true);
  place.pinnedHeight = pinned.length ? y - RULER : 0;
  // Formulas of all nodes together.
  const shared = gauges.filter((gauge) => gauge.track === null);
  if (shared.length) heading("All nodes");
  for (const gauge of shared) gaugeRow(gauge, null, false);
  let group = null;
  for (const track of rest) {
    if (run.tracks[track].heading !== group) heading((group = run.tracks[track].heading));
    trackRows(track, false);
  }
  return { ...place, height: y + 8 };
}

/** The largest row height with which all of it fits into so many pixels; the least one if nothing does. */
export function fitting(run, gauges, folded, choice, room) {
  const height = (rowHeight) => layOut(run, gauges, folded, { ...choice, rowHeight }).height;
  let [low, high] = [HEIGHTS.least, HEIGHTS.most];
  if (height(high) <= room) return high;
  for (let step = 0; step < 12; step++) {
    const middle = (low + high) / 2;
    if (height(middle) <= room) low = middle;
    else high = middle;
  }
  return Math.floor(low * 100) / 100;
}
