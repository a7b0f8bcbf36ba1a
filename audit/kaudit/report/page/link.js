// What the reader looks at, in the page's address: whoever is sent the address sees the same.

/** The number of an axis's value by its text, -1 if it has none such. */
const valueOf = (axis, text) => AXES.get(axis).values.findIndex(value => String(value) === text);

function writeLink() {
  const parts = new URLSearchParams();
  if (view.down !== START[0] || view.across !== START[1]) {
    parts.set("down", view.down);
    parts.set("across", view.across);
  }
  if (view.byTime) parts.set("colour", "time");
  if (view.field) {
    parts.set("row", AXES.get(view.down).values[view.field[0]]);
    parts.set("column", AXES.get(view.across).values[view.field[1]]);
  }
  for (const verdict of view.verdicts) parts.append("verdict", VERDICTS[verdict].name);
  if (view.search) parts.set("id", view.search);
  for (const [name, chosen] of view.axes) {
    for (const value of chosen) parts.append(name, AXES.get(name).values[value]);
  }
  if (view.open !== null) {
    parts.set("cell", cellId(ROWS.cell[view.open]));
    parts.set("of", DATA.ops[ROWS.op[view.open]]);
  }
  const [page, had = ""] = location.href.split("#");
  const fragment = String(parts).replaceAll("%2F", "/");
  if (fragment !== had) history.replaceState(null, "", fragment ? `${page}#${fragment}` : page);
}

/** Into `view`, before the controls are made; what this page does not have is passed over. */
function readLink(parts) {
  for (const side of ["down", "across"]) if (AXES.has(parts.get(side))) view[side] = parts.get(side);
  view.byTime = Boolean(TIMES) && parts.get("colour") === "time";
  const field = [valueOf(view.down, parts.get("row")), valueOf(view.across, parts.get("column"))];
  if (!field.includes(-1)) view.field = field;
  VERDICTS.forEach(({ name }, verdict) => parts.getAll("verdict").includes(name) && view.verdicts.add(verdict));
  view.search = parts.get("id") ?? "";
  for (const name of AXES.keys()) {
    const chosen = parts.getAll(name).map(text => valueOf(name, text));
    if (chosen.length) view.axes.set(name, new Set(chosen.filter(value => value >= 0)));
  }
}

function openLinked(parts) {
  const [cell, op] = [parts.get("cell"), DATA.ops.indexOf(parts.get("of"))];
  const row = [...ROWS.cell.keys()].find(row => ROWS.op[row] === op && cellId(ROWS.cell[row]) === cell);
  if (row !== undefined) story(row);
}
