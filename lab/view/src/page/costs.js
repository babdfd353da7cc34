// The answer of /api/profile, added up and sorted: pure, so that it can be tried without a page.

/** What costs are told as, with the places of their numbers in a row of the answer. */
export const METRICS = { calls: 2, inclusive: 3, exclusive: 4, longest: 5 };

// The time of the others lies around these or inside.
const OUTER = new Set(["application", "gateway", "operation", "journal", "disk"]);

/** Rows added up by a key; the longest of several is the longest of them. Times that are not known stay unknown. */
function summed(rows, key) {
  const sums = new Map();
  for (const row of rows) {
    const sum = sums.get(key(row));
    if (!sum) sums.set(key(row), [...row]);
    else {
      sum[2] += row[2];
      sum[3] += row[3];
      sum[4] = sum[4] === null || row[4] === null ? null : sum[4] + row[4];
      if (row[5] > sum[5]) [sum[5], sum[6]] = [row[5], row[6]];
    }
  }
  return [...sums.values()];
}

/** Lines of the table: of a kind, a group, or both; sorted by a metric, the largest first, or by name. */
export function lines({ groups, rows }, title, { of, metric, byName }) {
  const name = ([group, kind]) => ({ kind: title(kind), group: groups[group], both: `${groups[group]}: ${title(kind)}` })[of];
  const place = METRICS[metric];
  const sums = summed(rows, ([group, kind]) => ({ kind, group, both: `${group} ${kind}` })[of]).map((row) => ({ name: name(row), kind: of === "group" ? null : row[1], row }));
  const byNames = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });
  return sums.sort((a, b) => (byName ? 0 : (b.row[place] ?? 0) - (a.row[place] ?? 0)) || byNames(a, b));
}

/** A bar for each group: its parts by kind, the most expensive kind first. Of inclusive times and calls only those of spans that do not lie in one another
 * are put together; of the longest there is one part. */
export function bars({ groups, rows }, kinds, metric) {
  const place = METRICS[metric];
  const shown = rows.filter((row) => row[place] && (metric === "exclusive" || OUTER.has(kinds[row[1]].sub_lane)));
  const order = new Map(summed(shown, ([, kind]) => kind).sort((a, b) => b[place] - a[place]).map((row, at) => [row[1], at]));
  return groups.map((name, group) => {
    const own = shown.filter((row) => row[0] === group).sort((a, b) => order.get(a[1]) - order.get(b[1]));
    const longest = own.reduce((most, row) => (most && most[5] >= row[5] ? most : row), null);
    const parts = (metric === "longest" ? [longest].filter(Boolean) : own).map((row) => ({ kind: row[1], value: row[place], mean: row[3] / row[2] }));
    return { name, parts, value: parts.reduce((sum, part) => sum + part.value, 0) };
  });
}
