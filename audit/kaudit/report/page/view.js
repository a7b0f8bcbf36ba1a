// What the reader has asked for, and which rows and axes that means.

const view = {
  verdicts: new Set(),
  axes: new Map(),
  search: "",
  down: "",
  across: "",
  byTime: false,
  field: null,
  open: null,
};

let ids = null;

/** The rows that meet all filters. A row that speaks for a whole cell is of every op. */
function passing() {
  const wanted = [...view.axes]
    .filter(([, chosen]) => chosen.size)
    .map(([name, chosen]) => [name, AXES.get(name).of, chosen]);
  const mask = [...view.verdicts].reduce((all, verdict) => all | (1 << verdict), 0);
  if (view.search) ids ??= DATA.cells[0].map((_, cell) => cellId(cell));
  return COUNTED.filter(
    row =>
      (!mask || bits(row) & mask) &&
      (!view.search || ids[ROWS.cell[row]].includes(view.search)) &&
      wanted.every(([name, of, chosen]) => chosen.has(of[row]) || (name === "op" && of[row] === WHOLE_CELL)),
  );
}

const WEIGHTS = { bad: 4, warn: 2, note: 1, good: 0, calm: 0 };
const MOST_VALUES = 24; // of an axis that the page starts with

/** How much of the difference between rows the fields of these axes account for (adjusted R²). */
function accounts(...axes) {
  const groups = new Map();
  let sum = 0,
    squares = 0;
  for (const row of COUNTED) {
    const key = axes.reduce((key, axis) => key * axis.values.length + axis.of[row], 0);
    const weight = WEIGHTS[VERDICTS[worst(row)].tone];
    const group = groups.get(key) ?? { rows: 0, sum: 0 };
    groups.set(key, group);
    group.rows += 1;
    group.sum += weight;
    sum += weight;
    squares += weight * weight;
  }
  const total = squares - (sum * sum) / COUNTED.length;
  let between = -(sum * sum) / COUNTED.length;
  for (const group of groups.values()) between += (group.sum * group.sum) / group.rows;
  const free = COUNTED.length - groups.size;
  return total > 0 && free > 0 ? 1 - ((total - between) / total) * ((COUNTED.length - 1) / free) : 0;
}

/** The two axes to start with, the longer one down: those that tell most about the verdicts. */
function startAxes() {
  const known = [...AXES].filter(([, axis]) => axis.values.length > 1 && axis.values.length <= MOST_VALUES);
  const nothing = ["nothing", AXES.get("nothing")];
  const best = (candidates, score) =>
    candidates
      .map(candidate => [score(candidate), candidate])
      .reduce((a, b) => (b[0] > a[0] ? b : a), [-1, nothing])[1];
  const first = best(known, ([, axis]) => accounts(axis));
  const others = known.filter(
    ([name, axis]) => name !== first[0] && (axis.place === undefined || axis.place !== first[1].place),
  );
  const second = best(others, ([, axis]) => accounts(first[1], axis));
  return first[1].values.length >= second[1].values.length ? [first[0], second[0]] : [second[0], first[0]];
}
