// The rows of the field that is chosen, or of the whole map: worst first, or slowest first.

const PORTION = 50; // rows to add to the page at a time

function list(rows) {
  const [down, across] = [AXES.get(view.down), AXES.get(view.across)];
  const [line, column] = view.field ?? [];
  const chosen = view.field ? rows.filter(row => down.of[row] === line && across.of[row] === column) : rows;
  const order = view.byTime ? (a, b) => (TIMES[b] ?? -1) - (TIMES[a] ?? -1) : (a, b) => worst(a) - worst(b);
  const sorted = chosen.slice().sort(order);
  const where = view.field ? ` of ${view.down}=${down.values[line]}, ${view.across}=${across.values[column]}` : "";
  const first = view.byTime ? "slowest" : "worst";
  document.getElementById("listed").textContent = `Rows${where}: ${number(sorted.length)}, ${first} first`;
  const columns = [
    "verdict",
    "cell",
    "op",
    "path",
    "launches",
    ...(TIMES ? [RATIO ? "time, after over before" : "time"] : []),
  ];
  // In a narrow window rows are no table to the browser; the roles say what they still are.
  const body = make("tbody", { role: "rowgroup" });
  const more = make("button", { type: "button", id: "more" });
  const add = () => {
    const from = body.rows.length;
    body.append(...sorted.slice(from, from + PORTION).map(listed));
    const left = sorted.length - body.rows.length;
    more.hidden = left === 0;
    more.textContent = `Show ${number(Math.min(PORTION, left))} more of ${number(left)}`;
    if (from) body.rows[from].querySelector("button").focus();
  };
  more.addEventListener("click", add);
  add();
  const head = make(
    "tr",
    { role: "row" },
    ...columns.map(name => make("th", { scope: "col", role: "columnheader" }, name)),
  );
  const table = make("table", { role: "table" }, make("thead", { role: "rowgroup" }, head), body);
  document.getElementById("list").replaceChildren(table, more);
}

function listed(row) {
  const open = make("button", { type: "button", className: "cell" }, ...breakable(cellId(ROWS.cell[row])));
  open.addEventListener("click", () => story(row));
  const op = ROWS.op[row];
  const cells = [
    [symbol(worst(row)), ` ${VERDICTS[worst(row)].name}`],
    [open],
    [op === WHOLE_CELL ? "whole cell" : DATA.ops[op]],
    breakable(beforeAfter(row, outcome => outcome.stopped ?? outcome.path ?? "none listed")),
    [beforeAfter(row, outcome => String(outcome.launches ?? ""))],
    ...(TIMES ? [[timeText(TIMES[row])]] : []),
  ];
  return make("tr", { role: "row" }, ...cells.map(children => make("td", { role: "cell" }, ...children)));
}

/** Something about a row's outcome; in a diff that of both sides, said once where they agree. */
function beforeAfter(row, text) {
  const sides = ROWS.outcomes.map(side => (side[row] < 0 ? "–" : text(headOf(side[row]))));
  return [...new Set(sides)].join(" → ");
}

/** A long id or name may break after these characters. */
const breakable = text => text.split(/(?<=[/_])/).flatMap(part => [part, make("wbr")]);
