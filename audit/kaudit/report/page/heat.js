// The map: a field for each pair of values of two axes, coloured by its worst verdict or by its median time.

const MOST_LINES = 60; // of a map, down and across

function heat(rows) {
  const [down, across] = [AXES.get(view.down), AXES.get(view.across)];
  const fields = new Map();
  for (const row of rows) {
    const key = down.of[row] * across.values.length + across.of[row];
    const field = fields.get(key);
    if (field) field.push(row);
    else fields.set(key, [row]);
  }
  const lines = shown(rows, down),
    columns = shown(rows, across);
  document.getElementById("says").textContent = says([
    [view.down, lines],
    [view.across, columns],
  ]);
  const scale = view.byTime ? timeScale([...fields.values()].map(median).filter(time => time !== null)) : null;
  const head = make("tr", {}, make("th", { scope: "col" }, `${view.down} ↓ ${view.across} →`));
  head.append(...columns.map(column => make("th", { scope: "col" }, String(across.values[column]))));
  const body = lines.map(line =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, String(down.values[line])),
      ...columns.map(column => field(fields.get(line * across.values.length + column), [line, column], scale)),
    ),
  );
  const table = make("table", { role: "grid" }, make("thead", {}, head), make("tbody", {}, ...body));
  table.setAttribute("aria-labelledby", "says");
  document.getElementById("heat").replaceChildren(table);
  const start =
    table.querySelector("td[aria-selected=true]") ?? table.querySelector("td:not(.empty)") ?? table.querySelector("td");
  if (start) start.tabIndex = 0;
}

const shown = (rows, axis) => [...new Set(rows.map(row => axis.of[row]))].sort((a, b) => a - b);

/** What the map shows. An axis with too many values is cut, and that is said. */
function says(axes) {
  const left = axes
    .filter(([, values]) => values.length > MOST_LINES)
    .map(([name, values]) => `${values.splice(MOST_LINES).length} more values of ${name} are not shown: filter by it`);
  const time = RATIO ? "median of time after over before" : "median time of a row";
  const what = view.byTime ? time : "worst verdict, and the rows that have it";
  return [`${view.down} by ${view.across}: ${what}`, ...left].join(". ");
}

function field(rows, place, scale) {
  const cell = make("td", { tabIndex: -1 });
  cell.dataset.place = place;
  if (!rows) return Object.assign(cell, { className: "empty", ariaLabel: "no rows" });
  cell.ariaSelected = String(view.field?.join() === place.join());
  const { tone, share, content, label } = scale ? timeField(rows, scale) : verdictField(rows);
  cell.classList.add("field", `on-${tone}`);
  cell.style.setProperty("--share", share);
  cell.ariaLabel = cell.title = label;
  cell.append(...content);
  return cell;
}

function verdictField(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(worst(row), (counts.get(worst(row)) ?? 0) + 1);
  const [first] = [...counts.keys()].sort((a, b) => a - b);
  const told = [...counts]
    .sort(([a], [b]) => a - b)
    .map(([verdict, count]) => `${VERDICTS[verdict].name} ${number(count)}`);
  const count = counts.get(first);
  const text = count === rows.length ? number(count) : `${number(count)}/${number(rows.length)}`;
  return {
    tone: VERDICTS[first].tone,
    share: count / rows.length,
    content: [symbol(first), ` ${text}`],
    label: told.join(", "),
  };
}

function timeField(rows, scale) {
  const time = median(rows);
  if (time === null) return { tone: "calm", share: 0, content: ["–"], label: `not timed: ${number(rows.length)}` };
  const text = timeText(time);
  const word = !RATIO || text === "1.00×" ? "" : time > 1 ? " slower" : " faster";
  return { ...scale(time), content: [text], label: `${text}${word}, median of ${number(rows.length)} rows` };
}

function median(rows) {
  const times = rows
    .map(row => TIMES[row])
    .filter(time => time !== null)
    .sort((a, b) => a - b);
  return times.length ? times[times.length >> 1] : null;
}

/** Tone and strength of a time: by its logarithm between the least and the most, or from half to double. */
function timeScale(times) {
  // Not Math.min(...times): there may be more fields than a call takes arguments.
  const least = times.reduce((a, b) => Math.min(a, b), Infinity),
    most = times.reduce((a, b) => Math.max(a, b), 0);
  const low = Math.log(least),
    range = Math.log(most) - low;
  if (RATIO) return time => ({ tone: time > 1 ? "bad" : "good", share: Math.min(1, Math.abs(Math.log2(time))) });
  return time => ({ tone: "time", share: range > 0 ? (Math.log(time) - low) / range : 0.5 });
}

/** The field that a key moves to, from one at row and column of the map. */
function moved(key, cell) {
  const table = cell.closest("tbody").rows,
    row = cell.parentElement;
  const beside = {
    ArrowLeft: cell.previousElementSibling,
    ArrowRight: cell.nextElementSibling,
    Home: row.cells[1],
    End: row.lastElementChild,
  };
  const above = { ArrowUp: -1, ArrowDown: 1 };
  const target = key in above ? table[row.sectionRowIndex + above[key]]?.cells[cell.cellIndex] : beside[key];
  return target?.tagName === "TD" ? target : null;
}
